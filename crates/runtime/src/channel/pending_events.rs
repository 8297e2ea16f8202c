//! The contents of the events that wait at a dispatcher. The core knows each event by a number.

use super::event::Words;
use super::peer::PeerId;

/// The contents of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingEvent {
    pub(super) peer: PeerId,
    pub(super) row: u32,
    pub(super) merged: u64,
    pub(super) words: Words,
}

/// A slot for each event that may wait. Memory is allocated when registrants are admitted.
#[derive(Debug, Default)]
pub(super) struct PendingEvents {
    slots: Vec<Option<PendingEvent>>,
    free: Vec<usize>,
}

impl PendingEvents {
    /// Reserves slots for `count` more events. Allocates.
    pub(super) fn reserve(&mut self, count: usize) {
        let from = self.slots.len();
        self.slots.resize(from + count, None);
        self.free.reserve(self.slots.len());
        self.free.extend(from..from + count);
    }

    /// Stores an event and returns its number, or `None` if all slots are taken.
    pub(super) fn put(&mut self, event: PendingEvent) -> Option<u64> {
        let slot = self.free.pop()?;
        self.slots[slot] = Some(event);
        Some(slot as u64)
    }

    pub(super) fn at(&self, token: u64) -> Option<&PendingEvent> {
        self.slots.get(usize::try_from(token).ok()?)?.as_ref()
    }

    /// Frees the slot of one event. Returns whether there was an event.
    pub(super) fn free(&mut self, token: u64) -> bool {
        let Ok(slot) = usize::try_from(token) else { return false };
        let was = self.slots.get_mut(slot).and_then(Option::take).is_some();
        if was {
            self.free.push(slot);
        }
        was
    }

    /// Frees the slots of all events of a peer. O(n).
    pub(super) fn free_all(&mut self, peer: PeerId) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_some_and(|event| event.peer == peer) {
                self.slots[slot] = None;
                self.free.push(slot);
            }
        }
    }
}
