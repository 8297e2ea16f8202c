//! Random machines, sets and faults under every policy, and named seeds that failed once.

use upcall_core::discipline::DISCIPLINES;
use upcall_sim::vopr::vopr;

/// Takes a few seconds in a debug build.
const SEEDS: u64 = 300;

/// The scenario of a seed breaks no promise of the discipline.
fn assert_kept(name: &str, seed: u64) {
    let discipline = upcall_core::discipline::by_name(name).expect("it is listed");
    vopr(discipline, [seed]).expect("no promise is broken");
}

/// The checker expected an adaptive activity under PS to complete a job every three releases,
/// though it had no promise.
#[test]
fn seed_2_an_activity_without_a_promise_may_fall_behind() {
    assert_kept("ps", 2);
}

/// Admission had simulated the set from one common start. The checker expected the windows to hold
/// for activities that come and go.
#[test]
fn seed_946_simulated_windows_hold_in_the_simulated_order() {
    assert_kept("dwcs", 946);
}

/// A job was lost while another handler ran. The scheduler reported it after the activity had left.
#[test]
fn seed_2610_a_lost_job_is_reported_before_its_activity_leaves() {
    assert_kept("dwcs", 2610);
}

/// The CPU was full, because its jobs may be missed. The checker expected the CPU to catch up after
/// a stall.
#[test]
fn seed_7743_a_full_cpu_does_not_catch_up() {
    assert_kept("dwcs", 7743);
}

/// The clock had been ahead. A start was given in a reading that the core had already passed, so
/// its first job was late from the beginning.
#[test]
fn seed_11_a_start_is_not_in_the_past_of_the_clock() {
    assert_kept("dwcs", 11);
}

/// At the instant when a clock was set forward, releases were emitted before the core had read the
/// clock for the last time.
#[test]
fn seed_3680_a_clock_is_read_before_it_is_set() {
    assert_kept("dwcs", 3680);
}

/// A CPU spent all its idle time on events. The checker expected the CPU to idle before it counted
/// the CPU as settled.
#[test]
fn seed_758_services_for_events_are_no_accumulated_work() {
    assert_kept("dwcs", 758);
}

/// The checker expected lags within a quantum, though weights changed while lags were not 0.
#[test]
fn seed_24929_new_weights_may_move_a_lag_beyond_the_quantum() {
    assert_kept("ps", 24929);
}

/// A handler that came back from the kernel interrupted another domain, and that domain paid for
/// it. So its next job ran after all others.
#[test]
fn seed_531_an_interrupted_handler_does_not_pay_for_the_one_that_came_back() {
    for (name, seed) in [("dws", 531), ("rmdp", 2705), ("rm", 3701)] {
        assert_kept(name, seed);
    }
}

/// Windows of budgets were off the grid of the releases after an absence. A domain showed its job
/// only at its window, and the CPU slept until then.
#[test]
fn seed_6535_an_idle_cpu_begins_new_windows() {
    for (name, seed) in [("rmdp", 6535), ("dws", 4493), ("rm", 3650)] {
        assert_kept(name, seed);
    }
}

/// Admission takes the longer of a quantum and the wake-up latency as the time for which work waits
/// first. The checker gave its allowance for overruns as latency, and so lost the quantum.
#[test]
fn seed_1185_a_quantum_beyond_a_budget_comes_on_top_of_another_one() {
    for (name, seed) in [("rmdp", 1185), ("rmdp", 1786), ("dws", 3065)] {
        assert_kept(name, seed);
    }
}

/// Two jobs of a late activity used one budget, and left a debt to the next one. The checkers
/// expected that one to have its rank.
#[test]
fn seed_2430_a_late_activity_may_wait_behind_all_others() {
    for (name, seed) in [("dws", 2430), ("rmdp", 8090), ("rmdp", 337)] {
        assert_kept(name, seed);
    }
}

/// An event came, or a job was released, during a hand-off. The checker expected the domain that
/// was chosen before to know that.
#[test]
fn seed_13191_a_domain_is_chosen_when_its_hand_off_begins() {
    for (name, seed) in [("rmdp", 13191), ("rm", 7559)] {
        assert_kept(name, seed);
    }
}

/// The CPU idled while a domain had a job that had come by a clock that was ahead. The budget of
/// that job was not renewed, and the domain was not told of the next idle moment.
#[test]
fn seed_31278_an_activity_with_a_job_awaits_the_next_idle_moment() {
    assert_kept("rmdp", 31278);
}

#[test]
fn no_seed_breaks_a_promise_under_any_policy() {
    for discipline in DISCIPLINES {
        match vopr(discipline, 0..SEEDS) {
            Ok(counts) => {
                println!("{}: {counts:?}", discipline.name);
                // The scenarios are not empty.
                assert_eq!(counts.seeds, SEEDS);
                assert!(counts.jobs > 100 * SEEDS, "{counts:?}");
            }
            Err(failed) => panic!("{failed}"),
        }
    }
}
