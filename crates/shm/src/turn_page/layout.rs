//! The layout of a turn page.
//!
//! The structures below are its only definition. The word numbers for the accessors are computed
//! from them. A change here requires a new [`LAYOUT_VERSION`] and a new golden table in the tests.

use crate::domain::LINES;
use crate::words::{CPU, DOMAINS, Kind, LINE_BYTES};
use core::mem::{offset_of, size_of};

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 2;

/// Bytes of a turn page.
pub const PAGE_BYTES: usize = 4096;

/// `upcturn` and a zero, in memory on a little-endian machine.
pub(super) const KIND: Kind =
    Kind { page: "turn page", magic: u64::from_le_bytes(*b"upcturn\0"), version: LAYOUT_VERSION };

#[repr(C, align(4096))]
struct TurnPage {
    identity: Identity,
    turn: TurnLine,
    need_resched: NeedReschedLine,
    service: ServiceLine,
    reserved: [u64; 4 * LINE_BYTES / 8],
    wake_words: [WakeLine; LINES],
    accounts: [Account; LINES],
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    /// A `u32` in a word of its own.
    version: u64,
    cpu: u64,
    /// `DOMAINS_MAX`.
    domains: u64,
    reserved: [u64; 4],
}

#[repr(C, align(64))]
struct TurnLine {
    /// Low half: the holder's number. High half: how often the turn was passed or reset.
    turn: u64,
    reserved: [u64; 7],
}

#[repr(C, align(64))]
struct NeedReschedLine {
    /// 1 if the holder must look at its peers again (`need_resched`).
    need_resched: u64,
    reserved: [u64; 7],
}

#[repr(C, align(64))]
struct WakeLine {
    /// A wake word. Its low half is a futex.
    state: u64,
    reserved: [u64; 7],
}

/// Under PS: what the accounts of all domains have in common.
#[repr(C, align(64))]
struct ServiceLine {
    charged_ns: u64,
    served: u64,
    /// An `i64`.
    allowance_ns: u64,
    reserved: [u64; 5],
}

/// Under PS: the account of a domain. The holder of the turn is the only writer of all accounts, so
/// several of them share a cache line.
#[repr(C, align(16))]
struct Account {
    generation: u64,
    /// An `i64`.
    lag: u64,
}

const _: () = {
    assert!(size_of::<TurnPage>() == PAGE_BYTES);
    assert!(size_of::<Identity>() == LINE_BYTES);
    assert!(size_of::<TurnLine>() == LINE_BYTES);
    assert!(size_of::<NeedReschedLine>() == LINE_BYTES);
    assert!(size_of::<WakeLine>() == LINE_BYTES);
    assert!(size_of::<ServiceLine>() == LINE_BYTES);
    assert!(size_of::<Account>() == 16);
    assert!(offset_of!(TurnPage, identity) == 0);
    assert!(offset_of!(TurnPage, turn) == 64);
    assert!(offset_of!(TurnPage, need_resched) == 128);
    assert!(offset_of!(TurnPage, service) == 192);
    assert!(offset_of!(TurnPage, reserved) == 256);
    assert!(offset_of!(TurnPage, wake_words) == 512);
    assert!(offset_of!(TurnPage, accounts) == 2624);
    assert!(offset_of!(Identity, cpu) == 8 * CPU && offset_of!(Identity, domains) == 8 * DOMAINS);
    // The words without a constant in `word` are reserved.
    assert!(offset_of!(Identity, magic) == 0 && offset_of!(Identity, version) == 8);
    assert!(offset_of!(Identity, reserved) == 8 * 4);
    assert!(offset_of!(TurnLine, reserved) == 8);
    assert!(offset_of!(NeedReschedLine, reserved) == 8);
    assert!(offset_of!(WakeLine, reserved) == 8);
    assert!(offset_of!(ServiceLine, reserved) == 8 * 3);
};

/// Numbers of words: offsets in bytes over 8.
pub(super) mod word {
    use super::{Account, Identity, LINES, ServiceLine, TurnPage, offset_of};
    use crate::words::LINE_WORDS;

    pub const TURN: usize = offset_of!(TurnPage, turn.turn) / 8;
    pub const NEED_RESCHED: usize = offset_of!(TurnPage, need_resched.need_resched) / 8;

    pub const CHARGED_NS: usize = offset_of!(TurnPage, service.charged_ns) / 8;
    pub const SERVED: usize = offset_of!(TurnPage, service.served) / 8;
    pub const ALLOWANCE_NS: usize = offset_of!(TurnPage, service.allowance_ns) / 8;

    /// Within an account.
    pub const GENERATION: usize = offset_of!(Account, generation) / 8;
    pub const LAG: usize = offset_of!(Account, lag) / 8;

    const SERVICE_END: usize =
        (offset_of!(TurnPage, service) + offset_of!(ServiceLine, reserved)) / 8;
    const WAKE_WORDS: usize = offset_of!(TurnPage, wake_words) / 8;
    const ACCOUNTS: usize = offset_of!(TurnPage, accounts) / 8;
    const ACCOUNT_WORDS: usize = size_of::<Account>() / 8;

    /// The account of a line.
    pub const fn account(line: usize) -> usize {
        ACCOUNTS + line * ACCOUNT_WORDS
    }

    /// The wake word of a line.
    pub const fn wake(line: usize) -> usize {
        WAKE_WORDS + line * LINE_WORDS
    }

    /// Whether `word` is 0 in every page.
    pub const fn is_reserved(word: usize) -> bool {
        match word {
            0..=TURN => word >= offset_of!(Identity, reserved) / 8 && word != TURN,
            NEED_RESCHED => false,
            CHARGED_NS..SERVICE_END => false,
            ACCOUNTS.. => word >= account(LINES),
            _ => word < WAKE_WORDS || !word.is_multiple_of(LINE_WORDS),
        }
    }
}
