//! The real-time priorities that Upcall uses.
//!
//! The runtime, the daemon and the senders of test traffic take their priorities from this module.
//!
//! ```text
//!   62  watchdog
//!   61  a thread that was blocked in its turn; the thread that waits for descriptors
//!   60  scheduling threads, which run handlers; the kernel-level scheduler of a user who waits
//!   59  the daemon's kernel-level scheduler of the user who has the CPU
//!   58  a process that kept the CPU too long
//!   ..  senders of test traffic, at 40
//! ```
//!
//! With a lower `RLIMIT_RTPRIO` the whole band moves down and keeps its order. Priority 60 is above
//! threaded interrupt handlers (50). If the highest priority of the band is below 53, handlers run
//! at 50 or less. Then they cannot preempt the interrupt threads, and a flood of interrupts delays
//! them.

/// Five adjacent priorities in `SCHED_FIFO`. From the highest: the daemon's watchdog, threads that
/// were blocked in their turn, the threads that run handlers, the daemon's kernel-level scheduler,
/// and processes that kept the CPU too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Band {
    top: u8,
}

/// The lowest real-time priority, SCHED_FIFO (sched(7)).
pub const FIFO_LEAST: u8 = 1;

impl Band {
    /// The band of a process that may take any priority.
    pub const WHOLE: Band = Band { top: 62 };
    /// How many priorities a band has.
    pub const WIDTH: u8 = 5;
    /// Priority of senders, if the whole band is above it.
    const SENDER_MAX: u8 = 40;

    /// The highest band with no priority above `limit`; `None` if `limit` is below
    /// [`Band::WIDTH`].
    pub fn below(limit: u64) -> Option<Band> {
        let limit = u8::try_from(limit).unwrap_or(u8::MAX);
        (limit >= Band::WIDTH).then_some(Band { top: limit.min(Band::WHOLE.top) })
    }

    /// Priority of the daemon's watchdog, the highest.
    pub const fn watchdog(self) -> u8 {
        self.top
    }

    /// Priority of a thread that was blocked in its turn, until it has finished its quantum.
    pub const fn returner(self) -> u8 {
        self.top - 1
    }

    /// Priority of the thread that waits for descriptors.
    pub const fn reactor(self) -> u8 {
        self.top - 1
    }

    /// Priority of scheduling threads, which run handlers.
    pub const fn handlers(self) -> u8 {
        self.top - 2
    }

    /// Priority of the daemon's kernel-level scheduler.
    pub const fn kernel_level(self) -> u8 {
        self.top - 3
    }

    /// Priority of a process that kept the CPU too long, the lowest of the band.
    pub const fn offender(self) -> u8 {
        self.top - 4
    }

    /// Priority of senders of test traffic: 40, or the priority just below the band if that is
    /// lower. `None` if the lowest priority of the band is 1.
    pub const fn sender(self) -> Option<u8> {
        match self.offender() - 1 {
            0 => None,
            below if below < Band::SENDER_MAX => Some(below),
            _ => Some(Band::SENDER_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The priorities from the lowest to the highest.
    fn order(band: Band) -> [u8; 5] {
        let Band { top } = band;
        let order = [band.offender(), band.kernel_level(), band.handlers(), band.returner(), top];
        assert_eq!((band.reactor(), band.watchdog()), (band.returner(), top));
        order
    }

    #[test]
    fn the_order_is_the_same_under_every_limit_and_within_it() {
        for limit in 0..=200 {
            let Some(band) = Band::below(limit) else {
                assert!(limit < u64::from(Band::WIDTH), "{limit}");
                continue;
            };
            let order = order(band);
            assert!(order.is_sorted_by(|low, high| low < high), "{limit}: {order:?}");
            assert!(order[0] >= 1 && u64::from(order[4]) <= limit, "{limit}: {order:?}");
            assert!(band.sender().is_none_or(|sender| sender >= 1 && sender < order[0]), "{limit}");
        }
    }

    #[test]
    fn the_whole_band_matches_the_documentation() {
        assert_eq!(order(Band::WHOLE), [58, 59, 60, 61, 62]);
        assert_eq!(Band::WHOLE.sender(), Some(40));
        assert_eq!(Band::below(u64::MAX), Some(Band::WHOLE));
        assert_eq!(
            (Band::below(5).unwrap().sender(), Band::below(6).unwrap().sender()),
            (None, Some(1))
        );
    }
}
