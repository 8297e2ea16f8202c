//! Estimates how much of a thread's counted CPU time the thread itself has used.
//!
//! The kernel leaves out of its count the time that the host reports as taken (`steal`, if the
//! guest is built with `PARAVIRT_TIME_ACCOUNTING`). The kernel charges time that the host took
//! without a report to the thread on the CPU. Two signs here reveal such time. The watchdog woke
//! late although no other thread had its CPU, or the count grew by more than the time that passed.
//! The third sign, a CPU whose times stand still, is in [`super::steal`].
//!
//! This module computes with numbers only. [`super::account`] uses it.

use upcall_core::time::Span;

#[cfg(test)]
mod tests;

/// The longest delay of a wake-up that the host did not cause.
pub(super) const LATE_MAX: Span = Span::from_millis(1);

/// The time between two samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed {
    pub(super) time: Span,
    /// How long the machine stood still in that time, at least: [`stall_time`].
    pub(super) stalled: Span,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The kernel's count at the previous sample.
    count_ns: u64,
    /// Time before the previous sample that the kernel may count after it.
    uncounted_ns: u64,
}

/// How long the machine stood still, at least. The watchdog woke `late` and had `waited` that long
/// for other threads on its CPU.
///
/// A domain that takes a higher priority than the watchdog's makes it wait, and gains nothing on
/// any CPU. If the kernel does not count waits, every delay may come from such a thread.
pub(super) fn stall_time(late: Span, waited: Option<Span>) -> Span {
    let stalled = waited.map_or(Span::ZERO, |waited| late.saturating_sub(waited));
    if stalled > LATE_MAX { stalled } else { Span::ZERO }
}

impl Meter {
    /// Sets the first count of a thread.
    pub(super) fn begin(&mut self, count_ns: u64, kernel_tick: Span) {
        *self = Meter { count_ns, uncounted_ns: uncounted_ns_max(kernel_tick) };
    }

    /// Whether the kernel counts more than at the previous sample.
    pub(super) fn has_run_since(&self, count_ns: u64) -> bool {
        count_ns > self.count_ns
    }

    /// The CPU time that the thread used since the previous sample, in ns. The kernel now counts
    /// `count_ns` in all, and is at most `kernel_tick` behind.
    ///
    /// If the machine stood still, the count is worthless. It is also unknown how much of the
    /// remaining time came before the previous sample. Half of the remaining time is charged then.
    /// So a thread that never sleeps is found even if the machine keeps standing still. A
    /// standstill of this CPU alone stays unseen if it is shorter than a kernel tick and the time
    /// between two samples.
    pub(super) fn used_ns(&mut self, count_ns: u64, elapsed: Elapsed, kernel_tick: Span) -> u64 {
        let counted_ns = count_ns.saturating_sub(self.count_ns);
        self.count_ns = count_ns;
        let ran_ns = elapsed.time.saturating_sub(elapsed.stalled).as_nanos();
        let possible_ns = self.uncounted_ns.saturating_add(ran_ns);
        if elapsed.stalled > Span::ZERO || counted_ns > possible_ns {
            self.uncounted_ns = uncounted_ns_max(kernel_tick);
            return counted_ns.min(ran_ns / 2);
        }
        self.uncounted_ns = (possible_ns - counted_ns).min(uncounted_ns_max(kernel_tick));
        counted_ns
    }
}

/// The watchdog reads the clock and the count one after the other, and may be delayed in between.
fn uncounted_ns_max(kernel_tick: Span) -> u64 {
    (kernel_tick + LATE_MAX).as_nanos()
}
