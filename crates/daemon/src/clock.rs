//! The time, as the core counts it. Read by the KLS threads, the watchdog and the server.

use upcall_core::time::Instant;

/// Now, by `CLOCK_MONOTONIC`. Does not block.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(upcall_sys::clock::monotonic_ns())
}
