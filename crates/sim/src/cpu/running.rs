//! What a CPU does at a moment: a handler runs, the turn passes, or it sleeps.

use upcall_core::time::{Instant, Span};

#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    Asleep {
        until: Instant,
    },
    /// The turn passes to the domain that holds it from now on.
    HandOff {
        until: Instant,
    },
    Running(Running),
}

/// An upcall that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) actor: u32,
    pub(super) upcalled: Instant,
    /// Complete PDUs of the job at the upcall.
    pub(super) pdus_before: u32,
    /// The time from which the actor's position counts: the end of the hand-off, or the last
    /// preemption point.
    pub(super) from: Instant,
    pub(super) check_at: Instant,
    /// The time at which the handler asks the scheduler or returns.
    pub(super) end: Instant,
    /// The time at which PDU `target` of the job would be complete; `end` or later.
    pub(super) target_at: Instant,
    pub(super) target: u32,
    /// Whether the handler spins in its present PDU until `target_at`.
    pub(super) spins: bool,
    /// In an upcall that stopped in the middle: what is left of its hand-off.
    pub(super) lead: Span,
}
