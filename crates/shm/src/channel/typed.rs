//! Events of different types, of each of which the latest counts, such as QoS parameters
//! (ecalls-2001 §2.3, case 3; §2.3.1 "only the most recent event is of interest").

use super::head::{RaiserHead, TakerHead};
use super::layout::{KIND, TYPE_BITS, fault};
use super::marks::{RaiserMarks, TakerMarks, settle_entry};
use super::{Form, Payload, Posted, Raised, SegmentError, TRIES_MAX, TakenEvent};
use super::{load_payload, store_payload};
use crate::edge::{Edge, barrier, ordering};
use crate::words::LINE_WORDS;
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release};

/// As in [`super::counter`]: any number of events may have been merged.
const PENDING_MAX: u64 = u64::MAX >> 1;

/// The end that raises. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Raiser<W> {
    head: RaiserHead<W>,
    marks: RaiserMarks<TYPE_BITS>,
    types: u32,
}

impl<W: AsRef<[AtomicU64]>> Raiser<W> {
    /// Attaches to a segment of [`Form::Typed`]. One raiser at a time. O(words). Allocates a byte a
    /// type.
    ///
    /// # Errors
    /// It is no such segment, has another version, or holds an impossible value.
    pub fn attach(words: W, types: u32) -> Result<Self, LayoutError> {
        let head = RaiserHead::attach(words, Form::Typed { types }, PENDING_MAX)?;
        let marks = RaiserMarks::attach(&head.words, types)?;
        Ok(Raiser { head, marks, types })
    }

    /// Puts an event in the entry of `kind`: [`Posted::Stored`]. If an event was pending there,
    /// this one replaces it: [`Posted::Merged`]. Wait-free. Stores, and a load of a word of the
    /// taker's. Also a fence if 255 or more events of this type are pending.
    ///
    /// # Errors
    /// The type does not exist. Nothing was posted.
    #[inline]
    pub fn post(&mut self, kind: u32, payload: &Payload) -> Result<Posted, SegmentError> {
        if kind >= self.types {
            return Err(SegmentError::Row { found: kind, rows: self.types });
        }
        write(self.head.words.line(self.head.entry(kind)), payload);
        let was_pending = self.marks.mark(&self.head.words, kind);
        self.head.accept();
        Ok(if was_pending { Posted::Merged } else { Posted::Stored })
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
    /// Those of both. If only [`Self::must_notify`] fails, the event is posted.
    #[inline]
    pub fn raise(&mut self, kind: u32, payload: &Payload) -> Result<Raised, SegmentError> {
        let posted = self.post(kind, payload)?;
        Ok(Raised { posted, must_notify: self.must_notify()? })
    }
}

/// The end that takes. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Taker<W> {
    head: TakerHead<W>,
    marks: TakerMarks<TYPE_BITS>,
    /// For each type, how often it had been written at its last take.
    seen: Box<[u64]>,
    types: u32,
}

impl<W: AsRef<[AtomicU64]>> Taker<W> {
    /// Attaches to a segment of [`Form::Typed`]. One taker at a time. O(words). Allocates 9 bytes a
    /// type.
    ///
    /// # Errors
    /// As [`Raiser::attach`].
    pub fn attach(words: W, types: u32) -> Result<Self, LayoutError> {
        let head = TakerHead::attach(words, Form::Typed { types }, PENDING_MAX)?;
        let marks = TakerMarks::attach(&head.words, types)?;
        let seen = (0..types).map(|kind| {
            // Relaxed: handing the memory over ordered them.
            let written = head.words.load(head.entry(kind), Relaxed) >> 1;
            written.wrapping_sub(marks.pending(&head.words, kind)) & WRITTEN_MASK
        });
        let seen = seen.collect();
        Ok(Taker { head, marks, seen, types })
    }

    /// The latest event of the first type with one pending, and how many events it stands for.
    /// `None` if nothing is pending: the raiser then notifies of the next event. Wait-free. A load
    /// if nothing is new. Otherwise a load for every 8 types and a fence, and the same again for
    /// each type that was written while it was taken.
    ///
    /// # Errors
    /// A mark without an entry, or a count that went back. [`PeerFault::Torn`]: the entry was
    /// written at every try, so look again.
    #[inline]
    pub fn take(&mut self) -> Result<Option<TakenEvent>, PeerFault> {
        for _ in 0..TRIES_MAX {
            let raised = self.head.raised()?;
            if self.head.is_settled(raised) {
                return Ok(None);
            }
            if let Some(event) = self.first()? {
                return Ok(Some(event));
            }
            self.head.advance(raised);
            if self.head.settle()? {
                return Ok(None);
            }
        }
        Err(PeerFault::Torn { page: KIND.page })
    }

    /// Takes the first marked entry that stands for something new.
    fn first(&mut self) -> Result<Option<TakenEvent>, PeerFault> {
        for _ in 0..=self.types {
            let words = &self.head.words;
            let Some(marked) = self.marks.first(words)? else { return Ok(None) };
            let kind = marked.entry;
            // The mark comes before the entry: an event written after this is marked again.
            self.marks.take(words, marked);
            settle_entry();
            let (written, payload) = read(words.line(self.head.entry(kind)))?;
            let seen = &mut self.seen[kind as usize];
            let since = written.wrapping_sub(*seen) & WRITTEN_MASK;
            if since > PENDING_MAX >> 1 {
                return Err(fault("events of a type", since, PENDING_MAX >> 1));
            }
            *seen = written;
            // 0: it was taken already, between its stamp and its mark.
            if let Some(merged) = since.checked_sub(1) {
                let serial = written.wrapping_sub(1) & WRITTEN_MASK;
                return Ok(Some(TakenEvent { row: kind, serial, merged, payload }));
            }
        }
        Err(PeerFault::Torn { page: KIND.page })
    }
}

/// A stamp without its lowest bit is the number of times the entry was written.
const WRITTEN_MASK: u64 = u64::MAX >> 1;

/// Writes an entry, which may be read meanwhile.
#[inline]
fn write(line: &[AtomicU64; LINE_WORDS], payload: &Payload) {
    let stamp = &line[0];
    // Relaxed: only this end writes the word. It is odd already if an earlier raiser died here.
    let odd = stamp.load(Relaxed) | 1;
    stamp.store(odd, Relaxed);
    // Pairs with the fence in `read`. A taker that reads any of what follows then reads `odd` or a
    // later stamp.
    barrier(Edge::StampOdd, Release);
    store_payload(line, payload);
    // Pairs with the Acquire in `read`.
    stamp.store(odd.wrapping_add(1), ordering(Edge::StampEven, Release));
}

/// Copies an entry as it was at one moment. Returns how often it had been written, and its payload.
fn read(line: &[AtomicU64; LINE_WORDS]) -> Result<(u64, Payload), PeerFault> {
    for _ in 0..TRIES_MAX {
        // Pairs with the Release in `write`.
        let before = line[0].load(ordering(Edge::StampFirst, Acquire));
        let payload = load_payload(line);
        // Pairs with the fence in `write`.
        barrier(Edge::StampSecond, Acquire);
        if line[0].load(Relaxed) == before && before & 1 == 0 {
            return Ok((before >> 1, payload));
        }
        core::hint::spin_loop();
    }
    Err(PeerFault::Torn { page: KIND.page })
}
