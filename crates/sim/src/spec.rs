//! What is simulated: activities, the machine, and what goes wrong.
//!
//! Made by whoever asks for a simulation; checked once, by
//! [`crate::Simulation::new`].

use crate::arrivals::Arrivals;
use crate::execution::Execution;
use crate::fault::{Fault, Window};
use crate::posting::Posting;
use core::fmt;
use upcall_core::activity::{ActivityParams, Claim, ParamError, Terms};
use upcall_core::admission::{Refusal, Reservation, Reservations, Share};
use upcall_core::discipline::Discipline;
use upcall_core::time::{Instant, Span};

/// The most a clock may be off.
const STEP_MAX: Span = Span::from_secs(3_600);

/// A machine and what is on it.
#[derive(Clone, Debug)]
pub struct SimSpec {
    /// The policy of every CPU.
    pub discipline: &'static Discipline,
    /// The CPUs' numbers, none twice.
    pub cpus: Vec<u32>,
    /// What it costs to go from one activity to another. It is spent before the
    /// first PDU, nothing is preempted meanwhile, and it is charged to the one
    /// that comes in.
    pub switch_cost: Span,
    /// In the order of the file: ties go to the one that stands first.
    pub activities: Vec<SimActivity>,
    /// Where they overlap, all of them hold.
    pub faults: Vec<Fault>,
    /// DWCS: what the event servers of CPUs may spend. Taken as admitted.
    pub event_servers: Vec<(u32, Share)>,
    /// Whether the policies panic where their call protocol is broken, also in release builds
    /// ([`upcall_core::policy::Checked`]).
    pub checked: bool,
    /// For all that is left to chance. Arrivals and costs depend on it and on an
    /// activity's place, not on the policy.
    pub seed: u64,
}

impl SimSpec {
    /// One CPU, number 0, hand-offs free, nothing wrong, seed 0.
    pub fn new(discipline: &'static Discipline, activities: Vec<SimActivity>) -> Self {
        SimSpec {
            discipline,
            cpus: vec![0],
            switch_cost: Span::ZERO,
            activities,
            faults: Vec::new(),
            event_servers: Vec::new(),
            checked: false,
            seed: 0,
        }
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
            Fault::NeverYields { activity, .. } if activity as usize >= self.activities.len() => {
                Err("it names an activity that is not there")
            }
            Fault::DomainDies { domain, .. }
                if self.activities.iter().all(|activity| activity.domain != domain) =>
            {
                Err("it names a domain that is not there")
            }
            Fault::LostDoorbells { one_in: 0, .. } => Err("it loses one message in 0"),
            // Time must go on.
            Fault::ClockForward { by, .. } | Fault::ClockBack { by, .. } if by > STEP_MAX => {
                Err("the clock is off by more than an hour")
            }
            _ => Ok(()),
        }
    }
}

/// One activity and what it does.
#[derive(Clone, Debug)]
pub struct SimActivity {
    /// For reports.
    pub name: String,
    /// The domain it belongs to: what dies together.
    pub domain: u32,
    /// What was declared.
    pub params: ActivityParams,
    /// What the policy wants to know beside it.
    pub terms: Terms,
    /// The number of its CPU.
    pub cpu: u32,
    /// How many PDUs its jobs find.
    pub arrivals: Arrivals,
    /// From what age on a PDU that waits is of no use, if ever: a job that begins later drops
    /// it, at no cost.
    pub stale_after: Option<Span>,
    /// The events that come to it, if any do.
    pub posting: Option<Posting>,
    /// What they truly cost.
    pub execution: Execution,
    /// When it is there: windows in order, with at least a period between two.
    pub present: Vec<Window>,
    /// When it claims another part of the CPU, and which; each of the kind that it
    /// has by its terms. Taken as admitted.
    pub reweighs: Vec<(Instant, Claim)>,
}

impl SimActivity {
    /// Does what it declares, on CPU 0 in domain 0, from the start to the end.
    pub fn new(name: impl Into<String>, params: ActivityParams) -> Self {
        SimActivity {
            name: name.into(),
            domain: 0,
            params,
            terms: Terms::default(),
            cpu: 0,
            arrivals: Arrivals::Saturated,
            stale_after: None,
            posting: None,
            execution: Execution::Fixed(params.pdu_cost),
            present: vec![Window::ALWAYS],
            reweighs: Vec::new(),
        }
    }

    fn check(&self, cpus: &[u32]) -> Result<(), Cause> {
        self.params.validated().map_err(Cause::Params)?;
        if !cpus.contains(&self.cpu) {
            return Err(Cause::Cpu(self.cpu));
        }
        let events = self.posting.as_ref().and_then(Posting::fault);
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
                "it claims a share for a weight or a weight for a share, expected its own kind",
            ));
        }
        Ok(())
    }
}

/// Asks admission for a place for each, in order, and notes the CPU it got.
///
/// # Errors
/// The first refusal. Those before it keep what was reserved for them.
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

/// What is wrong with one activity.
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

/// A simulation that cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpecError {
    /// The machine has no CPU.
    NoCpu,
    /// A CPU stands there twice.
    CpuTwice(u32),
    /// More activities than a `u32` counts.
    TooMany,
    /// Parameters outside their ranges.
    Params {
        /// Whose.
        name: String,
        /// Which, and how.
        error: ParamError,
    },
    /// An activity's CPU is none of the machine's.
    UnknownCpu {
        /// Whose.
        name: String,
        /// Which.
        cpu: u32,
    },
    /// Arrivals, costs or presence that make no sense.
    Model {
        /// Whose.
        name: String,
        /// What was found and expected.
        what: &'static str,
    },
    /// A fault that makes no sense.
    Fault {
        /// Its place.
        index: usize,
        /// What was found.
        what: &'static str,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecError::NoCpu => f.write_str("no CPU, expected at least one"),
            SpecError::CpuTwice(cpu) => write!(f, "CPU {cpu} is listed twice"),
            SpecError::TooMany => write!(f, "more than {} activities", u32::MAX),
            SpecError::Params { name, error } => write!(f, "`{name}`: {error}"),
            SpecError::UnknownCpu { name, cpu } => {
                write!(f, "`{name}` is on CPU {cpu}, which the machine does not have")
            }
            SpecError::Model { name, what } => write!(f, "`{name}`: {what}"),
            SpecError::Fault { index, what } => write!(f, "fault {index}: {what}"),
        }
    }
}

impl core::error::Error for SpecError {}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall_core::discipline::RMDP;

    fn spec() -> SimSpec {
        let params = ActivityParams::new(Span::from_millis(10), Span::from_millis(1));
        SimSpec::new(&RMDP, vec![SimActivity::new("a", params)])
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        assert_eq!(spec().check(), Ok(()));
        let at = Instant::from_nanos;
        let refused = |change: &dyn Fn(&mut SimSpec)| {
            let mut spec = spec();
            change(&mut spec);
            spec.check().unwrap_err().to_string()
        };
        let activity_2 = Fault::NeverYields { activity: 1, window: Window::ALWAYS };
        let gone = Fault::DomainDies { domain: 4, window: Window::ALWAYS };
        let silent = Fault::LostDoorbells { one_in: 0, window: Window::ALWAYS };
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
            (&|spec| spec.activities[0].posting = Some(endless.clone()), "events without end"),
            (&|spec| spec.event_servers = vec![(7, Share::WHOLE)], "`event server` is on CPU 7"),
            (&|spec| spec.activities[0].present = vec![soon(5), Window::ALWAYS], "out of order"),
            (&|spec| spec.activities[0].reweighs = vec![(at(1), whole)], "expected its own kind"),
            (&|spec| spec.faults = vec![activity_2], "fault 0: it names an activity"),
            (&|spec| spec.faults = vec![gone], "fault 0: it names a domain"),
            (&|spec| spec.faults = vec![silent], "one message in 0"),
            (&|spec| spec.faults = vec![off], "more than an hour"),
            (&|spec| spec.faults = vec![backward], "ends before it begins"),
        ] {
            let found = refused(change);
            assert!(found.contains(message), "{found}");
        }
    }
}
