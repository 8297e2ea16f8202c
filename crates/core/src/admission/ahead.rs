//! What other users may take beyond their reservations, as numbers: `X_i(t)` of
//! [`super::isolation`].
//!
//! [`super::isolation`] makes it, and the exact tests add it to their sums.

use super::utilization::Demand;
use crate::share::Share;
use crate::time::Span;

/// `X_i` of an activity.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// What does not depend on `t`.
    pub(super) once: Span,
    /// `C'_k` and `T_k` of the activities behind `i`.
    pub(super) behind: Vec<Demand>,
    /// The sum of `g`, in millionths of the CPU.
    pub(super) grace_ppm: u64,
}

impl Ahead {
    /// What depends on `t`, with so many jobs of an activity with that period. `None`: an overflow.
    pub(super) fn in_time(&self, t_ns: u64, jobs: impl Fn(u64) -> u64) -> Option<u64> {
        let grace_ns = part_of(t_ns, self.grace_ppm);
        self.behind.iter().try_fold(grace_ns, |sum: u64, demand| {
            sum.checked_add(jobs(demand.period_ns).checked_mul(demand.cost_ns)?)
        })
    }
}

/// So many millionths of a time, rounded up.
pub(super) fn part_of(t_ns: u64, ppm: u64) -> u64 {
    let parts = u128::from(t_ns) * u128::from(ppm);
    u64::try_from(parts.div_ceil(u128::from(Share::WHOLE.ppm()))).unwrap_or(u64::MAX)
}
