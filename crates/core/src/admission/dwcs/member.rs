//! The demand of one activity under DWCS.

use crate::activity::{ActivityParams, Terms, Window};
use crate::admission::platform::Platform;
use crate::admission::utilization::Demand;
use crate::policy::dwcs::window_of;

/// An activity and its window-constraint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) params: ActivityParams,
    pub(super) window: Window,
    /// Whether only messages release it.
    pub(super) on_demand: bool,
}

impl From<&(ActivityParams, Terms)> for Member {
    fn from((params, terms): &(ActivityParams, Terms)) -> Self {
        Member { params: *params, window: window_of(terms), on_demand: terms.on_demand }
    }
}

impl Member {
    /// `y - x`.
    pub(super) fn services(&self) -> u32 {
        self.window.periods - self.window.misses
    }

    /// `(1 - x/y) C' / T`. Rounded up if it needs more than 64 bits, which is possible for windows
    /// of more than a million periods.
    pub(super) fn needed(&self, set: &[Member], platform: &Platform) -> Demand {
        let preemptible = set.iter().any(|member| member.params.quantum < member.params.batch);
        let all = demand(&self.params, preemptible, platform);
        let mut cost = u128::from(all.cost_ns) * u128::from(self.services());
        let mut period = u128::from(all.period_ns) * u128::from(self.window.periods);
        let divisor = greatest_common_divisor(cost, period);
        (cost, period) = (cost / divisor, period / divisor);
        loop {
            if let (Ok(cost_ns), Ok(period_ns)) = (u64::try_from(cost), u64::try_from(period)) {
                return Demand { cost_ns, period_ns };
            }
            (cost, period) = (cost.div_ceil(2), (period / 2).max(1));
        }
    }
}

/// `C' / T`. The first upcall of a job costs a hand-off. So does the return to the job that it
/// interrupts, if any job can be interrupted.
pub(super) fn demand(params: &ActivityParams, preemptible: bool, platform: &Platform) -> Demand {
    let hand_offs = platform.switch_cost.saturating_mul(1 + u64::from(preemptible));
    let cost = params.compute() + hand_offs;
    Demand { cost_ns: cost.as_nanos(), period_ns: params.period.as_nanos() }
}

pub(super) fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
