//! The runtime's clock as the core wants it.

use upcall_core::time::Instant;

/// Now, on `CLOCK_MONOTONIC`. One vDSO call, no system call.
#[inline]
pub fn now() -> Instant {
    Instant::from_nanos(upcall_sys::clock::monotonic_ns())
}
