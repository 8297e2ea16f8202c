//! The layout of a load page.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and a new golden table in the tests.

use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 1;

/// Bytes of a load page.
pub const PAGE_BYTES: usize = 4096;

/// Words of a page, for both ends.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// The greatest number of streams of one page: the lines left after the first three.
pub const STREAMS_MAX: usize = PAGE_BYTES / LINE_BYTES - 3;

/// `upcload` and a zero, in memory on a little-endian machine.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"upcload\0");

/// Bytes of a cache line. Two writers must not share a line.
const LINE_BYTES: usize = 64;

#[repr(C, align(4096))]
struct LoadPage {
    identity: Identity,
    parent: ParentLine,
    child: ChildLine,
    streams: [StreamLine; STREAMS_MAX],
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    streams: u64,
    reserved: [u64; 5],
}

#[repr(C, align(64))]
struct ParentLine {
    /// 0: no start yet.
    start_at_ns: u64,
    /// 1: the child must finish early.
    stop: u64,
    reserved: [u64; 6],
}

#[repr(C, align(64))]
struct ChildLine {
    /// A `State`.
    state: u64,
    reserved: [u64; 7],
}

#[repr(C, align(64))]
struct StreamLine {
    offered: u64,
    offered_bytes: u64,
    slips: u64,
    errors: u64,
    reserved: [u64; 4],
}

const _: () = {
    assert!(size_of::<LoadPage>() == PAGE_BYTES);
    assert!(size_of::<Identity>() == LINE_BYTES);
    assert!(size_of::<ParentLine>() == LINE_BYTES);
    assert!(size_of::<ChildLine>() == LINE_BYTES);
    assert!(size_of::<StreamLine>() == LINE_BYTES);
    assert!(offset_of!(LoadPage, identity) == 0);
    assert!(offset_of!(LoadPage, parent) == 64);
    assert!(offset_of!(LoadPage, child) == 128);
    assert!(offset_of!(LoadPage, streams) == 192);
    // The words without a constant in `word` are reserved.
    assert!(offset_of!(Identity, reserved) == 8 * 3);
    assert!(offset_of!(ParentLine, reserved) == 8 * 2);
    assert!(offset_of!(ChildLine, reserved) == 8);
    assert!(offset_of!(StreamLine, reserved) == 8 * 4);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{ChildLine, Identity, LINE_BYTES, LoadPage, ParentLine, StreamLine, offset_of};

    pub const MAGIC: usize = offset_of!(LoadPage, identity.magic) / 8;
    pub const VERSION: usize = offset_of!(LoadPage, identity.version) / 8;
    pub const STREAMS: usize = offset_of!(LoadPage, identity.streams) / 8;
    pub const START_AT_NS: usize = offset_of!(LoadPage, parent.start_at_ns) / 8;
    pub const STOP: usize = offset_of!(LoadPage, parent.stop) / 8;
    pub const STATE: usize = offset_of!(LoadPage, child.state) / 8;

    /// Within a stream's line.
    pub const OFFERED: usize = offset_of!(StreamLine, offered) / 8;
    pub const OFFERED_BYTES: usize = offset_of!(StreamLine, offered_bytes) / 8;
    pub const SLIPS: usize = offset_of!(StreamLine, slips) / 8;
    pub const ERRORS: usize = offset_of!(StreamLine, errors) / 8;

    const LINE: usize = LINE_BYTES / 8;
    const LINES: usize = offset_of!(LoadPage, streams) / 8;

    /// The first word of a stream's line.
    pub const fn line(stream: usize) -> usize {
        LINES + stream * LINE
    }

    /// Whether `word` is 0 in every page for `streams`.
    pub const fn is_reserved(word: usize, streams: usize) -> bool {
        let within = word % LINE;
        match word / LINE {
            0 => within >= offset_of!(Identity, reserved) / 8,
            1 => within >= offset_of!(ParentLine, reserved) / 8,
            2 => within >= offset_of!(ChildLine, reserved) / 8,
            _ if word >= line(streams) => true,
            _ => within >= offset_of!(StreamLine, reserved) / 8,
        }
    }
}
