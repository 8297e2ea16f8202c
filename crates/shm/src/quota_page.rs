//! The quota page: how many packets each destination may get, and what became of them.
//!
//! The owner of an interface writes the quotas. The XDP program of the early drop
//! (`sys/src/early_drop/early_drop.bpf.c`) reads them at every packet, and counts. Both are of one
//! version, because the owner loads the program. So the page has no identity, and the program is
//! trusted. [`Owner`] is the owner's end. It may not decide which destination has which slot. No
//! function here waits, allocates or makes a system call.
//!
//! ```text
//!   owner                                    program, at each packet of the slot
//!   (1) set_quota, set_action  - Relaxed ->  (2) reads interval, step, depth, action
//!                                            (3) next eligible time: compare and swap
//!   (5) counters              <- Relaxed --  (4) counts
//! ```
//!
//! The limit is a credit in step with what a receiver takes: (5) says how many packets passed, and
//! the owner adds what the receiver has room for.
//!
//! The words of a slot change one by one. So (2) may judge one packet by a mixture of the old and
//! the new quota, which harms nobody. Each cache line has one writer.
//!
//! # Layout
//!
//! | bytes of a slot | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | interval (ns; 0: no limit), step (ns), depth (ns; packets times interval), action (0 pass, 1 redirect to the socket in the upper half, 2 drop all), generation (counts the destinations that had the slot), limit (no packet passes once so many have; 0: none), link address to redirect for (0: any), reserved | owner |
//! | 64..128 | next eligible time (ns), passed, dropped, contended, undelivered (packets), passed, dropped (bytes), behind (packets) | program |
//!
//! Slot 0 is for packets to no known destination. Slot 1023 has the [`Outcomes`] instead.

use crate::words::{Kind, Words};
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::Relaxed;
use core::fmt;
use layout::{SLOT_WORDS, word};

mod layout;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use layout::{PAGE_BYTES, PAGE_WORDS, SLOT_MAX, SLOT_UNKNOWN, SLOTS};

/// The longest of each time of a quota, in ns: 9 years. Sums with the time since boot fit a word.
pub const QUOTA_NS_MAX: u64 = 1 << 58;

/// The name of the page in errors. No magic, because the kernel makes the page.
const KIND: Kind = Kind { page: "quota page", magic: 0, version: 0 };

/// How many packets a destination may get: decision 0024, section 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    interval_ns: u64,
    step_ns: u64,
    depth: u64,
}

impl Quota {
    /// Every packet passes.
    pub const UNLIMITED: Quota = Quota { interval_ns: 0, step_ns: 0, depth: 1 };

    /// One packet each `interval_ns`, and up to `depth` of them ahead of their times. Packets
    /// become eligible at the multiples of `step_ns`; 0: at any time.
    ///
    /// # Errors
    /// `interval_ns` or `depth` is 0, or `step_ns` or `depth * interval_ns` is greater than
    /// [`QUOTA_NS_MAX`].
    pub const fn new(interval_ns: u64, step_ns: u64, depth: u64) -> Result<Quota, QuotaError> {
        let fits = match interval_ns.checked_mul(depth) {
            Some(depth_ns) => depth_ns <= QUOTA_NS_MAX && step_ns <= QUOTA_NS_MAX,
            None => false,
        };
        match interval_ns > 0 && depth > 0 && fits {
            true => Ok(Quota { interval_ns, step_ns, depth }),
            false => Err(QuotaError { interval_ns, step_ns, depth }),
        }
    }
}

/// Numbers that are no quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaError {
    interval_ns: u64,
    step_ns: u64,
    depth: u64,
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuotaError { interval_ns, step_ns, depth } = self;
        write!(
            f,
            "no quota: interval {interval_ns} ns, step {step_ns} ns, depth {depth}; interval and \
             depth must be at least 1, and their product and the step at most {QUOTA_NS_MAX} ns"
        )
    }
}

impl core::error::Error for QuotaError {}

/// What happens to packets that the quota lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The kernel gets them.
    Pass,
    /// The AF_XDP socket with this number gets them, or the one of their receive queue after it
    /// (`EarlyDrop::insert_socket`). If there is none, they are dropped.
    Redirect {
        /// The number of the socket of queue 0.
        socket: u32,
    },
    /// None passes, whatever the quota.
    DropAll,
}

impl Action {
    /// The word: `ACTION_...` of `quota_page.h`, and the socket in the upper half.
    const fn word(self) -> u64 {
        match self {
            Action::Pass => 0,
            Action::Redirect { socket } => (socket as u64) << 32 | 1,
            Action::DropAll => 2,
        }
    }
}

/// What became of the packets of a slot so far. Each packet is in one of the first five, each byte
/// of a frame in one of the last two. Every count wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that went to the kernel, or towards a socket.
    pub passed: u64,
    /// Packets beyond the quota, and fragments of a dropped first one.
    pub dropped: u64,
    /// Packets dropped because other CPUs changed the eligible time at every try.
    pub contended: u64,
    /// Packets dropped because the socket to redirect to did not exist.
    pub undelivered: u64,
    /// Packets dropped because the receiver has no room ([`Owner::set_limit`]).
    pub behind: u64,
    /// Bytes of the frames of `passed`.
    pub passed_bytes: u64,
    /// Bytes of the frames of the other four.
    pub dropped_bytes: u64,
}

/// What the program found in the packets of all slots so far. Every count wraps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Frames that are not IP, such as ARP. They pass, and are in no slot.
    pub not_ip: u64,
    /// Discovery messages of IPv6 (RFC 4861). They pass, and are in no slot.
    pub discovery: u64,
    /// Packets whose headers are cut off or contradict themselves. They are in slot 0.
    pub malformed: u64,
    /// Packets dropped because the destination is behind more headers than are read. They are in
    /// slot 0.
    pub hidden: u64,
    /// Later fragments whose first one is not known. They are in slot 0.
    pub unknown_fragments: u64,
    /// Later fragments of a first one that passed. They are in its slot.
    pub known_fragments: u64,
    /// Later fragments of a first one that was dropped. They are dropped too.
    pub lost_fragments: u64,
}

/// The owner's end of a quota page. `W` is the memory.
#[derive(Debug)]
pub struct Owner<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> Owner<W> {
    /// The owner's end of `words`, which the kernel made.
    ///
    /// # Errors
    /// The length is wrong.
    pub fn new(words: W) -> Result<Self, LayoutError> {
        Words::new(KIND, words, PAGE_WORDS).map(Owner)
    }

    /// Sets the quota of `slot` from the next packet on. Costs three stores to one cache line.
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn set_quota(&self, slot: u32, quota: Quota) {
        let Quota { interval_ns, step_ns, depth } = quota;
        // Relaxed: the words hand nothing over.
        self.0.store(word_of(slot, word::STEP_NS), step_ns, Relaxed);
        self.0.store(word_of(slot, word::DEPTH_NS), depth * interval_ns, Relaxed);
        self.0.store(word_of(slot, word::INTERVAL_NS), interval_ns, Relaxed);
    }

    /// Sets what happens to packets of `slot` from the next one on. Costs one store.
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn set_action(&self, slot: u32, action: Action) {
        // Relaxed: the word hands nothing over.
        self.0.store(word_of(slot, word::ACTION), action.word(), Relaxed);
    }

    /// Lets no packet of `slot` pass once `limit` of them have ([`Counters::passed`]). 0: no limit.
    /// CPUs that judge packets at the same time may each let one more pass. Costs one store.
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn set_limit(&self, slot: u32, limit: u64) {
        // Relaxed: the word hands nothing over.
        self.0.store(word_of(slot, word::LIMIT), limit, Relaxed);
    }

    /// Says which link address the interface has: frames for another one, and those with a VLAN
    /// tag, are not redirected by `slot`, and are packets of slot 0. `None`: any address. Groups
    /// are always redirected. Costs one store.
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn set_link(&self, slot: u32, link: Option<[u8; 6]>) {
        let [a, b, c, d, e, f] = link.unwrap_or_default();
        let word = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        // Relaxed: the word hands nothing over.
        self.0.store(word_of(slot, word::LINK), word, Relaxed);
    }

    /// Makes `slot` as it was at first: without limit, and all counts 0. Fragments that follow a
    /// packet from before do not belong to it any more. No destination may have the slot, because
    /// this also writes the program's line. Costs 16 stores and a load.
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn clear(&self, slot: u32) {
        // Relaxed: this end alone writes the word, and it hands nothing over.
        let generation = self.0.load(word_of(slot, word::GENERATION), Relaxed).wrapping_add(1);
        (0..SLOT_WORDS).for_each(|at| {
            let value = if at == word::GENERATION { generation } else { 0 };
            self.0.store(word_of(slot, at), value, Relaxed);
        });
    }

    /// What became of the packets of `slot` so far. The counts need not be of the same moment.
    /// Costs seven loads from one cache line.
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn counters(&self, slot: u32) -> Counters {
        // Relaxed: the counts hand nothing over.
        let load = |word| self.0.load(word_of(slot, word), Relaxed);
        Counters {
            passed: load(word::PASSED),
            dropped: load(word::DROPPED),
            contended: load(word::CONTENDED),
            undelivered: load(word::UNDELIVERED),
            behind: load(word::BEHIND),
            passed_bytes: load(word::PASSED_BYTES),
            dropped_bytes: load(word::DROPPED_BYTES),
        }
    }

    /// The eligible time that the next packet of `slot` gets unless it comes later, in ns
    /// (`CLOCK_MONOTONIC`).
    ///
    /// # Panics
    /// If `slot` is greater than [`SLOT_MAX`].
    pub fn next_eligible_ns(&self, slot: u32) -> u64 {
        self.0.load(word_of(slot, word::NEXT_ELIGIBLE_NS), Relaxed)
    }

    /// What the program found in the packets of all slots so far.
    pub fn outcomes(&self) -> Outcomes {
        let load = |word| self.0.load(word, Relaxed);
        Outcomes {
            not_ip: load(word::NOT_IP),
            discovery: load(word::DISCOVERY),
            malformed: load(word::MALFORMED),
            hidden: load(word::HIDDEN),
            unknown_fragments: load(word::UNKNOWN_FRAGMENTS),
            known_fragments: load(word::KNOWN_FRAGMENTS),
            lost_fragments: load(word::LOST_FRAGMENTS),
        }
    }
}

fn word_of(slot: u32, word: usize) -> usize {
    assert!(slot <= SLOT_MAX, "slot {slot} is greater than {SLOT_MAX}");
    word::slot(slot as usize) + word
}
