//! What all forms of a segment share: how many events were accepted, how far the
//! taker has looked, and from both whether it must be told. The steps are
//! numbered in the [channel's head](super).

use super::layout::KIND;
use super::{Form, attach, fault, word};
use crate::edge::{Edge, barrier, ordering};
use crate::words::{LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The raiser's half.
#[derive(Debug)]
pub(super) struct RaiserHead<W> {
    pub words: Words<W>,
    /// Events accepted; what stands in the segment is a copy.
    pub raised: u64,
    lost: u64,
    /// The taker's word as it was last found to be possible.
    pub taken: u64,
    /// Of `raised`, what the taker was told of or finds by itself.
    told: u64,
    /// Most events that can be pending.
    pending_max: u64,
    /// The word of the first entry.
    entries_at: usize,
}

impl<W: AsRef<[AtomicU64]>> RaiserHead<W> {
    pub fn attach(words: W, form: Form, pending_max: u64) -> Result<Self, LayoutError> {
        let words = attach(words, form)?;
        // Relaxed: what handed the memory over ordered them.
        let raised = words.load(word::RAISED, Relaxed);
        let lost = words.load(word::LOST, Relaxed);
        let taken = words.load(word::TAKEN, Relaxed);
        check_pending(raised, taken, pending_max).map_err(pending_error(pending_max))?;
        // What its predecessor told is not known: of what is pending it tells again.
        let entries_at = form.entries_at();
        Ok(RaiserHead { words, raised, lost, taken, told: taken, pending_max, entries_at })
    }

    /// The first word of `entry`.
    #[inline]
    pub fn entry(&self, entry: u32) -> usize {
        self.entries_at + entry as usize * LINE_WORDS
    }

    /// Accepts an event that stands in its entry already.
    #[inline]
    pub fn accept(&mut self) {
        self.raised = self.raised.wrapping_add(1);
        // Pairs with the Acquire in `TakerHead::raised`.
        self.words.store(word::RAISED, self.raised, ordering(Edge::ChannelRaised, Release));
    }

    /// Counts an event for which there is no room.
    pub fn lose(&mut self) {
        self.lost = self.lost.wrapping_add(1);
        // Relaxed: a number for itself.
        self.words.store(word::LOST, self.lost, Relaxed);
    }

    /// How far the taker has looked, if that can be.
    pub fn refresh(&mut self) -> Result<(), PeerFault> {
        // Pairs with the Release in `TakerHead::advance`.
        let found = self.words.load(word::TAKEN, ordering(Edge::ChannelTaken, Acquire));
        let max = self.raised.wrapping_sub(self.taken);
        check_pending(self.raised, found, max).map_err(pending_fault(max))?;
        self.taken = found;
        Ok(())
    }

    /// Whether as many are pending as can be.
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
        if self.raised == self.told {
            return Ok(false);
        }
        // Pairs with the fence in `TakerHead::settle`.
        barrier(Edge::ChannelTellFence, SeqCst);
        self.refresh()?;
        let untold = self.raised.wrapping_sub(self.told);
        self.told = self.raised;
        // From 1, for it may have come to look at the latest by itself.
        Ok((1..=untold).contains(&self.raised.wrapping_sub(self.taken)))
    }
}

/// The taker's half.
#[derive(Debug)]
pub(super) struct TakerHead<W> {
    pub words: Words<W>,
    /// How far it has looked; what stands in the segment is a copy.
    pub taken: u64,
    /// After `taken` was stored, nothing more was found to be accepted.
    settled: bool,
    lost: u64,
    pending_max: u64,
    /// The word of the first entry.
    entries_at: usize,
}

impl<W: AsRef<[AtomicU64]>> TakerHead<W> {
    pub fn attach(words: W, form: Form, pending_max: u64) -> Result<Self, LayoutError> {
        let words = attach(words, form)?;
        // Relaxed: what handed the memory over ordered them.
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

    /// How many events were accepted, if that can be.
    pub fn raised(&self) -> Result<u64, PeerFault> {
        // Pairs with the Release in `RaiserHead::accept`.
        let found = self.words.load(word::RAISED, ordering(Edge::ChannelRaisedLoad, Acquire));
        let max = self.pending_max;
        check_pending(found, self.taken, max).map_err(pending_fault(max))?;
        Ok(found)
    }

    /// It has looked up to `taken`, and copied what stands before.
    pub fn advance(&mut self, taken: u64) {
        self.taken = taken;
        self.settled = false;
        // Pairs with the Acquire in `RaiserHead::refresh`.
        self.words.store(word::TAKEN, taken, ordering(Edge::ChannelAdvance, Release));
    }

    /// Whether nothing was accepted since it had looked up to `self.taken`: then
    /// the next event is told.
    pub fn settle(&mut self) -> Result<bool, PeerFault> {
        // Pairs with the fence in `RaiserHead::must_notify`: of two fences one comes
        // first, and what was stored before it is seen after the other.
        barrier(Edge::ChannelSettleFence, SeqCst);
        self.settled = self.raised()? == self.taken;
        Ok(self.settled)
    }

    /// Whether it has settled already at `raised`: there is nothing new.
    pub fn is_settled(&self, raised: u64) -> bool {
        self.settled && self.taken == raised
    }

    /// Events for which there was no room since this was asked last.
    pub fn lost(&mut self) -> u64 {
        // Relaxed: a number for itself.
        let found = self.words.load(word::LOST, Relaxed);
        let since = found.wrapping_sub(self.lost);
        self.lost = found;
        since
    }
}

/// That from `taken` to `raised` there are at most `max`; else how many.
fn check_pending(raised: u64, taken: u64, max: u64) -> Result<(), u64> {
    match raised.wrapping_sub(taken) {
        pending if pending <= max => Ok(()),
        pending => Err(pending),
    }
}

fn pending_fault(max: u64) -> impl FnOnce(u64) -> PeerFault {
    move |found| fault("pending", found, max)
}

/// The same found before the segment is taken up.
fn pending_error(max: u64) -> impl FnOnce(u64) -> LayoutError {
    move |found| LayoutError::Value { page: KIND.page, name: "pending", found, min: 0, max }
}
