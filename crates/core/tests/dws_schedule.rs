//! DWS by examples that were worked out by hand: which activity runs when, and how it is counted.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use dws_driver::{Activity, Conditions, IDEAL, Lead, Quantum, observe, run};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use upcall_core::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use upcall_core::discipline::DWS;
use upcall_core::discipline::Discipline;
use upcall_core::discipline::RMDP;
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Counters, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

#[allow(dead_code, reason = "each test file uses its part")]
mod dws_driver;

const A: ActivityId = ActivityId(0);
const B: ActivityId = ActivityId(1);

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// `batch` PDUs of 1 ns every `period_ns`, preempted after each.
fn task(period_ns: u64, batch: u32) -> Activity {
    let params = ActivityParams::new(ns(period_ns), ns(1)).batch(batch);
    (params, Terms { workahead_max: 1, ..Terms::default() })
}

fn due((params, terms): Activity, bound_ns: u64) -> Activity {
    (params, Terms { delay_bound: Some(ns(bound_ns)), ..terms })
}

fn offset((params, terms): Activity, offset_ns: u64) -> Activity {
    (params.offset(ns(offset_ns)), terms)
}

fn never_early((params, terms): Activity) -> Activity {
    (params, Terms { workahead_max: 0, ..terms })
}

fn class((params, terms): Activity, class: WorkClass) -> Activity {
    (params, Terms { class, ..terms })
}

/// The activities that had the CPU, each with its start and its end.
fn stretches(quanta: &[Quantum]) -> Vec<Quantum> {
    let mut stretches: Vec<Quantum> = Vec::new();
    for &(id, begin, end) in quanta {
        match stretches.last_mut() {
            Some(last) if last.0 == id && last.2 == begin => last.2 = end,
            _ => stretches.push((id, begin, end)),
        }
    }
    stretches
}

/// In the manner of split-level-1991 Figure 3: two critical streams, two streams with an early
/// message, an interactive and a background activity.
///
/// ```text      arrives  l(m)  due  cost
/// P0       0      0    14    2
/// P1       1      1     9    2
/// P2       0      9    14    3    workahead until 9
/// P3       0     13    33    5    workahead until 13
/// I        5      -     -    5
/// G        0      -     -   10
/// ```
///
/// Streams P2 and P3 may be one message ahead, and always are.
///
/// P0 begins; at 1 P1 is due earlier. At 4 nothing is critical or interactive, and P2 works ahead,
/// before P3, whose logical arrival is later. At 5 I comes, and P2 gives way. At 9 P2 is critical,
/// and I gives way. At 12 P3 works ahead; at 13 it becomes critical, which changes nothing. P2 and
/// P3 work ahead on their next messages, of 49 and 53, which came at 9 and 13. G gets the rest.
#[test]
fn each_level_comes_before_the_next() {
    let set = [
        never_early(due(task(40, 2), 14)),
        never_early(offset(due(task(40, 2), 8), 1)),
        offset(due(task(40, 3), 5), 9),
        offset(due(task(40, 5), 20), 13),
        offset(class(task(40, 5), WorkClass::Interactive), 5),
        class(task(40, 10), WorkClass::Background),
    ];
    let (counters, quanta) = run(&set, Conditions { lead: Lead::Most, ..IDEAL }, 35);
    let expected = [
        (0, 0, 1),
        (1, 1, 3),
        (0, 3, 4),
        (2, 4, 5),
        (4, 5, 9),
        (2, 9, 11),
        (4, 11, 12),
        (3, 12, 17),
        (2, 17, 20),
        (3, 20, 25),
        (5, 25, 35),
    ];
    assert_eq!(stretches(&quanta), expected);
    let responses: Vec<_> = counters.iter().map(|c| c.response_max.as_nanos()).collect();
    assert_eq!(responses, [4, 2, 2, 4, 7, 35]);
    assert_eq!(counters.iter().map(|c| c.slack_ns_min).min(), Some(3));
}

/// At 4 only G has work, unless the stream's message of 9 has come. If this message has come, it
/// goes first, and at 9 the message of 49 goes first.
#[test]
fn without_early_messages_the_background_has_the_time() {
    let set = [
        never_early(due(task(40, 4), 14)),
        offset(due(task(40, 3), 5), 9),
        class(task(40, 10), WorkClass::Background),
    ];
    let (_, quanta) = run(&set, IDEAL, 17);
    assert_eq!(stretches(&quanta), [(0, 0, 4), (2, 4, 9), (1, 9, 12), (2, 12, 17)]);
    let (_, quanta) = run(&set, Conditions { lead: Lead::Most, ..IDEAL }, 20);
    assert_eq!(stretches(&quanta), [(0, 0, 4), (1, 4, 7), (2, 7, 9), (1, 9, 12), (2, 12, 20)]);
}

/// Interactive activities among themselves: first come, first served, to the end of the job.
#[test]
fn interactive_activities_are_served_in_the_order_they_come() {
    let interactive =
        |offset_ns, batch| offset(class(task(40, batch), WorkClass::Interactive), offset_ns);
    let set = [interactive(2, 3), interactive(1, 4), interactive(1, 2)];
    let (_, quanta) = run(&set, IDEAL, 10);
    assert_eq!(stretches(&quanta), [(1, 1, 5), (2, 5, 7), (0, 7, 10)]);
}

/// A scheduler whose commands are all polled after each input, as in every driver.
struct Bench(Scheduler);

impl Bench {
    /// A scheduler with these activities created and running from 0 on.
    fn running(set: &[Activity], discipline: &'static Discipline) -> (Bench, Vec<Command>) {
        let mut bench = Bench(Scheduler::new(8, discipline));
        for (&(params, terms), id) in set.iter().zip((0..).map(ActivityId)) {
            bench.0.handle(at(0), Input::Create { id, params, terms }).unwrap();
        }
        for id in (0..u32::try_from(set.len()).unwrap()).map(ActivityId) {
            bench.0.handle(at(0), Input::Run { id, at: at(0) }).unwrap();
        }
        let commands = bench.drain(0);
        (bench, commands)
    }

    fn handle(&mut self, now: u64, input: Input) -> Vec<Command> {
        self.0.handle(at(now), input).unwrap();
        self.drain(now)
    }

    fn drain(&mut self, now: u64) -> Vec<Command> {
        core::iter::from_fn(|| self.0.poll_command(at(now))).collect()
    }

    fn arrived(&mut self, now: u64, id: ActivityId, messages: u32) -> Vec<Command> {
        self.handle(now, Input::Arrived { id, messages })
    }

    /// The record of the job, and the commands after it.
    fn done(&mut self, now: u64, pdus: u32) -> (JobRecord, Vec<Command>) {
        let mut commands = self.handle(now, Input::Returned { pdus, outcome: Outcome::Done });
        let Command::JobDone(record) = commands.remove(0) else { panic!("{commands:?}") };
        (record, commands)
    }

    fn counters(&self, now: u64, id: ActivityId) -> Counters {
        self.0.counters_at(at(now), id).unwrap()
    }
}

fn upcall(id: ActivityId, pdus_max: u32, check_at: u64) -> Command {
    Command::Upcall { id, pdus_max, resumed: false, check_at: at(check_at) }
}

#[test]
fn a_job_that_ends_before_its_logical_arrival_has_response_0_and_full_slack() {
    let (mut bench, _) = Bench::running(&[offset(due(task(10, 2), 8), 5)], &DWS);
    assert_eq!(bench.arrived(1, A, 1), [upcall(A, 2, 3)]);
    let (record, after) = bench.done(3, 2);
    assert_eq!((record.job, record.release, record.deadline), (0, at(5), at(13)));
    assert_eq!((record.start, record.end, record.slack_ns()), (at(1), at(3), 10));
    assert_eq!((record.response(), record.wakeup_latency()), (Span::ZERO, Span::ZERO));
    // Its release does not come a second time.
    assert_eq!(after, []);
    assert_eq!(bench.0.next_deadline(), Some(at(15)));
    assert_eq!(bench.handle(5, Input::Tick), []);
    assert_eq!(bench.handle(15, Input::Tick), [upcall(A, 2, 17)]);
    let counters = bench.counters(16, A);
    assert_eq!((counters.jobs, counters.completed, counters.overruns), (2, 1, 0));
    assert_eq!((counters.slack_ns_min, counters.response_max), (10, Span::ZERO));
}

/// The limit counts from the logical arrivals: an activity that has worked ahead has used it.
#[test]
fn messages_beyond_the_limit_wait_for_their_releases() {
    let (params, terms) = task(10, 1);
    let two = (params, Terms { workahead_max: 2, ..terms });
    let (mut bench, _) = Bench::running(&[two], &DWS);
    bench.done(1, 1);
    // At 4 the messages of 10 and 20 are within 4 + 2 * 10; the one of 30 is not.
    assert_eq!(bench.arrived(4, A, 9), [upcall(A, 1, 5)]);
    assert_eq!(bench.done(5, 1).1, [upcall(A, 1, 6)]);
    let (record, after) = bench.done(6, 1);
    assert_eq!((record.release, after), (at(20), vec![]));
    assert_eq!(bench.arrived(9, A, 9), []);
    assert_eq!(bench.arrived(10, A, 9), [upcall(A, 1, 11)]);
    assert_eq!(bench.counters(10, A).jobs, 4);
}

#[test]
fn early_messages_do_not_count_under_policies_that_do_not_work_ahead() {
    let realtime = offset(task(10, 1), 5);
    let (params, terms) = realtime;
    let never = (params, Terms { workahead_max: 0, ..terms });
    let interactive = class(realtime, WorkClass::Interactive);
    for (activity, discipline) in [(realtime, &RMDP), (never, &DWS), (interactive, &DWS)] {
        let (mut bench, _) = Bench::running(&[activity], discipline);
        assert_eq!(bench.arrived(1, A, 3), []);
        assert_eq!((bench.counters(1, A).jobs, bench.0.next_deadline()), (0, Some(at(5))));
        let commands = bench.handle(5, Input::Tick);
        assert!(matches!(commands[..], [Command::Upcall { id: A, pdus_max: 1, .. }]));
    }
    // Early messages do not count either while the activity is suspended, or about to be suspended.
    let (mut bench, _) = Bench::running(&[realtime], &DWS);
    bench.handle(1, Input::Suspend { id: A });
    assert_eq!(bench.arrived(1, A, 1), []);
    bench.handle(2, Input::Run { id: A, at: at(2) });
    bench.handle(7, Input::Tick);
    bench.handle(8, Input::Suspend { id: A });
    bench.arrived(8, A, 1);
    bench.handle(8, Input::Returned { pdus: 1, outcome: Outcome::Done });
    assert_eq!((bench.counters(9, A).jobs, bench.0.next_deadline()), (1, None));
    assert!(bench.0.handle(at(9), Input::Arrived { id: B, messages: 1 }).is_err());
}

/// B waits for work ahead and becomes critical at 6. A must ask at that moment, and give way.
#[test]
fn a_handler_asks_when_one_that_waits_becomes_critical() {
    let first = class(task(100, 20), WorkClass::Interactive);
    let (mut bench, commands) = Bench::running(&[first, offset(task(50, 2), 6)], &DWS);
    assert_eq!(commands, [upcall(A, 20, 6)]);
    assert_eq!(bench.arrived(2, B, 1), []);
    assert_eq!(bench.handle(3, Input::Boundary), [Command::Proceed { check_at: at(6) }]);
    assert_eq!(bench.handle(6, Input::Boundary), [Command::Yield]);
    let commands = bench.handle(6, Input::Returned { pdus: 6, outcome: Outcome::Yielded });
    assert_eq!(commands, [upcall(B, 2, 8)]);
}

/// Logical arrivals at 5, 15 and 25, all messages present at 1; due 8 later. The first ends at 20,
/// when the second should have begun. The second ends at 24, before the third's logical arrival.
#[test]
fn an_early_message_is_an_overrun_only_if_the_previous_one_is_unfinished_at_its_logical_arrival() {
    let (params, terms) = offset(due(task(10, 4), 8), 5);
    let set = [(params, Terms { workahead_max: 3, ..terms })];
    let (mut bench, _) = Bench::running(&set, &DWS);
    bench.arrived(1, A, 3);
    let overruns = |bench: &Bench, now| bench.counters(now, A).overruns;
    assert_eq!([15, 16, 26].map(|now| overruns(&bench, now)), [0, 1, 2]);
    let misses = [13, 14, 23, 24, 99].map(|now| bench.counters(now, A).misses);
    assert_eq!(misses, [0, 1, 1, 2, 3]);
    let (record, _) = bench.done(20, 4);
    assert_eq!((record.response(), record.slack_ns(), record.missed()), (ns(15), -7, true));
    let (record, _) = bench.done(24, 4);
    assert_eq!((record.release, record.slack_ns()), (at(15), -1));
    let (record, _) = bench.done(28, 4);
    assert_eq!((record.release, record.response(), record.slack_ns()), (at(25), ns(3), 5));
    let counters = bench.counters(28, A);
    assert_eq!((counters.jobs, counters.misses, counters.overruns), (3, 2, 1));
}

#[test]
fn a_delay_bound_may_reach_beyond_the_next_message() {
    let (mut bench, _) = Bench::running(&[due(task(10, 4), 25)], &DWS);
    bench.handle(12, Input::Tick);
    let (record, _) = bench.done(21, 4);
    assert_eq!((record.deadline, record.slack_ns()), (at(25), 4));
    let (record, _) = bench.done(36, 4);
    assert_eq!((record.release, record.deadline, record.missed()), (at(10), at(35), true));
    // Under another policy the message has not come yet.
    let (mut bench, _) = Bench::running(&[due(task(10, 4), 25)], &RMDP);
    assert_eq!(bench.done(9, 4).0.deadline, at(10));
}

/// A timestamp postpones a message, and those behind it. The position in the stream gives the
/// earliest release, because the declared rate holds.
#[test]
fn a_timestamp_postpones_a_message_and_never_advances_it() {
    let (mut bench, _) = Bench::running(&[task(10, 1)], &DWS);
    // No effect while a job is unfinished.
    assert_eq!(bench.handle(0, Input::Advance { id: A, critical: at(99) }), []);
    bench.done(1, 1);
    assert_eq!(bench.handle(1, Input::Advance { id: A, critical: at(9) }), []);
    assert_eq!(bench.0.next_deadline(), Some(at(10)));
    assert_eq!(bench.handle(2, Input::Advance { id: A, critical: at(13) }), []);
    assert_eq!(bench.0.next_deadline(), Some(at(13)));
    // The message comes at 3, 10 before its logical arrival.
    assert_eq!(bench.arrived(3, A, 1), [upcall(A, 1, 4)]);
    let (record, _) = bench.done(4, 1);
    assert_eq!((record.release, record.deadline), (at(13), at(23)));
    assert_eq!(bench.handle(23, Input::Tick), [upcall(A, 1, 24)]);
    assert!(bench.0.handle(at(23), Input::Advance { id: B, critical: at(1) }).is_err());
}

prop_compose! {
    fn any_activity(class: WorkClass)(
        period_ns in 20u64..60,
        cost_ns in 1u64..4,
        batch in 1u32..5,
        seed in any::<u32>(),
        offset_ns in 0u64..60,
    ) -> Activity {
        let params = ActivityParams::new(ns(period_ns), ns(cost_ns))
            .batch(batch)
            .quantum(1 + seed % batch)
            .offset(ns(offset_ns));
        (params, Terms { class, workahead_max: seed % 4, ..Terms::default() })
    }
}

proptest! {
    #![proptest_config(Config {
        cases: 300,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1991),
        ..Config::default()
    })]

    /// One stream has the earliest deadline of all, and its messages are never early. Whatever the
    /// others do ahead or in the background, this stream waits for at most the rest of one quantum.
    #[test]
    fn nothing_delays_a_critical_activity_beyond_one_quantum(
        mut set in prop::collection::vec(
            prop_oneof![
                2 => any_activity(WorkClass::RealTime),
                1 => any_activity(WorkClass::Interactive),
                1 => any_activity(WorkClass::Background),
            ],
            1..7,
        ),
        lead in prop_oneof![Just(Lead::Most), Just(Lead::Random)],
        seed in any::<u64>(),
    ) {
        for (_, terms) in &mut set {
            terms.delay_bound = Some(ns(10_000));
        }
        let longest = set.iter().map(|(params, _)| params.quantum_cost()).max().unwrap();
        let own = ActivityParams::new(ns(17), ns(2)).deadline(ns(1)).offset(ns(3));
        set.push((own, Terms { delay_bound: Some(ns(1)), ..Terms::default() }));
        let counters = observe(&set, Conditions { lead, seed, ..IDEAL }, 600);
        let response = counters[set.len() - 1].response_max;
        prop_assert!(response <= ns(2) + longest.saturating_sub(ns(1)), "{response}");
    }
}
