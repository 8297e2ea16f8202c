//! One tick of the watchdog at one CPU: its time, its rules, and where it reports offences.

use std::sync::atomic::Ordering::Relaxed;

use upcall_core::time::{Instant, Span};
use upcall_shm::Measure;
use upcall_sys::OsError;
use upcall_sys::schedule::Band;

use super::arming::LOOK_MIN;
use crate::group::{DomainGroup, Member};

/// An offence, with the measure that the watchdog took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offence {
    pub(crate) cpu: u32,
    pub(crate) generation: u64,
    pub(crate) measure: Measure,
    /// How long the domain had kept the CPU, in ns.
    pub(crate) held_ns: u64,
}

/// What the watchdog tells the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Offence(Offence),
    /// The thread of a domain on a CPU has ended, and its process may go on.
    ThreadEnded {
        cpu: u32,
        generation: u64,
    },
    /// The CPU time of a domain's thread cannot be read. Nobody is accused meanwhile.
    Unseen {
        cpu: u32,
        generation: u64,
        error: OsError,
    },
}

/// How the watchdog is set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// `None`: without the real-time class.
    pub(crate) band: Option<Band>,
    /// Added to the longest quantum.
    pub(crate) grace: Span,
    pub(crate) kill: bool,
}

/// One tick at one CPU.
pub(super) struct Tick<'t> {
    pub(super) now: Instant,
    /// How long the machine stood still before it, at least.
    pub(super) stalled: Span,
    pub(super) kernel_tick: Span,
    pub(super) rules: &'t Rules,
    pub(super) report: &'t mut dyn FnMut(Report),
}

impl Rules {
    /// How long `member` may go without a response while another domain waits. The second look at a
    /// suspicion comes after it.
    pub(super) fn limit(&self, member: &Member) -> Span {
        member.limits.response_max().saturating_sub(LOOK_MIN)
    }

    /// What a domain may owe beyond two of its jobs before it is preempted. An offence begins at
    /// the whole grace.
    pub(super) fn debt_max(&self) -> Span {
        self.grace / 2
    }

    /// Whether `ran_ns` of CPU time is more than `member` may use without asking.
    pub(super) fn is_too_long(&self, member: &Member, ran_ns: u64) -> bool {
        let quantum = Span::from_nanos(member.limits.quantum_ns_max.load(Relaxed));
        ran_ns > (quantum + self.grace).as_nanos()
    }
}

impl Tick<'_> {
    /// Time that no domain could use. In the ordinary class the kernel may let other programs run
    /// at any time.
    pub(super) fn lost(&self) -> Span {
        if self.rules.band.is_some() { self.stalled } else { Span::MAX }
    }

    pub(super) fn report_offence(
        &mut self,
        group: &DomainGroup,
        member: &Member,
        measure: Measure,
        held_ns: u64,
    ) {
        let generation = member.generation.get();
        (self.report)(Report::Offence(Offence { cpu: group.cpu, generation, measure, held_ns }));
    }

    pub(super) fn report_unseen(&mut self, cpu: u32, member: &Member, error: OsError) {
        let generation = member.generation.get();
        (self.report)(Report::Unseen { cpu, generation, error });
    }

    pub(super) fn report_ended(&mut self, group: &DomainGroup, member: &Member) {
        let generation = member.generation.get();
        (self.report)(Report::ThreadEnded { cpu: group.cpu, generation });
    }
}
