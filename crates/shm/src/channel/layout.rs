//! The layout of a segment.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and new golden tables in the tests.

use crate::PeerFault;
use crate::words::{Kind, LINE_BYTES};
use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 2;

/// Bytes of a segment without marks and entries.
pub(super) const HEAD_BYTES: usize = 192;

/// `upcchan` and a zero, in memory on a little-endian machine.
pub(super) const KIND: Kind =
    Kind { page: "channel", magic: u64::from_le_bytes(*b"upcchan\0"), version: LAYOUT_VERSION };

/// An impossible value that the peer wrote.
pub(super) const fn fault(name: &'static str, found: u64, max: u64) -> PeerFault {
    PeerFault::Value { page: KIND.page, name, found, max }
}

/// Bits of the mark of a slot.
pub(super) const SLOT_BITS: u32 = 1;
/// Bits of the mark of a type. Fewer under loom, so that a model reaches a full mark.
pub(super) const TYPE_BITS: u32 = if cfg!(loom) { 2 } else { 8 };

/// Words of the marks of `entries`, for each end.
pub(super) const fn words_of(entries: u32, bits: u32) -> usize {
    (entries * bits).div_ceil(u64::BITS) as usize
}

#[repr(C, align(64))]
struct Segment {
    identity: Identity,
    raiser: RaiserLine,
    taker: TakerLine,
    // The lines of the raiser's marks follow, then those of the taker's marks, then the entries.
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    /// 1 counter, 2 typed, 3 slots, 4 ring.
    form: u64,
    /// Types, levels, or slots of a ring; 0 in a counter.
    rows: u64,
    /// Entries of a level. 1 in a typed segment and in a ring, 0 in a counter.
    depth: u64,
    reserved: [u64; 3],
}

#[repr(C, align(64))]
struct RaiserLine {
    /// Events accepted so far.
    raised: u64,
    /// Events that found no free entry so far.
    lost: u64,
    reserved: [u64; 6],
}

#[repr(C, align(64))]
struct TakerLine {
    /// The value of `raised` up to which the taker has looked.
    taken: u64,
    reserved: [u64; 7],
}

#[repr(C, align(64))]
struct Entry {
    /// Typed: twice the number of writes of this entry, and odd while the raiser writes it. Slots
    /// and ring: how many events were accepted before this one.
    stamp: u64,
    payload: [u64; 7],
}

const _: () = {
    assert!(size_of::<Segment>() == HEAD_BYTES);
    assert!(size_of::<Identity>() == LINE_BYTES);
    assert!(size_of::<RaiserLine>() == LINE_BYTES);
    assert!(size_of::<TakerLine>() == LINE_BYTES);
    assert!(size_of::<Entry>() == LINE_BYTES);
    assert!(offset_of!(Segment, identity) == 0);
    assert!(offset_of!(Segment, raiser) == 64);
    assert!(offset_of!(Segment, taker) == 128);
    assert!(offset_of!(Identity, magic) == 0 && offset_of!(Identity, version) == 8);
    assert!(offset_of!(Identity, form) == 16 && offset_of!(Identity, rows) == 24);
    assert!(offset_of!(Identity, depth) == 32);
    // The words without a constant in `word` are reserved.
    assert!(offset_of!(Identity, reserved) == 8 * 5);
    assert!(offset_of!(RaiserLine, reserved) == 64 - 8 * 6);
    assert!(offset_of!(TakerLine, reserved) == 64 - 8 * 7);
    assert!(offset_of!(RaiserLine, lost) == 8);
    assert!(offset_of!(Entry, stamp) == 0 && offset_of!(Entry, payload) == 8);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{HEAD_BYTES, Identity, RaiserLine, Segment, TakerLine, offset_of, words_of};
    use crate::words::LINE_WORDS;

    pub const FORM: usize = offset_of!(Identity, form) / 8;
    pub const ROWS: usize = offset_of!(Identity, rows) / 8;
    pub const DEPTH: usize = offset_of!(Identity, depth) / 8;
    pub const RAISED: usize = offset_of!(Segment, raiser.raised) / 8;
    pub const LOST: usize = offset_of!(Segment, raiser.lost) / 8;
    pub const TAKEN: usize = offset_of!(Segment, taker.taken) / 8;
    /// The raiser's marks.
    pub const MARKS: usize = HEAD_BYTES / 8;

    /// The taker's marks, of `entries` with `bits` each.
    pub const fn taker_marks(entries: u32, bits: u32) -> usize {
        MARKS + words_of(entries, bits).next_multiple_of(LINE_WORDS)
    }

    /// The first entry, after the marks.
    pub const fn entries(entries: u32, bits: u32) -> usize {
        MARKS + 2 * (taker_marks(entries, bits) - MARKS)
    }

    /// Whether `word` is 0 in every segment with such marks.
    pub const fn is_reserved(word: usize, of: u32, bits: u32) -> bool {
        const IDENTITY: usize = offset_of!(Identity, reserved) / 8;
        const RAISER: usize =
            offset_of!(Segment, raiser) / 8 + offset_of!(RaiserLine, reserved) / 8;
        const TAKER: usize = offset_of!(Segment, taker) / 8 + offset_of!(TakerLine, reserved) / 8;
        let taker_marks = taker_marks(of, bits);
        match word {
            0..RAISED => word >= IDENTITY,
            RAISED..TAKEN => word >= RAISER,
            TAKEN..MARKS => word >= TAKER,
            _ if word < taker_marks => word >= MARKS + words_of(of, bits),
            _ => word < entries(of, bits) && word >= taker_marks + words_of(of, bits),
        }
    }
}
