//! The events that wait for one handler: bounded, by rank, then in the order in which they came.

use super::{Event, Key};
use crate::policy::heap::IndexedHeap;

/// Places for events, each free, deferred or ripe. Memory is taken once, at creation.
#[derive(Debug)]
pub(super) struct Pending {
    places: Box<[Option<Event>]>,
    free: Vec<u32>,
    /// Those that may be taken.
    ripe: IndexedHeap<Key>,
}

impl Pending {
    pub fn new(pending_max: u32) -> Self {
        Pending {
            places: vec![None; pending_max as usize].into(),
            free: (0..pending_max).rev().collect(),
            ripe: IndexedHeap::with_capacity(pending_max),
        }
    }

    /// How many can wait.
    pub fn room(&self) -> usize {
        self.places.len()
    }

    /// How many wait, deferred ones included.
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts `event` in a place, not to be taken yet; `None`: there is none free. O(1).
    pub fn put(&mut self, event: Event) -> Option<u32> {
        let place = self.free.pop()?;
        self.places[place as usize] = Some(event);
        Some(place)
    }

    /// Lets the event in `place` be taken. O(log n).
    pub fn ripen(&mut self, place: u32) {
        if let Some(event) = &self.places[place as usize] {
            self.ripe.set(event.key(), place);
        }
    }

    /// The most urgent that may be taken. O(1).
    pub fn peek(&self) -> Option<(Key, u32)> {
        self.ripe.peek()
    }

    /// Takes the event out of `place`. O(log n).
    pub fn remove(&mut self, place: u32) -> Option<Event> {
        let event = self.places[place as usize].take()?;
        self.ripe.remove(place);
        self.free.push(place);
        Some(event)
    }

    /// Merges `event` into the one in `place`, which is ripe: the more urgent rank and the
    /// newer token count. O(log n).
    pub fn merge(&mut self, place: u32, event: Event) {
        if let Some(pending) = &mut self.places[place as usize] {
            pending.rank = pending.rank.min(event.rank);
            pending.token = event.token;
            pending.merged += event.merged + 1;
            pending.ancestry = pending.ancestry.and(event.ancestry);
            self.ripe.set(pending.key(), place);
        }
    }

    /// The first place whose event `is` so. O(n).
    pub fn find(&self, is: impl Fn(&Event) -> bool) -> Option<u32> {
        let place = self.places.iter().position(|event| event.as_ref().is_some_and(&is))?;
        u32::try_from(place).ok()
    }
}
