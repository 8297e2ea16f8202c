//! How long other domains ran in the middle of an upcall.
//!
//! A domain that comes back from the kernel finishes its quantum at once (rtu-1995 §6.1.2). The
//! daemon lets its thread run above the thread of the domain that has the turn
//! (docs/decisions/0008). The handler that stands in its upcall meanwhile does not pay for that
//! time. The daemon says in the kernel area whether a domain is away, and how long those that are
//! may run. Only then the virtual processor measures: what passed on the clock, and the thread did
//! not use, others used.

use upcall_core::time::{Instant, Span};
use upcall_sys::clock::thread_cpu_ns;

use crate::clock;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Interruptions {
    /// How long others may still interrupt the present upcall. Zero: no domain was away when the
    /// upcall began.
    left: Span,
    /// The time, and the CPU time of the thread in ns, at the last reading.
    read: (Instant, u64),
}

impl Interruptions {
    /// An upcall begins, which others may interrupt for `max`. A system call unless `max` is zero.
    #[inline]
    pub(super) fn begin(&mut self, max: Span) {
        self.left = max;
        if !max.is_zero() {
            self.read = read();
        }
    }

    /// How long others ran since the last reading; `None` if none did. A system call unless no
    /// domain was away.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Span> {
        if self.left.is_zero() {
            return None;
        }
        let (before, now) = (self.read, read());
        self.read = now;
        let used = Span::from_nanos(now.1.saturating_sub(before.1));
        let length = now.0.since(before.0).saturating_sub(used).min(self.left);
        self.left = self.left.saturating_sub(length);
        Some(length).filter(|length| !length.is_zero())
    }
}

fn read() -> (Instant, u64) {
    (clock::now(), thread_cpu_ns())
}
