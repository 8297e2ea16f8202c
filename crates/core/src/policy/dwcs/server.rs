//! The event server: it spends a reserved share of the CPU on pending events.
//!
//! The server is the pseudo task of the paper (ecalls-2001 §2.4), with window-constraint `0/Y_max`,
//! the run time `C` of the activity that it serves, and period `T = C / U_r`. Each time the pseudo
//! task would run, an activity with a pending event runs instead.
//!
//! The paper leaves two questions open. *When does a period begin?* It begins with the event, or
//! with the deadline of the previous service if that is later. So in any interval the services ask
//! for at most the part `U_r` of it, whenever events come (the total bandwidth server of Spuri and
//! Buttazzo 1996). *What is `U_r`?* It is the share that the driver sets; without a share the
//! server does nothing. A policy knows neither the hand-offs nor how long a quantum may block. The
//! whole rest that the utilization test leaves would be too large a share, and would break
//! promises. [`crate::admission::Reservations::event_share`] computes a share that keeps all
//! promises.

use crate::share::Share;
use crate::time::{Instant, Span};

/// The share of the event server, and the time until which it is spent. Each call is O(1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    share: Share,
    /// The deadline of the last service.
    spent_until: Instant,
    /// When the period of the next service began; `None` if no event waits.
    begun: Option<Instant>,
}

impl Server {
    pub(super) fn new(share: Share, now: Instant) -> Self {
        Server { share, spent_until: now, begun: None }
    }

    /// Notes whether any event waits at `now`.
    pub(super) fn note(&mut self, waiting: bool, now: Instant) {
        self.begun = match waiting {
            true => Some(self.begun.unwrap_or(self.spent_until.max(now))),
            false => None,
        };
    }

    /// The deadline of a service with this run time; `None` if no event waits.
    pub(super) fn deadline(&self, run_time: Span) -> Option<Instant> {
        self.begun.map(|begun| begun + self.period(run_time))
    }

    /// Notes that a service with this deadline begins.
    pub(super) fn spend(&mut self, deadline: Instant) {
        self.spent_until = deadline;
        self.begun = None;
    }

    /// `C / U_r`, rounded up to a nanosecond. At most an hour divided by a millionth, which fits.
    fn period(&self, run_time: Span) -> Span {
        let scaled = u128::from(run_time.as_nanos()) * u128::from(Share::WHOLE.ppm());
        let period = scaled.div_ceil(u128::from(self.share.ppm()));
        Span::from_nanos(u64::try_from(period).unwrap_or(u64::MAX))
    }
}
