//! The methods of [`Events`], which a handler gets while it is invoked.

use upcall_core::events::Verdict;
use upcall_shm::channel::Posted;

use super::state::Events;
use crate::channel::errors::RaiseError;
use crate::channel::event::ChannelEvent;
use crate::channel::peer::PeerId;
use crate::channel::raise::Raise;
use crate::channel::thread_context::{self, Origin};

impl std::fmt::Debug for Events<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("pending", &self.pending()).finish()
    }
}

impl Events<'_> {
    /// The most urgent event. The event taken before is passed on, unless the handler has discarded
    /// or merged it. If events are left, the handler is invoked again. O(log n).
    pub fn take(&mut self) -> Option<ChannelEvent> {
        self.conclude(Verdict::Pass);
        let id = self.dispatcher.handlers[self.at].id;
        let event = self.dispatcher.delivery.take(id)?;
        let led_by = self.dispatcher.bits(event.led_by(id));
        thread_context::set_origin(Origin { dispatcher: self.dispatcher.number, led_by });
        self.current = Some(event);
        let pending = self.dispatcher.pending_events.at(event.token)?;
        let merged = pending.merged + event.merged;
        Some(ChannelEvent { peer: pending.peer, row: pending.row, merged, words: pending.words })
    }

    /// Drops the event that was taken last. No later handler of the route gets it.
    pub fn discard(&mut self) {
        self.conclude(Verdict::Drop);
    }

    /// Merges the event that was taken last into the previous event of the same peer, if that one
    /// still waits for the next handler of the route. The merged event keeps the newer contents.
    /// Otherwise the event is passed on.
    pub fn merge(&mut self) {
        self.conclude(Verdict::Merge);
    }

    /// How many events wait for the handler, including deferred ones.
    pub fn pending(&self) -> usize {
        self.dispatcher.delivery.pending(self.dispatcher.handlers[self.at].id)
    }

    /// Raises an event towards a peer of the same service or client, for example to reply.
    ///
    /// # Errors
    /// See [`RaiseError`]; [`RaiseError::NoPeer`] if the peer is gone.
    pub fn raise(&self, peer: PeerId, raise: &Raise) -> Result<Posted, RaiseError> {
        let slot = self.dispatcher.handlers[self.at].slot;
        let mut links = self.dispatcher.links.iter();
        let link = links.find(|link| link.state.slot == slot && link.peer == peer);
        link.ok_or(RaiseError::NoPeer(peer))?.raising_end.raise(raise)
    }

    pub(super) fn conclude(&mut self, verdict: Verdict) {
        if let Some(event) = self.current.take() {
            self.dispatcher.conclude(self.now, self.at, event, verdict);
        }
    }
}
