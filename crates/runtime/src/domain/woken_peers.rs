//! Lets peer domains run that were woken while this domain has the turn (docs/decisions/0017).
//!
//! A woken thread of another domain has the same FIFO priority as the holder's thread. So it stands
//! behind that thread in the kernel's queue until the holder yields the CPU. At a boundary the
//! virtual processor of the holder calls [`WokenPeers::let_run`]. The woken thread then publishes
//! its work, asks the holder to compare ranks, and sleeps again.
//!
//! A domain of another user has another turn page, so it asks the daemon instead. The KLS thread of
//! its group sleeps with the priority of the domains, and shows the work in the area of domain 0.
//! That thread stands behind the holder, because the woken domain wakes it. So the holder yields
//! twice while another user has domains on the CPU.

use upcall_core::time::{Instant, Span};

use crate::clock;

/// A yield that took the time `t` is followed by none for this many times `t`. So yields take at
/// most a twentieth of the holder's time.
const PAUSE_FACTOR: u32 = 20;
/// The longest pause, after woken peers kept the CPU for 50 ms. The watchdog acts long before.
const PAUSE_MAX: Span = Span::from_secs(1);

/// The domains that may have been woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Domains of the same user.
    Peers,
    /// Domains of other users, perhaps also of the same user.
    OfOthers,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct WokenPeers {
    /// Whether the threads of the domains are real-time threads. An ordinary thread that yields may
    /// wait for a whole time slice of any other thread, and the kernel lets woken threads run
    /// anyway.
    pub(super) is_real_time: bool,
    /// Before this moment the holder does not yield again.
    next_yield: Instant,
}

impl WokenPeers {
    pub(super) fn new(is_real_time: bool) -> Self {
        WokenPeers { is_real_time, next_yield: Instant::ZERO }
    }

    /// Yields the CPU to threads of the same priority, if any domain `may_be_woken` and the pause
    /// is over. Returns the time, and when the holder must call again: [`Instant::FAR`] if no
    /// domain may be woken. If no thread waits for the CPU, this is a system call of some 0.3 us,
    /// or two while there are domains of other users.
    #[inline]
    pub(super) fn let_run(
        &mut self,
        may_be_woken: Option<Woken>,
        now: Instant,
    ) -> (Instant, Instant) {
        let Some(woken) = may_be_woken.filter(|_| self.is_real_time) else {
            return (now, Instant::FAR);
        };
        if now < self.next_yield {
            return (now, self.next_yield);
        }
        // The woken domains run.
        std::thread::yield_now();
        if woken == Woken::OfOthers {
            // The KLS threads run that they woke.
            std::thread::yield_now();
        }
        let end = clock::now();
        self.next_yield = end + (end.since(now) * PAUSE_FACTOR).min(PAUSE_MAX);
        (end, self.next_yield)
    }
}
