//! The faults of a run, and their windows.
//!
//! Every fault ends by itself: it *heals*, and from then on the promises must hold again. No
//! process can set `CLOCK_MONOTONIC`, which drivers read (`clock_gettime(2)`). But the counter
//! behind the clock may be wrong after a virtual machine moved to another host, or differ between
//! two CPUs. The two faults of the clock model that.

use upcall_core::time::{Instant, Span};

/// An interval from `from` up to but not including `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first instant of the interval.
    pub from: Instant,
    /// The first instant after the interval; not before `from`.
    pub until: Instant,
}

impl Window {
    /// All of time.
    pub const ALWAYS: Window = Window { from: Instant::ZERO, until: Instant::FAR };

    /// Whether `at` is in the window.
    pub fn contains(&self, at: Instant) -> bool {
        self.from <= at && at < self.until
    }
}

/// A fault for a limited time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sleeping CPU that is due in `window` wakes late by any time up to `by_max`, but not after
    /// the window's end.
    LateWakeups {
        /// The window of the fault.
        window: Window,
        /// The largest delay.
        by_max: Span,
    },
    /// An activity spins in its present PDU until the window ends, if one of its quanta begins in
    /// the window. The activity returns at no boundary. A policy that preempts within a PDU still
    /// preempts it.
    NeverYields {
        /// Its index in the spec.
        activity: u32,
        /// The window of the fault.
        window: Window,
    },
    /// All activities of a domain die at the window's start, in the middle of their work. They are
    /// created anew at its end. Then they are the last among equals, whatever the order of the
    /// file.
    DomainDies {
        /// The domain.
        domain: u32,
        /// The window in which the domain is absent.
        window: Window,
    },
    /// All threads of a domain are stopped for the window, in the middle of their work (SIGSTOP, a
    /// debugger). Only with [`crate::SimSpec::split_level`], where a domain is a process.
    DomainStops {
        /// The domain.
        domain: u32,
        /// The window in which the domain is stopped.
        window: Window,
    },
    /// A handler blocks in the kernel as it begins a job: in the first job of the window, and in
    /// every `every`-th one after it. With [`crate::SimSpec::split_level`] other domains run
    /// meanwhile. Otherwise the CPU does nothing.
    HandlerBlocks {
        /// The index of its activity in the spec.
        activity: u32,
        /// The window of the fault.
        window: Window,
        /// At least 1. 1 blocks every job.
        every: u64,
        /// How long it blocks. The fault heals this long after its window.
        length: Span,
    },
    /// One in `one_in` messages to a sleeping CPU does not wake the CPU. The CPU finds the message
    /// when it wakes next, at the latest when the window ends.
    LostNotifications {
        /// The window of the fault.
        window: Window,
        /// At least 1. 1 loses every notification.
        one_in: u32,
    },
    /// Nothing runs on any CPU while time continues: the host took the machine's CPUs away, or the
    /// clock was set forward.
    Stall {
        /// The window of the fault.
        window: Window,
    },
    /// The clock reads ahead of true time by `by`, on every CPU, until it is set right again. For
    /// as long as `by` after that, readings are below earlier readings.
    ClockForward {
        /// The window of the fault.
        window: Window,
        /// The error of the clock.
        by: Span,
    },
    /// The clock reads behind true time by `by`, on every CPU, until it is set right again.
    ClockBack {
        /// The window of the fault.
        window: Window,
        /// The error of the clock.
        by: Span,
    },
}

impl Fault {
    /// The window from the beginning of the fault until it heals.
    pub fn window(&self) -> Window {
        match *self {
            Fault::LateWakeups { window, .. }
            | Fault::NeverYields { window, .. }
            | Fault::DomainDies { window, .. }
            | Fault::DomainStops { window, .. }
            | Fault::LostNotifications { window, .. }
            | Fault::Stall { window }
            | Fault::ClockBack { window, .. } => window,
            Fault::ClockForward { window, by: longer }
            | Fault::HandlerBlocks { window, length: longer, .. } => {
                Window { from: window.from, until: window.until + longer }
            }
        }
    }

    /// Whether the fault takes one domain away while the others run on, if each domain is a
    /// process. Such a fault excuses that domain alone.
    pub fn is_of_one_domain(&self) -> bool {
        matches!(self, Fault::DomainStops { .. } | Fault::HandlerBlocks { .. })
    }

    /// Whether the fault may break admitted promises. Admission assumes that a wake-up may be late
    /// by `wakeup_latency`. The death of a domain does not excuse other domains. A lost
    /// notification excuses no CPU either. A fault that [takes one domain
    /// away](Fault::is_of_one_domain) excuses the CPU only where all domains are one process.
    pub fn breaks_promises(&self, wakeup_latency: Span) -> bool {
        match *self {
            Fault::LateWakeups { by_max, .. } => by_max > wakeup_latency,
            Fault::NeverYields { .. }
            | Fault::Stall { .. }
            | Fault::DomainStops { .. }
            | Fault::HandlerBlocks { .. }
            | Fault::ClockForward { .. }
            | Fault::ClockBack { .. } => true,
            Fault::DomainDies { .. } | Fault::LostNotifications { .. } => false,
        }
    }
}

/// The windows of all stalls, in order and without overlap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls(Vec<Window>);

impl Stalls {
    pub(crate) fn of(faults: &[Fault]) -> Self {
        let mut windows: Vec<_> = faults
            .iter()
            .filter_map(|fault| match fault {
                Fault::Stall { window } if window.from < window.until => Some(*window),
                _ => None,
            })
            .collect();
        windows.sort_by_key(|window| window.from);
        let mut apart: Vec<Window> = Vec::with_capacity(windows.len());
        for window in windows {
            match apart.last_mut() {
                Some(last) if window.from <= last.until => {
                    last.until = last.until.max(window.until)
                }
                _ => apart.push(window),
            }
        }
        Stalls(apart)
    }

    /// Returns `at`, or the end of the stall that contains `at`.
    pub(crate) fn clear(&self, at: Instant) -> Instant {
        self.0.iter().find(|window| window.contains(at)).map_or(at, |window| window.until)
    }

    /// The end of `work` that begins at `from`.
    pub(crate) fn end(&self, from: Instant, work: Span) -> Instant {
        let mut end = from + work;
        for window in self.0.iter().filter(|window| window.until > from) {
            if window.from >= end {
                break;
            }
            end += window.until.since(window.from.max(from));
        }
        end
    }

    /// The time from `from` to `until` without stalls.
    pub(crate) fn between(&self, from: Instant, until: Instant) -> Span {
        let stalled =
            self.0.iter().map(|window| window.until.min(until).since(window.from.max(from))).sum();
        until.since(from).saturating_sub(stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from: u64, until: u64) -> Window {
        Window { from: Instant::from_nanos(from), until: Instant::from_nanos(until) }
    }

    #[test]
    fn work_stops_during_a_stall() {
        let faults =
            [(50, 60), (10, 20), (15, 30)].map(|(a, b)| Fault::Stall { window: window(a, b) });
        let stalls = Stalls::of(&faults);
        let at = Instant::from_nanos;
        let ns = Span::from_nanos;
        assert_eq!(stalls.0, [window(10, 30), window(50, 60)]);
        assert_eq!([9, 10, 29, 30].map(|t| stalls.clear(at(t))), [9, 30, 30, 30].map(at));
        for (from, work, end) in
            [(0, 10, 10), (0, 11, 31), (0, 30, 50), (0, 31, 61), (12, 5, 35), (30, 5, 35)]
        {
            assert_eq!(stalls.end(at(from), ns(work)), at(end), "{from} {work}");
            assert_eq!(stalls.between(at(from), at(end)), ns(work), "{from} {end}");
        }
        assert_eq!(stalls.between(at(12), at(25)), Span::ZERO);
    }
}
