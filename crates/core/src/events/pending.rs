//! The events that wait for one handler: bounded, sorted by rank, then by arrival.

use super::interface::{Key, QueuedEvent};
use crate::heap::IndexedHeap;
use std::collections::VecDeque;

/// Places for events, each free, deferred or ripe. Memory is taken once, at creation.
#[derive(Debug)]
pub(super) struct Pending {
    places: Box<[Option<QueuedEvent>]>,
    free: Vec<u32>,
    /// Events that became ripe in the order of their keys, as events of equal rank do. They need no
    /// heap. Invariant: the first entry matches its place. Later entries that no longer match are
    /// skipped.
    run: VecDeque<(Key, u32)>,
    /// The other ripe events.
    rest: IndexedHeap<Key>,
}

impl Pending {
    pub fn new(pending_max: u32) -> Self {
        Pending {
            places: vec![None; pending_max as usize].into(),
            free: (0..pending_max).rev().collect(),
            run: VecDeque::with_capacity(pending_max as usize),
            rest: IndexedHeap::with_capacity(pending_max),
        }
    }

    /// How many events can wait.
    pub fn room(&self) -> usize {
        self.places.len()
    }

    /// How many events wait, including deferred ones.
    #[inline]
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Puts `event` in a place, not ripe yet; `None` if no place is free. O(1).
    #[inline]
    pub fn put(&mut self, event: QueuedEvent) -> Option<u32> {
        let place = self.free.pop()?;
        self.places[place as usize] = Some(event);
        Some(place)
    }

    /// Makes the event in `place` ripe. O(1) in order of rank, else O(log n).
    #[inline]
    pub fn ripen(&mut self, place: u32) {
        let Some(event) = &self.places[place as usize] else { return };
        let key = event.key();
        let in_order = self.run.back().is_none_or(|&(last, _)| last <= key);
        if in_order && self.run.len() < self.places.len() {
            self.run.push_back((key, place));
        } else {
            self.rest.set(key, place);
        }
    }

    /// The most urgent ripe event. O(1).
    #[inline]
    pub fn peek(&self) -> Option<(Key, u32)> {
        match (self.run.front().copied(), self.rest.peek()) {
            (Some(run), Some(rest)) => Some(run.min(rest)),
            (run, rest) => run.or(rest),
        }
    }

    /// Takes the event out of `place`. O(1) for the first of those in order, else O(log n).
    #[inline]
    pub fn remove(&mut self, place: u32) -> Option<QueuedEvent> {
        let event = self.places[place as usize].take()?;
        self.rest.remove(place);
        self.free.push(place);
        self.pass_over();
        Some(event)
    }

    /// Merges `event` into the ripe event in `place`: the more urgent rank and the newer token
    /// count. O(log n).
    pub fn merge(&mut self, place: u32, event: QueuedEvent) {
        let Some(pending) = &mut self.places[place as usize] else { return };
        let before = pending.key();
        pending.rank = pending.rank.min(event.rank);
        pending.token = event.token;
        pending.merged += event.merged + 1;
        pending.ancestry = pending.ancestry.and(event.ancestry);
        let key = pending.key();
        if key != before {
            self.rest.set(key, place);
            self.pass_over();
        }
    }

    /// Removes the first entries of `run` whose event was removed or has moved to `rest`.
    #[inline]
    fn pass_over(&mut self) {
        while let Some(&(key, place)) = self.run.front() {
            if self.places[place as usize].as_ref().is_some_and(|event| event.key() == key) {
                break;
            }
            self.run.pop_front();
        }
    }

    /// The first place whose event satisfies `is`. O(n).
    pub fn find(&self, is: impl Fn(&QueuedEvent) -> bool) -> Option<u32> {
        let place = self.places.iter().position(|event| event.as_ref().is_some_and(&is))?;
        u32::try_from(place).ok()
    }
}
