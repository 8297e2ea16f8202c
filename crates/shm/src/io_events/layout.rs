//! The layout of a page of I/O events.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and a new golden table in the tests.

use crate::words::{Kind, LINE_BYTES};
use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 1;

/// Descriptors are numbered below this: a top word with 32 used bits, 64 leaves each, 32
/// descriptors each.
pub const DESCRIPTORS_MAX: u32 = 65_536;

/// Bytes of a page: whole pages of the machine.
pub const PAGE_BYTES: usize = 137 * 4096;

/// Leaves of a tree, and the summary words above them.
pub(super) const LEAVES: usize = DESCRIPTORS_MAX as usize / 32;
pub(super) const SUMMARIES: usize = LEAVES / 64;

/// `upcioev` and a zero, in memory on a little-endian machine.
pub(super) const KIND: Kind = Kind {
    page: "page of I/O events",
    magic: u64::from_le_bytes(*b"upcioev\0"),
    version: LAYOUT_VERSION,
};

#[repr(C, align(4096))]
struct IoEventsPage {
    identity: Identity,
    raised: CountLine,
    taken: CountLine,
    wake: CountLine,
    active: TreeWords,
    updated: TreeWords,
    interest: [u64; DESCRIPTORS_MAX as usize],
    reserved: [u64; 400],
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    /// `DESCRIPTORS_MAX`.
    descriptors: u64,
    reserved: [u64; 5],
}

/// One word that is written often, in a line of its own.
#[repr(C, align(64))]
struct CountLine {
    value: u64,
    reserved: [u64; 7],
}

#[repr(C, align(64))]
struct TreeWords {
    top: CountLine,
    summaries: [u64; SUMMARIES],
    leaves: [u64; LEAVES],
}

const _: () = {
    assert!(size_of::<IoEventsPage>() == PAGE_BYTES);
    assert!(size_of::<Identity>() == LINE_BYTES && size_of::<CountLine>() == LINE_BYTES);
    assert!(size_of::<TreeWords>() == 16_704);
    assert!(offset_of!(IoEventsPage, raised) == 64);
    assert!(offset_of!(IoEventsPage, taken) == 128);
    assert!(offset_of!(IoEventsPage, wake) == 192);
    assert!(offset_of!(IoEventsPage, active) == 256);
    assert!(offset_of!(IoEventsPage, updated) == 16_960);
    assert!(offset_of!(IoEventsPage, interest) == 33_664);
    assert!(offset_of!(IoEventsPage, reserved) == 557_952);
    assert!(offset_of!(Identity, magic) == 0 && offset_of!(Identity, version) == 8);
    assert!(offset_of!(Identity, reserved) == 24);
    assert!(offset_of!(CountLine, value) == 0 && offset_of!(CountLine, reserved) == 8);
    assert!(offset_of!(TreeWords, top) == 0);
    assert!(offset_of!(TreeWords, summaries) == 8 * word::TREE_SUMMARIES);
    assert!(offset_of!(TreeWords, leaves) == 8 * word::TREE_LEAVES);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{Identity, IoEventsPage, SUMMARIES, TreeWords, offset_of, size_of};

    pub const DESCRIPTORS: usize = offset_of!(Identity, descriptors) / 8;
    pub const RAISED: usize = offset_of!(IoEventsPage, raised) / 8;
    pub const TAKEN: usize = offset_of!(IoEventsPage, taken) / 8;
    pub const WAKE: usize = offset_of!(IoEventsPage, wake) / 8;
    pub const ACTIVE: usize = offset_of!(IoEventsPage, active) / 8;
    pub const UPDATED: usize = offset_of!(IoEventsPage, updated) / 8;

    /// Words of a tree, and where its parts begin in it.
    pub const TREE_WORDS: usize = size_of::<TreeWords>() / 8;
    pub const TREE_SUMMARIES: usize = 8;
    pub const TREE_LEAVES: usize = TREE_SUMMARIES + SUMMARIES;

    const INTEREST: usize = offset_of!(IoEventsPage, interest) / 8;
    const END: usize = offset_of!(IoEventsPage, reserved) / 8;

    /// The interest in a descriptor below `DESCRIPTORS_MAX`.
    pub const fn interest(descriptor: u32) -> usize {
        INTEREST + descriptor as usize
    }

    /// Whether `word` is 0 in every page.
    pub const fn is_reserved(word: usize) -> bool {
        match word {
            0..=DESCRIPTORS | RAISED | TAKEN | WAKE | ACTIVE | UPDATED => false,
            _ if word < ACTIVE => true,
            _ if word < UPDATED => word < ACTIVE + TREE_SUMMARIES,
            _ if word < INTEREST => word < UPDATED + TREE_SUMMARIES,
            _ => word >= END,
        }
    }
}
