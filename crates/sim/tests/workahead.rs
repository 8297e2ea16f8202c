//! Messages that come before their logical arrivals (DWS; split-level-1991 §2.2).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::discipline::{DWS, Discipline, RMDP};
use upcall_core::time::{Instant, Span};
use upcall_sim::{Arrivals, EventKind, SimActivity, SimSpec, Simulation, SplitLevel};

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

/// A message each 10 ms, of which four come at once every 40 ms.
fn burst(workahead_max: u32) -> SimActivity {
    let params = ActivityParams::new(Span::from_millis(10), Span::from_millis(2));
    let mut activity = SimActivity::new("burst", params);
    activity.terms = Terms { workahead_max, ..Terms::default() };
    let arrivals: Vec<_> = (0..40).map(|number| at(number / 4 * 40)).collect();
    activity.arrivals = Arrivals::Recorded(arrivals.into());
    activity
}

/// The ends of the jobs that processed a PDU in the first 50 ms, in ms, and the early jobs.
fn ends(discipline: &'static Discipline, activity: SimActivity) -> (Vec<u64>, usize) {
    let mut spec = SimSpec::new(discipline, vec![activity]);
    spec.checked = true;
    let (mut ends, mut early) = (Vec::new(), 0);
    let observe = &mut |event: &upcall_sim::SimEvent| match event.kind {
        EventKind::JobDone(record) if record.pdus > 0 && event.at < at(50) => {
            ends.push(event.at.as_nanos() / 1_000_000);
        }
        EventKind::Early { .. } => early += 1,
        _ => {}
    };
    let outcome = Simulation::new(spec).unwrap().run(Span::from_millis(400), observe);
    assert_eq!(outcome.activities[0].counters.pdus, 40, "each PDU is processed once");
    assert_eq!(outcome.activities[0].counters.misses, 0);
    (ends, early)
}

#[test]
fn messages_that_wait_are_processed_ahead_up_to_the_limit() {
    assert_eq!(ends(&DWS, burst(0)), (vec![2, 12, 22, 32, 42], 0));
    assert_eq!(ends(&DWS, burst(1)).0, [2, 4, 22, 24, 42, 44]);
    assert_eq!(ends(&DWS, burst(3)), (vec![2, 4, 6, 8, 42, 44, 46, 48], 30));
    // Other policies do not work ahead.
    assert_eq!(ends(&RMDP, burst(3)), (vec![2, 12, 22, 32, 42], 0));
}

/// The timestamps of the second burst say that its messages are 20 ms apart and not 10.
#[test]
fn a_timestamp_moves_the_release_of_a_message() {
    let run = |logical: bool| {
        let mut activity = burst(1);
        let arrivals = [0, 1, 2, 3].map(at);
        activity.arrivals = Arrivals::Recorded(arrivals.into());
        activity.logical_arrivals = logical.then(|| [0, 20, 40, 60].map(at).into());
        let spec = SimSpec::new(&DWS, vec![activity]);
        let mut ends = Vec::new();
        let observe = &mut |event: &upcall_sim::SimEvent| match event.kind {
            EventKind::JobDone(record) if record.pdus > 0 => {
                ends.push((record.release.as_nanos() / 1_000_000, event.at.as_nanos() / 1_000_000));
            }
            _ => {}
        };
        Simulation::new(spec).unwrap().run(Span::from_millis(100), observe);
        ends
    };
    assert_eq!(run(false), [(0, 2), (10, 4), (20, 22), (30, 24)]);
    assert_eq!(run(true), [(0, 2), (20, 22), (40, 42), (60, 62)]);
}

#[test]
fn work_ahead_goes_after_the_critical_work_of_another_domain() {
    let params = ActivityParams::new(Span::from_millis(40), Span::from_millis(10));
    let rival = SimActivity { domain: 1, ..SimActivity::new("rival", params) };
    let mut spec = SimSpec::new(&DWS, vec![burst(3), rival]);
    spec.split_level = Some(SplitLevel::default());
    let mut ends = Vec::new();
    let observe = &mut |event: &upcall_sim::SimEvent| {
        if let EventKind::JobDone(record) = event.kind {
            ends.push((record.id.0, event.at.as_nanos() / 1_000_000));
        }
    };
    Simulation::new(spec).unwrap().run(Span::from_millis(40), observe);
    assert_eq!(ends, [(0, 2), (1, 12), (0, 14), (0, 16), (0, 18)]);
}
