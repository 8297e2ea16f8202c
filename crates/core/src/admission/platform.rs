//! What admission knows of the machine.

use crate::share::Share;
use crate::time::Span;

/// What admission has to know of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// CPUs that may be used, the one to fill first at the front. A number that
    /// stands there twice counts once; an empty list stands for CPU 0 alone.
    pub cpus: Vec<u32>,
    /// Most of a CPU that is given away, hand-offs included.
    pub cpu_limit: Share,
    /// What it costs to go from one activity to another.
    pub switch_cost: Span,
    /// How late a CPU's thread may wake when a release finds it asleep.
    pub wakeup_latency: Span,
    /// For so long from its release an activity may be kept waiting by worse ranks of the
    /// domain that has the CPU; 0: by none but the quantum that runs. Under RMDP only,
    /// the other policies' tests do not know it (decision 0014).
    pub defer_preemption: Span,
}
