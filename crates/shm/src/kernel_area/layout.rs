//! The layout of a kernel area.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and a new golden table in the tests.

use crate::domain::LINES;
use crate::words::{CPU, DOMAINS, Kind, LINE_BYTES};
use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 6;

/// The most groups of a domain. Under loom each word costs time.
pub const GROUPS_MAX: usize = if cfg!(loom) { 1 } else { 64 };

/// Bytes of a kernel area: whole pages.
pub const AREA_BYTES: usize = size_of::<KernelArea>();

/// `upckern` and a zero, in memory on a little-endian machine.
pub(super) const KIND: Kind =
    Kind { page: "kernel area", magic: u64::from_le_bytes(*b"upckern\0"), version: LAYOUT_VERSION };

#[repr(C, align(4096))]
struct KernelArea {
    identity: Identity,
    domains: [DomainLine; LINES],
    group_parts: [[GroupPart; GROUPS_MAX]; LINES],
}

/// Millionths, a `u32` in a word of its own.
type GroupPart = u64;

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    cpu: u64,
    /// `DOMAINS_MAX`.
    domains: u64,
    /// Counts domains that attached and detached.
    epoch: u64,
    idled_ns: u64,
    interruption_ns_max: u64,
    unreserved_from_ns: u64,
}

#[repr(C, align(64))]
struct DomainLine {
    /// A `State`, or 0.
    state: u64,
    /// 0: no domain.
    generation: u64,
    quantum_ns_max: u64,
    /// How often the daemon asked the domain to yield.
    yield_requests: u64,
    /// Three counts of 21 bits. The count of `Interrupt::Timer` is in the lowest bits.
    interrupts: u64,
    offences: u64,
    /// A `u32` in a word of its own.
    pid: u64,
    /// A `u32` in a word of its own.
    share_ppm: u64,
}

const _: () = {
    assert!(cfg!(loom) || size_of::<KernelArea>() == 20_480);
    assert!(size_of::<Identity>() == LINE_BYTES);
    assert!(size_of::<DomainLine>() == LINE_BYTES);
    assert!(offset_of!(KernelArea, identity) == 0);
    assert!(offset_of!(KernelArea, domains) == 64);
    assert!(offset_of!(KernelArea, group_parts) == 34 * 64);
    assert!(offset_of!(Identity, cpu) == 8 * CPU && offset_of!(Identity, domains) == 8 * DOMAINS);
    assert!(offset_of!(Identity, magic) == 0 && offset_of!(Identity, version) == 8);
    assert!(offset_of!(Identity, unreserved_from_ns) == 8 * 7);
    assert!(offset_of!(DomainLine, share_ppm) == 8 * 7);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{DomainLine, GROUPS_MAX, KernelArea, LINES, offset_of};
    use crate::words::LINE_WORDS;

    pub const EPOCH: usize = offset_of!(KernelArea, identity.epoch) / 8;

    pub const IDLED_NS: usize = offset_of!(KernelArea, identity.idled_ns) / 8;

    pub const INTERRUPTION_NS_MAX: usize = offset_of!(KernelArea, identity.interruption_ns_max) / 8;

    pub const UNRESERVED_FROM_NS: usize = offset_of!(KernelArea, identity.unreserved_from_ns) / 8;

    /// Within a domain's line.
    pub const STATE: usize = offset_of!(DomainLine, state) / 8;
    pub const GENERATION: usize = offset_of!(DomainLine, generation) / 8;
    pub const QUANTUM_NS_MAX: usize = offset_of!(DomainLine, quantum_ns_max) / 8;
    pub const YIELD_REQUESTS: usize = offset_of!(DomainLine, yield_requests) / 8;
    pub const INTERRUPTS: usize = offset_of!(DomainLine, interrupts) / 8;
    pub const OFFENCES: usize = offset_of!(DomainLine, offences) / 8;
    pub const PID: usize = offset_of!(DomainLine, pid) / 8;
    pub const SHARE_PPM: usize = offset_of!(DomainLine, share_ppm) / 8;

    const LINES_AT: usize = offset_of!(KernelArea, domains) / 8;

    /// The first word of a domain's line.
    pub const fn line(line: usize) -> usize {
        LINES_AT + line * LINE_WORDS
    }

    const GROUP_PARTS_AT: usize = offset_of!(KernelArea, group_parts) / 8;

    /// The first of the words of the groups of a domain's line.
    pub const fn group_parts(line: usize) -> usize {
        GROUP_PARTS_AT + line * GROUPS_MAX
    }

    /// Whether `word` is 0 in every page.
    pub const fn is_reserved(word: usize) -> bool {
        word >= group_parts(LINES)
    }
}
