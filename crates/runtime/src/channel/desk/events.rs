//! What a handler holds while it is invoked.

use upcall_core::events::{QueuedEvent as CoreEvent, Verdict};
use upcall_core::time::Instant;
use upcall_shm::channel::Posted;

use super::Desk;
use crate::channel::here::{self, Origin};
use crate::channel::{ChannelEvent, PeerId, Raise, RaiseError};

/// What the handler of a [`Route`](crate::channel::Route) is given: the events that wait for it, to
/// be taken one by one.
pub struct Events<'a> {
    pub(super) desk: &'a mut Desk,
    /// Of the handler.
    pub(super) at: usize,
    pub(super) now: Instant,
    pub(super) current: Option<CoreEvent>,
}

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("pending", &self.pending()).finish()
    }
}

impl Events<'_> {
    /// The most urgent event; the one before is passed on, unless something else was said of it. What is
    /// not taken has the handler invoked again. O(log n).
    pub fn take(&mut self) -> Option<ChannelEvent> {
        self.conclude(Verdict::Pass);
        let id = self.desk.handlers[self.at].id;
        let event = self.desk.delivery.take(id)?;
        let led_by = self.desk.bits(event.led_by(id));
        here::set_origin(Origin { desk: self.desk.number, led_by });
        self.current = Some(event);
        let note = self.desk.notes.at(event.token)?;
        let merged = note.merged + event.merged;
        Some(ChannelEvent { peer: note.peer, row: note.row, merged, words: note.words })
    }

    /// Drops the event that was taken last: it goes to no other handler.
    pub fn discard(&mut self) {
        self.conclude(Verdict::Drop);
    }

    /// Merges it into the one before of the same peer, if that still waits for the next handler of the
    /// route: this one counts. Else it is passed on.
    pub fn merge(&mut self) {
        self.conclude(Verdict::Merge);
    }

    /// How many wait for the handler, deferred ones included.
    pub fn pending(&self) -> usize {
        self.desk.delivery.pending(self.desk.handlers[self.at].id)
    }

    /// Raises an event towards a peer of the same service or client: an answer.
    ///
    /// # Errors
    /// See [`RaiseError`]; [`RaiseError::NoPeer`] if it is gone.
    pub fn raise(&self, peer: PeerId, raise: &Raise) -> Result<Posted, RaiseError> {
        let party = self.desk.handlers[self.at].party;
        let mut links = self.desk.links.iter();
        let link = links.find(|link| link.at.party == party && link.peer == peer);
        link.ok_or(RaiseError::NoPeer(peer))?.out.raise(raise)
    }

    pub(super) fn conclude(&mut self, verdict: Verdict) {
        if let Some(event) = self.current.take() {
            self.desk.conclude(self.now, self.at, event, verdict);
        }
    }
}
