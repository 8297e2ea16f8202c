//! Lets peer domains run that were woken while this domain has the turn (docs/decisions/0017).
//!
//! A woken thread of another domain has the same FIFO priority as the holder's thread. So it stands
//! behind that thread in the kernel's queue until the holder yields the CPU. At a boundary the
//! virtual processor of the holder calls [`WokenPeers::let_run`]. The woken thread then publishes
//! its work, asks the holder to compare ranks, and sleeps again.

use upcall_core::time::{Instant, Span};

use crate::clock;

/// A yield that took the time `t` is followed by none for this many times `t`. So yields take at
/// most a twentieth of the holder's time.
const PAUSE_FACTOR: u32 = 20;
/// The longest pause, after woken peers kept the CPU for 50 ms. The watchdog acts long before.
const PAUSE_MAX: Span = Span::from_secs(1);

/// See the module's head.
#[derive(Debug)]
pub(super) struct WokenPeers {
    /// Whether the threads of the domains are real-time threads. An ordinary thread that yields may
    /// wait for a whole time slice of any other thread, and the kernel lets woken threads run
    /// anyway.
    is_real_time: bool,
    /// Before this moment the holder does not yield again.
    next_yield: Instant,
}

impl WokenPeers {
    pub(super) fn new(is_real_time: bool) -> Self {
        WokenPeers { is_real_time, next_yield: Instant::ZERO }
    }

    /// Yields the CPU to threads of the same priority, if any peer `may_be_woken` and the pause is
    /// over. Returns the time, and when the holder must call again: [`Instant::FAR`] if no peer may
    /// be woken. A system call of some 0.3 us if no thread waits for the CPU.
    #[inline]
    pub(super) fn let_run(&mut self, may_be_woken: bool, now: Instant) -> (Instant, Instant) {
        if !may_be_woken || !self.is_real_time {
            return (now, Instant::FAR);
        }
        if now < self.next_yield {
            return (now, self.next_yield);
        }
        std::thread::yield_now();
        let end = clock::now();
        self.next_yield = end + (end.since(now) * PAUSE_FACTOR).min(PAUSE_MAX);
        (end, self.next_yield)
    }
}
