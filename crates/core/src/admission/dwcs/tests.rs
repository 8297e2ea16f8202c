//! The verdict on sets that can be judged by hand.

use super::*;
use crate::activity::Window;
use crate::admission::Reservations;
use crate::admission::{Hint, Reason, ReservationId};
use crate::discipline::DWCS;
use crate::discipline::RMDP;

fn platform(limit_ppm: u32, switch_ns: u64, wakeup_ns: u64) -> Platform {
    Platform {
        cpus: vec![0],
        cpu_limit: Share::from_ppm(limit_ppm).unwrap(),
        switch_cost: Span::from_nanos(switch_ns),
        wakeup_latency: Span::from_nanos(wakeup_ns),
        defer_preemption: Span::ZERO,
    }
}

fn params(period: u64, cost: u64) -> ActivityParams {
    ActivityParams::new(Span::from_nanos(period), Span::from_nanos(cost))
}

fn terms(misses: u32, periods: u32) -> Terms {
    Terms { window: Some(Window { misses, periods }), ..Terms::default() }
}

const FREE: (u32, u64, u64) = (1_000_000, 0, 0);

/// Reserves the set whatever the tests say; returns which test decides, and whether it passes.
fn judged(
    set: &[(ActivityParams, Terms)],
    (limit_ppm, switch_ns, wakeup_ns): (u32, u64, u64),
) -> (&'static str, bool, Reservations, Vec<ReservationId>) {
    let mut all = Reservations::new(platform(limit_ppm, switch_ns, wakeup_ns), &DWCS);
    let ids = set.iter().map(|(params, terms)| all.reserve_unscreened("", *params, terms).id);
    let ids = ids.collect();
    let tests = all.tests();
    let deciding: Vec<_> = tests.iter().filter(|test| test.deciding).collect();
    assert_eq!(deciding.len(), 1, "{tests:?}");
    // Only the simulations, which count, have a bound of 0.
    assert!(tests.iter().all(|test| test.passed == (test.value <= test.bound)), "{tests:?}");
    (deciding[0].name, deciding[0].passed, all, ids)
}

#[test]
fn each_kind_of_set_is_decided_by_its_own_test() {
    let decided = |set: &[_], given| {
        let (name, passed, ..) = judged(set, given);
        (name, passed)
    };
    // All of them fit.
    let half = (params(10, 5), terms(0, 1));
    assert_eq!(decided(&[half, half], FREE), ("edf-demand", true));
    // Three halves of a CPU, each of which must be served once in two periods.
    let every_other = (params(10, 10), terms(1, 2));
    assert_eq!(decided(&[every_other; 2], FREE), ("window-slots", true));
    assert_eq!(decided(&[every_other; 3], FREE), ("window-utilization", false));
    // More than once in a window: simulated.
    let twice = (params(10, 10), terms(2, 4));
    assert_eq!(decided(&[twice, every_other], FREE), ("slot-simulation", true));
    // Two jobs fit, but only one slot of the longer.
    let (long, short) = ((params(10, 6), terms(0, 1)), (params(10, 4), terms(1, 2)));
    let mixed = [long, short, short];
    assert_eq!(decided(&mixed, FREE), ("window-simulation", true));
    // The same where hand-offs or wake-ups cost time: nothing is known.
    for given in [(1_000_000, 1, 0), (1_000_000, 0, 1)] {
        assert!(!decided(&mixed, given).1);
    }
    assert_eq!(decided(&[every_other; 2], (999_999, 0, 0)), ("cpu-limit", false));
}

#[test]
fn a_hand_off_and_a_late_wake_up_take_a_slot() {
    // Two slots of 5 in 10.
    let set = [(params(10, 5), terms(1, 2)); 4];
    assert!(judged(&set, FREE).1);
    assert!(!judged(&set, (1_000_000, 1, 0)).1);
    assert!(!judged(&set, (1_000_000, 0, 1)).1);
    // 2 * (4 + 1) do not fit into 10 - 1, but they fit into 11 - 1.
    assert!(!judged(&[(params(10, 4), terms(1, 2)); 4], (1_000_000, 1, 0)).1);
    let set = [(params(11, 4), terms(1, 2)); 4];
    assert!(judged(&set, (1_000_000, 1, 0)).1);
    assert!(judged(&set, (1_000_000, 0, 3)).1);
    assert!(!judged(&set, (1_000_000, 0, 4)).1);
}

#[test]
fn sets_proved_for_equal_offsets_are_not_admitted_with_others() {
    let every_other = (params(10, 10), terms(1, 2));
    let later = (params(10, 10).offset(Span::from_nanos(5)), terms(1, 2));
    assert!(!judged(&[every_other, later], FREE).1);
    // Sets with other periods are not admitted either, unless they are simulated.
    assert_eq!(judged(&[every_other, (params(20, 10), terms(0, 1))], FREE).0, "window-simulation");
}

#[test]
fn a_quantum_blocks_one_that_is_due_before_it() {
    // The two need 40 % each, but 8 of the second are not interrupted.
    let short = (params(10, 4), terms(0, 1));
    let long = |quantum| (params(20, 1).batch(8).quantum(quantum), terms(0, 1));
    assert!(judged(&[short, long(7)], FREE).1);
    let offset = |task: (ActivityParams, Terms), ns| (task.0.offset(Span::from_nanos(ns)), task.1);
    assert!(!judged(&[offset(short, 1), long(8)], FREE).1);
}

#[test]
fn the_worst_response_is_known_if_no_miss_is_allowed() {
    let deadline = Span::from_nanos(20);
    let never = (params(20, 10).deadline(deadline), terms(0, 1));
    let sometimes = (params(20, 10), terms(1, 2));
    let (_, true, all, ids) = judged(&[never, sometimes, sometimes], FREE) else { panic!() };
    assert_eq!(all.response_max(ids[0]), Some(deadline));
    assert_eq!(all.response_max(ids[1]), None);
    let (_, false, all, ids) = judged(&[never, never, never], FREE) else { panic!() };
    assert_eq!(all.response_max(ids[0]), None);
}

#[test]
fn a_refusal_states_the_failure_and_a_change_that_fits() {
    let mut all = Reservations::new(platform(1_000_000, 0, 0), &DWCS);
    all.reserve("first", params(10, 6), &terms(0, 1)).unwrap();
    let refusal = all.reserve("second", params(10, 6), &terms(0, 1)).unwrap_err();
    let Reason::WindowsOverCpu { cpu: 0, utilization } = refusal.reason else { panic!() };
    assert!((utilization - 1.2).abs() < 1e-9);
    assert!(refusal.to_string().contains("may not be missed would take 120 % of CPU 0"));
    assert!(matches!(refusal.hint, Some(Hint::PduCost { .. })), "{refusal}");

    let mut all = Reservations::new(platform(1_000_000, 0, 0), &DWCS);
    for (misses, periods) in [(12, 15), (4, 16)] {
        all.reserve("one", params(10, 10), &terms(misses, periods)).unwrap();
    }
    let refusal = all.reserve("other", params(10, 10), &terms(20, 21)).unwrap_err();
    assert!(matches!(refusal.reason, Reason::ViolatesWindow { .. }), "{refusal}");

    let mut all = Reservations::new(platform(1_000_000, 1, 0), &DWCS);
    all.reserve("first", params(30, 20), &terms(1, 2)).unwrap();
    let refusal = all.reserve("second", params(40, 20), &terms(1, 2)).unwrap_err();
    assert_eq!(refusal.reason, Reason::WindowsUnproven { cpu: 0 });
    assert!(refusal.to_string().contains("could not do every job"));
}

/// Processes have no common start, but aligned releases. Nothing is known of other users.
#[test]
fn windows_of_processes_need_equal_periods_and_one_service_a_window() {
    let isolation = super::super::isolation::Isolation {
        grace: Span::from_nanos(1),
        share: Share::from_ppm(50_000).unwrap(),
    };
    let every_other = (params(10, 10), terms(1, 2));
    let third = (params(30, 10), terms(0, 1));
    let among = |apart: bool, users: [u32; 2], set: (ActivityParams, Terms)| {
        let mut all = Reservations::new(platform(1_000_000, 0, 0), &DWCS);
        all.isolate_users(isolation);
        if apart {
            all.start_apart();
        }
        users.map(|user| all.reserve_for(user, "it", set.0, &set.1).is_ok())
    };
    assert_eq!(among(false, [7, 7], every_other), [true, true]);
    assert_eq!(among(true, [7, 7], every_other), [true, true]);
    assert_eq!(among(true, [7, 7], third), [true, true]);
    assert_eq!(among(true, [7, 8], third), [true, false]);
    assert_eq!(among(true, [7, 8], every_other), [true, false]);
    let twice = (params(10, 10), terms(2, 4));
    assert_eq!(among(false, [7, 7], twice), [true, true]);
    assert_eq!(among(true, [7, 7], twice), [true, false]);
}

fn admits_apart(
    set: &[(ActivityParams, Terms)],
    (limit_ppm, switch_ns, wakeup_ns): (u32, u64, u64),
) -> bool {
    let mut all = Reservations::new(platform(limit_ppm, switch_ns, wakeup_ns), &DWCS);
    all.start_apart();
    set.iter().all(|(params, terms)| all.reserve("it", *params, terms).is_ok())
}

/// A domain that does not run gets the turn for a job that is lost, and drops it.
#[test]
fn among_processes_every_job_takes_a_hand_off() {
    let set = |count: usize, cost| vec![(params(1_000, cost), terms(9, 10)); count];
    // In one process 980 + 10 fit beside the last hand-off of 10.
    assert!(judged(&set(5, 980), (1_000_000, 10, 0)).1);
    assert!(!admits_apart(&set(5, 980), (1_000_000, 10, 0)));
    assert!(admits_apart(&set(5, 940), (1_000_000, 10, 0)));
    assert!(!admits_apart(&set(5, 941), (1_000_000, 10, 0)));
    assert!(admits_apart(&set(5, 930), (1_000_000, 10, 20)));
    assert!(!admits_apart(&set(5, 931), (1_000_000, 10, 20)));
}

/// Jobs that may be missed take time all the same, until their deadline.
#[test]
fn among_processes_the_limit_holds_for_all_that_jobs_may_take() {
    let set = |deadline| {
        let params = params(100, 40).deadline(Span::from_nanos(deadline));
        vec![(params, terms(1, 2)); 3]
    };
    let limit = (900_000, 0, 0);
    assert!(judged(&set(100), limit).1);
    assert!(!admits_apart(&set(100), limit));
    assert!(!admits_apart(&set(91), limit));
    assert!(admits_apart(&set(90), limit));
    // Less than the limit in all: the deadline does not matter.
    let few = vec![(params(100, 45), terms(1, 2)); 2];
    assert!(admits_apart(&few, limit));
    let mut all = Reservations::new(platform(900_000, 0, 0), &DWCS);
    all.start_apart();
    for (params, terms) in set(90) {
        all.reserve("it", params, &terms).unwrap();
    }
    assert!((all.load()[0].utilization - 0.9).abs() < 1e-9, "{:?}", all.load());
    assert!(all.relies_on_windows(0) && !all.relies_on_windows(1));
}

#[test]
fn a_window_of_billions_of_periods_is_judged_and_not_run_through() {
    let huge = (params(3_600_000_000_000, 3_600_000_000_000), terms(u32::MAX - 2, u32::MAX));
    let (_, passed, ..) = judged(&[huge, huge], FREE);
    assert!(!passed);
    assert!(judged(&[huge], FREE).1);
}

#[test]
fn the_event_server_gets_the_rest_without_the_time_for_blocking() {
    let share = |set: &[_], given| judged(set, given).2.event_share(0).map(Share::ppm);
    // A quantum of 1 ns blocks for 1 ns less 1, so nothing blocks.
    let set = [(params(100, 1).batch(40), terms(0, 1))];
    assert_eq!(share(&set, FREE), Some(600_000));
    assert_eq!(share(&set, (500_000, 0, 0)), Some(100_000));
    // The jobs take 80 of 100, and a quantum of 10 blocks for 9. So 11 are left.
    let blocking = [(params(100, 10).batch(8), terms(0, 1))];
    assert_eq!(share(&blocking, FREE), Some(110_000));
    assert_eq!(share(&[(params(10, 10), terms(0, 1))], FREE), None);
    assert_eq!(share(&[(params(10, 10), terms(1, 2)); 2], FREE), None);
    assert_eq!(judged(&set, FREE).2.event_share(1), None);
    let mut other = Reservations::new(platform(1_000_000, 0, 0), &RMDP);
    other.reserve("", set[0].0, &set[0].1).unwrap();
    assert_eq!(other.event_share(0), None);
    let refused = other.reserve_events(0, Some(Share::WHOLE)).unwrap_err().to_string();
    assert!(refused.contains("`rmdp` has no event server, expected `dwcs`"), "{refused}");
}

#[test]
fn the_share_of_the_event_server_is_reserved_until_it_is_taken_back() {
    let quarter = Share::from_ppm(250_000);
    let half = (params(100, 1).batch(50), terms(0, 1));
    let mut all = Reservations::new(platform(1_000_000, 0, 0), &DWCS);
    // A share that was granted before any activity came counts as well.
    assert_eq!(all.reserve_events(0, quarter), Ok(()));
    all.reserve("half", half.0, &half.1).unwrap();
    assert!((all.load()[0].utilization - 0.75).abs() < 1e-9, "{:?}", all.load());
    let refused = all.reserve("half", half.0, &half.1).unwrap_err();
    assert!(matches!(refused.reason, Reason::WindowsOverCpu { .. }), "{refused}");
    // Windows do not help beside the event server either, because no test proves the misses then.
    let loose = (half.0, terms(1, 2));
    let refused = all.reserve("loose", loose.0, &loose.1).unwrap_err();
    assert!(matches!(refused.reason, Reason::WindowsUnproven { .. }), "{refused}");
    let refused = all.reserve_events(0, Share::from_ppm(500_001)).unwrap_err();
    assert_eq!(refused.name, "event server");
    assert_eq!(all.event_share(0).map(Share::ppm), Some(500_000));
    assert_eq!(all.reserve_events(0, None), Ok(()));
    all.reserve("half", half.0, &half.1).unwrap();
    assert_eq!(all.reserve_events(7, quarter), Ok(()));
    // The limit holds also where there is no activity yet, which would cost hand-offs.
    let mut all = Reservations::new(platform(900_000, 10, 0), &DWCS);
    let refused = all.reserve_events(0, Share::from_ppm(900_001)).unwrap_err();
    assert!(matches!(refused.reason, Reason::OverLimit { .. }), "{refused}");
    assert_eq!(all.reserve_events(0, Share::from_ppm(900_000)), Ok(()));
    assert!((all.load()[0].utilization - 0.9).abs() < 1e-9, "{:?}", all.load());
}

/// Messages may come at any moment, also during an extra service of any activity.
#[test]
fn beside_an_activity_on_demand_only_the_demand_with_every_quantum_admits() {
    let decided = |set: &[_]| {
        let (name, passed, ..) = judged(set, FREE);
        (name, passed)
    };
    let on_demand = |(params, terms)| (params, Terms { on_demand: true, ..terms });
    let each = |cost| (params(10, cost), terms(0, 1));
    assert_eq!(decided(&[each(5), each(5)]), ("edf-demand", true));
    assert_eq!(decided(&[each(5), on_demand(each(5))]), ("edf-demand", false));
    assert_eq!(decided(&[each(3), on_demand(each(4))]), ("edf-demand", true));
    assert_eq!(decided(&[each(4), on_demand(each(4))]), ("edf-demand", false));
    let every_other = (params(10, 10), terms(1, 2));
    assert_eq!(decided(&[every_other, on_demand(every_other)]), ("edf-demand", false));
}
