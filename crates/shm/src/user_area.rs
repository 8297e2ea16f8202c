//! The user area: the pages in which a domain publishes its work for the other domains.
//!
//! There is one area for each domain and CPU. Its [`Owner`], the domain's executor on that CPU,
//! writes. [`Peer`]s, which are the user's other domains and the daemon, read. They also read while
//! the domain does not run. Its best rank is then the published rank, or the rank of a slot whose
//! release has come since. These pages are the *usched* area of split-level scheduling
//! (split-level-1991 §3.2.2). Neither end waits or makes a system call. An owner allocates once,
//! when it creates the area.
//!
//! ```text
//!   owner                                      peer
//!   set, set, ... (privately)
//!   publish: (1) sequence odd                  (4) sequence: odd? again
//!            (2) what changed                  (5) copies and uses
//!            (3) sequence even  -- Rel/Acq ->  (6) same sequence? else again
//! ```
//!
//! All words read between (4) and (6) belong to one moment. After a few tries the read fails with
//! [`PeerFault::Torn`](crate::PeerFault::Torn). The other words (what runs and since when, mask
//! levels, counters, outside wakes, awaits idle) are each valid on their own.
//!
//! # Virtual masking
//!
//! A thread that wants the domain to yield stores a request in the kernel area
//! ([`crate::kernel_area`]), then reads the mask level. An owner that unmasks lowers the level,
//! then reads the request. At least one of the two sees the other's store. Neither makes a system
//! call (split-level-1991 §3.3).
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, domain, generation, slots, 3 reserved | owner, before sharing |
//! | 64..128 | sequence, ready key, ready order (low half) and first order of that key (high half), slots used, running (slot plus 1; 0: none), upcalled at (ns), ready since (ns), ready event | owner |
//! | 128..192 | preemption mask level, interrupt mask level, asked at (ns), outside wakes (0 or 1), awaits idle (0 or 1), 3 reserved | owner |
//! | 192..256 | upcalls, switches, jobs, misses, PDUs, hand-offs, least slack (signed ns), 1 reserved | owner |
//! | 256..4096 | reserved | |
//! | 4096.. | slots of 32 bytes, 128 a page: next release (ns), key, event (PS: lag, signed ns), order (low half) and state (high half) | owner |

use crate::words::Words;
use crate::{AtomicU64, LayoutError};
use layout::{KIND, word};

mod layout;
mod lent_mask;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
pub mod order;
mod owner;
mod peer;
mod summary;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

pub use layout::{LAYOUT_VERSION, PAGE_BYTES, PAGE_SLOTS, SLOT_PAGES_MAX};
pub use lent_mask::LentMask;
pub use owner::{NoSlot, Owner};
pub use peer::{Peer, Running};
pub use summary::{RELEASES_MAX, Release, Summary};

/// A time that never comes. Also a key that no activity has.
pub const NEVER: u64 = u64::MAX;

/// Words of an area with `slot_pages` (1 to [`SLOT_PAGES_MAX`]) pages of slots.
pub const fn words_of(slot_pages: usize) -> usize {
    word::HEADER + slot_pages * (PAGE_BYTES / 8)
}

/// Pages of slots in the area that a domain shares with the daemon and its peers. A page takes
/// memory from the first use of one of its slots. Neither end reads beyond the used slots. A
/// mapping faults in only the header and the first page of slots.
const SLOT_PAGES: usize = 2;

/// Slots of that area: the greatest number of activities of a domain on a CPU.
pub const AREA_SLOTS: usize = SLOT_PAGES * PAGE_SLOTS;

/// Bytes of that area. Both ends map this size, so it belongs to the protocol.
pub const AREA_BYTES: usize = words_of(SLOT_PAGES) * 8;

/// The rank by which domains are compared when the next one is chosen: the smaller goes first.
///
/// The event only breaks ties (ecalls-2001 §2.4). So a domain that states a false event gains only
/// against activities of the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The period (RM, RMDP) or the deadline (DWS), in ns. Below [`NEVER`].
    pub key: u64,
    /// The most urgent event, which puts the activity before others of the same key. [`NEVER`]:
    /// none.
    pub event: u64,
    /// The place of the activity in the order of admission, which makes all ranks different.
    pub order: u32,
}

impl Rank {
    /// A rank without an event.
    pub const fn new(key: u64, order: u32) -> Self {
        Rank { key, event: NEVER, order }
    }

    /// The rank by `key`, the place `order` in the order of admission, and the most urgent `event`
    /// if there is one. [`NEVER`] means that there is no event, so an event of that urgency gets
    /// the one before it.
    pub fn of(key: u64, event: Option<u64>, order: u32) -> Self {
        Rank { key, event: event.map_or(NEVER, |event| event.min(NEVER - 1)), order }
    }

    /// Whether this rank preempts, at a boundary, an activity that runs with `running`. An event
    /// decides which of two equals is chosen, but never preempts an equal. Otherwise events would
    /// cost more hand-offs than admission charges for (`upcall_core::policy::rmdp`).
    #[inline]
    pub const fn preempts(&self, running: &Rank) -> bool {
        let is_first = running.event == NEVER && self.order < running.order;
        self.key < running.key || (self.key == running.key && is_first)
    }
}

/// The first place in the order of admission of activities without a reservation. Their ranks are
/// below all others: see [`Rank::below_all`].
pub const UNRESERVED: u32 = 3 << 30;
/// The first key of such an activity: the three highest bits. No key of an activity with a
/// reservation has all of them: DWS uses these bits for five levels, and RMDP and RM only the
/// highest one, for work over budget.
const UNRESERVED_KEYS: u64 = 7 << 61;

impl Rank {
    /// The rank of the same activity without a reservation. Among such activities the order of
    /// their keys remains.
    #[must_use]
    pub const fn below_all(self) -> Self {
        let key = UNRESERVED_KEYS | self.key;
        Rank { key: if key == NEVER { NEVER - 1 } else { key }, ..self }
    }

    /// Whether the rank is below those of all activities with reservations. Every domain may show
    /// such a rank.
    pub const fn is_below_all(&self) -> bool {
        self.key >= UNRESERVED_KEYS
    }
}

/// How a domain compares with a running activity of another domain. See [`Peer::rival`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The time from which the domain preempts the running activity (`CLOCK_MONOTONIC`, may be
    /// past). It is the earliest release of a slot that preempts, or the time since which a ready
    /// activity does. [`NEVER`]: nothing in the domain preempts it ([`Rank::preempts`]).
    pub preempts_at_ns: u64,
    /// The best rank that was ready or released by the given moment.
    pub best: Option<Rank>,
}

/// What a domain has ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The best rank.
    pub rank: Rank,
    /// The first place in the order of admission among all ready activities with this key. An event
    /// may put a later activity first, but this place alone decides which activities they preempt.
    pub first: u32,
    /// Since when the first of these activities has waited (`CLOCK_MONOTONIC`). 0: unknown, which
    /// counts as always. A moment to come: the domain does not want the CPU for them before it. All
    /// of them are over budget then (docs/decisions/0016).
    pub since_ns: u64,
}

impl From<Rank> for Pending {
    /// One activity alone, with an unknown waiting time.
    fn from(rank: Rank) -> Self {
        Pending { rank, first: rank.order, since_ns: 0 }
    }
}

impl Pending {
    /// Nothing is ready.
    pub const NONE: Pending = Pending { rank: NO_RANK, first: 0, since_ns: 0 };

    /// The pending work of both together.
    #[must_use]
    pub fn and(self, other: Pending) -> Pending {
        let (best, worse) = if self.rank <= other.rank { (self, other) } else { (other, self) };
        let same_key = best.rank.key == worse.rank.key;
        let first = if same_key { best.first.min(worse.first) } else { best.first };
        Pending { rank: best.rank, first, since_ns: best.since_ns.min(worse.since_ns) }
    }
}

/// The rank of a slot without an activity. It is worse than any other rank.
const NO_RANK: Rank = Rank::new(NEVER, 0);

/// The state of an activity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlotState {
    /// The slot has no activity.
    #[default]
    Free = 0,
    /// Created, but without a next release.
    Suspended = 1,
    /// Waits for its release.
    Waiting = 2,
    /// Ready to run.
    Ready = 3,
    /// Runs, or was about to run when its domain lost the CPU.
    Running = 4,
}

impl SlotState {
    /// All states, by number.
    pub(crate) const ALL: [SlotState; 5] = [
        SlotState::Free,
        SlotState::Suspended,
        SlotState::Waiting,
        SlotState::Ready,
        SlotState::Running,
    ];
}

/// What a domain publishes of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its next release (`CLOCK_MONOTONIC`). [`NEVER`]: unknown.
    pub next_release_ns: u64,
    /// Its rank from its next release on.
    pub rank: Rank,
    /// For display only. Peers learn from the published rank what is ready, and from
    /// [`Self::next_release_ns`] what is released.
    pub state: SlotState,
}

impl Slot {
    /// A slot without an activity.
    pub const FREE: Slot = Slot { next_release_ns: NEVER, rank: NO_RANK, state: SlotState::Free };
}

/// Totals since the domain was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Handlers and polls upcalled.
    pub upcalls: u64,
    /// Switches from one activity of the domain to another.
    pub switches: u64,
    /// Jobs that ended.
    pub jobs: u64,
    /// Jobs that ended after their deadline.
    pub misses: u64,
    /// PDUs processed.
    pub pdus: u64,
    /// Turns that the domain passed on.
    pub handoffs: u64,
    /// The least time from a job's end to its deadline, in ns. Negative: a miss. `i64::MAX`: no job
    /// ended yet.
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

/// A mask that needs no system call. Masks nest, so each has a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    /// Defers the loss of the CPU to another domain.
    Preemption,
    /// Defers user interrupts.
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

/// Checks that the memory is an area of some number of slot pages. Also returns its number of
/// slots.
fn sized<W: AsRef<[AtomicU64]>>(memory: W) -> Result<(Words<W>, usize), LayoutError> {
    let found = memory.as_ref().len();
    // The next greater valid size. An error names it as the expected one.
    let pages = found.saturating_sub(word::HEADER).div_ceil(PAGE_BYTES / 8);
    let pages = pages.clamp(1, SLOT_PAGES_MAX);
    let words = Words::new(KIND, memory, words_of(pages))?;
    Ok((words, pages * PAGE_SLOTS))
}
