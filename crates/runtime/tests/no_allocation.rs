//! The promise of the hot path: once they run, executives allocate nothing.
//! The whole process is watched while its only other thread sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, Runtime, clock};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const JOBS: u64 = 100;

#[test]
fn a_running_executive_does_not_allocate() {
    let _watch = dhat::Profiler::builder().testing().build();
    // A trace must not change that.
    let config = Config { trace: true, ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let (before, after) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut ids = Vec::new();
    for number in 0..8 {
        let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(5)).batch(4);
        let (before, after) = (before.clone(), after.clone());
        let mut jobs = 0;
        let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
            while batch.proceed() {}
            jobs += 1;
            // The first handler looks, when all have run once and when it ends.
            if number == 0 && (jobs == 2 || jobs == JOBS) {
                let seen = if jobs == 2 { &before } else { &after };
                seen.store(dhat::HeapStats::get().total_blocks, Ordering::Release);
            }
        };
        ids.push(runtime.handler(&format!("h{number}"), need, handler).unwrap());
    }
    runtime.run_at(&ids, clock::now() + Span::from_millis(50)).unwrap();
    while after.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(after.load(Ordering::Acquire), before.load(Ordering::Acquire));
    let report = runtime.stop(|_, _| {});
    let completed = report.activities[7].counters.unwrap().completed;
    assert!(completed >= JOBS - 1, "{completed}");
    // The test can fail: an allocation is counted.
    drop(std::hint::black_box(Box::new(1)));
    assert!(dhat::HeapStats::get().total_blocks > after.load(Ordering::Acquire));
}
