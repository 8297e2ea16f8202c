//! Marks: which entries of a segment hold what was not taken.
//!
//! Two small numbers an entry, packed: what its raiser says and what its taker says. The entry is pending
//! while they differ, and by how much is how often it was raised since. Each number has one writer, so
//! a store does where a shared bit needs a locked instruction.
//!
//! ```text
//!   raiser                                            taker
//!   mark: (1) entry                                   take: (4) raiser's = own? nothing pending
//!         (2) taker's: room for one more?                   (5) own := raiser's
//!             (3) yes: own + 1  -- Rel/Acq (4) -->              fence
//!             no: fence                                     (6) entry
//!                 (2) again; if (3), else stays
//! ```
//!
//! 2. May be old: then there is more room than it seems. As long as the raiser is never further ahead than
//!    the number can say, what the taker has taken is never mistaken for what it has not.
//! 3. What is found at (4) is found with its entry.
//! 5. No look at the raiser's number: another event may come, and is found at the next (4).
//! 6. Of an event whose mark stays the taker reads at (6): of the two fences one comes first, so either (2)
//!    finds what (5) stored, or (6) finds what (1) did.
//!
//! Slots have a bit an entry: there is never room, for a slot is written only while free ([`RaiserMarks::first_free`]).
//! Typed entries have 8: from the 256th event on that finds nobody taking, each costs a fence.

use super::layout::{KIND, fault, word, words_of};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The raiser's numbers. `BITS` divides 64. What the taker says of its own is not checked: with what cannot be it
/// loses events that were for itself.
#[derive(Debug)]
pub(super) struct RaiserMarks<const BITS: u32> {
    /// What stands in the segment is a copy.
    own: Box<[u64]>,
    taken_at: usize,
}

impl<const BITS: u32> RaiserMarks<BITS> {
    /// Takes up the marks of `entries`. Allocates.
    pub fn attach<W: AsRef<[AtomicU64]>>(
        words: &Words<W>,
        entries: u32,
    ) -> Result<Self, LayoutError> {
        let own = load::<BITS, W>(words, word::MARKS, entries)?;
        Ok(RaiserMarks { own, taken_at: word::taker_marks(entries, BITS) })
    }

    /// Marks `entry`, which was written: whether one was pending there. A load and a store; a fence
    /// if as many are pending as can be said.
    #[inline]
    pub fn mark<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, entry: u32) -> bool {
        let (at, mask) = place::<BITS>(entry);
        let (own, next) = (self.own[at], add_one::<BITS>(self.own[at], mask));
        // Relaxed: an older one is as good.
        let mut taken = words.load(self.taken_at + at, Relaxed);
        if (next ^ taken) & mask == 0 {
            // Pairs with the fence in `settle_entry`.
            barrier(Edge::MarkFullFence, SeqCst);
            taken = words.load(self.taken_at + at, Relaxed);
            if (next ^ taken) & mask == 0 {
                return true;
            }
        }
        self.say(words, at, next);
        (own ^ taken) & mask != 0
    }

    /// Marks `entry`, which was written where [`Self::first_free`] said.
    #[inline]
    pub fn fill<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, entry: u32) {
        let (at, mask) = place::<BITS>(entry);
        self.say(words, at, add_one::<BITS>(self.own[at], mask));
    }

    fn say<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, at: usize, own: u64) {
        self.own[at] = own;
        // Pairs with the Acquire in `TakerMarks::first`.
        words.store(word::MARKS + at, own, ordering(Edge::MarkRaised, Release));
    }
}

impl RaiserMarks<1> {
    /// The first from `from` to before `to` that is not pending: it may be written.
    #[inline]
    pub fn first_free<W: AsRef<[AtomicU64]>>(
        &self,
        words: &Words<W>,
        (from, to): (u32, u32),
    ) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut within = u64::MAX << (from % 64);
        while number(at) * 64 < to {
            // Pairs with the Release in `TakerMarks::take`: what was there was copied.
            let taken = words.load(self.taken_at + at, ordering(Edge::MarkFreed, Acquire));
            let free = !(self.own[at] ^ taken) & within;
            if free != 0 {
                let entry = number(at) * 64 + free.trailing_zeros();
                return Some(entry).filter(|&entry| entry < to);
            }
            (at, within) = (at + 1, u64::MAX);
        }
        None
    }
}

/// The taker's numbers.
#[derive(Debug)]
pub(super) struct TakerMarks<const BITS: u32> {
    /// What stands in the segment is a copy.
    own: Box<[u64]>,
    own_at: usize,
    entries: u32,
}

/// An entry that is pending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked {
    pub entry: u32,
    /// The word in which the raiser says so.
    says: u64,
}

impl<const BITS: u32> TakerMarks<BITS> {
    /// Takes up the marks of `entries`. Allocates.
    pub fn attach<W: AsRef<[AtomicU64]>>(
        words: &Words<W>,
        entries: u32,
    ) -> Result<Self, LayoutError> {
        let own_at = word::taker_marks(entries, BITS);
        let own = load::<BITS, W>(words, own_at, entries)?;
        Ok(TakerMarks { own, own_at, entries })
    }

    /// The first entry that is pending. As many loads as there are words, at most.
    #[inline]
    pub fn first<W: AsRef<[AtomicU64]>>(
        &self,
        words: &Words<W>,
    ) -> Result<Option<Marked>, PeerFault> {
        for (at, own) in self.own.iter().enumerate() {
            // Pairs with the Release in `RaiserMarks::say`.
            let says = words.load(word::MARKS + at, ordering(Edge::MarkFound, Acquire));
            let pending = says ^ own;
            if pending == 0 {
                continue;
            }
            let max = valid::<BITS>(self.entries, at);
            if pending & !max != 0 {
                return Err(fault("marks", pending, max));
            }
            let entry = number(at) * (64 / BITS) + pending.trailing_zeros() / BITS;
            return Ok(Some(Marked { entry, says }));
        }
        Ok(None)
    }

    /// Takes what [`Self::first`] found: before its entry is read ([`settle_entry`]), or after it was copied.
    #[inline]
    pub fn take<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, marked: Marked) {
        let (at, mask) = place::<BITS>(marked.entry);
        self.own[at] = self.own[at] & !mask | marked.says & mask;
        // Pairs with the Acquire in `RaiserMarks::first_free`; typed entries need none.
        words.store(self.own_at + at, self.own[at], ordering(Edge::MarkFree, Release));
    }

    /// How often `entry` was raised and not taken, as its raiser says. Where the memory was handed over.
    pub fn pending<W: AsRef<[AtomicU64]>>(&self, words: &Words<W>, entry: u32) -> u64 {
        let (at, mask) = place::<BITS>(entry);
        // Relaxed: what handed it over ordered it.
        let says = words.load(word::MARKS + at, Relaxed);
        let of = |word: u64| (word & mask) >> mask.trailing_zeros();
        of(says).wrapping_sub(of(self.own[at])) & of(u64::MAX)
    }
}

/// Between the mark that was taken and the entry that is read.
#[inline]
pub(super) fn settle_entry() {
    // Pairs with the fence in `RaiserMarks::mark`.
    barrier(Edge::MarkTakenFence, SeqCst);
}

/// The numbers from `from` on, if none is beyond `entries`.
fn load<const BITS: u32, W: AsRef<[AtomicU64]>>(
    words: &Words<W>,
    from: usize,
    entries: u32,
) -> Result<Box<[u64]>, LayoutError> {
    let numbers = (0..words_of(entries, BITS)).map(|at| {
        // Relaxed: what handed the memory over ordered them.
        let (found, max) = (words.load(from + at, Relaxed), valid::<BITS>(entries, at));
        let error = LayoutError::Value { page: KIND.page, name: "marks", found, min: 0, max };
        if found & !max == 0 { Ok(found) } else { Err(error) }
    });
    numbers.collect()
}

/// The bits of word `at` that belong to entries.
const fn valid<const BITS: u32>(entries: u32, at: usize) -> u64 {
    below(entries * BITS, at)
}

/// The bits of word `at` before bit `bit` of all.
const fn below(bit: u32, at: usize) -> u64 {
    match bit.saturating_sub(number(at) * 64) {
        0 => 0,
        bits if bits < 64 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

/// The word of `entry`, from the first, and its bits there.
#[inline]
const fn place<const BITS: u32>(entry: u32) -> (usize, u64) {
    let each = 64 / BITS;
    let one = 1u64 << (entry % each * BITS);
    ((entry / each) as usize, (one << (BITS - 1) << 1).wrapping_sub(one))
}

/// `word` with one more in the bits `mask`, around to 0 and not into what is beside.
#[inline]
const fn add_one<const BITS: u32>(word: u64, mask: u64) -> u64 {
    // The highest bit of each number.
    const { assert!(64 % BITS == 0) };
    let highs = (u64::MAX / (u64::MAX >> (64 - BITS))) << (BITS - 1);
    let one = mask & mask.wrapping_neg();
    (word & !highs).wrapping_add(one) ^ (word & highs)
}

#[expect(clippy::cast_possible_truncation, reason = "a segment has at most 64 words of marks")]
const fn number(at: usize) -> u32 {
    at as u32
}
