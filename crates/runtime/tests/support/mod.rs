//! Helpers of the tests that run handlers on real threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::stream::StreamForm;
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::{Config, HandlerId, Runtime, clock};

/// Messages of a number each.
pub const SLOTS: StreamForm = StreamForm::Slots { slots: 64, slot_bytes: 8 };

/// Held by the test that has the only runtime: two runtimes would share CPUs unaware of each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime that does not measure the cost of a hand-off, and the guard by which it is the only
/// one.
pub fn start(config: Config) -> (Runtime, MutexGuard<'static, ()>) {
    let alone = alone();
    let switch_cost = Some(Span::from_micros(1));
    (Runtime::start(Config { switch_cost, ..config }).expect("its CPUs are allowed"), alone)
}

/// A CPU that handlers may use.
pub fn cpu() -> u32 {
    upcall_runtime::default_cpus().expect("there is one")[0]
}

/// A need that is always admitted.
pub fn every_us(period_us: u64) -> ActivityParams {
    ActivityParams::new(Span::from_micros(period_us), Span::from_nanos(100))
}

/// Waits until a handler has finished.
#[track_caller]
pub fn ended(runtime: &mut Runtime, id: HandlerId) {
    assert_eq!(
        runtime.wait(&[id], Some(clock::after(Span::from_secs(60)))),
        [id],
        "it never ended"
    );
}

/// When a wait counts as a hang.
pub fn a_minute() -> Option<Instant> {
    Some(clock::now() + Span::from_secs(60))
}
