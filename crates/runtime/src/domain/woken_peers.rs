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

/// A yield that took the time `t` is paid with this many times `t`. So yields take at most a
/// twentieth of the holder's time, and [`SAVED_MAX`] once.
const PAUSE_FACTOR: u32 = 20;
/// The yields that a holder may make at once after it made none for long. A yield may take a few
/// microseconds for an interrupt, perhaps the one by which another CPU wakes a peer. That peer runs
/// at the next yield, which must not wait for a pause.
const SAVED_MAX: Span = Span::from_micros(20);
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
    pause: Pause,
}

/// How often the holder may yield.
#[derive(Debug, Default)]
struct Pause {
    /// All yields so far are paid at this moment. Before it the holder does not yield again.
    paid_at: Instant,
}

impl Pause {
    /// Notes a yield from `begin` to `end`.
    #[inline]
    fn note(&mut self, begin: Instant, end: Instant) {
        let price = (end.since(begin) * PAUSE_FACTOR).min(PAUSE_MAX);
        self.paid_at = self.paid_at.max(end - SAVED_MAX * PAUSE_FACTOR) + price;
    }
}

impl WokenPeers {
    pub(super) fn new(is_real_time: bool) -> Self {
        WokenPeers { is_real_time, pause: Pause::default() }
    }

    /// Yields the CPU to threads of the same priority, if any domain `may_be_woken` and the pause
    /// is over. Returns the time, and when the holder must call again: [`Instant::FAR`] if no
    /// domain may be woken. A moment that has passed is the next boundary. If no thread waits for
    /// the CPU, this is a system call of some 0.3 us, or two while there are domains of other
    /// users.
    #[inline]
    pub(super) fn let_run(
        &mut self,
        may_be_woken: Option<Woken>,
        now: Instant,
    ) -> (Instant, Instant) {
        let Some(woken) = may_be_woken.filter(|_| self.is_real_time) else {
            return (now, Instant::FAR);
        };
        if now < self.pause.paid_at {
            return (now, self.pause.paid_at);
        }
        // The woken domains run.
        std::thread::yield_now();
        if woken == Woken::OfOthers {
            // The KLS threads run that they woke.
            std::thread::yield_now();
        }
        let end = clock::now();
        self.pause.note(now, end);
        (end, self.pause.paid_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + us * 1_000)
    }

    /// Before, the pause was 100 us: a peer that became ready within the yield waited for five
    /// quanta of 20 us.
    #[test]
    fn a_yield_that_an_interrupt_made_long_delays_no_later_one() {
        let mut pause = Pause::default();
        pause.note(at(0), at(5));
        assert!(pause.paid_at <= at(5), "{:?}", pause.paid_at);
    }

    #[test]
    fn yields_take_a_twentieth_of_the_time_and_the_saved_part_at_most() {
        for yield_us in [1, 3, 40, 3_000] {
            let (mut pause, mut now_us, mut taken_us) = (Pause::default(), 0, 0);
            while now_us < 1_000_000 {
                if at(now_us) < pause.paid_at {
                    // A quantum.
                    now_us += 2;
                    continue;
                }
                pause.note(at(now_us), at(now_us + yield_us));
                now_us += yield_us;
                taken_us += yield_us;
            }
            let most_us = now_us / 20 + SAVED_MAX.as_nanos() / 1_000 + yield_us;
            assert!(taken_us <= most_us, "{yield_us}: {taken_us} of at most {most_us}");
        }
    }

    /// After woken peers kept the CPU for ever.
    #[test]
    fn a_pause_takes_a_second_at_most() {
        let mut pause = Pause::default();
        pause.note(at(0), at(10_000_000));
        assert!(pause.paid_at <= at(11_000_000), "{:?}", pause.paid_at);
    }
}
