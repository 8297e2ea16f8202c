//! What of a thread's CPU time, as the kernel counts it, the thread itself has used.
//!
//! The kernel leaves out of its count what the host says it took (`steal`, where the guest
//! is built with `PARAVIRT_TIME_ACCOUNTING`). What the host took and did not say is charged
//! to whoever was on the CPU. Two things give that away: the watchdog woke late though no
//! other thread kept it from its CPU, or the count grew by more than there was time for.
//! Numbers only; used by the [`super::account`].

use upcall_core::time::Span;

#[cfg(test)]
mod tests;

/// A watchdog so late at most was not held up by the host: so a wake-up is.
const LATE_MAX: Span = Span::from_millis(1);

/// What passed from one look to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elapsed {
    pub(super) time: Span,
    /// Of that, the machine stood still for so long at least: [`stall_time`].
    pub(super) stalled: Span,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// As the kernel last said.
    count_ns: u64,
    /// Elapsed before the last look, and may be counted after it.
    uncounted_ns: u64,
}

/// How long the machine stood still, by a watchdog that woke `late` after it had waited
/// so long for other threads on its CPU. Who takes a higher priority than the watchdog's
/// only has it wait, and gains nothing, whatever CPU it is on. Where the kernel does not
/// count that, every delay may be such a thread's.
pub(super) fn stall_time(late: Span, waited: Option<Span>) -> Span {
    let stalled = waited.map_or(Span::ZERO, |waited| late.saturating_sub(waited));
    if stalled > LATE_MAX { stalled } else { Span::ZERO }
}

impl Meter {
    /// The first count of a thread.
    pub(super) fn begin(&mut self, count_ns: u64, kernel_tick: Span) {
        *self = Meter { count_ns, uncounted_ns: uncounted_ns_max(kernel_tick) };
    }

    /// Whether the kernel counts more than at the look before.
    pub(super) fn has_run_since(&self, count_ns: u64) -> bool {
        count_ns > self.count_ns
    }

    /// What the thread used since the look before, in ns, now that the kernel counts
    /// `count_ns` in all. `kernel_tick` is how far that is behind at most.
    ///
    /// Where the machine stood still, the count is worth nothing, and nor is it known how
    /// much of what is left of the time came before: half of it is what the thread may have
    /// had, so that one that never sleeps is found where the machine never stands quite
    /// still. A standstill of this CPU alone is not seen if it is shorter than a kernel tick
    /// and the time between two looks.
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

/// The watchdog reads clock and count one after the other, and may be held up between.
fn uncounted_ns_max(kernel_tick: Span) -> u64 {
    (kernel_tick + LATE_MAX).as_nanos()
}
