//! Events in the order in which they were raised, each with a payload. This is the paper's ring
//! buffer (ecalls-2001 §2.3). Its `back` is `raised` and its `front` is `taken`.

use super::head::{RaiserHead, TakerHead};
use super::{Form, KIND, Payload, Posted, Raised, TRIES_MAX, TakenEvent};
use super::{load_payload, store_entry};
use crate::{AtomicU64, LayoutError, PeerFault};

/// The end that raises. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Raiser<W> {
    head: RaiserHead<W>,
    slots: u32,
}

impl<W: AsRef<[AtomicU64]>> Raiser<W> {
    /// Attaches to a segment of [`Form::Ring`] with `slots`. One raiser at a time. O(words).
    ///
    /// # Errors
    /// It is no such segment, has another version, or holds an impossible value.
    pub fn attach(words: W, slots: u32) -> Result<Self, LayoutError> {
        let head = RaiserHead::attach(words, Form::Ring { slots }, u64::from(slots))?;
        Ok(Raiser { head, slots })
    }

    /// Puts an event in the next slot: [`Posted::Stored`]. If the ring is full, the event is
    /// counted as [`Posted::Lost`]. Wait-free. Stores, and a load of the taker's line once in
    /// `slots` events.
    ///
    /// # Errors
    /// The taker wrote an impossible value. Nothing was posted.
    #[inline]
    pub fn post(&mut self, payload: &Payload) -> Result<Posted, PeerFault> {
        if self.head.is_full()? {
            self.head.lose();
            return Ok(Posted::Lost);
        }
        let at = self.head.entry(slot(self.head.raised, self.slots));
        store_entry(&self.head.words, at, self.head.raised, payload);
        self.head.accept();
        Ok(Posted::Stored)
    }

    /// Whether the taker must be notified (by a system call, a user interrupt, a direct call). This
    /// is so if the taker has looked at all events it knows of, and an event was posted since the
    /// last call. One call serves any number of posts. It returns `true` once, and the caller must
    /// then notify. Wait-free: a fence and a load, or nothing if nothing was posted.
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
    pub fn raise(&mut self, payload: &Payload) -> Result<Raised, PeerFault> {
        let posted = self.post(payload)?;
        Ok(Raised { posted, must_notify: self.must_notify()? })
    }
}

/// The end that takes. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Taker<W> {
    head: TakerHead<W>,
    slots: u32,
}

impl<W: AsRef<[AtomicU64]>> Taker<W> {
    /// Attaches to a segment of [`Form::Ring`] with `slots`. One taker at a time. O(words).
    ///
    /// # Errors
    /// As [`Raiser::attach`].
    pub fn attach(words: W, slots: u32) -> Result<Self, LayoutError> {
        let head = TakerHead::attach(words, Form::Ring { slots }, u64::from(slots))?;
        Ok(Taker { head, slots })
    }

    /// The oldest pending event. `None` if nothing is pending: the raiser then notifies of the next
    /// event. Wait-free. A load if nothing is new.
    ///
    /// # Errors
    /// More events are pending than there are slots, or the count went back.
    /// [`PeerFault::Torn`]: the count changed at every try, so look again.
    #[inline]
    pub fn take(&mut self) -> Result<Option<TakenEvent>, PeerFault> {
        for _ in 0..TRIES_MAX {
            let raised = self.head.raised()?;
            let taken = self.head.taken;
            if raised != taken {
                let at = self.head.entry(slot(taken, self.slots));
                let payload = load_payload(self.head.words.line(at));
                self.head.advance(taken.wrapping_add(1));
                return Ok(Some(TakenEvent { row: 0, serial: taken, merged: 0, payload }));
            }
            if self.head.is_settled(raised) || self.head.settle()? {
                return Ok(None);
            }
        }
        Err(PeerFault::Torn { page: KIND.page })
    }

    /// How many events the raiser says found the ring full since the last call.
    pub fn lost(&mut self) -> u64 {
        self.head.lost()
    }
}

/// The slot of an event by its serial number. `slots` is a power of two.
#[expect(clippy::cast_possible_truncation, reason = "less than `slots`")]
const fn slot(serial: u64, slots: u32) -> u32 {
    (serial & (slots as u64 - 1)) as u32
}
