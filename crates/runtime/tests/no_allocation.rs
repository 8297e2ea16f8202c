//! The promise of the hot path: once they run, executives allocate nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, Runtime, clock};

struct Counting;

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn count() {
    // A thread that ends has no locals left; it is not watched then.
    if WATCHED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator with the arguments as given.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as this function's caller promised.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count();
        // SAFETY: as this function's caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_running_executive_neither_allocates_nor_frees() {
    let mut runtime = Runtime::start(Config::default()).unwrap();
    let mut ids = Vec::new();
    for number in 0..8u32 {
        let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(5)).batch(4);
        let mut jobs = 0;
        ids.push(
            runtime
                .handler(&format!("h{number}"), need, move |batch| {
                    // From the second upcall on, this thread is watched.
                    WATCHED.set(true);
                    while batch.proceed() {}
                    jobs += 1;
                    if jobs == 100 {
                        WATCHED.set(false);
                        batch.finish();
                    }
                })
                .unwrap(),
        );
    }
    runtime.run_at(&ids, clock::now()).unwrap();
    for id in ids {
        runtime.wait(&[id], None);
    }
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 0);
    // The test can fail: what is watched is counted.
    WATCHED.set(true);
    drop(std::hint::black_box(Box::new(1)));
    WATCHED.set(false);
    assert_eq!(ALLOCATIONS.load(Ordering::Relaxed), 2);
}
