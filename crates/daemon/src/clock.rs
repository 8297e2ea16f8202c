//! The current time in the core's type. Used by the KLS threads, the watchdog and the server.

use upcall_core::time::Instant;

/// The time of `CLOCK_MONOTONIC`. Does not block.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(upcall_sys::clock::monotonic_ns())
}
