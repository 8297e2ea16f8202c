//! The budget of one activity, alone. `tests/interference.rs` shows what the budgets are for.

use super::*;
use proptest::prelude::*;

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// 3 of 10.
fn budget() -> Budget {
    let params = ActivityParams::new(ns(10), ns(1)).batch(3);
    Budget::new(&params, params.deadline)
}

/// Runs from one moment to another.
fn run(budget: &mut Budget, from: u64, to: u64) {
    budget.begin_charge(at(from), at(from));
    budget.charge(at(to));
}

#[test]
fn a_budget_is_used_and_refilled_at_the_end_of_its_window() {
    let mut budget = budget();
    budget.begin(at(100));
    run(&mut budget, 101, 103);
    assert_eq!(budget.state().left, ns(1));
    run(&mut budget, 104, 105);
    assert_eq!(budget.over_until(), Some(at(110)));
    budget.advance(at(110));
    assert_eq!(budget.state(), BudgetState { window: at(110), left: ns(3), over_until: None });
}

#[test]
fn an_interrupted_activity_does_not_pay_for_the_others() {
    let mut budget = budget();
    budget.begin(at(0));
    budget.begin_charge(at(0), at(0));
    // It runs for 1, others for 5, and it runs for 1 again.
    budget.excuse(ns(5));
    budget.charge(at(7));
    assert_eq!(budget.state().left, ns(1));
    // If the time was charged too early, later time is free instead.
    budget.charge(at(8));
    budget.excuse(ns(1));
    budget.charge(at(9));
    assert_eq!(budget.state().left, ns(0));
    assert!(!budget.is_in_debt());
}

#[test]
fn a_budget_that_was_not_used_does_not_grow() {
    let mut budget = budget();
    budget.begin(at(0));
    budget.advance(at(95));
    assert_eq!(budget.state(), BudgetState { window: at(90), left: ns(3), over_until: None });
}

#[test]
fn an_idle_cpu_moves_the_windows_to_the_next_job() {
    let mut budget = budget();
    assert!(budget.begin(at(4)));
    run(&mut budget, 4, 7);
    // A job 6 after the last one has to wait for the window.
    assert!(!budget.begin(at(10)));
    assert_eq!(budget.over_until(), Some(at(14)));
    budget.renew(at(9));
    assert!(budget.begin(at(10)));
    assert_eq!(budget.state(), BudgetState { window: at(10), left: ns(3), over_until: None });
    // No window begins before the CPU idled.
    budget.renew(at(30));
    assert!(!budget.begin(at(28)));
    assert_eq!(budget.state().window, at(30));
}

#[test]
fn a_quantum_that_ends_over_budget_leaves_a_debt_of_at_most_a_period() {
    let mut five_times = budget();
    five_times.begin(at(0));
    run(&mut five_times, 0, 8);
    // Owes 5: two refills bring 6.
    assert_eq!(five_times.over_until(), Some(at(20)));
    let mut stolen = budget();
    stolen.begin(at(0));
    run(&mut stolen, 0, 5_000);
    assert!(stolen.over_until().unwrap() <= at(5_000 + 4 * 10), "{stolen:?}");
    stolen.renew(at(5_000));
    assert_eq!((stolen.over_until(), stolen.is_in_debt()), (None, false));
}

#[test]
fn a_late_announcement_does_not_bring_two_budgets_at_once() {
    let mut budget = budget();
    budget.begin(at(0));
    run(&mut budget, 0, 3);
    // The next message was due at 10, and comes at 17; the one after it comes in time, at 20.
    budget.begin(at(17));
    run(&mut budget, 17, 20);
    budget.begin(at(20));
    assert_eq!(budget.over_until(), Some(at(27)));
}

#[test]
fn work_ahead_uses_the_window_of_its_own_arrival() {
    let mut budget = budget();
    budget.begin(at(0));
    run(&mut budget, 0, 3);
    budget.begin(at(10));
    assert_eq!(budget.over_until(), None);
    run(&mut budget, 3, 6);
    assert_eq!(budget.over_until(), Some(at(20)));
}

#[test]
fn a_void_budget_comes_back_with_the_next_window() {
    let mut stopped = budget();
    stopped.begin(at(0));
    run(&mut stopped, 0, 600);
    stopped.void(true, at(604));
    assert_eq!(stopped.over_until(), Some(at(610)));
    // A window that has not begun harms no one.
    let mut ahead = budget();
    ahead.begin(at(50));
    ahead.void(true, at(44));
    assert_eq!(ahead.over_until(), None);
}

#[test]
fn a_deadline_after_the_next_release_lets_two_windows_wait() {
    let params = ActivityParams::new(ns(10), ns(1)).batch(3);
    let mut budget = Budget::new(&params, ns(25));
    budget.begin(at(0));
    // The job of 0 runs at 12, in its own window. That of 10 is whole for the next one.
    run(&mut budget, 12, 15);
    budget.begin(at(10));
    assert_eq!(budget.state(), BudgetState { window: at(10), left: ns(3), over_until: None });
}

/// Found by the property below: what ran on into the next window, over budget, was not charged.
#[test]
fn a_quantum_beyond_its_budget_and_its_window_is_charged_to_its_end() {
    let mut budget = budget();
    budget.begin(at(0));
    run(&mut budget, 0, 1);
    // 9 of a budget of 2, and of the 3 of the window that begins at 10.
    run(&mut budget, 5, 14);
    assert_eq!((budget.window, budget.left_ns), (at(10), -4));
}

proptest! {
    /// Whatever an activity does, in any interval it uses at most `ceil(t/T)` budgets and one
    /// stretch while it has its rank. Stretches are at most a period long.
    #[test]
    fn the_use_at_the_own_rank_is_bounded(
        steps in prop::collection::vec((0u64..25, 0u64..10, 0u64..3), 1..60),
    ) {
        let mut budget = budget();
        let mut now = 0;
        let mut used: Vec<(u64, u64)> = Vec::new();
        for (pause, stretch, kind) in steps {
            now += pause;
            if kind == 0 {
                budget.begin(at(now));
            }
            budget.begin_charge(at(now), at(now));
            let has_rank = budget.is_used && !budget.is_over();
            budget.charge(at(now + stretch));
            if has_rank {
                used.push((now, now + stretch));
            }
            now += stretch;
        }
        for (first, &(from, _)) in used.iter().enumerate() {
            let mut sum = 0;
            for &(begin, end) in &used[first..] {
                sum += end - begin;
                let windows = (end - from).div_ceil(10) + 1;
                prop_assert!(sum <= 3 * windows + 10, "{sum} from {from} to {end}: {used:?}");
            }
        }
    }
}
