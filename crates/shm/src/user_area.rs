//! The pages in which a domain says of itself what the others must know.
//!
//! One area for each domain and CPU. Its [`Owner`], the domain's executor on
//! that CPU, writes; [`Peer`]s, the user's other domains and the daemon, read,
//! also while the domain does not run: its best rank is the one it published,
//! or that of a slot whose release has come since. The *usched* area of
//! split-level scheduling (split-level-1991 §3.2.2). Neither end waits or makes
//! a system call; an owner allocates once, when it creates.
//!
//! ```text
//!   owner                                      peer
//!   set, set, ... (privately)
//!   publish: (1) sequence odd                  (4) sequence: odd? again
//!            (2) what changed                  (5) copies and uses
//!            (3) sequence even  -- Rel/Acq ->  (6) same sequence? else again
//! ```
//!
//! What is read between (4) and (6) is of one moment. Tries are few, then it is
//! [`PeerFault::Torn`](crate::PeerFault::Torn). The rest (what runs and since when, mask levels, counters) is
//! single words, each right by itself.
//!
//! # Virtual masking
//!
//! Who wants the domain to yield sets a request in the kernel area
//! ([`crate::kernel_area`]), then reads the mask level; the owner, when it unmasks,
//! lowers the level, then reads the request. One of the two sees the other's.
//! No system call (split-level-1991 §3.3).
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, domain, generation, slots, 3 reserved | owner, before sharing |
//! | 64..128 | sequence, ready key, ready order (low half) and first order of that key (high half), slots used, running (slot and 1; 0: none), upcalled at (ns), ready since (ns), ready event | owner |
//! | 128..192 | preemption mask level, interrupt mask level, asked at (ns), 5 reserved | owner |
//! | 192..256 | upcalls, switches, jobs, misses, PDUs, hand-offs, least slack (signed ns), 1 reserved | owner |
//! | 256..4096 | reserved | |
//! | 4096.. | slots of 32 bytes, 128 a page: next release (ns), key, event, order (low half) and state (high half) | owner |

use crate::words::Words;
use crate::{AtomicU64, LayoutError};
use layout::{KIND, word};

mod layout;
mod lent_mask;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
mod owner;
mod peer;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use layout::{LAYOUT_VERSION, PAGE_BYTES, PAGE_SLOTS, SLOT_PAGES_MAX};
pub use lent_mask::LentMask;
pub use owner::{NoSlot, Owner};
pub use peer::{Peer, Rival, Running};

/// A time that does not come, and a key that nothing has.
pub const NEVER: u64 = u64::MAX;

/// Words of an area with `slot_pages` (1 to [`SLOT_PAGES_MAX`]) pages of slots.
pub const fn words_of(slot_pages: usize) -> usize {
    word::HEADER + slot_pages * (PAGE_BYTES / 8)
}

/// Pages of slots in the area that a domain shares with the daemon and its peers. A page
/// takes memory from the first use of a slot in it on: neither end looks at what is
/// beyond the slots used, and where the area is mapped only the header and the first
/// page are faulted in.
const SLOT_PAGES: usize = 2;

/// Slots of that area: how many activities a domain may have on a CPU.
pub const AREA_SLOTS: usize = SLOT_PAGES * PAGE_SLOTS;

/// Bytes of that area. Both ends map so much, so it belongs to the protocol.
pub const AREA_BYTES: usize = words_of(SLOT_PAGES) * 8;

/// What is compared across domains where somebody is chosen: the smaller goes next.
///
/// The event only breaks ties (ecalls-2001 §2.4): whatever a domain says of it, it gains against those of the same
/// key alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The period (RM, RMDP) or the deadline (DWS), in ns; below [`NEVER`].
    pub key: u64,
    /// The most urgent event by which it goes before others of the same key; [`NEVER`]: it has none.
    pub event: u64,
    /// Place in the order of admission, so that no two are equal.
    pub order: u32,
}

impl Rank {
    /// Without an event.
    pub const fn new(key: u64, order: u32) -> Self {
        Rank { key, event: NEVER, order }
    }

    /// Whether it takes the CPU, at a boundary, from what runs with this rank. An event wins where somebody is
    /// chosen and preempts no equal, and who runs with one keeps its place: else events would cost more
    /// hand-offs than admission charges for (`upcall_core::policy::rmdp`).
    #[inline]
    pub const fn preempts(&self, running: &Rank) -> bool {
        let is_first = running.event == NEVER && self.order < running.order;
        self.key < running.key || (self.key == running.key && is_first)
    }
}

/// What a domain has to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The best of it.
    pub rank: Rank,
    /// The first place in the order of admission among all of it that has this key: an event may put one before it
    /// that comes later, and what it may preempt is not that one's to say.
    pub first: u32,
    /// Since when any of it has been waiting (`CLOCK_MONOTONIC`); not after it is published. 0:
    /// always.
    pub since_ns: u64,
}

impl From<Rank> for Pending {
    /// Alone, and nobody says since when it waits.
    fn from(rank: Rank) -> Self {
        Pending { rank, first: rank.order, since_ns: 0 }
    }
}

impl Pending {
    /// What both of them are together.
    #[must_use]
    pub fn and(self, other: Pending) -> Pending {
        let (best, worse) = if self.rank <= other.rank { (self, other) } else { (other, self) };
        let same_key = best.rank.key == worse.rank.key;
        let first = if same_key { best.first.min(worse.first) } else { best.first };
        Pending { rank: best.rank, first, since_ns: best.since_ns.min(worse.since_ns) }
    }
}

/// Worse than any: of a slot that has none.
const NO_RANK: Rank = Rank::new(NEVER, 0);

/// What an activity does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// There is none in this slot.
    #[default]
    Free = 0,
    /// Created, and not to be released.
    Suspended = 1,
    /// For its release.
    Waiting = 2,
    /// It would run.
    Ready = 3,
    /// It runs, or was about to when its domain lost the CPU.
    Running = 4,
}

impl SlotState {
    /// By number.
    pub(crate) const ALL: [SlotState; 5] = [
        SlotState::Free,
        SlotState::Suspended,
        SlotState::Waiting,
        SlotState::Ready,
        SlotState::Running,
    ];
}

/// What is published of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// When it is released next (`CLOCK_MONOTONIC`); [`NEVER`]: not known to be.
    pub next_release_ns: u64,
    /// Its rank from then on.
    pub rank: Rank,
    /// For display; what is ready counts by the published rank, what is
    /// released by [`Self::next_release_ns`].
    pub state: SlotState,
}

impl Slot {
    /// Without an activity.
    pub const FREE: Slot = Slot { next_release_ns: NEVER, rank: NO_RANK, state: SlotState::Free };
}

/// Totals since the domain was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Handlers and polls upcalled.
    pub upcalls: u64,
    /// From one activity of the domain to another.
    pub switches: u64,
    /// Jobs that ended.
    pub jobs: u64,
    /// Of these, after their deadline.
    pub misses: u64,
    /// PDUs processed.
    pub pdus: u64,
    /// Turns the domain passed on.
    pub handoffs: u64,
    /// Least time from a job's end to its deadline, in ns; negative: a miss.
    /// `i64::MAX`: no job ended yet.
    pub slack_ns_min: i64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            upcalls: 0,
            switches: 0,
            jobs: 0,
            misses: 0,
            pdus: 0,
            handoffs: 0,
            slack_ns_min: i64::MAX,
        }
    }
}

/// What can be masked without a system call. Masks nest: each has a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// The CPU going to another domain.
    Preemption,
    /// User interrupts.
    Interrupts,
}

impl Mask {
    const fn word(self) -> usize {
        match self {
            Mask::Preemption => word::PREEMPTION_MASK,
            Mask::Interrupts => word::INTERRUPT_MASK,
        }
    }
}

/// Words of an area of some number of slot pages, and how many slots those hold.
fn sized<W: AsRef<[AtomicU64]>>(memory: W) -> Result<(Words<W>, usize), LayoutError> {
    let found = memory.as_ref().len();
    // To the next size up, within bounds: what an error says was expected.
    let pages = found.saturating_sub(word::HEADER).div_ceil(PAGE_BYTES / 8);
    let pages = pages.clamp(1, SLOT_PAGES_MAX);
    let words = Words::new(KIND, memory, words_of(pages))?;
    Ok((words, pages * PAGE_SLOTS))
}
