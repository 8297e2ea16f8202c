//! The ranks that a domain may show on a CPU: those of its admitted activities.
//!
//! The server sets them when an activity is admitted or closed. The [`crate::watchdog`] checks the
//! copies of the user areas against them, because a domain can write any rank into its area.

use upcall_core::time::{Instant, Span};
use upcall_shm::user_area::{NEVER, Rank, Summary};

#[cfg(test)]
mod tests;

/// How long the rank of a closed activity stays allowed. The thread that shows the rank may be kept
/// from removing it, for 50 ms by the kernel's limit on the real-time classes.
const CLOSED_FOR: Span = Span::from_millis(200);

/// The ranks that an activity may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Its place in the order of admission.
    pub(crate) order: u32,
    /// The smallest key that it may show.
    pub(crate) key_min: u64,
    /// For a policy whose key is a deadline: the least time from a release to its deadline.
    pub(crate) delay: Option<Span>,
    /// Whether an event may put it before domains of equal rank.
    pub(crate) wins_ties: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    admitted: Vec<Admitted>,
    /// Closed activities, each allowed until a time.
    closed: Vec<(Admitted, Instant)>,
}

impl Ranks {
    /// Replaces the admitted activities at `now`. Allocates.
    pub(crate) fn set(&mut self, admitted: Vec<Admitted>, now: Instant) {
        let gone = self.admitted.iter().filter(|known| !admitted.contains(known));
        self.closed.retain(|(_, until)| *until > now);
        self.closed.extend(gone.map(|known| (*known, now + CLOSED_FOR)));
        self.admitted = admitted;
    }

    /// Whether a domain shows a rank that admission did not grant: better than granted, or with the
    /// place of another domain. Checks the ready work and the releases that matter, from which the
    /// daemon chooses. O([`RELEASES_MAX`] times activities).
    ///
    /// For a key that is a deadline, the release time is known only for releases to come.
    ///
    /// [`RELEASES_MAX`]: upcall_shm::user_area::RELEASES_MAX
    pub(crate) fn is_violated_by(&self, shown: &Summary, now: Instant) -> bool {
        shown.ready().is_some_and(|ready| !self.allow(ready, 0, now))
            || shown.releases().iter().any(|&(at_ns, rank)| !self.allow(rank, at_ns, now))
    }

    /// Whether an admitted activity may have `rank` for a release at `release_ns`. An activity
    /// without a reservation has a rank that costs no other.
    fn allow(&self, rank: Rank, release_ns: u64, now: Instant) -> bool {
        if rank.is_below_all() {
            return true;
        }
        let closed = self.closed.iter().filter(|(_, until)| *until > now);
        let mut all = self.admitted.iter().chain(closed.map(|(known, _)| known));
        all.any(|of| {
            let deadline_ns =
                of.delay.map_or(0, |delay| release_ns.saturating_add(delay.as_nanos()));
            rank.order == of.order
                && rank.key >= of.key_min.max(deadline_ns)
                && (of.wins_ties || rank.event == NEVER)
        })
    }
}
