//! Tests that a running executor allocates nothing on its hot path. The test watches the whole
//! process while its only other thread sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, Runtime, clock};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const HANDLERS: u64 = 8;
/// Upcalls of each handler while it is watched.
const UPCALLS: u64 = 100;

/// What the handlers and the test share.
#[derive(Default)]
struct Watch {
    /// How many handlers have been upcalled.
    warm: AtomicU64,
    /// The test sets this flag, and only sleeps from then on.
    on: AtomicBool,
    /// How many handlers have begun and ended their watched upcalls.
    begun: AtomicU64,
    ended: AtomicU64,
    /// How many blocks were allocated when the first handler began and when the last one ended. 0:
    /// not yet.
    before: AtomicU64,
    after: AtomicU64,
}

#[test]
fn a_running_executor_does_not_allocate() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let switch_cost = Some(Span::from_micros(1));
    // A trace allocates nothing either.
    let config = Config { switch_cost, trace: true, ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let watch = Arc::new(Watch::default());
    let mut ids = Vec::new();
    for number in 0..HANDLERS {
        let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(5)).batch(4);
        let watch = watch.clone();
        let (mut is_warm, mut upcalls) = (false, 0);
        let handler = move |batch: &mut upcall_runtime::Batch<'_>| {
            while batch.proceed() {}
            if !is_warm {
                is_warm = true;
                watch.warm.fetch_add(1, Ordering::Relaxed);
            }
            if upcalls == UPCALLS || !watch.on.load(Ordering::Acquire) {
                return;
            }
            let blocks = || dhat::HeapStats::get().total_blocks;
            if upcalls == 0 && watch.begun.fetch_add(1, Ordering::Relaxed) == 0 {
                watch.before.store(blocks(), Ordering::Relaxed);
            }
            upcalls += 1;
            if upcalls == UPCALLS && watch.ended.fetch_add(1, Ordering::AcqRel) + 1 == HANDLERS {
                watch.after.store(blocks(), Ordering::Release);
            }
        };
        ids.push(runtime.handler(&format!("h{number}"), need, handler).unwrap());
    }
    runtime.run_at(&ids, clock::now()).unwrap();
    while watch.warm.load(Ordering::Relaxed) < HANDLERS {
        std::thread::sleep(Duration::from_millis(5));
    }
    // From here to the end of the next loop this thread only sleeps.
    watch.on.store(true, Ordering::Release);
    while watch.after.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let after = watch.after.load(Ordering::Acquire);
    assert_eq!(after, watch.before.load(Ordering::Acquire));
    drop(runtime);
    // Shows that the test can fail: an allocation is counted.
    drop(std::hint::black_box(Box::new(1)));
    assert!(dhat::HeapStats::get().total_blocks > after);
}
