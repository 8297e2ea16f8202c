//! Which ranks a domain may show on a CPU: those of what it was admitted with.
//!
//! Set by the server when something is admitted or given back, looked at by the
//! [`crate::watchdog`], for which the domain's word is not enough.

use upcall_core::time::{Instant, Span};
use upcall_shm::PeerFault;
use upcall_shm::user_area::{NEVER, Peer, Rank};
use upcall_sys::memfd::SharedMapping;

#[cfg(test)]
mod tests;

/// For so long the rank of what was given back is no lie: the thread that shows it may
/// have been kept from showing that it has gone (50 ms by the kernel's limit on the
/// real-time classes).
const CLOSED_FOR: Span = Span::from_millis(200);

/// What an activity may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Its place in the order of admission; [`u32::MAX`] of one that got none.
    pub(crate) order: u32,
    /// No key of it is below.
    pub(crate) key_min: u64,
    /// Where the key is a deadline: the least time from a release to it.
    pub(crate) delay: Option<Span>,
    /// Whether it may go before its equals by an event.
    pub(crate) wins_ties: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    admitted: Vec<Admitted>,
    /// Given back, but for a while.
    closed: Vec<(Admitted, Instant)>,
}

impl Ranks {
    /// What is admitted from `now` on. Allocates.
    pub(crate) fn set(&mut self, admitted: Vec<Admitted>, now: Instant) {
        let gone = self.admitted.iter().filter(|known| !admitted.contains(known));
        self.closed.retain(|(_, until)| *until > now);
        self.closed.extend(gone.map(|known| (*known, now + CLOSED_FOR)));
        self.admitted = admitted;
    }

    /// Whether `area` shows a rank now, or for a release to come, that is better than what
    /// was admitted, or in a place that its domain has not got. Where a key is a deadline,
    /// how early the release was is known only of what is still to come. What it is just
    /// changing is looked at the next time. O(slots times activities).
    pub(crate) fn is_violated_by(&self, area: &Peer<SharedMapping>, now: Instant) -> bool {
        // At 0 no release has come: it is what was said to be ready.
        match area.best(0) {
            Ok(Some(ready)) if !self.allow(ready, 0, now) => return true,
            Ok(_) => {}
            Err(fault) => return is_certain(&fault),
        }
        (0..area.slots()).any(|index| match area.slot(index) {
            Ok(slot) if slot.next_release_ns == NEVER => false,
            Ok(slot) => !self.allow(slot.rank, slot.next_release_ns, now),
            Err(fault) => is_certain(&fault),
        })
    }

    /// Whether something admitted may have `rank` from `release_ns` on.
    fn allow(&self, rank: Rank, release_ns: u64, now: Instant) -> bool {
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

/// Whether it says what cannot be. That it was just writing is none.
fn is_certain(fault: &PeerFault) -> bool {
    !matches!(fault, PeerFault::Torn { .. })
}
