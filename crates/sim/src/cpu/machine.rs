//! The properties that all CPUs of a simulation share, and helpers for numbers.

use crate::fault::{Fault, Stalls};
use crate::spec::{SimSpec, SplitLevel};
use upcall_core::policy::ps::Group;
use upcall_core::time::Span;

pub(super) const NANOSECOND: Span = Span::from_nanos(1);

/// The properties that all CPUs share and that never change.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) preemptive: bool,
    pub(super) switch_cost: Span,
    pub(super) split_level: Option<SplitLevel>,
    /// Whether the policy drops jobs that are late, so that a domain may get the turn for a job
    /// that is lost.
    pub(super) drops_late_jobs: bool,
    /// PS: the groups of activities.
    pub(super) groups: Vec<Group>,
    pub(super) faults: Vec<Fault>,
    pub(super) stalls: Stalls,
}

impl Machine {
    pub(crate) fn new(spec: &SimSpec) -> Self {
        Machine {
            preemptive: spec.discipline.preemptive,
            switch_cost: spec.switch_cost,
            split_level: spec.split_level,
            drops_late_jobs: spec.discipline.drops_late_jobs(),
            groups: spec.discipline.groups.clone(),
            faults: spec.faults.clone(),
            stalls: Stalls::of(&spec.faults),
        }
    }

    /// Cost of a hand-off to another domain that is spent before its scheduler is asked.
    pub(super) fn handoff_cost(&self) -> Span {
        self.split_level.map_or(Span::ZERO, |split_level| split_level.handoff_cost)
    }
}

/// `len` as a `u32`. No spec has more activities than a `u32` can count.
pub(super) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
