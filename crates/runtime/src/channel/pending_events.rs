//! What events carry that wait at a desk: the core knows them by number.

use super::event::Words;
use super::peer::PeerId;

/// Of one event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) peer: PeerId,
    pub(super) row: u32,
    pub(super) merged: u64,
    pub(super) words: Words,
}

/// As many as can wait. Memory is taken as parties come.
#[derive(Debug, Default)]
pub(super) struct Notes {
    places: Vec<Option<Note>>,
    free: Vec<usize>,
}

impl Notes {
    /// Room for `count` more. Allocates.
    pub(super) fn make_room(&mut self, count: usize) {
        let from = self.places.len();
        self.places.resize(from + count, None);
        self.free.reserve(self.places.len());
        self.free.extend(from..from + count);
    }

    /// Keeps a note; `None`: there is no room.
    pub(super) fn put(&mut self, note: Note) -> Option<u64> {
        let place = self.free.pop()?;
        self.places[place] = Some(note);
        Some(place as u64)
    }

    pub(super) fn at(&self, token: u64) -> Option<&Note> {
        self.places.get(usize::try_from(token).ok()?)?.as_ref()
    }

    /// Forgets one; whether it was there.
    pub(super) fn free(&mut self, token: u64) -> bool {
        let Ok(place) = usize::try_from(token) else { return false };
        let was = self.places.get_mut(place).and_then(Option::take).is_some();
        if was {
            self.free.push(place);
        }
        was
    }

    /// Forgets all of a peer. O(n).
    pub(super) fn free_all(&mut self, peer: PeerId) {
        for place in 0..self.places.len() {
            if self.places[place].is_some_and(|note| note.peer == peer) {
                self.places[place] = None;
                self.free.push(place);
            }
        }
    }
}
