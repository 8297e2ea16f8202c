//! Tests the hot path of tasks: no thread allocates between the second poll and the hundredth. The
//! test watches the whole process.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use upcall_runtime::activity::{ActivityParams, Terms, WorkClass};
use upcall_runtime::discipline::DWS;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, Runtime, clock};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

#[test]
fn a_task_is_polled_without_allocating() {
    let _watch = dhat::Profiler::builder().testing().build();
    let config = Config { discipline: &DWS, ..Config::default() };
    let mut runtime = Runtime::start(config).unwrap();
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20));
    let terms = Terms { class: WorkClass::Interactive, ..Terms::default() };
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (silent, _kept) = std::io::pipe().unwrap();
    writer.write_all(b"x").unwrap();
    let (before, after) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (first, last) = (before.clone(), after.clone());
    let id = runtime
        .task("t", (need, terms), async move |task| {
            for round in 0..100 {
                task.timed_sleep(clock::now() + Span::from_micros(200)).await;
                task.time_advance(clock::now()).await;
                task.checkpoint().await;
                task.io_wait(&reader).await.unwrap();
                // The task begins to wait for a descriptor that must be watched, and gives up the
                // wait.
                let mut wait = std::pin::pin!(task.io_wait(&silent));
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(wait.as_mut().poll(context).is_pending())
                });
                assert!(polled.await);
                if round == 1 || round == 99 {
                    let seen = if round == 1 { &first } else { &last };
                    seen.store(dhat::HeapStats::get().total_blocks, Ordering::Release);
                }
            }
        })
        .unwrap();
    std::thread::sleep(Duration::from_millis(20));
    runtime.run(id).unwrap();
    while after.load(Ordering::Acquire) == 0 {
        assert!(runtime.is_active(id));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(after.load(Ordering::Acquire), before.load(Ordering::Acquire));
    // Shows that the test can fail: an allocation is counted.
    drop(std::hint::black_box(Box::new(1)));
    assert!(dhat::HeapStats::get().total_blocks > after.load(Ordering::Acquire));
}
