//! The layout of a user area.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and a new golden table in the tests.

use crate::words::{Kind, LINE_BYTES};
use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 4;

/// Bytes of a page. The header is one page, and the slots take further pages.
pub const PAGE_BYTES: usize = 4096;

/// Slots on one page.
pub const PAGE_SLOTS: usize = PAGE_BYTES / size_of::<SlotWords>();

/// The greatest number of pages of slots in one area.
pub const SLOT_PAGES_MAX: usize = 8;

/// `upcuser` and a zero, in memory on a little-endian machine.
pub(super) const KIND: Kind =
    Kind { page: "user area", magic: u64::from_le_bytes(*b"upcuser\0"), version: LAYOUT_VERSION };

#[repr(C, align(4096))]
struct Header {
    identity: Identity,
    ready: ReadyLine,
    boundary: BoundaryLine,
    counters: CounterLine,
    reserved: [u64; 60 * LINE_BYTES / 8],
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    domain: u64,
    generation: u64,
    /// A multiple of `PAGE_SLOTS`.
    slots: u64,
    reserved: [u64; 3],
}

#[repr(C, align(64))]
struct ReadyLine {
    /// Odd while the words that it guards change: ready, slots used, and the slots.
    sequence: u64,
    /// `NEVER`: nothing is ready.
    ready_key: u64,
    /// Low half: the order. High half: the first order among the ready activities of that key.
    ready_orders: u64,
    /// The slots from this one on were never set.
    slots_used: u64,
    /// The number of the running slot, plus 1. 0: nothing runs.
    running: u64,
    upcalled_at_ns: u64,
    ready_since_ns: u64,
    /// `NEVER`: it has none.
    ready_event: u64,
}

#[repr(C, align(64))]
struct BoundaryLine {
    preemption_mask: u64,
    interrupt_mask: u64,
    asked_at_ns: u64,
    /// 1 if a wake-up of the domain may leave no sign in its wake word, otherwise 0.
    outside_wakes: u64,
    /// 1 if the domain must learn when the CPU idles, otherwise 0.
    awaits_idle: u64,
    reserved: [u64; 3],
}

#[repr(C, align(64))]
struct CounterLine {
    upcalls: u64,
    switches: u64,
    jobs: u64,
    misses: u64,
    pdus: u64,
    handoffs: u64,
    /// An `i64`.
    slack_ns_min: u64,
    reserved: [u64; 1],
}

#[repr(C, align(32))]
struct SlotWords {
    /// `NEVER`: none.
    next_release_ns: u64,
    key: u64,
    /// `NEVER`: none.
    event: u64,
    /// Low half: the order. High half: a `SlotState`.
    order_state: u64,
}

const _: () = {
    assert!(size_of::<Header>() == PAGE_BYTES);
    assert!(size_of::<Identity>() == LINE_BYTES);
    assert!(size_of::<ReadyLine>() == LINE_BYTES);
    assert!(size_of::<BoundaryLine>() == LINE_BYTES);
    assert!(size_of::<CounterLine>() == LINE_BYTES);
    assert!(size_of::<SlotWords>() == 32 && PAGE_SLOTS == 128);
    assert!(offset_of!(Header, identity) == 0);
    assert!(offset_of!(Header, ready) == 64);
    assert!(offset_of!(Header, boundary) == 128);
    assert!(offset_of!(Header, counters) == 192);
    assert!(offset_of!(Header, reserved) == 256);
    // The words without a constant in `word` are reserved.
    assert!(offset_of!(Identity, magic) == 0 && offset_of!(Identity, version) == 8);
    assert!(offset_of!(Identity, reserved) == 8 * 5);
    assert!(offset_of!(ReadyLine, ready_event) == 8 * 7);
    assert!(offset_of!(BoundaryLine, reserved) == 8 * 5);
    assert!(offset_of!(CounterLine, reserved) == 8 * 7);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{BoundaryLine, CounterLine, Header, Identity, PAGE_BYTES, SlotWords};
    use super::{offset_of, size_of};
    use crate::words::LINE_WORDS;

    pub const DOMAIN: usize = offset_of!(Header, identity.domain) / 8;
    pub const GENERATION: usize = offset_of!(Header, identity.generation) / 8;
    pub const SLOTS: usize = offset_of!(Header, identity.slots) / 8;
    pub const SEQUENCE: usize = offset_of!(Header, ready.sequence) / 8;
    pub const READY_KEY: usize = offset_of!(Header, ready.ready_key) / 8;
    pub const READY_ORDERS: usize = offset_of!(Header, ready.ready_orders) / 8;
    pub const SLOTS_USED: usize = offset_of!(Header, ready.slots_used) / 8;
    pub const RUNNING: usize = offset_of!(Header, ready.running) / 8;
    pub const UPCALLED_AT_NS: usize = offset_of!(Header, ready.upcalled_at_ns) / 8;
    pub const READY_SINCE_NS: usize = offset_of!(Header, ready.ready_since_ns) / 8;
    pub const READY_EVENT: usize = offset_of!(Header, ready.ready_event) / 8;
    pub const PREEMPTION_MASK: usize = offset_of!(Header, boundary.preemption_mask) / 8;
    pub const INTERRUPT_MASK: usize = offset_of!(Header, boundary.interrupt_mask) / 8;
    pub const ASKED_AT_NS: usize = offset_of!(Header, boundary.asked_at_ns) / 8;
    pub const OUTSIDE_WAKES: usize = offset_of!(Header, boundary.outside_wakes) / 8;
    pub const AWAITS_IDLE: usize = offset_of!(Header, boundary.awaits_idle) / 8;
    pub const UPCALLS: usize = offset_of!(Header, counters.upcalls) / 8;
    pub const SWITCHES: usize = offset_of!(Header, counters.switches) / 8;
    pub const JOBS: usize = offset_of!(Header, counters.jobs) / 8;
    pub const MISSES: usize = offset_of!(Header, counters.misses) / 8;
    pub const PDUS: usize = offset_of!(Header, counters.pdus) / 8;
    pub const HANDOFFS: usize = offset_of!(Header, counters.handoffs) / 8;
    pub const SLACK_NS_MIN: usize = offset_of!(Header, counters.slack_ns_min) / 8;

    /// Where the slots begin.
    pub const HEADER: usize = PAGE_BYTES / 8;
    /// Words of a slot.
    pub const SLOT: usize = size_of::<SlotWords>() / 8;

    /// Within a slot.
    pub const NEXT_RELEASE_NS: usize = offset_of!(SlotWords, next_release_ns) / 8;
    pub const KEY: usize = offset_of!(SlotWords, key) / 8;
    pub const EVENT: usize = offset_of!(SlotWords, event) / 8;
    pub const ORDER_STATE: usize = offset_of!(SlotWords, order_state) / 8;

    /// The first word of a slot.
    pub const fn slot(index: usize) -> usize {
        HEADER + index * SLOT
    }

    /// Whether `word` is 0 in every area.
    pub const fn is_reserved(word: usize) -> bool {
        let within = word % LINE_WORDS;
        match word / LINE_WORDS {
            0 => within >= offset_of!(Identity, reserved) / 8,
            1 => false,
            2 => within >= offset_of!(BoundaryLine, reserved) / 8,
            3 => within >= offset_of!(CounterLine, reserved) / 8,
            _ => word < HEADER,
        }
    }
}
