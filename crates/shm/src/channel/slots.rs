//! Events with levels of priority. Each event has an entry of its own.
//!
//! With one level, this is the paper's list of entries of one type, in which an event takes the
//! next free entry. With one entry in each level, it is the paper's list in which the position is
//! the priority (ecalls-2001 §2.3, cases 1 and 2).

use super::head::{RaiserHead, TakerHead};
use super::layout::{KIND, SLOT_BITS};
use super::marks::{Marked, RaiserMarks, TakerMarks};
use super::{Form, Payload, Posted, Raised, SegmentError, TRIES_MAX, TakenEvent};
use super::{load_payload, store_entry};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::Relaxed;

/// As in [`super::counter`]. The marks, not this bound, decide whether an entry is free.
const PENDING_MAX: u64 = u64::MAX >> 1;

/// The end that raises. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Raiser<W> {
    head: RaiserHead<W>,
    marks: RaiserMarks<SLOT_BITS>,
    levels: u32,
    depth: u32,
}

impl<W: AsRef<[AtomicU64]>> Raiser<W> {
    /// Attaches to a segment of [`Form::Slots`]. One raiser at a time. O(words). Allocates one bit
    /// for each entry.
    ///
    /// # Errors
    /// The memory is no such segment, has another version, or holds an impossible value.
    pub fn attach(words: W, levels: u32, depth: u32) -> Result<Self, LayoutError> {
        let head = RaiserHead::attach(words, Form::Slots { levels, depth }, PENDING_MAX)?;
        let marks = RaiserMarks::attach(&head.words, levels * depth)?;
        Ok(Raiser { head, marks, levels, depth })
    }

    /// Puts an event in the first free entry of `level`: [`Posted::Stored`]. If none is free, the
    /// event is counted as [`Posted::Lost`]. Wait-free. Costs stores and a load of one of the
    /// taker's words.
    ///
    /// # Errors
    /// The level does not exist. Nothing was posted.
    #[inline]
    pub fn post(&mut self, level: u32, payload: &Payload) -> Result<Posted, SegmentError> {
        if level >= self.levels {
            return Err(SegmentError::Row { found: level, rows: self.levels });
        }
        let from = level * self.depth;
        let range = (from, from + self.depth);
        let words = &self.head.words;
        let Some(entry) = self.marks.first_free(words, range) else {
            self.head.lose();
            return Ok(Posted::Lost);
        };
        store_entry(words, self.head.entry(entry), self.head.raised, payload);
        self.marks.fill(words, entry);
        self.head.accept();
        Ok(Posted::Stored)
    }

    /// See [`super::ring::Raiser::must_notify`].
    ///
    /// # Errors
    /// The taker wrote an impossible value.
    #[inline]
    #[must_use = "the taker must be notified"]
    pub fn must_notify(&mut self) -> Result<bool, PeerFault> {
        self.head.must_notify()
    }

    /// [`Self::post`] and [`Self::must_notify`].
    ///
    /// # Errors
    /// The errors of both. After an error of [`Self::must_notify`] the event stays posted.
    #[inline]
    pub fn raise(&mut self, level: u32, payload: &Payload) -> Result<Raised, SegmentError> {
        let posted = self.post(level, payload)?;
        Ok(Raised { posted, must_notify: self.must_notify()? })
    }
}

/// The end that takes. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Taker<W> {
    head: TakerHead<W>,
    marks: TakerMarks<SLOT_BITS>,
    depth: u32,
}

impl<W: AsRef<[AtomicU64]>> Taker<W> {
    /// Attaches to a segment of [`Form::Slots`]. One taker at a time. O(words). Allocates one bit
    /// for each entry.
    ///
    /// # Errors
    /// As [`Raiser::attach`].
    pub fn attach(words: W, levels: u32, depth: u32) -> Result<Self, LayoutError> {
        let head = TakerHead::attach(words, Form::Slots { levels, depth }, PENDING_MAX)?;
        let marks = TakerMarks::attach(&head.words, levels * depth)?;
        Ok(Taker { head, marks, depth })
    }

    /// An event of the most urgent level that has any. Within a level the first entry comes first,
    /// and [`TakenEvent::serial`] tells whether it is the oldest. `None` if nothing is pending. The
    /// raiser then notifies the taker of the next event. Wait-free. Costs one load if no event is
    /// new, and otherwise at most 8 more to find the event.
    ///
    /// # Errors
    /// A mark without an entry, or a count that went back. [`PeerFault::Torn`]: the count changed
    /// at every try, so look again.
    #[inline]
    pub fn take(&mut self) -> Result<Option<TakenEvent>, PeerFault> {
        for _ in 0..TRIES_MAX {
            let raised = self.head.raised()?;
            if self.head.is_settled(raised) {
                return Ok(None);
            }
            if let Some(marked) = self.marks.first(&self.head.words)? {
                return Ok(Some(self.copy(marked)));
            }
            self.head.advance(raised);
            if self.head.settle()? {
                return Ok(None);
            }
        }
        Err(PeerFault::Torn { page: KIND.page })
    }

    /// How many events the raiser says found their level full since the last call.
    pub fn lost(&mut self) -> u64 {
        self.head.lost()
    }

    /// Copies a pending entry, then frees it.
    fn copy(&mut self, marked: Marked) -> TakenEvent {
        let words = &self.head.words;
        let line = words.line(self.head.entry(marked.entry));
        // Relaxed: `TakerMarks::first` has acquired the entry.
        let (serial, payload) = (line[0].load(Relaxed), load_payload(line));
        self.marks.take(words, marked);
        TakenEvent { row: marked.entry / self.depth, serial, merged: 0, payload }
    }
}
