//! Events of different types. Only the latest event of each type counts, such as a QoS parameter
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

/// As in [`super::counter`]. Any number of events may have been merged.
const PENDING_MAX: u64 = u64::MAX >> 1;

/// The end that raises. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Raiser<W> {
    head: RaiserHead<W>,
    marks: RaiserMarks<TYPE_BITS>,
    types: u32,
}

impl<W: AsRef<[AtomicU64]>> Raiser<W> {
    /// Attaches to a segment of [`Form::Typed`]. One raiser at a time. O(words). Allocates one byte
    /// for each type.
    ///
    /// # Errors
    /// The memory is no such segment, has another version, or holds an impossible value.
    pub fn attach(words: W, types: u32) -> Result<Self, LayoutError> {
        let head = RaiserHead::attach(words, Form::Typed { types }, PENDING_MAX)?;
        let marks = RaiserMarks::attach(&head.words, types)?;
        Ok(Raiser { head, marks, types })
    }

    /// Puts an event in the entry of `kind`: [`Posted::Stored`]. If an event was pending there,
    /// this one replaces it: [`Posted::Merged`]. Wait-free. Costs stores and a load of one of the
    /// taker's words. Also costs a fence if 255 or more events of this type are pending.
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
    /// The errors of both. After an error of [`Self::must_notify`] the event stays posted.
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
    /// For each type, the number of its writes at the last take.
    seen: Box<[u64]>,
    types: u32,
}

impl<W: AsRef<[AtomicU64]>> Taker<W> {
    /// Attaches to a segment of [`Form::Typed`]. One taker at a time. O(words). Allocates 9 bytes
    /// for each type.
    ///
    /// # Errors
    /// As [`Raiser::attach`].
    pub fn attach(words: W, types: u32) -> Result<Self, LayoutError> {
        let head = TakerHead::attach(words, Form::Typed { types }, PENDING_MAX)?;
        let marks = TakerMarks::attach(&head.words, types)?;
        let seen = (0..types).map(|kind| {
            // Relaxed: the hand-over of the memory ordered these loads.
            let written = head.words.load(head.entry(kind), Relaxed) >> 1;
            written.wrapping_sub(marks.pending(&head.words, kind)) & WRITTEN_MASK
        });
        let seen = seen.collect();
        Ok(Taker { head, marks, seen, types })
    }

    /// The latest event of the first type with one pending, and how many events it stands for.
    /// `None` if nothing is pending. The raiser then notifies the taker of the next event.
    /// Wait-free. Costs one load if no event is new. Otherwise costs a load for every 8 types and a
    /// fence. Each type that the raiser writes during the take costs the same again.
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

    /// Takes the first marked entry that holds a new event.
    fn first(&mut self) -> Result<Option<TakenEvent>, PeerFault> {
        for _ in 0..=self.types {
            let words = &self.head.words;
            let Some(marked) = self.marks.first(words)? else { return Ok(None) };
            let kind = marked.entry;
            // The mark is taken before the entry is read, so the raiser marks a later event again.
            self.marks.take(words, marked);
            settle_entry();
            let (written, payload) = read(words.line(self.head.entry(kind)))?;
            let seen = &mut self.seen[kind as usize];
            let since = written.wrapping_sub(*seen) & WRITTEN_MASK;
            if since > PENDING_MAX >> 1 {
                return Err(fault("events of a type", since, PENDING_MAX >> 1));
            }
            *seen = written;
            // 0: an earlier take read this event between its stamp and its mark.
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

/// Writes an entry. The taker may read it at the same time.
#[inline]
fn write(line: &[AtomicU64; LINE_WORDS], payload: &Payload) {
    let stamp = &line[0];
    // Relaxed: only this end writes the stamp. The stamp is already odd if an earlier raiser died
    // here.
    let odd = stamp.load(Relaxed) | 1;
    stamp.store(odd, Relaxed);
    // Pairs with the fence in `read`. A taker that reads a word of the new payload then reads `odd`
    // or a later stamp.
    barrier(Edge::StampOdd, Release);
    store_payload(line, payload);
    // Release pairs with the Acquire in `read`.
    stamp.store(odd.wrapping_add(1), ordering(Edge::StampEven, Release));
}

/// Copies an entry as it was at one moment. Returns the number of its writes, and its payload.
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
