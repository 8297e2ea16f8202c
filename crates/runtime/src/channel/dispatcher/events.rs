//! What a handler holds while it is invoked.

use upcall_core::events::Verdict;
use upcall_shm::channel::Posted;

use super::state::Events;
use crate::channel::errors::RaiseError;
use crate::channel::event::ChannelEvent;
use crate::channel::peer::PeerId;
use crate::channel::raise::Raise;
use crate::channel::thread_context::{self as here, Origin};

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
