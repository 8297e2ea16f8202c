//! Tests each checker on a correct run and on a broken one. A broken run has a fault that the
//! checker does not know, a set that was not admitted, or changed events.

use super::*;
use crate::arrivals::Arrivals;
use crate::event::EventKind;
use crate::fault::{Fault, Window};
use crate::posting::{PostRank, Posting};
use crate::simulation::Simulation;
use crate::spec::SimActivity;
use upcall_core::activity::{ActivityParams, Window as Misses};
use upcall_core::discipline::RM;
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * MS)
}

fn window(from: u64, until: u64) -> Window {
    Window { from: at(from), until: at(until) }
}

/// 2 of 10 ms and 6 of 20 ms, the same on both CPUs.
fn spec() -> SimSpec {
    let task = |period, cost, cpu| {
        let params = ActivityParams::new(Span::from_millis(period), Span::from_millis(cost));
        let mut activity = SimActivity::new("", params.batch(2));
        (activity.cpu, activity.domain) = (cpu, cpu);
        activity
    };
    let activities = vec![task(10, 1, 0), task(20, 3, 0), task(10, 1, 1), task(20, 3, 1)];
    SimSpec { cpus: vec![0, 1], ..SimSpec::new(&RMDP, activities) }
}

/// The worst responses of that set: a quantum of 3 ms blocks, and the second activity waits for the
/// first.
fn promises() -> Promises {
    let bounds = [5, 10, 5, 10].map(|ms| Some(Span::from_millis(ms)));
    Promises {
        response_max: bounds.into(),
        wakeup_latency: Span::ZERO,
        lag_max: Some(Span::from_millis(1)),
        windows: true,
        settled_after: Span::from_millis(40),
    }
}

fn events_of(spec: &SimSpec) -> Vec<SimEvent> {
    let mut events = Vec::new();
    let simulation = Simulation::new(spec.clone()).unwrap();
    simulation.run(Span::from_millis(400), &mut |event| events.push(*event));
    events
}

/// The result of the checkers for `events`, if they know the spec `known`.
fn verdict(known: &SimSpec, promises: &Promises, events: &[SimEvent]) -> Result<(), Violation> {
    let mut checkers = Checkers::all(known, promises);
    events.iter().for_each(|event| checkers.event(event));
    checkers.finish(at(400))
}

fn broken(known: &SimSpec, promises: &Promises, events: &[SimEvent]) -> (&'static str, String) {
    let violation = verdict(known, promises, events).unwrap_err();
    (violation.checker, violation.what)
}

/// The events without the faults that the checkers do not know.
fn hidden(spec: &SimSpec) -> Vec<SimEvent> {
    let mut events = events_of(spec);
    events.retain(|event| !matches!(event.kind, EventKind::Fault { .. }));
    events
}

#[test]
fn a_correct_run_has_no_violation() {
    assert_eq!(verdict(&spec(), &promises(), &events_of(&spec())), Ok(()));
}

#[test]
fn a_response_longer_than_admitted_is_found_and_excused_only_by_its_fault() {
    let fault = Fault::NeverYields { activity: 1, window: window(100, 118) };
    let faulty = SimSpec { faults: vec![fault], ..spec() };
    let (checker, what) = broken(&spec(), &promises(), &hidden(&faulty));
    assert_eq!(checker, "deadlines");
    assert!(what.starts_with("activity 0: the job released at 110000000 ns"), "{what}");
    assert_eq!(verdict(&faulty, &promises(), &events_of(&faulty)), Ok(()));
    // The fault healed and its work was done. Then a second, unknown fault comes.
    let mut twice = faulty.clone();
    twice.faults.push(Fault::NeverYields { activity: 1, window: window(200, 218) });
    let mut events = events_of(&twice);
    events.retain(|event| !matches!(event.kind, EventKind::Fault { index: 1, .. }));
    let (checker, what) = broken(&faulty, &promises(), &events);
    assert_eq!(checker, "deadlines");
    assert!(what.contains("released at 210000000 ns"), "{what}");
    // A fault of another CPU is no excuse.
    let mut events = events_of(&faulty);
    for event in events.iter_mut().filter(|e| matches!(e.kind, EventKind::Fault { .. })) {
        event.cpu = 1;
    }
    assert_eq!(broken(&faulty, &promises(), &events).0, "deadlines");
}

#[test]
fn a_job_that_is_never_done_is_found_at_the_end() {
    let mut events = events_of(&spec());
    let last = |event: &SimEvent| matches!(event.kind, EventKind::JobDone(r) if r.id.0 == 2);
    let place = events.iter().rposition(last).unwrap();
    // The CPU seems to run the job to the end.
    let cpu = events[place].cpu;
    let mut index = 0;
    events.retain(|event| {
        index += 1;
        index <= place || event.cpu != cpu
    });
    let (checker, what) = broken(&spec(), &promises(), &events);
    assert_eq!(checker, "deadlines");
    assert!(what.starts_with("activity 2"), "{what}");
}

#[test]
fn a_cpu_that_idles_while_a_job_is_ready_is_found() {
    // At 0 both jobs of CPU 0 are ready. The CPU goes to sleep after the first.
    let first_done = |event: &SimEvent| matches!(event.kind, EventKind::JobDone(_));
    let mut events = events_of(&spec());
    let place = events.iter().position(first_done).unwrap();
    let idle = SimEvent { kind: EventKind::Idle, ..events[place] };
    events.insert(place + 1, idle);
    assert_eq!(broken(&spec(), &promises(), &events).0, "work_conserved");
    // Time passes before the second job begins.
    let mut events = events_of(&spec());
    let upcall = (place + 1..).find(|&next| {
        matches!(events[next].kind, EventKind::Upcall { .. }) && events[next].cpu == 0
    });
    events[upcall.unwrap()].at += Span::from_nanos(1);
    assert_eq!(broken(&spec(), &promises(), &events).0, "work_conserved");
    // A job that was never released cannot end.
    let mut events = events_of(&spec());
    events.insert(place + 1, events[place]);
    assert!(verdict(&spec(), &promises(), &events).is_err());
}

#[test]
fn a_cpu_that_oversleeps_is_found_and_excused_only_by_its_fault() {
    let fault = Fault::LateWakeups { window: window(100, 150), by_max: Span::from_micros(50) };
    let late = SimSpec { faults: vec![fault], ..spec() };
    let (checker, what) = broken(&spec(), &promises(), &hidden(&late));
    assert_eq!(checker, "no_lost_wakeup");
    assert!(what.contains("sleeps while a job or a message waits since 1"), "{what}");
    assert_eq!(verdict(&late, &promises(), &events_of(&late)), Ok(()));
    // With this latency, the CPU may be that late.
    let wakeup_latency = Span::from_micros(50);
    let bounds = promises().response_max.iter().map(|b| b.map(|b| b + wakeup_latency)).collect();
    let allowed = Promises { wakeup_latency, response_max: bounds, ..promises() };
    assert_eq!(verdict(&spec(), &allowed, &hidden(&late)), Ok(()));
    // The CPU never wakes again.
    let mut events = events_of(&spec());
    events.retain(|event| {
        event.at < at(200) || event.cpu == 0 || matches!(event.kind, EventKind::Release { .. })
    });
    assert_eq!(broken(&spec(), &promises(), &events).0, "no_lost_wakeup");
}

#[test]
fn a_lost_message_is_found_and_excused_only_by_its_fault() {
    let mut unreachable = spec();
    // CPU 0 sleeps from 8 ms on. Only the message could wake it.
    unreachable.activities[0].present = vec![window(9, 400)];
    unreachable.activities[1].present = vec![window(0, 0)];
    assert_eq!(verdict(&unreachable, &promises(), &events_of(&unreachable)), Ok(()));
    let mut lost = unreachable.clone();
    lost.faults = vec![Fault::LostNotifications { window: window(5, 50), one_in: 1 }];
    let (checker, what) = broken(&unreachable, &promises(), &hidden(&lost));
    assert_eq!((checker, what.contains("since 9000000 ns")), ("no_lost_wakeup", true), "{what}");
    let events = events_of(&lost);
    assert_eq!(verdict(&lost, &promises(), &events), Ok(()));
    // The CPU found the message when the fault healed.
    let join = SimEvent { at: at(50), cpu: 0, kind: EventKind::Join { activity: 0 } };
    assert!(events.contains(&join));
}

#[test]
fn a_lag_beyond_its_bound_is_found() {
    for (lag_ns, is_kept) in
        [(1_000_000, true), (-1_000_000, true), (1_000_001, false), (-1_000_001, false)]
    {
        let mut events = events_of(&spec());
        let place = events.len() / 2;
        let kind = EventKind::Lag { activity: 1, lag_ns };
        events.insert(place, SimEvent { kind, cpu: 0, ..events[place] });
        let verdict = verdict(&spec(), &promises(), &events);
        assert_eq!(verdict.is_ok(), is_kept);
        assert!(is_kept || verdict.unwrap_err().checker == "lag_bound");
    }
}

/// Twice the load that fits: under RM the second activity gets no CPU in some periods.
fn overloaded(allowed: Misses) -> (SimSpec, Promises) {
    let mut spec = spec();
    spec.discipline = &RM;
    spec.activities.truncate(2);
    spec.activities[0].params.pdu_cost = Span::from_millis(4);
    spec.activities[1].params.pdu_cost = Span::from_millis(3);
    spec.activities[0].execution = crate::Execution::Fixed(Span::from_millis(4));
    spec.activities[1].terms.window = Some(allowed);
    spec.cpus = vec![0];
    let response_max = vec![None; 2];
    (spec, Promises { response_max, lag_max: None, ..promises() })
}

#[test]
fn a_window_with_more_misses_than_allowed_is_found() {
    let all_missed = Misses { misses: 4, periods: 5 };
    let (spec, promises) = overloaded(all_missed);
    let (checker, what) = broken(&spec, &promises, &events_of(&spec));
    assert_eq!(checker, "windows");
    assert_eq!(what, "activity 1: 5 periods missed in a window of 4/5");
    // The first job is on time with less work. Then four are missed.
    let (mut spec, promises) = overloaded(Misses { misses: 3, periods: 4 });
    spec.activities[0].present = vec![window(15, 400)];
    let events = events_of(&spec);
    let first = events.iter().find_map(|event| match event.kind {
        EventKind::JobDone(record) if record.id.0 == 1 => Some(record),
        _ => None,
    });
    assert!(!first.unwrap().missed());
    let violation = verdict(&spec, &promises, &events).unwrap_err();
    assert_eq!(violation.checker, "windows");
    // The violation is not in the first window, of 80 ms.
    assert!(violation.at > at(80), "{violation}");
}

#[test]
fn an_activity_without_progress_after_healing_is_found() {
    let (mut starved, mut promises) = overloaded(Misses { misses: 4, periods: 5 });
    promises.windows = false;
    // The first activity takes the whole CPU, as it declares.
    starved.activities[0].params.pdu_cost = Span::from_millis(5);
    starved.activities[0].execution = crate::Execution::Fixed(Span::from_millis(5));
    // No activity has a promise, and 20 releases are too few.
    assert_eq!(verdict(&starved, &promises, &events_of(&starved)), Ok(()));
    promises.response_max = vec![Some(Span::from_secs(1000)); starved.activities.len()];
    let (checker, what) = broken(&starved, &promises, &events_of(&starved));
    assert_eq!(checker, "progress");
    assert_eq!(what, "activity 1: 4 releases without a completed job");
}

#[test]
fn an_activity_without_promise_that_never_runs_is_found() {
    let (mut starved, mut promises) = overloaded(Misses { misses: 4, periods: 5 });
    promises.windows = false;
    starved.activities[0].params.period = Span::from_millis(4);
    starved.activities[0].params.deadline = Span::from_millis(4);
    starved.activities[0].params.pdu_cost = Span::from_millis(2);
    starved.activities[0].execution = crate::Execution::Fixed(Span::from_millis(2));
    starved.activities[1].params.period = Span::from_millis(5);
    starved.activities[1].params.deadline = Span::from_millis(5);
    starved.activities[1].params.pdu_cost = Span::from_millis(1);
    let (checker, what) = broken(&starved, &promises, &events_of(&starved));
    assert_eq!(checker, "progress");
    assert!(what.ends_with("releases without any CPU time"), "{what}");
}

#[test]
fn a_cpu_that_never_catches_up_after_healing_is_found() {
    // A full CPU never makes up for a stall.
    let mut full = spec();
    full.activities[1].params.pdu_cost = Span::from_millis(8);
    full.activities[1].execution = crate::Execution::Fixed(Span::from_millis(8));
    full.faults = vec![Fault::Stall { window: window(100, 110) }];
    let mut promises = promises();
    promises.response_max = vec![None; 4];
    promises.windows = false;
    let (checker, what) = broken(&full, &promises, &events_of(&full));
    assert_eq!(checker, "progress");
    assert_eq!(what, "cpu0 was never idle after its faults healed");
}

/// Three activities of the same period on one CPU. The last has events at 0, 10 ms, ...
fn tied() -> SimSpec {
    let mut spec = spec();
    spec.cpus = vec![0];
    spec.activities.truncate(1);
    spec.activities.extend([spec.activities[0].clone(), spec.activities[0].clone()]);
    for activity in &mut spec.activities {
        activity.terms.wins_ties = true;
    }
    let arrivals = Arrivals::Periodic { every: Span::from_millis(10) };
    spec.activities[2].posting = Some(Posting { arrivals, rank: PostRank::Fixed(1) });
    spec
}

#[test]
fn a_tie_lost_by_the_more_urgent_event_is_found() {
    let tied = tied();
    let promises = Promises { response_max: vec![None; 3], ..promises() };
    let events = events_of(&tied);
    assert_eq!(verdict(&tied, &promises, &events), Ok(()));
    // The event makes it the first of the three instead of the last.
    let done = events.iter().filter_map(|event| match event.kind {
        EventKind::JobDone(record) => Some(record.id.0),
        _ => None,
    });
    let done: Vec<_> = done.take(6).collect();
    assert_eq!(done, [2, 0, 1, 2, 0, 1]);
    let posted = |event: &SimEvent| matches!(event.kind, EventKind::Posted { .. });
    let place = events.iter().rposition(posted).unwrap();
    let event =
        |activity, rank| SimEvent { kind: EventKind::Posted { activity, rank }, ..events[place] };
    let with = |more| {
        let mut events = events.clone();
        events.insert(place, more);
        verdict(&tied, &promises, &events)
    };
    // Another event that is less urgent changes nothing. A more urgent one would.
    assert_eq!(with(event(0, 2)), Ok(()));
    let violation = with(event(0, 0)).unwrap_err();
    assert_eq!(violation.checker, "ties");
    assert!(violation.what.starts_with("activity 2 runs, and an event of rank 0 waits"));
    // An activity without an event may not go first either.
    assert_eq!(with(event(1, 2)).unwrap_err().checker, "ties");
}

/// The first activity takes three times its cost. With the budgets of the core that is its own
/// problem. A core that grants it as much as it takes is found.
#[test]
fn an_activity_that_costs_another_one_more_than_its_reservation_is_found() {
    let mut greedy = spec();
    let declared = ActivityParams::new(Span::from_millis(10), Span::from_micros(200));
    greedy.activities[0].params = declared.batch(10).quantum(1);
    greedy.activities[0].execution = crate::Execution::Fixed(Span::from_micros(600));
    let promises = Promises { response_max: vec![None; 4], ..promises() };
    assert_eq!(verdict(&greedy, &promises, &events_of(&greedy)), Ok(()));
    let cost = Span::from_micros(900);
    greedy.activities[0].execution = crate::Execution::Fixed(cost);
    let mut granted = greedy.clone();
    granted.activities[0].params.pdu_cost = cost;
    let (checker, what) = broken(&greedy, &promises, &events_of(&granted));
    assert_eq!(checker, "interference", "{what}");
}
