//! Events with a delay, by the end of the delay.

use super::interface::EventHandlerId;
use crate::time::Instant;
use core::cmp::Reverse;
use std::collections::BinaryHeap;

/// At most one entry for each place of each handler.
#[derive(Debug, Default)]
pub(super) struct Delayed(BinaryHeap<Reverse<(Instant, u64, EventHandlerId, u32)>>);

impl Delayed {
    /// Reserves memory for `count` more events, so that no later call allocates.
    pub fn reserve(&mut self, count: usize) {
        self.0.reserve(count);
    }

    /// Adds the event number `serial`. O(log n).
    pub fn push(&mut self, due: Instant, serial: u64, handler: EventHandlerId, place: u32) {
        self.0.push(Reverse((due, serial, handler, place)));
    }

    /// When the first event is due. O(1).
    pub fn next(&self) -> Option<Instant> {
        self.0.peek().map(|Reverse((due, ..))| *due)
    }

    /// Takes the first event that is due by `now`. O(log n).
    pub fn pop(&mut self, now: Instant) -> Option<(EventHandlerId, u32)> {
        self.next().filter(|&due| due <= now)?;
        self.0.pop().map(|Reverse((_, _, handler, place))| (handler, place))
    }

    /// Removes the event in `place` of `handler`. O(n).
    pub fn remove(&mut self, handler: EventHandlerId, place: u32) {
        self.0.retain(|Reverse((_, _, of, at))| (*of, *at) != (handler, place));
    }
}
