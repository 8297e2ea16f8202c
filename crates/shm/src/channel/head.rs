//! The part that all forms of a segment share: the number of accepted events, how far the taker has
//! looked, and whether the raiser must notify it. The head of [`super`] numbers the steps.

use super::layout::{KIND, fault, word};
use super::{Form, attach};
use crate::edge::{Edge, barrier, ordering};
use crate::words::{LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The raiser's part.
#[derive(Debug)]
pub(super) struct RaiserHead<W> {
    pub words: Words<W>,
    /// Number of accepted events. The segment holds a copy of it.
    pub raised: u64,
    lost: u64,
    /// The taker's word, as last loaded and checked.
    pub taken: u64,
    /// The value of `raised` up to which the taker was notified or finds the events without a
    /// notification.
    notified: u64,
    /// The greatest number of events that can be pending.
    pending_max: u64,
    /// The word of the first entry.
    entries_at: usize,
}

impl<W: AsRef<[AtomicU64]>> RaiserHead<W> {
    pub fn attach(words: W, form: Form, pending_max: u64) -> Result<Self, LayoutError> {
        let words = attach(words, form)?;
        // Relaxed: the hand-over of the memory ordered these loads.
        let raised = words.load(word::RAISED, Relaxed);
        let lost = words.load(word::LOST, Relaxed);
        let taken = words.load(word::TAKEN, Relaxed);
        check_pending(raised, taken, pending_max).map_err(pending_error(pending_max))?;
        // The previous raiser may have died before it notified. So this one notifies again of all
        // pending events.
        let entries_at = form.entries_at();
        Ok(RaiserHead { words, raised, lost, taken, notified: taken, pending_max, entries_at })
    }

    /// The first word of `entry`.
    #[inline]
    pub fn entry(&self, entry: u32) -> usize {
        self.entries_at + entry as usize * LINE_WORDS
    }

    /// Accepts an event that is in its entry already.
    #[inline]
    pub fn accept(&mut self) {
        self.raised = self.raised.wrapping_add(1);
        // Release pairs with the Acquire in `TakerHead::raised`.
        self.words.store(word::RAISED, self.raised, ordering(Edge::ChannelRaised, Release));
    }

    /// Counts an event that found no free entry.
    pub fn lose(&mut self) {
        self.lost = self.lost.wrapping_add(1);
        // Relaxed: the count is used on its own.
        self.words.store(word::LOST, self.lost, Relaxed);
    }

    /// Loads how far the taker has looked, and checks it.
    pub fn refresh(&mut self) -> Result<(), PeerFault> {
        // Pairs with the Release in `TakerHead::advance`.
        let found = self.words.load(word::TAKEN, ordering(Edge::ChannelTaken, Acquire));
        let max = self.raised.wrapping_sub(self.taken);
        check_pending(self.raised, found, max).map_err(pending_fault(max))?;
        self.taken = found;
        Ok(())
    }

    /// Whether the greatest number of events is pending.
    #[inline]
    pub fn is_full(&mut self) -> Result<bool, PeerFault> {
        if self.raised.wrapping_sub(self.taken) < self.pending_max {
            return Ok(false);
        }
        self.refresh()?;
        Ok(self.raised.wrapping_sub(self.taken) >= self.pending_max)
    }

    /// See [`super::ring::Raiser::must_notify`].
    pub fn must_notify(&mut self) -> Result<bool, PeerFault> {
        if self.raised == self.notified {
            return Ok(false);
        }
        // Pairs with the fence in `TakerHead::settle`.
        barrier(Edge::ChannelNotifyFence, SeqCst);
        self.refresh()?;
        let unnotified = self.raised.wrapping_sub(self.notified);
        self.notified = self.raised;
        // The range begins at 1: with 0 pending events the taker has already found the latest one.
        Ok((1..=unnotified).contains(&self.raised.wrapping_sub(self.taken)))
    }
}

/// The taker's part.
#[derive(Debug)]
pub(super) struct TakerHead<W> {
    pub words: Words<W>,
    /// How far the taker has looked. The segment holds a copy of it.
    pub taken: u64,
    /// No event was accepted after `taken` was stored.
    settled: bool,
    lost: u64,
    pending_max: u64,
    /// The word of the first entry.
    entries_at: usize,
}

impl<W: AsRef<[AtomicU64]>> TakerHead<W> {
    pub fn attach(words: W, form: Form, pending_max: u64) -> Result<Self, LayoutError> {
        let words = attach(words, form)?;
        // Relaxed: the hand-over of the memory ordered these loads.
        let raised = words.load(word::RAISED, Relaxed);
        let taken = words.load(word::TAKEN, Relaxed);
        check_pending(raised, taken, pending_max).map_err(pending_error(pending_max))?;
        let entries_at = form.entries_at();
        Ok(TakerHead { words, taken, settled: false, lost: 0, pending_max, entries_at })
    }

    /// The first word of `entry`.
    #[inline]
    pub fn entry(&self, entry: u32) -> usize {
        self.entries_at + entry as usize * LINE_WORDS
    }

    /// Loads the number of accepted events, and checks it.
    pub fn raised(&self) -> Result<u64, PeerFault> {
        // Pairs with the Release in `RaiserHead::accept`.
        let found = self.words.load(word::RAISED, ordering(Edge::ChannelRaisedLoad, Acquire));
        let max = self.pending_max;
        check_pending(found, self.taken, max).map_err(pending_fault(max))?;
        Ok(found)
    }

    /// Stores that the taker has looked up to `taken` and has copied all earlier events.
    pub fn advance(&mut self, taken: u64) {
        self.taken = taken;
        self.settled = false;
        // Release pairs with the Acquire in `RaiserHead::refresh`.
        self.words.store(word::TAKEN, taken, ordering(Edge::ChannelAdvance, Release));
    }

    /// Whether the taker has looked at all accepted events. The raiser then notifies of the next
    /// event.
    pub fn settle(&mut self) -> Result<bool, PeerFault> {
        // Pairs with the fence in `RaiserHead::must_notify`. One of the two fences comes first, and
        // what was stored before it is seen after the other.
        barrier(Edge::ChannelSettleFence, SeqCst);
        self.settled = self.raised()? == self.taken;
        Ok(self.settled)
    }

    /// Whether [`Self::settle`] already succeeded at `raised`, so that no event is new.
    pub fn is_settled(&self, raised: u64) -> bool {
        self.settled && self.taken == raised
    }

    /// Events lost since the last call.
    pub fn lost(&mut self) -> u64 {
        // Relaxed: the count is used on its own.
        let found = self.words.load(word::LOST, Relaxed);
        let since = found.wrapping_sub(self.lost);
        self.lost = found;
        since
    }
}

/// Checks that at most `max` events are pending from `taken` to `raised`. Otherwise returns their
/// number as the error.
fn check_pending(raised: u64, taken: u64, max: u64) -> Result<(), u64> {
    match raised.wrapping_sub(taken) {
        pending if pending <= max => Ok(()),
        pending => Err(pending),
    }
}

fn pending_fault(max: u64) -> impl FnOnce(u64) -> PeerFault {
    move |found| fault("pending", found, max)
}

/// The error of an attach that finds such a number of pending events.
fn pending_error(max: u64) -> impl FnOnce(u64) -> LayoutError {
    move |found| LayoutError::Value { page: KIND.page, name: "pending", found, min: 0, max }
}
