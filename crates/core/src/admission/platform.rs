//! The facts about the machine that admission needs.

use crate::share::Share;
use crate::time::Span;

/// The facts about the machine that admission needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The CPUs that may be used, the one to fill first at the front. A number that occurs twice
    /// counts once. An empty list stands for CPU 0 alone.
    pub cpus: Vec<u32>,
    /// The largest part of a CPU that is granted, hand-offs included.
    pub cpu_limit: Share,
    /// The cost of a hand-off from one activity to another.
    pub switch_cost: Span,
    /// How late a CPU's thread may wake when a release comes while it sleeps.
    pub wakeup_latency: Span,
    /// The time after its release for which an activity may wait for worse ranks of the domain that
    /// has the CPU. With 0 it waits only for the running quantum. Only the test of RMDP accounts
    /// for it (decision 0014).
    pub defer_preemption: Span,
}
