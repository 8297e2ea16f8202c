//! Activities on demand under PS and DWCS, in virtual time: what releases them, how often, and that
//! they cost the others no more than admission says.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityParams, Terms, Window};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::{DWCS, PS};
use upcall_core::record::JobRecord;
use upcall_core::time::{Instant, Span};
use upcall_sim::{
    Arrivals, EventKind, Execution, Outcome, SimActivity, SimSpec, Simulation, Window as Presence,
};

const MS: Span = Span::from_millis(1);

fn at_ms(ms: u64) -> Instant {
    Instant::ZERO + MS * u32::try_from(ms).unwrap()
}

/// An activity that PDUs release, one job of at most `batch` PDUs each.
fn on_demand(name: &str, params: ActivityParams, terms: Terms, arrivals: Arrivals) -> SimActivity {
    let mut activity = SimActivity::new(name, params);
    activity.terms = Terms { on_demand: true, ..terms };
    activity.arrivals = arrivals;
    activity
}

fn recorded(ms: &[u64]) -> Arrivals {
    Arrivals::Recorded(ms.iter().map(|&ms| at_ms(ms)).collect::<Vec<_>>().into())
}

/// Runs for a time. Returns the ended jobs of each activity, and the outcome.
fn run(spec: SimSpec, duration: Span) -> (Vec<Vec<JobRecord>>, Outcome) {
    let mut jobs = vec![Vec::new(); spec.activities.len()];
    let spec = SimSpec { checked: true, ..spec };
    let outcome = Simulation::new(spec).unwrap().run(duration, &mut |event| {
        if let EventKind::JobDone(record) = event.kind {
            jobs[record.id.0 as usize].push(record);
        }
    });
    (jobs, outcome)
}

fn releases(jobs: &[JobRecord]) -> Vec<u64> {
    jobs.iter().map(|job| job.release.since(Instant::ZERO).as_nanos() / 1_000_000).collect()
}

fn share(percent: u32) -> Terms {
    Terms { share: Share::from_ppm(percent * 10_000), ..Terms::default() }
}

/// The first job comes at the start; it finds nothing.
#[test]
fn a_message_releases_a_weight_at_once_and_a_share_at_the_declared_rate() {
    let params = ActivityParams::new(MS * 10, MS / 10);
    let arrivals = || recorded(&[3, 4, 5, 40, 42]);
    for (discipline, terms, expected) in [
        (&PS, Terms::default(), vec![0, 3, 4, 5, 40, 42]),
        (&PS, share(20), vec![0, 10, 20, 30, 40, 50]),
        (&DWCS, Terms::default(), vec![0, 10, 20, 30, 40, 50]),
    ] {
        let spec = SimSpec::new(discipline, vec![on_demand("a", params, terms, arrivals())]);
        let (jobs, outcome) = run(spec, MS * 100);
        assert_eq!(releases(&jobs[0]), expected, "{discipline:?} {terms:?}");
        let counters = outcome.activities[0].counters;
        assert_eq!((counters.pdus, counters.misses, counters.skipped), (5, 0, 0));
    }
}

/// One busy activity, and one that blocks for each message, at random moments. Whatever comes, no
/// lag exceeds the quantum, and the blocking one gets its part while it has work.
#[test]
fn no_lag_leaves_a_quantum_while_messages_come_at_any_moment() {
    for seed in 0..40 {
        let busy = ActivityParams::new(MS * 100, MS / 10).batch(900).quantum(5);
        let short = ActivityParams::new(MS * 2, MS / 20).batch(8).quantum(2);
        let rare = ActivityParams { period: MS * 5, deadline: MS * 5, ..short };
        let weight = |weight| Terms { weight: Some(weight), ..Terms::default() };
        let mean = MS / 5;
        let activities = vec![
            SimActivity { terms: weight(2), ..SimActivity::new("busy", busy) },
            on_demand("often", short, weight(1), Arrivals::Poisson { mean }),
            on_demand(
                "bursts",
                short,
                weight(7),
                Arrivals::Bursty { burst: 30, every: MS * 9, jitter: MS * 5 },
            ),
            on_demand("share", rare, share(30), Arrivals::Poisson { mean }),
        ];
        let mut spec = SimSpec { seed, ..SimSpec::new(&PS, activities) };
        for activity in &mut spec.activities {
            let most = activity.params.pdu_cost;
            activity.execution = Execution::Uniform { least: most / 3, most };
        }
        let (_, outcome) = run(spec, Span::from_secs(2));
        for (place, activity) in outcome.activities.iter().enumerate() {
            let (least, most) = activity.lag_ns.unwrap();
            let bound_ns = 1_000_002;
            assert!(least >= -bound_ns && most <= bound_ns, "{seed} {place}: {least} to {most}");
            assert!(activity.counters.completed > 10);
        }
        assert_eq!(outcome.activities[3].counters.misses, 0, "seed {seed}");
    }
}

/// Two sets on a full CPU: windows of periodic activities, and the same with one on demand.
#[test]
fn only_a_set_that_misses_nothing_is_granted_beside_an_activity_on_demand_under_dwcs() {
    let window = Some(Window { misses: 1, periods: 2 });
    let params = ActivityParams::new(MS * 10, MS * 10);
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let granted = |on_demand| {
        let mut reservations = Reservations::new(platform.clone(), &DWCS);
        let terms = |on_demand| Terms { window, on_demand, ..Terms::default() };
        reservations.reserve("a", params, &terms(false)).unwrap();
        reservations.reserve("b", params, &terms(on_demand)).map_err(|refusal| refusal.to_string())
    };
    assert!(granted(false).is_ok());
    let reason = granted(true).unwrap_err();
    assert!(reason.contains("no task, handler of a stream or event server"), "{reason}");
}

/// A job that DWCS drops does not take its message along. The windows count jobs.
#[test]
fn a_message_whose_job_was_lost_is_handled_in_a_later_period() {
    let window = Some(Window { misses: 1, periods: 2 });
    let busy = ActivityParams::new(MS * 10, MS).batch(10);
    let rare = ActivityParams::new(MS * 10, MS).batch(2);
    let terms = Terms { window, ..Terms::default() };
    // Not admitted: `busy` uses all of the CPU, and its deadlines come first, until it leaves.
    let present = vec![Presence { from: Instant::ZERO, until: at_ms(100) }];
    let activities = vec![
        SimActivity { terms, present, ..SimActivity::new("busy", busy) },
        on_demand("rare", rare, terms, recorded(&[21, 63, 64])),
    ];
    let (jobs, outcome) = run(SimSpec::new(&DWCS, activities), Span::from_millis(200));
    let counters = outcome.activities[1].counters;
    assert_eq!(counters.pdus, 3, "{:?}", jobs[1]);
    let done: Vec<_> = jobs[1].iter().filter(|job| job.completed).collect();
    assert!(counters.misses > 0 && done.len() >= 2, "{:?}", jobs[1]);
    assert!(jobs[1].windows(2).all(|pair| pair[0].release + rare.period <= pair[1].release));
}
