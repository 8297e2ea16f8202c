//! The event server: what is left of the CPU, spent on pending events.
//!
//! The paper's pseudo task (ecalls-2001 §2.4): window-constraint `0/Y_max`, the
//! run time `C` of whom it serves, period `T = C / U_r`. Each time its turn
//! comes, an activity with a pending event runs instead.
//!
//! What the paper leaves open, and how it is here. *When does its period
//! begin?* With the event, or with the deadline of the service before if that
//! is later: so the services of any interval ask for no more than `U_r` of it,
//! whenever events come (the total bandwidth server of Spuri and Buttazzo
//! 1996). *What is `U_r`?* Whatever the driver says; none without. A policy
//! knows neither the hand-offs nor how long a quantum may block, and what is
//! left by the utilization test alone would break promises:
//! [`crate::admission::Reservations::event_share`] says what would not.

use crate::share::Share;
use crate::time::{Instant, Span};

/// A share, and what of it is spent. Each call is O(1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    share: Share,
    /// The deadline of the last service.
    spent_until: Instant,
    /// When the period of the next service began; `None` if nothing waits.
    begun: Option<Instant>,
}

impl Server {
    pub(super) fn new(share: Share, now: Instant) -> Self {
        Server { share, spent_until: now, begun: None }
    }

    /// Notes whether anything waits at `now`.
    pub(super) fn note(&mut self, waiting: bool, now: Instant) {
        self.begun = match waiting {
            true => Some(self.begun.unwrap_or(self.spent_until.max(now))),
            false => None,
        };
    }

    /// The deadline of a service of that run time; `None` if nothing waits.
    pub(super) fn deadline(&self, run_time: Span) -> Option<Instant> {
        self.begun.map(|begun| begun + self.period(run_time))
    }

    /// A service with that deadline begins.
    pub(super) fn spend(&mut self, deadline: Instant) {
        self.spent_until = deadline;
        self.begun = None;
    }

    /// `C / U_r`, rounded up to a nanosecond. At most an hour through a
    /// millionth, which fits.
    fn period(&self, run_time: Span) -> Span {
        let scaled = u128::from(run_time.as_nanos()) * u128::from(Share::WHOLE.ppm());
        let period = scaled.div_ceil(u128::from(self.share.ppm()));
        Span::from_nanos(u64::try_from(period).unwrap_or(u64::MAX))
    }
}
