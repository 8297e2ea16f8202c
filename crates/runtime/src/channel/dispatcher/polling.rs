//! How the thread that serves a dispatcher polls it, and sleeps on its bells.

use upcall_core::time::Instant;
use upcall_shm::channel::bell::ASLEEP;
use upcall_sys::futex::WaitSet;

use super::state::{Desk, Moment};

impl Desk {
    /// Invokes what is to be invoked at `now`; `true`: something was done, and took time. A load for each peer,
    /// if there is nothing.
    #[inline]
    pub(crate) fn serve(&mut self, now: Instant, moment: Moment) -> bool {
        let heard = self.hear();
        if heard || self.is_due(now) || (self.deferred && moment == Moment::Scheduling) {
            self.act(now, moment);
            return true;
        }
        false
    }

    fn hear(&mut self) -> bool {
        let mut heard = false;
        for link in &mut self.links {
            // One that has more than there is room for is not listened to.
            let rung = link.at.rung || (!link.at.unfinished && link.bell.answer());
            link.at.rung = rung;
            heard |= rung;
        }
        heard
    }

    /// When it is to be served again even if nobody rings.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.delivery.next_deadline()
    }

    /// Whether it is to be served now, without being rung.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.delivery.best().is_some()
            || self.next_deadline().is_some_and(|deadline| deadline <= now)
            || self.is_unfinished()
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.links.iter().any(|link| link.at.unfinished && self.has_room(link.at.party))
    }

    /// Adds the bells to what is slept on; `false` if one was rung by now. Either way [`Desk::stir`] follows.
    pub(crate) fn doze<'a>(&'a self, set: &mut WaitSet<'a>) -> bool {
        self.links.iter().filter(|link| !link.at.unfinished).all(|link| {
            set.add_shared(link.bell.word(), ASLEEP);
            !link.at.rung && link.bell.doze()
        })
    }

    /// Who serves it is awake.
    pub(crate) fn stir(&self) {
        self.links.iter().for_each(|link| link.bell.stir());
    }

    pub(super) fn has_room(&self, party: usize) -> bool {
        let Some(&first) = self.parties[party].stages.first() else { return false };
        let first = &self.handlers[first];
        self.delivery.pending(first.id) < first.terms.pending_max as usize
    }
}
