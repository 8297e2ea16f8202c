//! Handlers that ask for the CPU of another one, to share data with it without locks.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::hint::black_box;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::admission::Reason;
use upcall_runtime::discipline::DWS;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, CreateError, Mode, Need, Runtime, allowed_cpus};

/// `percent` of a CPU, in every 10 ms.
fn part(percent: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(10), Span::from_micros(100 * percent))
}

/// Two CPUs, if this process may use two.
fn two_cpus(test: &str) -> Option<Vec<u32>> {
    let cpus: Vec<u32> = allowed_cpus().unwrap().into_iter().take(2).collect();
    if cpus.len() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: one CPU");
        return None;
    }
    Some(cpus)
}

#[test]
fn a_handler_is_on_the_cpu_of_the_one_it_names_or_is_refused() {
    let test = "a_handler_is_on_the_cpu_of_the_one_it_names_or_is_refused";
    let Some(cpus) = two_cpus(test) else { return };
    for mode in Mode::ALL {
        let config = Config { mode, cpus: cpus.clone(), ..Config::default() };
        let (mut runtime, _alone) = support::start(config);
        let mut create = |name: &str, need: Need| runtime.handler(name, need, |_| {});
        let big = create("big", part(60).into()).unwrap();
        let head = create("head", part(40).into()).unwrap();
        let second = create("second", Need::from(part(10)).same_cpu_as(head)).unwrap();
        let third = create("third", Need::from(part(10)).same_cpu_as(second)).unwrap();
        let other = create("other", part(10).into()).unwrap();
        // There is room for it on the first CPU, and not on that of `head`.
        let refused = create("fourth", Need::from(part(35)).same_cpu_as(head)).unwrap_err();
        let CreateError::Refused(refusal) = refused else { panic!("{refused}") };
        let Reason::SameCpu { cpu, other: named, .. } = &refusal.reason else {
            panic!("{refusal}")
        };
        assert_eq!((*cpu, named.as_str()), (cpus[1], "head"));
        let of = |id| runtime.place(id).unwrap().0;
        assert_eq!([of(big), of(other)], [cpus[0]; 2], "{mode:?}");
        assert_eq!([of(head), of(second), of(third)], [cpus[1]; 3], "{mode:?}");
    }
}

#[test]
fn tasks_remote_handlers_and_refused_ones_follow_too() {
    let test = "tasks_remote_handlers_and_refused_ones_follow_too";
    let Some(cpus) = two_cpus(test) else { return };
    let config = Config { discipline: &DWS, unscreened: true, cpus, ..Config::default() };
    let (mut runtime, _alone) = support::start(config);
    let theirs = runtime.reserve_remote("theirs", part(80)).unwrap();
    let head = runtime.handler("head", part(40), |_| {}).unwrap();
    let task = Need::from(part(1)).same_cpu_as(head);
    let task = runtime.task("task", task, async |_| {}).unwrap();
    // Admission refuses it, so without the key it would be on the CPU with the least load.
    let soft = Need::from(part(50)).same_cpu_as(theirs);
    let soft = runtime.handler("soft", soft, |_| {}).unwrap();
    let also = runtime.reserve_remote("also theirs", Need::from(part(1)).same_cpu_as(soft));
    assert!(also.is_ok() && runtime.place(theirs).is_none());
    let cpu = |runtime: &Runtime, id| runtime.place(id).unwrap().0;
    assert_eq!(cpu(&runtime, task), cpu(&runtime, head));
    assert_ne!(cpu(&runtime, soft), cpu(&runtime, head));
}

#[test]
fn a_handler_that_is_gone_or_in_virtual_time_has_no_cpu_to_ask_for() {
    let (mut runtime, _alone) = support::start(Config::default());
    let closed = runtime.handler("closed", part(1), |_| {}).unwrap();
    assert!((0..100).any(|_| runtime.close(closed).is_some()));
    let idle = runtime.virtual_handler("idle", 1, |_| {}).unwrap();
    for other in [closed, idle] {
        // It would be measured first, on a trial.
        let need = Need::from(part(0)).same_cpu_as(other);
        let error = runtime.handler("next", need, |_| panic!("no trial")).unwrap_err();
        assert_eq!(error, CreateError::NoSuchHandler);
    }
    let used: f64 = runtime.reservations().load().iter().map(|load| load.utilization).sum();
    assert!(used.abs() < f64::EPSILON, "{used}");
}

/// Reads a count and writes it back a while later, so that each overlap with another handler would
/// lose something.
fn count(counter: &AtomicU64) {
    // Relaxed: one thread runs both handlers.
    let seen = counter.load(Ordering::Relaxed);
    for step in 0..200 {
        black_box(step);
    }
    counter.store(seen + 1, Ordering::Relaxed);
}

#[test]
fn two_handlers_on_one_cpu_count_without_a_lock_and_lose_nothing() {
    let test = "two_handlers_on_one_cpu_count_without_a_lock_and_lose_nothing";
    let Some(cpus) = two_cpus(test) else { return };
    let (mut runtime, _alone) = support::start(Config { cpus, ..Config::default() });
    let counter = Arc::new(AtomicU64::new(0));
    // It leaves less room on the first CPU than `long` needs, and enough for `often`.
    let idle = ActivityParams::new(Span::from_millis(10), Span::from_micros(10)).batch(600);
    runtime.handler("idle", idle, |_| {}).unwrap();
    let (counted, mut left) = (counter.clone(), 20_000_u32);
    let params = ActivityParams::new(Span::from_millis(10), Span::from_micros(10));
    let long = runtime.handler("long", params.batch(400).quantum(3), move |batch| {
        while left > 0 && batch.proceed() {
            count(&counted);
            left -= 1;
        }
        if left == 0 {
            batch.finish();
        }
    });
    let long = long.unwrap();
    let counted = counter.clone();
    let params = ActivityParams::new(Span::from_millis(1), Span::from_micros(10)).batch(4);
    let often = Need::from(params).same_cpu_as(long);
    let often = runtime.handler("often", often, move |batch| {
        while batch.proceed() {
            count(&counted);
        }
    });
    runtime.run(often.unwrap()).unwrap();
    runtime.run(long).unwrap();
    support::ended(&mut runtime, long);
    let report = runtime.stop(|_, _| {});
    let pdus: Vec<u64> = report.activities.iter().map(|each| each.counters.unwrap().pdus).collect();
    assert_eq!((pdus[0], pdus[1]), (0, 20_000));
    assert!(pdus[2] > 0);
    assert_eq!(counter.load(Ordering::Relaxed), pdus[1] + pdus[2]);
}
