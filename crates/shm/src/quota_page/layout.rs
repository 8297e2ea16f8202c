//! The layout of the quota page.
//!
//! The structures below are its definition for Rust. `quota_page.h` is the one for the XDP program,
//! and a test compares both. A change here requires a new golden table in the tests, and the object
//! of the program has to be made again (`cargo xtask bpf` says how).

use core::mem::{offset_of, size_of};

/// Slots of the page: 0 is [`SLOT_UNKNOWN`], and the last one has the outcomes.
pub const SLOTS: usize = 1024;

/// The slot of packets to no known destination.
pub const SLOT_UNKNOWN: u32 = 0;

/// The greatest number of a slot for a destination. The least is 1.
pub const SLOT_MAX: u32 = 1022;

/// Bytes of the page.
pub const PAGE_BYTES: usize = SLOTS * SLOT_BYTES;

/// Words of the page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// Bytes of a slot: two cache lines.
pub(super) const SLOT_BYTES: usize = 128;

/// Words of a slot.
pub(super) const SLOT_WORDS: usize = SLOT_BYTES / 8;

/// The slot that has the outcomes.
pub(super) const SLOT_OUTCOMES: usize = SLOTS - 1;

#[repr(C, align(128))]
struct Slot {
    owner: OwnerLine,
    program: ProgramLine,
}

#[repr(C, align(64))]
struct OwnerLine {
    /// 0: no limit.
    interval_ns: u64,
    step_ns: u64,
    /// `depth * interval`.
    depth_ns: u64,
    /// Lower half: an `Action`. Upper half: the number of the socket.
    action: u64,
    /// Counts the destinations that had the slot. Fragments of an earlier one do not count here.
    generation: u64,
    /// 0: no limit. Else no packet passes once so many have passed.
    limit: u64,
    /// 0: any. Else the link address of the interface, its first byte lowest.
    link: u64,
    reserved: u64,
}

#[repr(C, align(64))]
struct ProgramLine {
    next_eligible_ns: u64,
    passed: u64,
    dropped: u64,
    contended: u64,
    undelivered: u64,
    passed_bytes: u64,
    dropped_bytes: u64,
    behind: u64,
}

#[repr(C, align(128))]
struct OutcomesSlot {
    not_ip: u64,
    discovery: u64,
    malformed: u64,
    unknown_fragments: u64,
    known_fragments: u64,
    lost_fragments: u64,
    hidden: u64,
    reserved: [u64; 9],
}

const _: () = {
    assert!(size_of::<Slot>() == SLOT_BYTES);
    assert!(size_of::<OutcomesSlot>() == SLOT_BYTES);
    assert!(offset_of!(Slot, owner) == 0);
    assert!(offset_of!(Slot, program) == 64);
    assert!(SLOT_MAX as usize + 1 == SLOT_OUTCOMES);
};

/// Numbers of words. Those of a slot count from its beginning.
pub(super) mod word {
    use super::{OutcomesSlot, OwnerLine, ProgramLine, SLOT_BYTES, SLOT_OUTCOMES, Slot, offset_of};

    /// The first word of a slot.
    pub(crate) const fn slot(number: usize) -> usize {
        number * SLOT_BYTES / 8
    }

    const fn owner(offset: usize) -> usize {
        (offset_of!(Slot, owner) + offset) / 8
    }

    const fn program(offset: usize) -> usize {
        (offset_of!(Slot, program) + offset) / 8
    }

    pub(crate) const INTERVAL_NS: usize = owner(offset_of!(OwnerLine, interval_ns));
    pub(crate) const STEP_NS: usize = owner(offset_of!(OwnerLine, step_ns));
    pub(crate) const DEPTH_NS: usize = owner(offset_of!(OwnerLine, depth_ns));
    pub(crate) const ACTION: usize = owner(offset_of!(OwnerLine, action));

    pub(crate) const GENERATION: usize = owner(offset_of!(OwnerLine, generation));

    pub(crate) const LIMIT: usize = owner(offset_of!(OwnerLine, limit));
    pub(crate) const LINK: usize = owner(offset_of!(OwnerLine, link));

    pub(crate) const NEXT_ELIGIBLE_NS: usize = program(offset_of!(ProgramLine, next_eligible_ns));
    pub(crate) const PASSED: usize = program(offset_of!(ProgramLine, passed));
    pub(crate) const DROPPED: usize = program(offset_of!(ProgramLine, dropped));
    pub(crate) const CONTENDED: usize = program(offset_of!(ProgramLine, contended));
    pub(crate) const UNDELIVERED: usize = program(offset_of!(ProgramLine, undelivered));
    pub(crate) const PASSED_BYTES: usize = program(offset_of!(ProgramLine, passed_bytes));
    pub(crate) const DROPPED_BYTES: usize = program(offset_of!(ProgramLine, dropped_bytes));
    pub(crate) const BEHIND: usize = program(offset_of!(ProgramLine, behind));

    const fn outcome(offset: usize) -> usize {
        slot(SLOT_OUTCOMES) + offset / 8
    }

    pub(crate) const NOT_IP: usize = outcome(offset_of!(OutcomesSlot, not_ip));
    pub(crate) const DISCOVERY: usize = outcome(offset_of!(OutcomesSlot, discovery));
    pub(crate) const MALFORMED: usize = outcome(offset_of!(OutcomesSlot, malformed));
    pub(crate) const UNKNOWN_FRAGMENTS: usize =
        outcome(offset_of!(OutcomesSlot, unknown_fragments));
    pub(crate) const KNOWN_FRAGMENTS: usize = outcome(offset_of!(OutcomesSlot, known_fragments));
    pub(crate) const LOST_FRAGMENTS: usize = outcome(offset_of!(OutcomesSlot, lost_fragments));
    pub(crate) const HIDDEN: usize = outcome(offset_of!(OutcomesSlot, hidden));
}
