//! Helpers for tests that run handlers on real threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::stream::StreamForm;
use upcall_runtime::time::{Instant, Span};
use upcall_runtime::{Config, HandlerId, Runtime, clock};
use upcall_sys::process::{Child, Exit};

/// The form of streams whose messages are one number each.
pub const SLOTS: StreamForm = StreamForm::Slots { slots: 64, slot_bytes: 8 };

/// The guard of the test that has the only runtime. Two runtimes would use the same CPUs, and
/// neither would know of the other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a runtime that does not measure the cost of a hand-off. Also returns the guard that makes
/// it the only runtime.
pub fn start(config: Config) -> (Runtime, MutexGuard<'static, ()>) {
    let alone = alone();
    let switch_cost = Some(Span::from_micros(1));
    (Runtime::start(Config { switch_cost, ..config }).expect("its CPUs are allowed"), alone)
}

/// Attempts that must succeed, and failed attempts that fail a test: three of five decide.
const MOST: usize = 3;

/// Repeats an attempt that a busy machine may spoil, until three have succeeded. Returns the result
/// of the last.
///
/// # Panics
/// If three attempts fail first.
#[track_caller]
pub fn in_most_attempts<T, E: std::fmt::Debug>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let (mut succeeded, mut failed) = (0, Vec::new());
    loop {
        match attempt() {
            Ok(result) => {
                succeeded += 1;
                if succeeded == MOST {
                    return result;
                }
            }
            Err(error) => failed.push(error),
        }
        assert!(failed.len() < MOST, "{MOST} attempts of {} failed: {failed:?}", succeeded + MOST);
    }
}

/// A CPU that handlers may use.
pub fn cpu() -> u32 {
    upcall_runtime::default_cpus().expect("there is one")[0]
}

/// A need that is always admitted.
pub fn every_us(period_us: u64) -> ActivityParams {
    ActivityParams::new(Span::from_micros(period_us), Span::from_nanos(100))
}

/// The same, with PDUs that may take this long. A handler whose PDUs take longer than declared goes
/// after all others.
#[allow(dead_code, reason = "not every test program needs it")]
pub fn costing_us(params: ActivityParams, cost_us: u64) -> ActivityParams {
    ActivityParams { pdu_cost: Span::from_micros(cost_us), ..params }
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

/// The deadline after which a test fails, because it waits for something that never comes.
pub fn a_minute() -> Option<Instant> {
    Some(clock::now() + Span::from_secs(60))
}

/// How another process ended. Waits for at most a minute.
pub fn exit_of(child: &Child) -> Exit {
    let give_up = a_minute().expect("an instant");
    loop {
        if let Some(exit) = child.try_wait().expect("nothing else waits for it") {
            return exit;
        }
        assert!(clock::now() < give_up, "the other process does not end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
