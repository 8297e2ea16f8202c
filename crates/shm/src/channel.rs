//! The memory of event channels: one segment for each direction between a client and a service.
//!
//! The code that registers services and clients brings the memory. The two ends raise and take
//! events without system call, lock or allocation (ecalls-2001 §2.3). A segment has one *raiser*
//! and one *taker*, each used by one thread at a time. A channel is two segments. The meaning of a
//! payload, the choice of a handler and the time of its upcall are decided by
//! `upcall_core::events`. docs/decisions/0011-event-channels.md explains the design.
//!
//! | form | raiser, taker | an event that finds one of its kind pending | order of taking |
//! |---|---|---|---|
//! | [`Form::Counter`] | [`counter`] | is counted | - |
//! | [`Form::Typed`] | [`typed`] | replaces it: merged | by type, 0 first |
//! | [`Form::Slots`] | [`slots`] | takes a free slot of its level; without one it is lost | by level, 0 first; within a level by slot |
//! | [`Form::Ring`] | [`ring`] | takes the next slot; without a free one it is lost | as raised |
//!
//! Both ends learn of each lost or merged event: the raiser from [`Posted`], the taker from
//! `lost()` and [`TakenEvent::merged`].
//!
//! ```text
//!   raiser                                     taker
//!   post: (1) writes the entry                 take: (5) loads raised
//!         (2) its mark, if the form has them         (6) a pending entry?
//!         (3) raised + 1   -- Rel/Acq (5) ->             yes: (7) takes it, an event
//!   must_notify:                                         no: (8) taken := raised of (5)
//!         fence                                      fence
//!         (4) loads taken  <- Rel/Acq (7, 8)         (9) loads raised: as in (5)? None
//!                                                        else again from (5)
//! ```
//!
//! 1. A typed entry has a stamp, which the raiser changes before and after it writes. So a taker
//!    never gets parts of two events. A slot is written only while it is free.
//! 3. An end that sees the count sees all that was stored before it.
//! 4. The raiser must notify a taker that has looked at all events it knows of. Any other taker
//!    looks again without a notification. One of the two fences comes first: either (4) finds what
//!    (8) stored, or (9) finds what (3) stored.
//! 6. An entry is pending if its marks differ. In a ring and a counter, all events from `taken` up
//!    to `raised` are pending.
//! 7. The taker has copied the event, so the raiser may write the slot again.
//! 9. So `None` means that nothing is pending and that the raiser will notify the taker of the next
//!    event. A taker that stops before it gets `None` must expect more events.
//!
//! The caller decides how to notify. [`wake_line`] is one way.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, form (1 counter, 2 typed, 3 slots, 4 ring), rows, depth, 3 reserved | its creator, before sharing |
//! | 64..128 | raised, lost, 6 reserved | raiser |
//! | 128..192 | taken, 7 reserved | taker |
//! | lines of 64 | marks: 8 bits for each entry if typed, 1 bit if slots, otherwise none | raiser |
//! | as many | the taker's marks, in the same form | taker |
//! | after these | a line for each entry: stamp, 7 words of payload | raiser |

use crate::words::{LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::Relaxed;
use core::fmt;
use layout::{KIND, SLOT_BITS, TYPE_BITS, word};

pub mod counter;
mod head;
mod layout;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
mod marks;
pub mod ring;
pub mod slots;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
pub mod typed;
pub mod wake_line;

pub use layout::LAYOUT_VERSION;

/// The greatest number of entries with marks. The marks of so many slots fill one cache line.
pub const ENTRIES_MAX: u32 = 512;

/// The greatest number of slots of a ring: 4 MiB.
pub const RING_SLOTS_MAX: u32 = 1 << 16;

/// Words of an event's payload. Fewer under loom, which tries each value that each word may have.
pub const PAYLOAD_WORDS: usize = if cfg!(loom) { 2 } else { 7 };

/// The payload of an event: words whose meaning the two ends agree on.
pub type Payload = [u64; PAYLOAD_WORDS];

/// How often a taker tries again while the raiser is writing. Under loom every try is like the
/// first, and more tries take minutes.
const TRIES_MAX: usize = if cfg!(loom) { 2 } else { 4 };

/// How the events of one direction wait until they are taken. The service chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// Events without payload and type.
    Counter,
    /// One entry for each type. Of several events of one type the latest counts.
    Typed {
        /// 1 to [`ENTRIES_MAX`].
        types: u32,
    },
    /// `depth` entries for each level of priority.
    Slots {
        /// At least 1. Level 0 is the most urgent.
        levels: u32,
        /// At least 1. `levels * depth` is at most [`ENTRIES_MAX`].
        depth: u32,
    },
    /// A ring, first in, first out.
    Ring {
        /// A power of two, 1 to [`RING_SLOTS_MAX`].
        slots: u32,
    },
}

impl Form {
    /// Words of a segment of this form. The result is defined even for a form that [`create`]
    /// refuses.
    pub fn words(self) -> usize {
        self.entries_at() + self.entries() as usize * LINE_WORDS
    }

    /// The word of the first entry.
    const fn entries_at(self) -> usize {
        word::entries(self.marked(), self.mark_bits())
    }

    /// Entries that have marks, at most [`ENTRIES_MAX`]. A form with more is refused.
    const fn marked(self) -> u32 {
        match self.entries() {
            _ if self.mark_bits() == 0 => 0,
            entries if entries < ENTRIES_MAX => entries,
            _ => ENTRIES_MAX,
        }
    }

    const fn mark_bits(self) -> u32 {
        match self {
            Form::Counter | Form::Ring { .. } => 0,
            Form::Typed { .. } => TYPE_BITS,
            Form::Slots { .. } => SLOT_BITS,
        }
    }

    /// Words of the identity: form, rows, depth.
    const fn identity(self) -> [u64; 3] {
        match self {
            Form::Counter => [1, 0, 0],
            Form::Typed { types } => [2, types as u64, 1],
            Form::Slots { levels, depth } => [3, levels as u64, depth as u64],
            Form::Ring { slots } => [4, slots as u64, 1],
        }
    }

    const fn entries(self) -> u32 {
        match self {
            Form::Counter => 0,
            Form::Typed { types: entries } | Form::Ring { slots: entries } => entries,
            Form::Slots { levels, depth } => levels.saturating_mul(depth),
        }
    }

    /// Checks the sizes of the form.
    fn check(self) -> Result<(), LayoutError> {
        let (name, max) = match self {
            Form::Counter => return Ok(()),
            Form::Typed { .. } => ("types", ENTRIES_MAX),
            Form::Slots { .. } => ("levels times depth", ENTRIES_MAX),
            Form::Ring { .. } => ("slots (a power of two)", RING_SLOTS_MAX),
        };
        let entries = self.entries();
        let odd = matches!(self, Form::Ring { .. }) && !entries.is_power_of_two();
        if (1..=max).contains(&entries) && !odd {
            return Ok(());
        }
        let (found, max) = (u64::from(entries), u64::from(max));
        Err(LayoutError::Value { page: KIND.page, name, found, min: 1, max })
    }
}

/// The result of posting an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The event is pending in an entry of its own.
    Stored,
    /// The event replaced a pending event of its type.
    Merged,
    /// No entry was free. The event was counted as lost.
    Lost,
}

/// The result of raising an event: [`Posted`], and whether the taker must be notified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the taker must be notified"]
pub struct Raised {
    /// What became of the event.
    pub posted: Posted,
    /// The taker has looked at all events it knows of, and must be notified now.
    pub must_notify: bool,
}

/// An event that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenEvent {
    /// The type of the event, or its level of priority. 0 in a ring.
    pub row: u32,
    /// Slots and ring: how many events the raiser accepted before this one. Typed: how many of this
    /// type. The raiser states the number.
    pub serial: u64,
    /// How many earlier events of its type this event replaced. 0 unless typed.
    pub merged: u64,
    /// The payload, as the raiser wrote it.
    pub payload: Payload,
}

/// Why an event was not posted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// The segment does not have the type or level that the caller named.
    Row {
        /// The type or level that the caller named.
        found: u32,
        /// The number of types or levels.
        rows: u32,
    },
    /// The taker wrote an impossible value.
    Peer(PeerFault),
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            SegmentError::Row { found, rows } => {
                write!(f, "channel has no type or level {found}, expected less than {rows}")
            }
            SegmentError::Peer(fault) => fault.fmt(f),
        }
    }
}

crate::fault::debug_as_display!(SegmentError);

impl core::error::Error for SegmentError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            SegmentError::Peer(fault) => Some(fault),
            _ => None,
        }
    }
}

impl From<PeerFault> for SegmentError {
    fn from(fault: PeerFault) -> Self {
        SegmentError::Peer(fault)
    }
}

/// Makes `words` a segment of `form`. The words must be 0 and not shared yet. O(words).
///
/// # Errors
/// The form or the length ([`Form::words`]) is wrong, or a word is not 0.
pub fn create<W: AsRef<[AtomicU64]>>(words: W, form: Form) -> Result<(), LayoutError> {
    form.check()?;
    let words = Words::new(KIND, words, form.words())?;
    words.check_unused(KIND, |_| true)?;
    // Relaxed: the hand-over of the memory orders the stores.
    words.mark(KIND);
    for (at, value) in [word::FORM, word::ROWS, word::DEPTH].into_iter().zip(form.identity()) {
        words.store(at, value, Relaxed);
    }
    Ok(())
}

/// Attaches to a segment of `form`. The segment may be in use.
fn attach<W: AsRef<[AtomicU64]>>(words: W, form: Form) -> Result<Words<W>, LayoutError> {
    form.check()?;
    let words = Words::new(KIND, words, form.words())?;
    words.check_kind(KIND)?;
    let names = ["form", "rows", "depth"];
    for (at, (name, value)) in names.into_iter().zip(form.identity()).enumerate() {
        words.identity(KIND, name, word::FORM + at, (value, value))?;
    }
    let (marked, bits) = (form.marked(), form.mark_bits());
    words.check_unused(KIND, |word| word::is_reserved(word, marked, bits))?;
    Ok(words)
}

/// Writes the entry at word `at`. Relaxed: the mark or the count that follows hands it over.
#[inline]
fn store_entry<W: AsRef<[AtomicU64]>>(words: &Words<W>, at: usize, stamp: u64, payload: &Payload) {
    let line = words.line(at);
    line[0].store(stamp, Relaxed);
    store_payload(line, payload);
}

#[inline]
fn store_payload(line: &[AtomicU64; LINE_WORDS], payload: &Payload) {
    // Relaxed: a later store of the caller hands the payload over.
    for (word, value) in line[1..].iter().zip(payload) {
        word.store(*value, Relaxed);
    }
}

/// Copies a payload, once.
#[inline]
fn load_payload(line: &[AtomicU64; LINE_WORDS]) -> Payload {
    // Relaxed: the caller has already acquired the entry.
    core::array::from_fn(|at| line[1 + at].load(Relaxed))
}
