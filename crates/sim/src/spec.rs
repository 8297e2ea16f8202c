//! The input of a simulation: activities, the machine and its faults.
//!
//! The caller of a simulation makes a spec. [`crate::Simulation::new`] checks it once.

use crate::arrivals::Arrivals;
use crate::execution::Execution;
use crate::fault::{Fault, Window};
use crate::posting::Posting;
use core::fmt;
use std::sync::Arc;
use upcall_core::activity::{ActivityParams, Claim, ParamError, Terms};
use upcall_core::admission::{Refusal, Reservation, Reservations, Share};
use upcall_core::discipline::Discipline;
use upcall_core::time::{Instant, Span};

/// The largest allowed error of a clock.
const STEP_MAX: Span = Span::from_secs(3_600);

/// A machine and its activities.
#[derive(Clone, Debug)]
pub struct SimSpec {
    /// The policy of every CPU.
    pub discipline: &'static Discipline,
    /// The numbers of the CPUs, all different.
    pub cpus: Vec<u32>,
    /// Cost of a hand-off from one activity to another. It is spent before the first PDU, cannot be
    /// preempted, and is charged to the new activity.
    pub switch_cost: Span,
    /// `Some`: each domain is a process with a scheduler of its own on each of its CPUs, as under a
    /// daemon. `None`: one scheduler per CPU has the activities of all domains.
    pub split_level: Option<SplitLevel>,
    /// The activities, in the order of the file. Ties go to the first.
    pub activities: Vec<SimActivity>,
    /// The faults. Where faults overlap, all of them apply.
    pub faults: Vec<Fault>,
    /// DWCS: the shares of the CPUs' event servers. Admission must have granted them already.
    pub event_servers: Vec<(u32, Share)>,
    /// Whether the policies panic when their call protocol is broken, also in release builds
    /// ([`upcall_core::policy::Checked`]).
    pub checked: bool,
    /// Seed of all random numbers. Arrivals and costs depend on it and on an activity's index, but
    /// not on the policy.
    pub seed: u64,
}

impl SimSpec {
    /// A machine of one CPU, number 0, with free hand-offs, no faults and seed 0.
    pub fn new(discipline: &'static Discipline, activities: Vec<SimActivity>) -> Self {
        SimSpec {
            discipline,
            cpus: vec![0],
            switch_cost: Span::ZERO,
            split_level: None,
            activities,
            faults: Vec::new(),
            event_servers: Vec::new(),
            checked: false,
            seed: 0,
        }
    }

    /// The domains that are processes of their own, in the order of the activities. Empty if all
    /// domains are one process. The numbers of processes in a trace count them from 1.
    pub fn processes(&self) -> Vec<u32> {
        let mut processes = Vec::new();
        for activity in self.activities.iter().filter(|_| self.split_level.is_some()) {
            if !processes.contains(&activity.domain) {
                processes.push(activity.domain);
            }
        }
        processes
    }

    pub(crate) fn check(&self) -> Result<(), SpecError> {
        if self.cpus.is_empty() {
            return Err(SpecError::NoCpu);
        }
        for (place, cpu) in self.cpus.iter().enumerate() {
            if self.cpus[..place].contains(cpu) {
                return Err(SpecError::CpuTwice(*cpu));
            }
        }
        if u32::try_from(self.activities.len()).is_err() {
            return Err(SpecError::TooMany);
        }
        let deferral = self.split_level.map_or(Span::ZERO, |of| of.defer_preemption);
        if !deferral.is_zero() && !self.discipline.defers_preemption() {
            return Err(SpecError::NoDeferral(self.discipline.name));
        }
        for activity in &self.activities {
            activity.check(&self.cpus).map_err(|cause| cause.of(&activity.name))?;
        }
        for &(cpu, _) in &self.event_servers {
            if !self.cpus.contains(&cpu) {
                return Err(Cause::Cpu(cpu).of("event server"));
            }
        }
        for (index, fault) in self.faults.iter().enumerate() {
            self.check_fault(fault).map_err(|what| SpecError::Fault { index, what })?;
        }
        Ok(())
    }

    fn check_fault(&self, fault: &Fault) -> Result<(), &'static str> {
        let window = fault.window();
        if window.from > window.until {
            return Err("it ends before it begins");
        }
        match *fault {
            Fault::NeverYields { activity, .. } | Fault::HandlerBlocks { activity, .. }
                if activity as usize >= self.activities.len() =>
            {
                Err("it names an activity that does not exist")
            }
            Fault::HandlerBlocks { every: 0, .. } => Err("it blocks in every 0th job"),
            Fault::DomainStops { .. } if self.split_level.is_none() => {
                Err("it stops one domain, and all domains are one process")
            }
            Fault::DomainDies { domain, .. } | Fault::DomainStops { domain, .. }
                if self.activities.iter().all(|activity| activity.domain != domain) =>
            {
                Err("it names a domain that does not exist")
            }
            Fault::LostNotifications { one_in: 0, .. } => Err("it loses one notification in 0"),
            // A larger error could stop time.
            Fault::ClockForward { by, .. } | Fault::ClockBack { by, .. } if by > STEP_MAX => {
                Err("the clock is off by more than an hour")
            }
            _ => Ok(()),
        }
    }
}

/// How the processes of a daemon share a CPU (docs/decisions/0008).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitLevel {
    /// Cost of a hand-off from one domain to another, in place of [`SimSpec::switch_cost`].
    pub handoff_cost: Span,
    /// How long a domain with work goes on while better activities of other domains wait
    /// (docs/decisions/0014). Above 0 only under RMDP.
    pub defer_preemption: Span,
}

/// One activity and its behaviour.
#[derive(Clone, Debug)]
pub struct SimActivity {
    /// Name for reports.
    pub name: String,
    /// The domain of the activity. The activities of a domain die together, and stop together.
    pub domain: u32,
    /// The declared parameters.
    pub params: ActivityParams,
    /// Further parameters for the policy.
    pub terms: Terms,
    /// The number of its CPU.
    pub cpu: u32,
    /// Model of the PDUs that its jobs find.
    pub arrivals: Arrivals,
    /// With [`Arrivals::Recorded`]: for each PDU the time at which its timestamp says that it
    /// arrives, which may be later than its arrival. `None`: the position in the stream says it.
    pub logical_arrivals: Option<Arc<[Instant]>>,
    /// Age from which a waiting PDU is useless, if any. A job that begins later drops it, at no
    /// cost.
    pub stale_after: Option<Span>,
    /// Its events, if it gets any.
    pub posting: Option<Posting>,
    /// The true costs of its PDUs.
    pub execution: Execution,
    /// The windows in which it is present, in order, at least a period apart.
    pub present: Vec<Window>,
    /// Times at which it claims another part of the CPU, with the claim. Each claim has the kind of
    /// the activity's terms. Admission must have granted the claims already.
    pub reweighs: Vec<(Instant, Claim)>,
}

impl SimActivity {
    /// An activity that behaves as declared, on CPU 0 in domain 0, from the start to the end.
    pub fn new(name: impl Into<String>, params: ActivityParams) -> Self {
        SimActivity {
            name: name.into(),
            domain: 0,
            params,
            terms: Terms::default(),
            cpu: 0,
            arrivals: Arrivals::Saturated,
            logical_arrivals: None,
            stale_after: None,
            posting: None,
            execution: Execution::Fixed(params.pdu_cost),
            present: vec![Window::ALWAYS],
            reweighs: Vec::new(),
        }
    }

    /// The longest quantum, by the true costs of the PDUs.
    pub(crate) fn quantum_max(&self) -> Span {
        self.execution.most() * self.params.quantum
    }

    /// The longest job: by the true costs of the PDUs or by the declared one.
    pub(crate) fn compute_max(&self) -> Span {
        self.execution.most().max(self.params.pdu_cost) * self.params.batch
    }

    /// Whether no PDU takes more than declared.
    pub(crate) fn keeps_cost(&self) -> bool {
        self.execution.most() <= self.params.pdu_cost
    }

    fn check(&self, cpus: &[u32]) -> Result<(), Cause> {
        self.params.validated().map_err(Cause::Params)?;
        if !cpus.contains(&self.cpu) {
            return Err(Cause::Cpu(self.cpu));
        }
        let events = self.posting.as_ref().and_then(Posting::fault);
        if let Some(logical) = &self.logical_arrivals
            && !matches!(&self.arrivals, Arrivals::Recorded(at) if at.len() == logical.len())
        {
            return Err(Cause::Model("logical arrivals without as many recorded arrivals"));
        }
        let fault = self.arrivals.fault().or(events).or(self.execution.fault());
        if let Some(what) = fault {
            return Err(Cause::Model(what));
        }
        let apart = |pair: &[Window]| pair[0].until + self.params.period <= pair[1].from;
        if self.present.iter().any(|window| window.from > window.until)
            || !self.present.windows(2).all(apart)
        {
            return Err(Cause::Model(
                "its presence is out of order, expected windows at least a period apart",
            ));
        }
        if self.reweighs.iter().any(|&(_, claim)| self.terms.claiming(claim).is_none()) {
            return Err(Cause::Model(
                "it claims a share but has a weight, or a weight but has a share; expected its own \
                 kind",
            ));
        }
        Ok(())
    }
}

/// Asks admission for a place for each activity, in order, and stores its CPU.
///
/// # Errors
/// The first refusal. Earlier activities keep their reservations.
pub fn place(
    activities: &mut [SimActivity],
    reservations: &mut Reservations,
) -> Result<Vec<Reservation>, Box<Refusal>> {
    activities
        .iter_mut()
        .map(|activity| {
            let reservation =
                reservations.reserve(&activity.name, activity.params, &activity.terms)?;
            activity.cpu = reservation.cpu;
            Ok(reservation)
        })
        .collect()
}

/// The error of one activity.
enum Cause {
    Params(ParamError),
    Cpu(u32),
    Model(&'static str),
}

impl Cause {
    fn of(self, name: &str) -> SpecError {
        let name = name.to_owned();
        match self {
            Cause::Params(error) => SpecError::Params { name, error },
            Cause::Cpu(cpu) => SpecError::UnknownCpu { name, cpu },
            Cause::Model(what) => SpecError::Model { name, what },
        }
    }
}

/// The reason why a spec is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The machine has no CPU.
    NoCpu,
    /// A CPU is listed twice.
    CpuTwice(u32),
    /// More activities than a `u32` counts.
    TooMany,
    /// This policy does not defer preemption.
    NoDeferral(&'static str),
    /// A parameter is outside its range.
    Params {
        /// Name of the activity.
        name: String,
        /// The parameter and its error.
        error: ParamError,
    },
    /// An activity is on a CPU that the machine does not have.
    UnknownCpu {
        /// Name of the activity.
        name: String,
        /// Number of the CPU.
        cpu: u32,
    },
    /// Arrivals, costs or presence are invalid.
    Model {
        /// Name of the activity.
        name: String,
        /// The found and the expected value.
        what: &'static str,
    },
    /// A fault is invalid.
    Fault {
        /// Its index.
        index: usize,
        /// The found error.
        what: &'static str,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::NoCpu => f.write_str("no CPU, expected at least one"),
            SpecError::CpuTwice(cpu) => write!(f, "CPU {cpu} is listed twice"),
            SpecError::TooMany => write!(f, "more than {} activities", u32::MAX),
            SpecError::NoDeferral(policy) => write!(f, "{policy} does not defer preemption"),
            SpecError::Params { name, error } => write!(f, "`{name}`: {error}"),
            SpecError::UnknownCpu { name, cpu } => {
                write!(f, "`{name}` is on CPU {cpu}, which the machine does not have")
            }
            SpecError::Model { name, what } => write!(f, "`{name}`: {what}"),
            SpecError::Fault { index, what } => write!(f, "fault {index}: {what}"),
        }
    }
}

impl core::error::Error for SpecError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            SpecError::Params { error, .. } => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall_core::discipline::RMDP;

    fn spec() -> SimSpec {
        let params = ActivityParams::new(Span::from_millis(10), Span::from_millis(1));
        SimSpec::new(&RMDP, vec![SimActivity::new("a", params)])
    }

    #[test]
    fn an_invalid_spec_names_its_error() {
        assert_eq!(spec().check(), Ok(()));
        let at = Instant::from_nanos;
        let refused = |change: &dyn Fn(&mut SimSpec)| {
            let mut spec = spec();
            change(&mut spec);
            spec.check().unwrap_err().to_string()
        };
        let activity_2 = Fault::NeverYields { activity: 1, window: Window::ALWAYS };
        let gone = Fault::DomainDies { domain: 4, window: Window::ALWAYS };
        let silent = Fault::LostNotifications { one_in: 0, window: Window::ALWAYS };
        let backward = Fault::Stall { window: Window { from: at(2), until: at(1) } };
        let endless = Posting { arrivals: Arrivals::Saturated, rank: crate::PostRank::Fixed(0) };
        let whole = Claim::Share(Share::WHOLE);
        let by = STEP_MAX + Span::from_nanos(1);
        let off = Fault::ClockBack { window: Window::ALWAYS, by };
        let soon = |until| Window { from: at(0), until: at(until) };
        for (change, message) in [
            (&(|spec: &mut SimSpec| spec.cpus.clear()) as &dyn Fn(&mut SimSpec), "no CPU"),
            (&|spec| spec.cpus = vec![0, 1, 0], "CPU 0 is listed twice"),
            (&|spec| spec.cpus = vec![3], "`a` is on CPU 0"),
            (&|spec| spec.activities[0].params.batch = 0, "`a`: the batch is 0, expected"),
            (&|spec| spec.activities[0].execution = Execution::Recorded([].into()), "no recorded"),
            (
                &|spec| spec.activities[0].posting = Some(endless.clone()),
                "events cannot be saturated",
            ),
            (&|spec| spec.event_servers = vec![(7, Share::WHOLE)], "`event server` is on CPU 7"),
            (&|spec| spec.activities[0].present = vec![soon(5), Window::ALWAYS], "out of order"),
            (&|spec| spec.activities[0].reweighs = vec![(at(1), whole)], "expected its own kind"),
            (&|spec| spec.faults = vec![activity_2], "fault 0: it names an activity"),
            (&|spec| spec.faults = vec![gone], "fault 0: it names a domain"),
            (&|spec| spec.faults = vec![silent], "one notification in 0"),
            (&|spec| spec.faults = vec![off], "more than an hour"),
            (&|spec| spec.faults = vec![backward], "ends before it begins"),
        ] {
            let found = refused(change);
            assert!(found.contains(message), "{found}");
        }
    }
}
