//! A scheduling discipline: a policy, the admission test that fits it, and its capabilities.
//!
//! This module stands above [`crate::policy`] and [`crate::admission`] and joins them. A discipline
//! has a name, an ordering (the constructor of its [`Policy`]), an admission test and capabilities.
//! Code outside this module never compares names of disciplines. It asks a capability, such as
//! [`Discipline::takes_tasks`].
//!
//! To add a policy, write a file in `policy/`, an admission test in `admission/`, and a static
//! here with a line in [`DISCIPLINES`].

use crate::activity::{ActivityParams, Terms, Window, WorkClass};
use crate::admission::{AdmissionTest, Test};
use crate::policy::dwcs::WindowConstrained;
use crate::policy::dws::{self, DeadlineWorkahead};
use crate::policy::ps::{Group, GroupError, ProportionalShare, QUANTUM_DEFAULT, check_groups};
use crate::policy::rmdp::RateMonotonic;
use crate::policy::{Checked, Policy, PolicyFactory};
use crate::time::Span;
use core::fmt;

/// Every discipline, in the order of the documentation.
pub static DISCIPLINES: &[&Discipline] = &[&RMDP, &RM, &DWS, &PS, &DWCS];

/// The discipline with this name.
pub fn by_name(name: &str) -> Option<&'static Discipline> {
    DISCIPLINES.iter().copied().find(|discipline| discipline.name == name)
}

/// A policy, its admission test and its capabilities. A program names one of the statics, such as
/// [`RMDP`], in its configuration.
pub struct Discipline {
    /// Its name in spec files and JSON.
    pub name: &'static str,
    /// Whether a handler may lose the CPU inside a quantum. Only the simulator and the kernel can
    /// preempt there. In the runtime a handler can yield after each PDU.
    pub preemptive: bool,
    /// PS: the longest time that an activity is served before another one may be served.
    /// `None` under a policy that does not share the CPU by time quanta.
    pub time_quantum: Option<Span>,
    /// PS: groups of activities that share one part of the CPU.
    pub groups: Vec<Group>,
    /// PS: the names of the groups, in their order, or none ([`Discipline::naming_groups`]).
    pub group_names: Vec<String>,
    kind: Kind,
}

/// The orderings. Each capability is derived from the ordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    RateMonotonic,
    DeadlineWorkahead,
    ProportionalShare,
    WindowConstrained,
}

/// The condition under which two ready activities are equal in rank, so that a pending event
/// decides between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTie {
    /// The same period, for activities with [`Terms::wins_ties`].
    Period,
    /// The same level and deadline or release, for every activity.
    Urgency,
}

/// Rate monotonic with delayed preemption: the default. The shorter period goes first, and preempts
/// at the end of a quantum only. It schedules handlers, including those of streams, in one process
/// or under a daemon.
pub static RMDP: Discipline = Discipline {
    name: "rmdp",
    preemptive: false,
    time_quantum: None,
    groups: Vec::new(),
    group_names: Vec::new(),
    kind: Kind::RateMonotonic,
};

/// Rate monotonic with immediate preemption (Liu and Layland 1973, cited in rtu-1995 §3): the
/// baseline of the papers. The order is that of [`RMDP`]. In the runtime a handler can yield
/// after each PDU; the kernel preempts inside a PDU in `--mode fifo`.
pub static RM: Discipline = Discipline {
    name: "rm",
    preemptive: true,
    time_quantum: None,
    groups: Vec::new(),
    group_names: Vec::new(),
    kind: Kind::RateMonotonic,
};

/// Deadline/workahead with delayed preemption: the earlier deadline goes first. It schedules tasks
/// and handlers, including those of streams, in one process or under a daemon.
pub static DWS: Discipline = Discipline {
    name: "dws",
    preemptive: false,
    time_quantum: None,
    groups: Vec::new(),
    group_names: Vec::new(),
    kind: Kind::DeadlineWorkahead,
};

/// Proportional share with [`QUANTUM_DEFAULT`]: each activity gets its share, or a part by its
/// weight. It schedules tasks and handlers, including those of streams, in one process or under a
/// daemon.
pub static PS: Discipline = ps_with_quantum(QUANTUM_DEFAULT);

/// Dynamic window-constrained scheduling: of each `y` periods at most `x` may be missed. It
/// schedules tasks and handlers, including those of streams, in one process or under a daemon.
/// Beside a task or a handler of a stream admission grants only what misses no deadline. Under a
/// daemon it grants fewer sets with windows than in one process ([`crate::policy::dwcs`]).
pub static DWCS: Discipline = Discipline {
    name: "dwcs",
    preemptive: false,
    time_quantum: None,
    groups: Vec::new(),
    group_names: Vec::new(),
    kind: Kind::WindowConstrained,
};

/// Proportional share with this time quantum; 0 counts as 1 ns. A driver needs a
/// `&'static Discipline`. Put a constant discipline into a `static`. Pass a discipline that is
/// known only at run time through `Box::leak`.
pub const fn ps_with_quantum(quantum: Span) -> Discipline {
    Discipline {
        name: "ps",
        preemptive: false,
        time_quantum: Some(quantum),
        groups: Vec::new(),
        group_names: Vec::new(),
        kind: Kind::ProportionalShare,
    }
}

/// Like [`ps_with_quantum`], with groups. Each CPU has all groups; a group counts on a CPU
/// while it has a member there. Under a daemon groups without names belong to this process alone
/// ([`Discipline::naming_groups`]). Allocates.
///
/// # Errors
/// See [`GroupError`].
pub fn ps_with_groups(quantum: Span, groups: Vec<Group>) -> Result<Discipline, GroupError> {
    check_groups(&groups)?;
    Ok(Discipline { groups, ..ps_with_quantum(quantum) })
}

/// How the domains of a CPU are put in one order, if each has a scheduler of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainOrder {
    /// By the ranks that their schedulers show ([`crate::policy::Standing`]).
    Ranks,
    /// By accounts above the schedulers ([`crate::policy::ps::DomainAccounts`]).
    Accounts,
}

/// What admission promises to an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Every job ends by its deadline.
    Deadlines,
    /// No window has more misses than it allows.
    Windows(Window),
    /// No deadline: the activity gets what the others leave, or its part of the CPU.
    Nothing,
}

/// Capabilities.
impl Discipline {
    /// Whether `name` is the name of the discipline. Use this for names from a file or another
    /// process.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name
    }

    /// How the domains of a CPU are put in one order.
    pub fn domain_order(&self) -> DomainOrder {
        match self.kind {
            Kind::ProportionalShare => DomainOrder::Accounts,
            Kind::RateMonotonic | Kind::DeadlineWorkahead | Kind::WindowConstrained => {
                DomainOrder::Ranks
            }
        }
    }

    /// Whether the domains of a CPU align their first releases ([`Policy::first_release`]). Then a
    /// daemon refuses sets that one process admits: those that need a common start.
    pub fn aligns_releases(&self) -> bool {
        self.kind == Kind::WindowConstrained
    }

    /// Whether its policies drop jobs that are late ([`Policy::drops_late_jobs`]).
    pub fn drops_late_jobs(&self) -> bool {
        self.kind == Kind::WindowConstrained
    }

    /// Whether the core keeps a budget for its activities (docs/decisions/0016).
    pub fn keeps_budgets(&self) -> bool {
        matches!(self.kind, Kind::RateMonotonic | Kind::DeadlineWorkahead)
    }

    /// PS: the same discipline, with a name for each group, in their order. Under a daemon, groups
    /// of one name are one group on each CPU, in all processes of a user.
    ///
    /// # Errors
    /// [`GroupError::Name`]: a name is missing, empty, longer than 64 characters, or that of
    /// another group; or there are more names than groups.
    pub fn naming_groups(self, names: Vec<String>) -> Result<Discipline, GroupError> {
        let is_wrong = |&at: &usize| match names.get(at) {
            Some(name) => {
                let length = name.chars().count();
                let is_known = at < self.groups.len();
                !is_known || !(1..=64).contains(&length) || names[..at].contains(name)
            }
            None => true,
        };
        match (0..self.groups.len().max(names.len())).find(is_wrong) {
            Some(group) => Err(GroupError::Name { group }),
            None => Ok(Discipline { group_names: names, ..self }),
        }
    }

    /// The policy and what else the processes of a CPU must agree on, for people.
    pub fn agreed(&self) -> String {
        match self.time_quantum {
            Some(quantum) => format!("{} with a time quantum of {quantum}", self.name),
            None => self.name.to_owned(),
        }
    }

    /// Whether the discipline schedules tasks. Under rate monotonic a rank is a period, and a task
    /// has none.
    pub fn takes_tasks(&self) -> bool {
        self.kind != Kind::RateMonotonic
    }

    /// Whether its activities may share one part of the CPU as a group.
    pub fn takes_groups(&self) -> bool {
        self.kind == Kind::ProportionalShare
    }

    /// Whether its activities have a lag ([`Policy::lag_ns`]).
    pub fn has_lag(&self) -> bool {
        self.kind == Kind::ProportionalShare
    }

    /// What admission promises to an activity with these terms.
    pub fn promise(&self, terms: &Terms) -> Promise {
        match self.kind {
            Kind::RateMonotonic => Promise::Deadlines,
            Kind::DeadlineWorkahead if terms.class == WorkClass::RealTime => Promise::Deadlines,
            Kind::ProportionalShare if terms.share.is_some() && terms.group.is_none() => {
                Promise::Deadlines
            }
            Kind::DeadlineWorkahead | Kind::ProportionalShare => Promise::Nothing,
            Kind::WindowConstrained => match terms.window {
                Some(window) if window.misses > 0 => Promise::Windows(window),
                _ => Promise::Deadlines,
            },
        }
    }

    /// Whether its admission test accounts for deferred preemption.
    pub fn defers_preemption(&self) -> bool {
        self.kind == Kind::RateMonotonic && !self.preemptive
    }

    /// Whether an event of an activity with these terms can change what runs next.
    pub fn prefers_events(&self, terms: &Terms) -> bool {
        matches!(self.kind, Kind::DeadlineWorkahead | Kind::WindowConstrained) || terms.wins_ties
    }

    /// Whether a running activity may have to yield to an event.
    pub fn yields_to_events(&self) -> bool {
        self.kind == Kind::WindowConstrained
    }

    /// The activities between which a pending event decides; `None` if the policy has no such rule.
    pub fn event_tie(&self) -> Option<EventTie> {
        match self.kind {
            Kind::RateMonotonic => Some(EventTie::Period),
            Kind::DeadlineWorkahead => Some(EventTie::Urgency),
            Kind::ProportionalShare | Kind::WindowConstrained => None,
        }
    }

    /// Whether an activity with these terms goes before others of equal rank by its event, or under
    /// DWCS by its window, in the order of all domains.
    pub fn wins_ties(&self, terms: &Terms) -> bool {
        let by_window = self.kind == Kind::WindowConstrained;
        terms.wins_ties || by_window || self.event_tie() == Some(EventTie::Urgency)
    }

    /// The smallest key ([`crate::policy::Standing::key`]) that such an activity can have in the
    /// order of all domains, if it is released at 0.
    pub fn key_min(&self, params: &ActivityParams, terms: &Terms) -> u64 {
        match self.kind {
            Kind::DeadlineWorkahead => dws::key_min(params, terms),
            Kind::WindowConstrained => params.deadline.as_nanos(),
            // The key is a request. A false one costs its domain more than it gains.
            Kind::ProportionalShare => 0,
            Kind::RateMonotonic => params.period.as_nanos(),
        }
    }

    /// The time from a release to the deadline that is judged: under DWS the delay bound.
    pub fn relative_deadline(&self, params: &ActivityParams, terms: &Terms) -> Span {
        match self.kind {
            Kind::DeadlineWorkahead => dws::delay_bound(params, terms),
            _ => params.deadline,
        }
    }

    /// The time from a release to the deadline, if the deadline is the key of such an activity.
    /// `None` if its key does not depend on a deadline.
    pub fn key_delay(&self, params: &ActivityParams, terms: &Terms) -> Option<Span> {
        match self.kind {
            Kind::DeadlineWorkahead if terms.class == WorkClass::RealTime => {
                Some(dws::delay_bound(params, terms))
            }
            Kind::WindowConstrained => Some(params.deadline),
            _ => None,
        }
    }

    /// The same discipline, but its policies panic when a caller breaks their call protocol.
    pub fn checked(&self) -> CheckedDiscipline<'_> {
        CheckedDiscipline(self)
    }

    fn new_policy(&self, capacity: u32) -> Box<dyn Policy> {
        match self.kind {
            Kind::RateMonotonic => Box::new(RateMonotonic::new(capacity)),
            Kind::DeadlineWorkahead => Box::new(DeadlineWorkahead::new(capacity)),
            Kind::ProportionalShare => {
                Box::new(ProportionalShare::with_groups(capacity, self.quantum(), &self.groups))
            }
            Kind::WindowConstrained => Box::new(WindowConstrained::new(capacity)),
        }
    }

    fn quantum(&self) -> Span {
        self.time_quantum.unwrap_or(QUANTUM_DEFAULT)
    }
}

impl PolicyFactory for Discipline {
    /// In debug builds the policy checks its call protocol.
    fn policy(&self, capacity: u32) -> Box<dyn Policy> {
        match cfg!(debug_assertions) {
            true => self.checked().policy(capacity),
            false => self.new_policy(capacity),
        }
    }
}

/// A discipline whose policies check their call protocol in release builds too.
#[derive(Clone, Copy, Debug)]
pub struct CheckedDiscipline<'a>(&'a Discipline);

impl PolicyFactory for CheckedDiscipline<'_> {
    fn policy(&self, capacity: u32) -> Box<dyn Policy> {
        // A `Checked` of each policy type would change how the compiler inlines the policies.
        Box::new(Checked::new(self.0.new_policy(capacity), capacity))
    }
}

impl From<&Discipline> for AdmissionTest {
    fn from(discipline: &Discipline) -> Self {
        let test = match discipline.kind {
            Kind::RateMonotonic => Test::FixedPriority { delayed: !discipline.preemptive },
            Kind::DeadlineWorkahead => Test::DeadlineWorkahead,
            Kind::ProportionalShare => Test::ProportionalShare {
                quantum: discipline.quantum(),
                groups: discipline.groups.clone(),
            },
            Kind::WindowConstrained => Test::WindowConstrained,
        };
        AdmissionTest { policy: discipline.name, test, starts_apart: false }
    }
}

impl fmt::Debug for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::activity::GroupId;
    use crate::admission::Share;

    #[test]
    fn only_what_admission_bounds_is_promised() {
        let plain = Terms::default();
        let share = Terms { share: Share::from_ppm(100_000), ..plain };
        let background = Terms { class: WorkClass::Background, ..plain };
        let window = |misses| Window { misses, periods: 4 };
        let windowed = |misses| Terms { window: Some(window(misses)), ..plain };
        for (discipline, terms, promise) in [
            (&RMDP, background, Promise::Deadlines),
            (&RM, windowed(1), Promise::Deadlines),
            (&DWS, plain, Promise::Deadlines),
            (&DWS, background, Promise::Nothing),
            (&PS, plain, Promise::Nothing),
            (&PS, share, Promise::Deadlines),
            (&PS, Terms { group: Some(GroupId(0)), ..share }, Promise::Nothing),
            (&DWCS, windowed(1), Promise::Windows(window(1))),
            (&DWCS, windowed(0), Promise::Deadlines),
            (&DWCS, plain, Promise::Deadlines),
        ] {
            assert_eq!(discipline.promise(&terms), promise, "{} {terms:?}", discipline.name);
        }
    }
}
