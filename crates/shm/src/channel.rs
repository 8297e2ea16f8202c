//! The memory of event channels: one segment for each direction between a client
//! and a service.
//!
//! Called by what registers services and clients (it brings the memory) and by the two ends, which
//! raise and take events without system call, lock or allocation (ecalls-2001 §2.3). A segment
//! has one *raiser* and one *taker*, each used by one thread at a time; a channel is two
//! segments. What a payload means, who is invoked and when: not here
//! (`upcall-core`'s `events` decides). Decision 0011 says why it is as it is.
//!
//! | form | raiser, taker | an event that finds one of its kind pending | order of taking |
//! |---|---|---|---|
//! | [`Form::Counter`] | [`counter`] | is counted | - |
//! | [`Form::Typed`] | [`typed`] | takes its place (the latest counts): merged | by type, 0 first |
//! | [`Form::Slots`] | [`slots`] | takes another slot of its level; none free: lost | by level, 0 first; within a level by slot |
//! | [`Form::Ring`] | [`ring`] | takes the next slot; none free: lost | as raised |
//!
//! Nothing is lost or merged silently: the raiser is told, and so is the taker
//! (`lost()` of it, [`TakenEvent::merged`]).
//!
//! ```text
//!   raiser                                     taker
//!   post: (1) entry                            take: (5) raised
//!         (2) mark, if there are marks               (6) mark and entry, or beyond
//!         (3) raised + 1   -- Rel/Acq (5) ->             `taken`? (7) taken: an event
//!   must_notify:                                       else (8) taken := what (5) found
//!         fence                                      fence
//!         (4) taken        <- Rel/Acq (7) --         (9) raised: as (5)? None
//!                                                        else from (5)
//! ```
//!
//! 1. Nothing of a typed entry that is being read is torn: a sequence number
//!    stands around it. A slot is written only while it is free.
//! 3. Who sees the count sees all that stands before it.
//! 4. The taker must be told if it has looked at all that it was told of. If it has not,
//!    it will look again: of the two fences one comes first, so either (4) finds what (8) stored or
//!    (9) finds what (3) did.
//! 7. A copy was made: the slot may be written again.
//! 9. So `None` means: nothing is pending, and the next one is told. A taker that stops
//!    before knows that there may be more.
//!
//! How it is told is the caller's business; [`wake_line`] is one way.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, form (1 counter, 2 typed, 3 slots, 4 ring), rows, depth, 3 reserved | its creator, before sharing |
//! | 64..128 | raised, lost, 6 reserved | raiser |
//! | 128..192 | taken, 7 reserved | taker |
//! | lines of 64 | typed: 8 bits an entry, slots: 1, else none (`marks`) | raiser |
//! | as many | the same | taker |
//! | behind | an entry a line: stamp, 7 words of payload | raiser |

use crate::words::{LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::Relaxed;
use core::fmt;
use layout::{KIND, word};

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

/// Most entries of a segment with marks: those of slots are one cache line.
pub const ENTRIES_MAX: u32 = 512;

/// Most slots of a ring: 4 MiB.
pub const RING_SLOTS_MAX: u32 = 1 << 16;

/// Words of an event's payload. Fewer under loom, which tries each value that each of them
/// may have.
pub const PAYLOAD_WORDS: usize = if cfg!(loom) { 2 } else { 7 };

/// What an event carries: words whose meaning the two ends agree on.
pub type Payload = [u64; PAYLOAD_WORDS];

/// How often a taker begins anew when the raiser was writing.
/// Under loom every try is like the first, and more take minutes.
const TRIES_MAX: usize = if cfg!(loom) { 2 } else { 4 };

/// How events of one direction wait until they are taken. The service chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// Events without payload and kind.
    Counter,
    /// An entry for each type; of several events of one type the latest counts.
    Typed {
        /// 1 to [`ENTRIES_MAX`].
        types: u32,
    },
    /// `depth` entries for each level of priority.
    Slots {
        /// At least 1; the first is the most urgent.
        levels: u32,
        /// At least 1; `levels * depth` is at most [`ENTRIES_MAX`].
        depth: u32,
    },
    /// A ring, first in, first out.
    Ring {
        /// A power of two, 1 to [`RING_SLOTS_MAX`].
        slots: u32,
    },
}

impl Form {
    /// Words that a segment of this form has; for a form that cannot be it is as if it could.
    pub fn words(self) -> usize {
        self.entries_at() + self.entries() as usize * LINE_WORDS
    }

    /// The word of the first entry.
    const fn entries_at(self) -> usize {
        word::entries(self.marked(), self.mark_bits())
    }

    /// Entries that have marks. As many as can be of a form that cannot be, which is refused.
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
            Form::Typed { .. } => marks::TYPE_BITS,
            Form::Slots { .. } => marks::SLOT_BITS,
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

    /// That there can be such a segment.
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

/// What became of an event that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It is pending by itself.
    Stored,
    /// It took the place of one of its type that was pending.
    Merged,
    /// There was no room. It was counted.
    Lost,
}

/// What was raised: [`Posted`], and whether the taker must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the taker does not look by itself"]
pub struct Raised {
    /// What became of it.
    pub posted: Posted,
    /// The taker has looked at all that it was told of, and must be told now.
    pub must_notify: bool,
}

/// An event that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenEvent {
    /// Its type, or its level of priority; 0 in a ring.
    pub row: u32,
    /// Slots and ring: how many events were accepted before it, as its raiser says.
    /// Typed: how many of its type were.
    pub serial: u64,
    /// How many more of its type it stands for; 0 but for typed events.
    pub merged: u64,
    /// What it carries, as its raiser says.
    pub payload: Payload,
}

/// Why an event was not posted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentError {
    /// The caller names a type or a level that the segment does not have.
    Row {
        /// As named.
        found: u32,
        /// How many there are.
        rows: u32,
    },
    /// The taker wrote what cannot be.
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

/// Makes `words`, all zero and shared with nobody yet, a segment of `form`.
/// O(words).
///
/// # Errors
/// No such form, wrong length ([`Form::words`]), or a word that is not 0.
pub fn create<W: AsRef<[AtomicU64]>>(words: W, form: Form) -> Result<(), LayoutError> {
    form.check()?;
    let words = Words::new(KIND, words, form.words())?;
    words.check_unused(KIND, |_| true)?;
    // Relaxed: handing the memory over orders it.
    words.mark(KIND);
    for (at, value) in [word::FORM, word::ROWS, word::DEPTH].into_iter().zip(form.identity()) {
        words.store(at, value, Relaxed);
    }
    Ok(())
}

/// Takes up a segment that is of `form`; it may be in use.
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

/// A value of the peer's that cannot be.
const fn fault(name: &'static str, found: u64, max: u64) -> PeerFault {
    PeerFault::Value { page: KIND.page, name, found, max }
}

/// Writes the entry at word `at`. Relaxed: what follows hands it over, a mark or the count.
#[inline]
fn store_entry<W: AsRef<[AtomicU64]>>(words: &Words<W>, at: usize, stamp: u64, payload: &Payload) {
    let line = words.line(at);
    line[0].store(stamp, Relaxed);
    store_payload(line, payload);
}

#[inline]
fn store_payload(line: &[AtomicU64; LINE_WORDS], payload: &Payload) {
    // Relaxed: what follows hands it over.
    for (word, value) in line[1..].iter().zip(payload) {
        word.store(*value, Relaxed);
    }
}

/// Copies a payload, once.
#[inline]
fn load_payload(line: &[AtomicU64; LINE_WORDS]) -> Payload {
    // Relaxed: what came before it was acquired.
    core::array::from_fn(|at| line[1 + at].load(Relaxed))
}
