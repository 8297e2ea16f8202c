//! What the core decided on real threads, it decides again: handlers and tasks,
//! with activities that come, go and come again. Nothing here asks for time.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use upcall_core::trace::replay;
use upcall_runtime::activity::ActivityParams;
use upcall_runtime::policy::DISCIPLINES;
use upcall_runtime::policy::dws::DWS;
use upcall_runtime::scheduler::Command;
use upcall_runtime::time::Span;
use upcall_runtime::{ACTIVITIES_MAX, Batch, Config, Mode, Record, Runtime, StartError, clock};

fn every(period_ms: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(20)).batch(3)
}

fn one_by_one(batch: &mut Batch<'_>) {
    while batch.proceed() {}
}

/// A runtime on one CPU that keeps a trace.
fn config() -> Config {
    let cpus = upcall_runtime::default_cpus().unwrap()[..1].to_vec();
    Config { cpus, switch_cost: Some(Span::from_micros(1)), trace: true, ..Config::default() }
}

/// Sleeps a little, and takes out what was traced meanwhile.
fn follow(runtime: &mut Runtime, records: &mut Vec<Record>) {
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(20));
        runtime.poll_trace(|_, record| records.push(*record));
    }
}

#[test]
fn a_live_trace_replays_the_same_under_every_policy() {
    for &discipline in DISCIPLINES {
        let config = Config { discipline, unscreened: true, ..config() };
        let mut runtime = Runtime::start(config).unwrap();
        let mut records = Vec::new();
        let fast = runtime.handler("fast", every(2), one_by_one).unwrap();
        let slow = runtime.handler("slow", every(7), one_by_one).unwrap();
        runtime.run_at(&[fast, slow], clock::now()).unwrap();
        follow(&mut runtime, &mut records);
        let cpu = runtime.config().cpus[0];
        let (place, number) = runtime.place(fast).unwrap();
        assert_eq!(place, cpu);
        runtime.close(fast).unwrap();
        let again = runtime.handler("again", every(3), one_by_one).unwrap();
        assert_eq!(runtime.place(again), Some((cpu, number)));
        runtime.run(again).unwrap();
        runtime.suspend(slow);
        if discipline.name == DWS.name {
            let task = runtime.task("task", every(4), async |task| {
                for count in 1..=20u64 {
                    task.timed_sleep(clock::now() + Span::from_millis(count % 4)).await;
                    task.checkpoint().await;
                }
            });
            runtime.run(task.unwrap()).unwrap();
        }
        follow(&mut runtime, &mut records);
        let report = runtime.stop(|_, _| {});
        records.extend(report.trace.iter().map(|(_, record)| *record));

        let done = replay(discipline, ACTIVITIES_MAX, records.iter().copied());
        let done = done.unwrap_or_else(|error| panic!("{}: {error}", discipline.name));
        assert_eq!(done.inputs + done.commands + done.silences, records.len() as u64);
        let jobs: u64 = report.activities.iter().filter_map(|one| Some(one.counters?.jobs)).sum();
        assert!(done.commands > jobs && jobs > 10, "{}: {jobs} {done:?}", discipline.name);
        let closed = Command::Closed { id: number };
        assert!(records.iter().any(|record| {
            record.crossing == upcall_core::trace::Crossing::Notice(Some(closed))
        }));
    }
}

#[test]
fn a_trace_needs_a_mode_in_which_the_core_decides() {
    for mode in [Mode::Threads, Mode::Fifo] {
        let started = Runtime::start(Config { mode, ..config() });
        assert!(matches!(started.err(), Some(StartError::NothingToTrace(found)) if found == mode));
    }
}
