//! What the watchdog keeps of a CPU where work waits and no domain runs.
//!
//! Plain data of [`super::away`], which finds it, in [`super::cpu_watch`].

use std::sync::Arc;

use upcall_core::time::{Instant, Span};

use crate::group::Member;

/// How long the KLS threads may need to give the CPU to a domain. Two of them may choose for that,
/// some 50 us each. A shorter time would show that of the host.
pub(super) const CHOICE_MAX: Span = Span::from_micros(500);

/// What does not change while no domain gets the CPU. No domain can write it: the turn is no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Whether the holder is ready to run, or another domain that is checked.
    pub(super) is_ready: bool,
    /// CPU time as the kernel counts it: of the thread that is ready, at its last sample, or else
    /// of all domains of the group that has the CPU.
    pub(super) used_ns: u64,
    /// How often the KLS threads have given the CPU to a group. A thread may choose without that:
    /// it leaves the choice to another one, which is below the domains and may not run.
    pub(super) grants: u64,
}

/// A time without progress.
#[derive(Debug)]
pub(super) struct Standstill {
    pub(super) progress: Progress,
    /// The first look that found it.
    pub(super) since: Instant,
    /// For how long the KLS threads had been ready so far, when the sleeping threads were woken.
    pub(super) waited_ns: Option<u64>,
}

/// What a look found at one CPU, and what it asks of the checks of all others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    /// A domain or a KLS thread may be kept from the CPU. A thread of another CPU may be the cause
    /// (`left_cpu`).
    CheckCpus,
    /// (1) of the module's head.
    Wake,
    /// (2) of the module's head.
    Lower,
    /// (3) and (4) of the module's head: work was kept from the CPU for so many ns.
    Settle(u64),
}

/// What a look did for a ready holder that may be kept from the CPU.
pub(super) enum Kept {
    /// It raised the holder above all other domains, so the holder runs. The kernel had counted so
    /// much time before for which the thread was ready and did not run. It can have been kept from
    /// the CPU for `kept_max`.
    Raised { holder: Arc<Member>, waited_ns: u64, kept_max: Span, at: Instant },
    /// The threads that were ready without the turn were raised: the holder was kept from the CPU
    /// for so long, or no KLS thread gave the CPU away (`None`).
    LetRun { kept: Option<(Arc<Member>, u64)>, ready: Vec<Arc<Member>>, at: Instant },
    /// The holder was kept from the CPU for so long, and the sleeping threads were woken.
    Woken { holder: Arc<Member>, kept_ns: u64, at: Instant },
}

/// Domains were put into the ordinary class at the last look, because no KLS thread ran.
#[derive(Debug)]
pub(super) struct Lowered {
    pub(super) waited_ns: u64,
    pub(super) since: Instant,
}
