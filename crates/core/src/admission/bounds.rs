//! The three sufficient tests of the literature, reported beside the exact one.
//!
//! Each compares a sum with `n (2^(1/n) - 1)`. They hold for deadlines at the end of the period and
//! do not apply otherwise. None of them decides. `liu-layland` ignores blocking and may pass a set
//! that misses. `sha-blocking` and `rmdp-bound` pass no such set, but refuse many sets that fit.
//! Costs include hand-offs and blocking includes one hand-off, as in `response_time`.

use super::platform::Platform;
use super::response_time::blocking;
use super::test_result::TestResult;
use crate::activity::ActivityParams;

/// The tests that apply to a CPU whose activities, best rank first, ask for
/// `utilization` of it, hand-offs included. Empty if a deadline comes before
/// the end of its period.
pub(super) fn tests(
    cpu: u32,
    ranked: &[ActivityParams],
    utilization: f64,
    platform: &Platform,
) -> Vec<TestResult> {
    if ranked.iter().any(|params| params.deadline != params.period) {
        return Vec::new();
    }
    let bound = least_upper_bound(ranked.len());
    [
        ("liu-layland", utilization),
        ("sha-blocking", utilization + sha_blocking(ranked, platform)),
        ("rmdp-bound", utilization + rmdp_blocking(ranked, platform)),
    ]
    .map(|(name, value)| TestResult {
        name,
        cpu,
        passed: value <= bound,
        value,
        bound,
        deciding: false,
    })
    .to_vec()
}

/// The utilization that `n` activities may have if nothing blocks them (Liu and Layland 1973;
/// rtu-1995 §5.3).
fn least_upper_bound(n: usize) -> f64 {
    let n = n as f64;
    n * (2f64.powf(1.0 / n) - 1.0)
}

/// `max B_i / T_i` (Sha, Rajkumar and Lehoczky 1990; rtu-1995 §5.3). A late wake-up can also block
/// the worst rank; nothing else does.
fn sha_blocking(ranked: &[ActivityParams], platform: &Platform) -> f64 {
    let mut longest_ns = platform.wakeup_latency.as_nanos();
    let mut worst: f64 = 0.0;
    for params in ranked.iter().rev() {
        worst = worst.max(longest_ns as f64 / params.period.as_nanos() as f64);
        longest_ns = longest_ns.max(blocking(params, platform).as_nanos());
    }
    worst
}

/// `c_max (1/T_1 - 1/T_n)`, the paper's improvement (rtu-1995 §5.3). A quantum that blocks is work
/// of an activity whose period is at most `T_n`, and the sum already contains that work. A late
/// wake-up is not the work of any activity, and counts in full.
fn rmdp_blocking(ranked: &[ActivityParams], platform: &Platform) -> f64 {
    let period_ns = |params: &ActivityParams| params.period.as_nanos() as f64;
    let (Some(first), Some(last)) = (ranked.first(), ranked.last()) else { return 0.0 };
    let longest = ranked.iter().map(|params| blocking(params, platform)).max().unwrap_or_default();
    let by_work = longest.as_nanos() as f64 * (1.0 / period_ns(first) - 1.0 / period_ns(last));
    by_work.max(platform.wakeup_latency.as_nanos() as f64 / period_ns(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Share;
    use crate::time::Span;

    fn platform(switch_ns: u64, wakeup_ns: u64) -> Platform {
        Platform {
            cpus: vec![0],
            cpu_limit: Share::WHOLE,
            switch_cost: Span::from_nanos(switch_ns),
            wakeup_latency: Span::from_nanos(wakeup_ns),
            defer_preemption: Span::ZERO,
        }
    }

    fn set() -> [ActivityParams; 3] {
        let task =
            |period, cost| ActivityParams::new(Span::from_nanos(period), Span::from_nanos(cost));
        [task(100, 5).batch(4).quantum(2), task(150, 10).batch(3), task(300, 30)]
    }

    #[test]
    fn the_formulas_match_a_calculation_by_hand() {
        let utilization = 0.2 + 0.2 + 0.1;
        let results = tests(7, &set(), utilization, &platform(0, 0));
        // Sha: B_1 = 30 and B_2 = 30, so 30/100. The paper: 30 * (1/100 - 1/300) = 0.2.
        for (result, (name, value)) in
            results.iter().zip([("liu-layland", 0.5), ("sha-blocking", 0.8), ("rmdp-bound", 0.7)])
        {
            assert_eq!((result.name, result.cpu), (name, 7));
            assert!((result.value - value).abs() < 1e-12, "{result:?}");
            // 3 (2^(1/3) - 1)
            assert!((result.bound - 0.779_763).abs() < 1e-6);
            assert_eq!(result.passed, name != "sha-blocking");
        }
        // The hand-off blocks. A late wake-up also blocks the worst rank, and is not the work of
        // any activity.
        let results = tests(7, &set(), utilization, &platform(3, 0));
        assert!((results[1].value - 0.83).abs() < 1e-12);
        let results = tests(7, &set(), utilization, &platform(0, 60));
        assert!((results[1].value - 1.1).abs() < 1e-12);
        assert!((results[2].value - 1.1).abs() < 1e-12);
    }

    #[test]
    fn the_bounds_are_left_out_if_a_deadline_is_not_the_period() {
        let [first, second, third] = set();
        let ranked = [first, second.deadline(Span::from_nanos(149)), third];
        assert_eq!(tests(0, &ranked, 0.5, &platform(0, 0)), []);
    }
}
