//! Each rule by itself, the papers' example, and the scheduler's part. `tests/dwcs_model.rs`
//! compares any sequence of operations with a model.

use super::*;
use crate::activity::WorkClass;
use crate::discipline::DWCS;
use crate::scheduler::{Command, Input, Outcome, Scheduler};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

const A: ActivityId = ActivityId(0);
const B: ActivityId = ActivityId(1);
const C: ActivityId = ActivityId(2);

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

const fn window(misses: u32, periods: u32) -> Window {
    Window { misses, periods }
}

fn terms(misses: u32, periods: u32) -> Terms {
    Terms { window: Some(window(misses, periods)), ..Terms::default() }
}

fn order(deadline: u64, misses: u32, periods: u32, tie: u32) -> Order {
    Order { deadline: at(deadline), current: window(misses, periods), tie }
}

#[test]
fn the_table_of_precedence_is_kept_line_by_line() {
    let sorted = [
        // Earliest deadline first, however loose the window.
        order(1, 9, 9, 9),
        // Equal deadlines: lowest window-constraint first; of several that are 0,
        // highest denominator first.
        order(2, 0, 7, 8),
        order(2, 0, 2, 7),
        order(2, 1, 4, 6),
        // Equal and not 0: lowest numerator first.
        order(2, 1, 2, 5),
        order(2, 2, 4, 4),
        order(2, 3, 6, 3),
        // All other cases: first come, first served.
        order(2, 1, 1, 1),
        order(2, 1, 1, 2),
        order(3, 0, 9, 0),
    ];
    let mut shuffled = sorted;
    shuffled.reverse();
    shuffled.sort();
    assert_eq!(shuffled, sorted);
}

#[test]
fn a_window_relaxes_with_a_service_tightens_with_a_miss_and_begins_anew() {
    let mut progress = Progress::new(window(1, 3));
    progress.served();
    assert_eq!(progress.current(), window(1, 2));
    progress.missed(1);
    assert_eq!(progress.current(), window(0, 1));
    progress.served();
    assert_eq!(progress.current(), window(1, 3));
    // Everything that must be served is served: the rest of the window may be missed.
    progress.served();
    progress.served();
    assert_eq!(progress.current(), window(1, 1));
    progress.served();
    assert_eq!((progress.current(), progress.violations()), (window(1, 3), 0));
}

#[test]
fn a_violation_raises_the_denominator_until_a_service_begins_a_new_window() {
    let mut progress = Progress::new(window(1, 3));
    progress.missed(2);
    assert_eq!((progress.current(), progress.violations()), (window(0, 3), 1));
    progress.missed(1);
    assert_eq!((progress.current(), progress.violations()), (window(0, 4), 1));
    progress.served();
    assert_eq!(progress.current(), window(1, 3));
}

#[test]
fn a_window_out_of_its_range_becomes_the_nearest_valid_one() {
    for (given, taken) in [((3, 3), (2, 3)), ((9, 4), (3, 4)), ((5, 0), (0, 1)), ((0, 0), (0, 1))] {
        assert_eq!(window_of(&terms(given.0, given.1)), window(taken.0, taken.1));
    }
    assert_eq!(window_of(&Terms::default()), NO_MISSES);
}

const fn event(rank: u64) -> EventRank {
    EventRank { rank, posted: 0 }
}

/// A policy with activities of period and deadline `period`, all ready at 0.
fn policy(period: u64, cost: u64, windows: &[(u32, u32)]) -> WindowConstrained {
    let mut policy = WindowConstrained::new(8);
    for (&(misses, periods), id) in windows.iter().zip((0..).map(ActivityId)) {
        let params = ActivityParams::new(ns(period), ns(cost));
        policy.join(id, &params, &terms(misses, periods), at(0));
        policy.ready(id, Ready::new(at(0), at(period)), at(0));
    }
    policy
}

/// Three streams with `C = T = 1` that together need the whole CPU: the example of the DWCS papers
/// (West et al. 2004), worked out by hand from the rules. The table has the activity served in each
/// slot, and the three window-constraints after it.
#[test]
fn the_example_of_the_papers_comes_out_slot_by_slot() {
    let mut policy = policy(1, 1, &[(1, 2), (3, 4), (6, 8)]);
    let expected = [
        (A, [(1, 1), (2, 3), (5, 7)]),
        (B, [(1, 2), (2, 2), (4, 6)]),
        (A, [(1, 1), (1, 1), (3, 5)]),
        (C, [(1, 2), (3, 4), (3, 4)]),
        (A, [(1, 1), (2, 3), (2, 3)]),
        (B, [(1, 2), (2, 2), (1, 2)]),
        (A, [(1, 1), (1, 1), (0, 1)]),
        (C, [(1, 2), (3, 4), (6, 8)]),
    ];
    for (slot, (served, windows)) in (0..).zip(expected.into_iter().cycle().take(24)) {
        let (begin, end) = (at(slot), at(slot + 1));
        assert_eq!(policy.overdue(begin, true), None);
        assert_eq!(policy.pick(begin), Some(served), "slot {slot}");
        policy.ran(served, ns(1), end);
        policy.done(served, end, end);
        while let Some(id) = policy.overdue(end, false) {
            policy.lost(id, 1, end);
        }
        for (id, (misses, periods)) in [A, B, C].into_iter().zip(windows) {
            let current = policy.member(id).unwrap().progress.current();
            assert_eq!(current, window(misses, periods), "{id:?} after slot {slot}");
            policy.ready(id, Ready::new(end, at(slot + 2)), end);
        }
    }
}

#[test]
fn an_activity_with_an_event_overtakes_if_all_before_it_still_fit() {
    let mut policy = policy(12, 2, &[(0, 1), (1, 2), (3, 4)]);
    policy.posted(C, event(5), at(0));
    assert_eq!(policy.pick(at(0)), Some(C));
    policy.resume(C, at(1));
    // The upcall saw the event.
    assert_eq!(policy.pick(at(1)), Some(A));
    policy.resume(A, at(1));
    // Twice 6 does not fit into 11, but twice 4 does.
    policy.posted(C, event(5), at(1));
    assert_eq!(policy.pick(at(1)), Some(A));
    policy.resume(A, at(1));
    policy.taken(C, None, at(1));
    policy.posted(B, event(5), at(1));
    assert_eq!(policy.pick(at(1)), Some(B));
}

#[test]
fn an_earlier_deadline_is_not_overtaken_and_more_than_the_most_are_not() {
    let mut policy = policy(1_000, 1, &[(0, 1), (0, 1)]);
    policy.withdraw(A, at(0));
    policy.ready(A, Ready::new(at(0), at(999)), at(0));
    policy.posted(B, event(0), at(0));
    assert_eq!(policy.pick(at(0)), Some(A));

    let count = u32::try_from(OVERTAKEN_MAX).unwrap() + 2;
    let mut policy = WindowConstrained::new(count);
    for id in (0..count).map(ActivityId) {
        let params = ActivityParams::new(ns(1_000), ns(1));
        policy.join(id, &params, &Terms::default(), at(0));
        policy.ready(id, Ready::new(at(0), at(1_000)), at(0));
    }
    let last = ActivityId(count - 1);
    policy.posted(last, event(0), at(0));
    assert_eq!(policy.pick(at(0)), Some(A));
    policy.ran(A, ns(1), at(1));
    policy.done(A, at(1_000), at(1));
    assert_eq!(policy.pick(at(1)), Some(last));
}

#[test]
fn the_most_urgent_event_goes_first_whatever_the_windows() {
    let mut policy = policy(100, 2, &[(0, 1), (1, 2), (3, 4)]);
    policy.posted(B, event(7), at(0));
    policy.posted(C, event(6), at(0));
    assert_eq!(policy.pick(at(0)), Some(C));
    policy.done(C, at(100), at(2));
    assert_eq!(policy.pick(at(2)), Some(B));
    policy.done(B, at(100), at(4));
    assert_eq!(policy.pick(at(4)), Some(A));
    policy.done(A, at(100), at(6));
    // Nothing is ready: the same order (modifications 2 and 3), and then none, because no further
    // event has come.
    policy.posted(A, event(9), at(6));
    policy.posted(B, event(8), at(6));
    for id in [B, A] {
        assert_eq!(policy.pick_extra(at(6), at(100)), Some(id));
        policy.extra_done(id, ExtraEnd::Done, at(6));
    }
    assert_eq!(policy.pick_extra(at(6), at(100)), None);
    // The remaining events of a handler that took some count again.
    policy.taken(B, Some(event(8)), at(6));
    assert_eq!(policy.pick_extra(at(6), at(100)), Some(B));
}

#[test]
fn the_event_server_serves_the_most_urgent_event_by_the_run_time_of_its_owner() {
    let mut policy = policy(100, 10, &[(0, 1), (0, 1), (0, 1)]);
    for (id, end) in [(A, 10), (B, 20)] {
        assert_eq!(policy.pick(at(end - 10)), Some(id));
        policy.done(id, at(100), at(end));
    }
    policy.set_event_share(Share::from_ppm(500_000), at(20));
    policy.posted(A, event(2), at(20));
    policy.posted(B, event(1), at(20));
    for (id, end) in [(B, 30), (A, 40)] {
        assert_eq!(policy.pick(at(end - 10)), Some(id));
        policy.taken(id, None, at(end - 10));
        policy.extra_done(id, ExtraEnd::Done, at(end));
    }
    assert_eq!(policy.pick(at(40)), Some(C));
}

#[test]
fn the_event_server_goes_by_its_own_deadline_and_no_oftener_than_its_share() {
    let mut policy = policy(100, 10, &[(0, 1), (0, 1)]);
    assert_eq!(policy.pick(at(0)), Some(A));
    policy.done(A, at(100), at(10));
    // A is idle and has an event; B is due at 100. A quarter of the CPU: 10 in 40.
    policy.set_event_share(Share::from_ppm(250_000), at(10));
    policy.posted(A, event(1), at(10));
    assert_eq!(policy.pick(at(10)), Some(A));
    policy.extra_done(A, ExtraEnd::Done, at(20));
    // The next one is due 40 after the first: at 90. The one after that goes behind B.
    policy.posted(A, event(2), at(20));
    assert_eq!(policy.pick(at(20)), Some(A));
    policy.extra_done(A, ExtraEnd::Done, at(30));
    policy.posted(A, event(3), at(30));
    assert_eq!(policy.pick(at(30)), Some(B));
    assert!(!policy.gives_way(B, at(30), at(31)));
    policy.done(B, at(100), at(40));
    assert!(policy.has_ready());
    assert_eq!(policy.pick(at(40)), Some(A));
}

/// A scheduler with these activities created and running from 0 on.
fn scheduler(set: &[(ActivityParams, Terms)]) -> Scheduler {
    let mut scheduler = Scheduler::new(4, &DWCS);
    for (&(params, terms), id) in set.iter().zip((0..).map(ActivityId)) {
        scheduler.handle(at(0), Input::Create { id, params, terms }).unwrap();
    }
    for id in (0..).take(set.len()).map(ActivityId) {
        scheduler.handle(at(0), Input::Run { id, at: at(0) }).unwrap();
    }
    scheduler
}

fn handle(scheduler: &mut Scheduler, now: u64, input: Input) -> Vec<Command> {
    scheduler.handle(at(now), input).unwrap();
    drain(scheduler, now)
}

fn drain(scheduler: &mut Scheduler, now: u64) -> Vec<Command> {
    core::iter::from_fn(|| scheduler.poll_command(at(now))).collect()
}

const DONE: Outcome = Outcome::Done;

fn upcalled(commands: &[Command]) -> Option<ActivityId> {
    let upcall = |command: &Command| match command {
        Command::Upcall { id, .. } => Some(*id),
        _ => None,
    };
    commands.iter().find_map(upcall)
}

#[test]
fn a_lost_period_ends_as_missed_and_not_completed_and_the_next_one_is_fresh() {
    let task = |misses| (ActivityParams::new(ns(10), ns(3)).batch(2), terms(misses, 2));
    let mut scheduler = scheduler(&[task(0), task(1)]);
    assert_eq!(upcalled(&drain(&mut scheduler, 0)), Some(A));
    let commands = handle(&mut scheduler, 6, Input::Returned { pdus: 2, outcome: DONE });
    // At 6, 6 more do not fit before 10: the job is lost at once, and its record ends at that
    // moment.
    let Command::JobDone(lost) = commands[1] else { panic!("{commands:?}") };
    assert_eq!((lost.id, lost.job, lost.end, lost.completed), (B, 0, at(10), false));
    assert!(lost.missed());
    assert_eq!(upcalled(&commands), None);
    assert_eq!(scheduler.next_deadline(), Some(at(10)));
    let commands = handle(&mut scheduler, 10, Input::Tick);
    assert_eq!(upcalled(&commands), Some(A));
    let counters = scheduler.counters(B).unwrap();
    assert_eq!((counters.jobs, counters.misses, counters.overruns), (2, 1, 0));
    assert_eq!(scheduler.window_violations(B), Some(0));
}

#[test]
fn a_driver_late_by_many_periods_loses_all_of_them_at_once() {
    let mut scheduler = scheduler(&[(ActivityParams::new(ns(10), ns(3)), terms(1, 4))]);
    // Released at 0 to 90; those from 0 to 80 are lost.
    let commands = handle(&mut scheduler, 95, Input::Tick);
    assert!(matches!(commands[0], Command::JobDone(record) if record.job == 0));
    assert!(matches!(commands[1], Command::Upcall { id: A, .. }));
    handle(&mut scheduler, 98, Input::Returned { pdus: 1, outcome: DONE });
    let counters = scheduler.counters(A).unwrap();
    assert_eq!((counters.jobs, counters.completed, counters.misses), (10, 1, 9));
    // Twice 4 periods, and one of the third window.
    assert_eq!(scheduler.window_violations(A), Some(2));
}

#[test]
fn a_job_cut_off_by_its_deadline_gives_way_and_is_lost() {
    let mut scheduler = scheduler(&[(ActivityParams::new(ns(10), ns(2)).batch(4), terms(1, 2))]);
    drain(&mut scheduler, 0);
    // Each PDU takes three times as long as declared.
    let answer = handle(&mut scheduler, 6, Input::Boundary);
    assert!(matches!(answer[..], [Command::Proceed { check_at }] if check_at == at(8)));
    // It used its run time, and no other activity is ready.
    let answer = handle(&mut scheduler, 9, Input::Boundary);
    assert!(matches!(answer[..], [Command::Proceed { .. }]));
    assert_eq!(handle(&mut scheduler, 12, Input::Boundary), [Command::Yield]);
    let commands =
        handle(&mut scheduler, 12, Input::Returned { pdus: 2, outcome: Outcome::Yielded });
    assert!(matches!(commands[0], Command::JobDone(record) if record.pdus == 2 && record.missed()));
    // The period that began meanwhile has its whole batch left.
    assert!(matches!(commands[1], Command::Upcall { pdus_max: 4, resumed: false, .. }));
}

#[test]
fn a_job_lost_while_a_handler_runs_is_reported_after_its_return() {
    let long = ActivityParams::new(ns(100), ns(20)).batch(2);
    let short = ActivityParams::new(ns(10), ns(1)).offset(ns(1));
    let mut scheduler = scheduler(&[(long, terms(0, 1)), (short, terms(1, 2))]);
    assert_eq!(upcalled(&drain(&mut scheduler, 0)), Some(A));
    // Periods from 1, 11 and 21 on; two are over at 25. The answer comes alone.
    assert_eq!(handle(&mut scheduler, 25, Input::Boundary), [Command::Yield]);
    let commands =
        handle(&mut scheduler, 25, Input::Returned { pdus: 1, outcome: Outcome::Yielded });
    assert!(matches!(commands[0], Command::JobDone(record) if record.id == B && record.job == 0));
    assert_eq!(upcalled(&commands), Some(B));
    assert_eq!(scheduler.counters(B).unwrap().misses, 2);
    // Nothing is reported of an activity that is gone.
    handle(&mut scheduler, 26, Input::Returned { pdus: 1, outcome: DONE });
    assert_eq!(handle(&mut scheduler, 60, Input::Tick), []);
    handle(&mut scheduler, 60, Input::Close { id: B });
    let commands = handle(&mut scheduler, 61, Input::Returned { pdus: 1, outcome: DONE });
    assert!(commands.iter().all(|command| !matches!(command, Command::JobDone(r) if r.id == B)));
}

#[test]
fn a_work_conserving_activity_is_served_until_it_has_nothing_left() {
    let mut eager = (ActivityParams::new(ns(100), ns(1)).batch(4), terms(0, 1));
    eager.1.work_conserving = true;
    let mut scheduler = scheduler(&[eager, (eager.0.offset(ns(30)), terms(0, 1))]);
    assert_eq!(upcalled(&drain(&mut scheduler, 0)), Some(A));
    let returned = |pdus| Input::Returned { pdus, outcome: DONE };
    assert_eq!(upcalled(&handle(&mut scheduler, 4, returned(4))), Some(A));
    assert_eq!(upcalled(&handle(&mut scheduler, 8, returned(4))), Some(A));
    assert_eq!(upcalled(&handle(&mut scheduler, 11, returned(3))), None);
    assert_eq!(scheduler.next_deadline(), Some(at(30)));
    let counters = scheduler.counters(A).unwrap();
    assert_eq!((counters.jobs, counters.completed, counters.pdus), (1, 1, 11));
    // The other one is not work-conserving, so it is served only for its events.
    assert_eq!(upcalled(&handle(&mut scheduler, 30, Input::Tick)), Some(B));
    assert_eq!(upcalled(&handle(&mut scheduler, 34, returned(4))), None);
    assert_eq!(upcalled(&handle(&mut scheduler, 40, Input::Posted { id: B, rank: 2 })), Some(B));
    assert_eq!(upcalled(&handle(&mut scheduler, 41, returned(1))), None);
    // B is not served while it is suspended.
    handle(&mut scheduler, 42, Input::Suspend { id: B });
    assert_eq!(upcalled(&handle(&mut scheduler, 43, Input::Posted { id: B, rank: 2 })), None);
}

/// Neither for an event nor for idle time, and at the declared rate in each class.
#[test]
fn an_activity_on_demand_is_served_for_its_messages_alone() {
    for class in [WorkClass::RealTime, WorkClass::Interactive, WorkClass::Background] {
        let terms = Terms { on_demand: true, work_conserving: true, class, ..terms(0, 1) };
        let mut scheduler = scheduler(&[(ActivityParams::new(ns(100), ns(1)).batch(4), terms)]);
        assert_eq!(upcalled(&drain(&mut scheduler, 0)), Some(A));
        let returned = Input::Returned { pdus: 4, outcome: DONE };
        assert_eq!(upcalled(&handle(&mut scheduler, 4, returned)), None);
        let posted = Input::Posted { id: A, rank: 2 };
        assert_eq!(upcalled(&handle(&mut scheduler, 5, posted)), None);
        let message = Input::Message { id: A, critical: at(6), from: at(6) };
        assert_eq!(upcalled(&handle(&mut scheduler, 6, message)), None, "{class:?}");
        assert_eq!(upcalled(&handle(&mut scheduler, 99, Input::Tick)), None, "{class:?}");
        assert_eq!(upcalled(&handle(&mut scheduler, 100, Input::Tick)), Some(A));
    }
}

#[test]
fn an_extra_service_ends_before_the_next_release() {
    let mut eager = (ActivityParams::new(ns(20), ns(3)).batch(4), terms(0, 1));
    eager.1.work_conserving = true;
    let mut scheduler = scheduler(&[eager]);
    drain(&mut scheduler, 0);
    let commands = handle(&mut scheduler, 8, Input::Returned { pdus: 4, outcome: DONE });
    // Twice a quantum before 20.
    assert!(matches!(commands[1], Command::Upcall { id: A, check_at, .. } if check_at == at(14)));
    let answer = handle(&mut scheduler, 11, Input::Boundary);
    assert!(matches!(answer[..], [Command::Proceed { .. }]));
    assert_eq!(handle(&mut scheduler, 15, Input::Boundary), [Command::Yield]);
    let yielded = Input::Returned { pdus: 2, outcome: Outcome::Yielded };
    assert_eq!(handle(&mut scheduler, 15, yielded), []);
    assert_eq!(scheduler.next_deadline(), Some(at(20)));
    let counters = scheduler.counters(A).unwrap();
    assert_eq!((counters.pdus, counters.preemptions), (6, 0));
}

/// Among processes: a multiple of the period, not before now, and after the window in which the
/// activity was suspended.
#[test]
fn first_releases_are_aligned_among_processes() {
    let mut scheduler = Scheduler::new(4, &DWCS);
    let params = ActivityParams::new(ns(10), ns(1));
    let on_demand = Terms { on_demand: true, ..terms(2, 3) };
    for (id, params, terms) in
        [(A, params, terms(2, 3)), (B, params.offset(ns(4)), terms(0, 3)), (C, params, on_demand)]
    {
        scheduler.handle(at(0), Input::Create { id, params, terms }).unwrap();
    }
    let all = |scheduler: &Scheduler, from, now| {
        [A, B, C].map(|id| scheduler.first_release(id, at(from), at(now)).as_nanos())
    };
    // One process alone.
    assert_eq!(all(&scheduler, 13, 25), [13, 13, 13]);
    scheduler.handle(at(0), Input::DomainShare { share: Some(Share::WHOLE) }).unwrap();
    assert_eq!(all(&scheduler, 13, 5), [20, 20, 13]);
    assert_eq!(all(&scheduler, 13, 25), [30, 30, 13]);
    assert_eq!(all(&scheduler, 30, 0), [30, 30, 30]);
    for id in [A, B] {
        scheduler.handle(at(5), Input::Run { id, at: at(1) }).unwrap();
    }
    let releases = [A, B].map(|id| scheduler.release_of(id).unwrap().as_nanos());
    assert_eq!(releases, [10, 14]);
    // The first window of A is that from 10 to 40; each period of B is one.
    scheduler.handle(at(27), Input::Tick).unwrap();
    while scheduler.poll_notice().is_some() {}
    for id in [A, B] {
        scheduler.handle(at(27), Input::Suspend { id }).unwrap();
        while scheduler.poll_notice().is_some() {}
    }
    assert_eq!(all(&scheduler, 27, 27), [40, 30, 27]);
    assert_eq!(all(&scheduler, 41, 27)[..2], [50, 50]);
    // The new window of A begins with all its misses.
    scheduler.handle(at(28), Input::Run { id: A, at: at(28) }).unwrap();
    assert_eq!(scheduler.release_of(A), Some(at(40)));
    scheduler.handle(at(61), Input::Tick).unwrap();
    assert_eq!(scheduler.window_violations(A), Some(0));
    scheduler.handle(at(71), Input::Tick).unwrap();
    assert_eq!(scheduler.window_violations(A), Some(1));
}

proptest! {
    #![proptest_config(Config {
        cases: 600,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(2001),
        ..Config::default()
    })]

    /// A long row of misses counts like that many single ones.
    #[test]
    fn many_misses_at_once_are_as_one_after_the_other(
        misses in 0u32..6,
        more in 1u32..6,
        outcomes in prop::collection::vec(prop_oneof![Just(0u64), 0u64..30], 0..30),
    ) {
        let mut at_once = Progress::new(window(misses, misses + more));
        let mut single = at_once;
        let mut history = Vec::new();
        for count in outcomes {
            if count == 0 {
                at_once.served();
                single.served();
                history.push(true);
            } else {
                at_once.missed(count);
                (0..count).for_each(|_| single.missed(1));
                history.extend((0..count).map(|_| false));
            }
            prop_assert_eq!(at_once.current(), single.current());
            prop_assert_eq!(at_once.violations(), single.violations());
            let broken = history
                .chunks((misses + more) as usize)
                .filter(|periods| {
                    periods.iter().filter(|&&served| !served).count() > misses as usize
                });
            prop_assert_eq!(at_once.violations(), broken.count() as u64);
        }
    }
}
