//! How the thread that serves a dispatcher polls the peers, and sleeps on their wake words.

use upcall_core::time::Instant;
use upcall_shm::wake_word::ASLEEP;
use upcall_sys::futex::WaitSet;

use super::state::{DispatchPoint, EventDispatcher};

impl EventDispatcher {
    /// Polls the peers and invokes handlers at `now`. Returns whether it did anything; then `now`
    /// is out of date. One load per peer if there is nothing to do.
    #[inline]
    pub(crate) fn serve(&mut self, now: Instant, point: DispatchPoint) -> bool {
        let notified = self.poll_peers();
        let scheduling = point == DispatchPoint::Scheduling;
        if notified || self.is_due(now) || (self.deferred && scheduling) {
            self.handle_events(now, point);
            return true;
        }
        false
    }

    fn poll_peers(&mut self) -> bool {
        let mut any = false;
        for link in &mut self.links {
            // A peer with more events than there are free slots is not polled.
            let notified = link.state.notified
                || (!link.state.more_to_take && link.wake_line.wake_word().acknowledge());
            link.state.notified = notified;
            any |= notified;
        }
        any
    }

    /// When the dispatcher must be served again even if no peer notifies.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.delivery.next_deadline()
    }

    /// Whether the dispatcher must be served now, although no peer has notified.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.delivery.best().is_some()
            || self.next_deadline().is_some_and(|deadline| deadline <= now)
            || self.has_more_to_take()
    }

    pub(super) fn has_more_to_take(&self) -> bool {
        self.links.iter().any(|link| link.state.more_to_take && self.has_room(link.state.slot))
    }

    /// Adds the wake words to `set`. Returns `false` if a peer has notified meanwhile. The caller
    /// calls [`EventDispatcher::cancel_wait`] afterwards in both cases.
    pub(crate) fn prepare_wait<'a>(&'a self, set: &mut WaitSet<'a>) -> bool {
        self.links.iter().filter(|link| !link.state.more_to_take).all(|link| {
            set.add_shared(link.wake_line.wake_word().word(), ASLEEP);
            !link.state.notified && link.wake_line.wake_word().prepare_wait()
        })
    }

    /// The thread that serves the dispatcher is awake again.
    pub(crate) fn cancel_wait(&self) {
        self.links.iter().for_each(|link| link.wake_line.wake_word().cancel_wait());
    }

    /// Whether the first handler of a registrant may get one more event.
    pub(super) fn has_room(&self, slot: usize) -> bool {
        let Some(&first) = self.slots[slot].stages.first() else { return false };
        let first = &self.handlers[first];
        self.delivery.pending(first.id) < first.terms.pending_max as usize
    }
}
