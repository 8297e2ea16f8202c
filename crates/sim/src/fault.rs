//! What goes wrong, when, and until when.
//!
//! Every fault ends by itself: it *heals*, and from then on what was promised
//! must hold again. `CLOCK_MONOTONIC`, which drivers read, is not set by anyone
//! (`clock_gettime(2)`); that a counter is off after a guest was moved to another
//! host, or between two CPUs, is what the clock's two faults stand for.

use upcall_core::time::{Instant, Span};

/// A stretch of time: from `from`, up to but not including `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first instant.
    pub from: Instant,
    /// The first instant after it; not before `from`.
    pub until: Instant,
}

impl Window {
    /// All of time.
    pub const ALWAYS: Window = Window { from: Instant::ZERO, until: Instant::FAR };

    /// Whether `at` is in it.
    pub fn contains(&self, at: Instant) -> bool {
        self.from <= at && at < self.until
    }
}

/// Something that goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A CPU that sleeps and is due in `window` wakes late by any time up to
    /// `by_max`, but not after the window's end.
    LateWakeups {
        /// When.
        window: Window,
        /// How late at most.
        by_max: Span,
    },
    /// An activity goes on spinning in the PDU it is in until the window ends,
    /// once a quantum of it begins in the window. It returns at no boundary;
    /// where the policy preempts inside a PDU, that still does.
    NeverYields {
        /// Its place in the spec.
        activity: u32,
        /// When.
        window: Window,
    },
    /// All activities of a domain are gone at the window's start, in the midst
    /// of whatever they did, and created anew at its end: then they are the last
    /// among equals, whatever the order of the file.
    DomainDies {
        /// The domain.
        domain: u32,
        /// When it is not there.
        window: Window,
    },
    /// Of the messages that come to a sleeping CPU, one in `one_in` does not
    /// wake it: it is found when the CPU wakes next, at the latest when the
    /// window ends.
    LostNotifications {
        /// When.
        window: Window,
        /// 1 loses all; at least 1.
        one_in: u32,
    },
    /// Nothing runs on any CPU, and time goes on: the machine's host took it
    /// away, or the clock was set forward.
    Stall {
        /// When.
        window: Window,
    },
    /// What is read of the clock is ahead of the time by `by`, on every CPU, until it is set
    /// right again. From then on readings lie before some that were read, for as
    /// long again.
    ClockForward {
        /// When.
        window: Window,
        /// How far.
        by: Span,
    },
    /// What is read of the clock is behind the time by `by`, on every CPU, until it is set
    /// right again.
    ClockBack {
        /// When.
        window: Window,
        /// How far.
        by: Span,
    },
}

impl Fault {
    /// From its beginning until it heals.
    pub fn window(&self) -> Window {
        match *self {
            Fault::LateWakeups { window, .. }
            | Fault::NeverYields { window, .. }
            | Fault::DomainDies { window, .. }
            | Fault::LostNotifications { window, .. }
            | Fault::Stall { window }
            | Fault::ClockBack { window, .. } => window,
            Fault::ClockForward { window, by } => {
                Window { from: window.from, until: window.until + by }
            }
        }
    }

    /// Whether what admission promised may break through it, where a wake-up
    /// may be late by `wakeup_latency`. A domain's death is no excuse for the
    /// others, nor is a message that was not heard.
    pub fn breaks_promises(&self, wakeup_latency: Span) -> bool {
        match *self {
            Fault::LateWakeups { by_max, .. } => by_max > wakeup_latency,
            Fault::NeverYields { .. }
            | Fault::Stall { .. }
            | Fault::ClockForward { .. }
            | Fault::ClockBack { .. } => true,
            Fault::DomainDies { .. } | Fault::LostNotifications { .. } => false,
        }
    }
}

/// When nothing runs: the windows of all stalls, in order and apart.
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

    /// `at`, or the end of the stall it falls into.
    pub(crate) fn clear(&self, at: Instant) -> Instant {
        self.0.iter().find(|window| window.contains(at)).map_or(at, |window| window.until)
    }

    /// When `work` that begins at `from` is done.
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

    /// The time from `from` to `until` that was not stalled.
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
    fn work_stands_still_in_a_stall() {
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
