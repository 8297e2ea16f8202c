//! How much of a CPU is granted to activities. Plain data.

use crate::time::Span;

/// How much of one CPU is granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuLoad {
    /// The CPU.
    pub cpu: u32,
    /// The sum of `C / T`, with the hand-offs of each job included in `C`.
    pub utilization: f64,
    /// The upper limit of `utilization`.
    pub limit: f64,
    /// The sum of `C`, with the hand-offs of each job. In any time `t`, activities that keep to
    /// their costs take at most `utilization * t` and this.
    pub burst: Span,
}
