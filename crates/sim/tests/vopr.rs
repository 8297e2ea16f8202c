//! Random machines, sets and faults under every policy; and seeds that once
//! failed, by name.

use upcall_core::discipline::DISCIPLINES;
use upcall_sim::vopr::vopr;

/// A few seconds in a debug build.
const SEEDS: u64 = 300;

/// An adaptive activity under PS was expected to have a job done every three
/// releases, though nobody had promised it anything.
#[test]
fn seed_2_who_was_promised_nothing_may_fall_behind() {
    let ps = upcall_core::discipline::by_name("ps").expect("it is listed");
    vopr(ps, [2]).expect("no promise is broken");
}

/// Windows that admission had played through from one common start were expected
/// to be kept by activities that come and go.
#[test]
fn seed_946_windows_played_through_hold_as_played() {
    let dwcs = upcall_core::discipline::by_name("dwcs").expect("it is listed");
    vopr(dwcs, [946]).expect("no promise is broken");
}

/// A job that was lost while another handler ran was told of after its activity
/// had left.
#[test]
fn seed_2610_what_was_lost_is_told_before_its_activity_leaves() {
    let dwcs = upcall_core::discipline::by_name("dwcs").expect("it is listed");
    vopr(dwcs, [2610]).expect("no promise is broken");
}

/// A CPU that was full, for its jobs may be missed, was expected to catch up after
/// a stall.
#[test]
fn seed_7743_a_full_cpu_does_not_catch_up() {
    let dwcs = upcall_core::discipline::by_name("dwcs").expect("it is listed");
    vopr(dwcs, [7743]).expect("no promise is broken");
}

/// The clock had been ahead, and a start was said in a reading the core was past:
/// its first job was late from the beginning.
#[test]
fn seed_11_a_start_is_not_said_in_readings_that_are_past() {
    let dwcs = upcall_core::discipline::by_name("dwcs").expect("it is listed");
    vopr(dwcs, [11]).expect("no promise is broken");
}

/// At the instant a clock was set forward releases were told before the core had
/// read the clock for the last time.
#[test]
fn seed_3680_a_clock_is_read_before_it_is_set() {
    let dwcs = upcall_core::discipline::by_name("dwcs").expect("it is listed");
    vopr(dwcs, [3680]).expect("no promise is broken");
}

/// A CPU that spent all its idle time on events was expected to idle before it counted
/// as settled.
#[test]
fn seed_758_services_for_events_are_no_work_that_piled_up() {
    let dwcs = upcall_core::discipline::by_name("dwcs").expect("it is listed");
    vopr(dwcs, [758]).expect("no promise is broken");
}

/// Lags were expected within a quantum though weights changed where they were not 0.
#[test]
fn seed_24929_new_weights_may_move_a_lag_beyond_the_quantum() {
    let ps = upcall_core::discipline::by_name("ps").expect("it is listed");
    vopr(ps, [24929]).expect("no promise is broken");
}

#[test]
fn no_seed_breaks_a_promise_under_any_policy() {
    for discipline in DISCIPLINES {
        match vopr(discipline, 0..SEEDS) {
            Ok(tally) => {
                println!("{}: {tally:?}", discipline.name);
                // The scenarios are not empty.
                assert_eq!(tally.seeds, SEEDS);
                assert!(tally.jobs > 100 * SEEDS, "{tally:?}");
            }
            Err(failed) => panic!("{failed}"),
        }
    }
}
