//! Marks: which entries of a segment hold an event that was not taken.
//!
//! Each entry has two small numbers, packed into words: one of the raiser and one of the taker. The
//! entry is pending while they differ. The difference is how often it was raised since the last
//! take. Each number has one writer, so a store suffices where a shared bit would need a locked
//! instruction.
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
//! 2. The raiser may load an old number of the taker. It then sees less room than there is. It does
//!    not add 1 where its number would become equal to the taker's, so a pending entry never looks
//!    as if nothing were pending.
//! 3. A taker that loads this number at (4) sees the entry of (1) too.
//! 5. Stores the number that was loaded at (4), and does not load it again. If another event has
//!    come since, the taker finds it at the next (4).
//! 6. If the raiser leaves its number as it is, the taker reads this event at (6). One of the two
//!    fences comes first: either the second (2) loads what (5) stored, or (6) loads what (1)
//!    stored.
//!
//! The numbers of a slot have 1 bit. A slot is written only while nothing is pending in it
//! ([`RaiserMarks::first_free`]), so 1 bit suffices. The numbers of a typed entry have 8 bits. If
//! the taker takes nothing, each event from the 256th on costs a fence.

use super::layout::{KIND, fault, word, words_of};
use crate::edge::{Edge, barrier, ordering};
use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};

/// The raiser's numbers. `BITS` divides 64. The taker's numbers are not checked: with impossible
/// ones the taker loses only its own events.
#[derive(Debug)]
pub(super) struct RaiserMarks<const BITS: u32> {
    /// The words in the segment are a copy.
    own: Box<[u64]>,
    taken_at: usize,
}

impl<const BITS: u32> RaiserMarks<BITS> {
    /// Attaches to the marks of `entries`. Allocates.
    pub fn attach<W: AsRef<[AtomicU64]>>(
        words: &Words<W>,
        entries: u32,
    ) -> Result<Self, LayoutError> {
        let own = load::<BITS, W>(words, word::MARKS, entries)?;
        Ok(RaiserMarks { own, taken_at: word::taker_marks(entries, BITS) })
    }

    /// Marks `entry` as pending; the caller has written the event there. Returns whether an earlier
    /// event was still pending in the entry. Costs a load and a store. Also costs a fence if the
    /// number has no room for one more.
    #[inline]
    pub fn mark<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, entry: u32) -> bool {
        let (at, mask) = place::<BITS>(entry);
        let (own, next) = (self.own[at], add_one::<BITS>(self.own[at], mask));
        // Relaxed: an old value only shows less room than there is.
        let mut taken = words.load(self.taken_at + at, Relaxed);
        if (next ^ taken) & mask == 0 {
            // Pairs with the fence in `settle_entry`.
            barrier(Edge::MarkFullFence, SeqCst);
            taken = words.load(self.taken_at + at, Relaxed);
            if (next ^ taken) & mask == 0 {
                return true;
            }
        }
        self.store_own(words, at, next);
        (own ^ taken) & mask != 0
    }

    /// Marks `entry` as pending. [`Self::first_free`] returned it, and the caller has written it.
    #[inline]
    pub fn fill<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, entry: u32) {
        let (at, mask) = place::<BITS>(entry);
        self.store_own(words, at, add_one::<BITS>(self.own[at], mask));
    }

    fn store_own<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, at: usize, own: u64) {
        self.own[at] = own;
        // Pairs with the Acquire in `TakerMarks::first`.
        words.store(word::MARKS + at, own, ordering(Edge::MarkRaised, Release));
    }
}

impl RaiserMarks<1> {
    /// The first entry of the range that is not pending and may be written.
    #[inline]
    pub fn first_free<W: AsRef<[AtomicU64]>>(
        &self,
        words: &Words<W>,
        (from, to): (u32, u32),
    ) -> Option<u32> {
        let mut at = from as usize / 64;
        let mut within = u64::MAX << (from % 64);
        while number(at) * 64 < to {
            // Acquire pairs with the Release in `TakerMarks::take`: the old event was copied.
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
    /// The words in the segment are a copy.
    own: Box<[u64]>,
    own_at: usize,
    entries: u32,
}

/// A pending entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked {
    pub entry: u32,
    /// The raiser's word of its mark.
    raised: u64,
}

impl<const BITS: u32> TakerMarks<BITS> {
    /// Attaches to the marks of `entries`. Allocates.
    pub fn attach<W: AsRef<[AtomicU64]>>(
        words: &Words<W>,
        entries: u32,
    ) -> Result<Self, LayoutError> {
        let own_at = word::taker_marks(entries, BITS);
        let own = load::<BITS, W>(words, own_at, entries)?;
        Ok(TakerMarks { own, own_at, entries })
    }

    /// The first pending entry. At most one load for each word.
    #[inline]
    pub fn first<W: AsRef<[AtomicU64]>>(
        &self,
        words: &Words<W>,
    ) -> Result<Option<Marked>, PeerFault> {
        for (at, own) in self.own.iter().enumerate() {
            // Pairs with the Release in `RaiserMarks::store_own`.
            let raised = words.load(word::MARKS + at, ordering(Edge::MarkFound, Acquire));
            let pending = raised ^ own;
            if pending == 0 {
                continue;
            }
            let max = valid::<BITS>(self.entries, at);
            if pending & !max != 0 {
                return Err(fault("marks", pending, max));
            }
            let entry = number(at) * (64 / BITS) + pending.trailing_zeros() / BITS;
            return Ok(Some(Marked { entry, raised }));
        }
        Ok(None)
    }

    /// Takes the entry that [`Self::first`] found. For a typed entry, before it is read
    /// ([`settle_entry`]). For a slot, after it was copied.
    #[inline]
    pub fn take<W: AsRef<[AtomicU64]>>(&mut self, words: &Words<W>, marked: Marked) {
        let (at, mask) = place::<BITS>(marked.entry);
        self.own[at] = self.own[at] & !mask | marked.raised & mask;
        // Release pairs with the Acquire in `RaiserMarks::first_free`. Typed entries need none.
        words.store(self.own_at + at, self.own[at], ordering(Edge::MarkFree, Release));
    }

    /// How often the raiser says that it raised `entry` since the last take. For an attach.
    pub fn pending<W: AsRef<[AtomicU64]>>(&self, words: &Words<W>, entry: u32) -> u64 {
        let (at, mask) = place::<BITS>(entry);
        // Relaxed: handing the memory over ordered it.
        let raised = words.load(word::MARKS + at, Relaxed);
        let of = |word: u64| (word & mask) >> mask.trailing_zeros();
        of(raised).wrapping_sub(of(self.own[at])) & of(u64::MAX)
    }
}

/// The fence between a taken mark and the read of its entry.
#[inline]
pub(super) fn settle_entry() {
    // Pairs with the fence in `RaiserMarks::mark`.
    barrier(Edge::MarkTakenFence, SeqCst);
}

/// The marks from word `from` on. An error if a bit beyond `entries` is set.
fn load<const BITS: u32, W: AsRef<[AtomicU64]>>(
    words: &Words<W>,
    from: usize,
    entries: u32,
) -> Result<Box<[u64]>, LayoutError> {
    let numbers = (0..words_of(entries, BITS)).map(|at| {
        // Relaxed: handing the memory over ordered them.
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

/// The bits of word `at` below bit `bit` of all words.
const fn below(bit: u32, at: usize) -> u64 {
    match bit.saturating_sub(number(at) * 64) {
        0 => 0,
        bits if bits < 64 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

/// The word of `entry`, counted from the first, and its bits in that word.
#[inline]
const fn place<const BITS: u32>(entry: u32) -> (usize, u64) {
    let each = 64 / BITS;
    let one = 1u64 << (entry % each * BITS);
    ((entry / each) as usize, (one << (BITS - 1) << 1).wrapping_sub(one))
}

/// `word` with the number in the bits `mask` incremented. It wraps to 0 and leaves the other bits
/// alone.
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
