//! The runtime's clock: `CLOCK_MONOTONIC`, as an [`Instant`].

use upcall_core::time::{Instant, Span};

/// Now, on `CLOCK_MONOTONIC`. One vDSO call, no system call.
#[inline]
pub fn now() -> Instant {
    Instant::from_nanos(upcall_sys::clock::monotonic_ns())
}

/// The deadline that is `span` from now, for a call that blocks. One vDSO call, no system call;
/// [`Instant::FAR`] where the sum does not fit.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::clock;
/// use upcall::time::Span;
///
/// let before = clock::now();
/// let deadline = clock::after(Span::from_millis(20));
/// assert!(deadline >= before + Span::from_millis(20));
/// ```
#[inline]
pub fn after(span: Span) -> Instant {
    now() + span
}
