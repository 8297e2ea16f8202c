//! The bit pattern of a segment: where entries are to be looked at.
//!
//! Written by both ends, so by read-modify-write only. Who set a bit finds it set until the
//! other clears it, and the other way round.

use super::{fault, word};
use crate::edge::{Edge, ordering};
use crate::words::Words;
use crate::{AtomicU64, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release};

/// Sets the bit of `entry`, by the raiser; whether it was set.
pub(super) fn set<W: AsRef<[AtomicU64]>>(words: &Words<W>, entry: u32) -> bool {
    // Pairs with the Acquire in `take` and in `first`.
    let (at, bit) = place(entry);
    words.at(at).fetch_or(bit, ordering(Edge::BitSet, Release)) & bit != 0
}

/// Clears the bit of `entry`, by a taker that reads the entry afterwards.
pub(super) fn take<W: AsRef<[AtomicU64]>>(words: &Words<W>, entry: u32) {
    // Pairs with the Release in `set`: what was stored before the bit was last set is seen.
    let (at, bit) = place(entry);
    words.at(at).fetch_and(!bit, ordering(Edge::BitTake, Acquire));
}

/// Clears the bit of `entry`, by a taker that has copied the entry.
pub(super) fn free<W: AsRef<[AtomicU64]>>(words: &Words<W>, entry: u32) {
    // Pairs with the Acquire in `first_free`.
    let (at, bit) = place(entry);
    words.at(at).fetch_and(!bit, ordering(Edge::BitClear, Release));
}

/// Whether the bit of `entry` is set.
pub(super) fn is_set<W: AsRef<[AtomicU64]>>(words: &Words<W>, entry: u32) -> bool {
    // Relaxed: only asked where the memory was handed over before.
    let (at, bit) = place(entry);
    words.load(at, Relaxed) & bit != 0
}

/// The first of `entries` whose bit is set. At most 8 loads from one line.
pub(super) fn first<W: AsRef<[AtomicU64]>>(
    words: &Words<W>,
    entries: u32,
) -> Result<Option<u32>, PeerFault> {
    for at in 0..entries.div_ceil(64) {
        // Pairs with the Release in `set`.
        let found = load(words, at, entries, ordering(Edge::BitFound, Acquire))?;
        if found != 0 {
            return Ok(Some(at * 64 + found.trailing_zeros()));
        }
    }
    Ok(None)
}

/// The first from `from` to before `to`, at most `entries`, whose bit is not set.
pub(super) fn first_free<W: AsRef<[AtomicU64]>>(
    words: &Words<W>,
    (from, to): (u32, u32),
    entries: u32,
) -> Result<Option<u32>, PeerFault> {
    for at in from / 64..to.div_ceil(64) {
        // Pairs with the Release in `free`.
        let found = load(words, at, entries, ordering(Edge::BitFree, Acquire))?;
        let free = !found & below(to, at) & !below(from, at);
        if free != 0 {
            return Ok(Some(at * 64 + free.trailing_zeros()));
        }
    }
    Ok(None)
}

/// Word `at`, if no bit beyond `entries` is set.
fn load<W: AsRef<[AtomicU64]>>(
    words: &Words<W>,
    at: u32,
    entries: u32,
    order: Ordering,
) -> Result<u64, PeerFault> {
    let found = words.load(word::BITS + at as usize, order);
    let max = below(entries, at);
    if found & !max == 0 { Ok(found) } else { Err(fault("bits", found, max)) }
}

/// The bits of word `at` that belong to entries before `entry`.
const fn below(entry: u32, at: u32) -> u64 {
    match entry.saturating_sub(at * 64) {
        0 => 0,
        bits if bits < 64 => (1 << bits) - 1,
        _ => u64::MAX,
    }
}

/// The word of `entry` and its bit there.
const fn place(entry: u32) -> (usize, u64) {
    (word::BITS + (entry / 64) as usize, 1 << (entry % 64))
}
