//! Events in the order in which they were raised, each with a payload: the paper's
//! ring buffer (ecalls-2001 §2.3), whose `back` is `raised` and whose `front` is `taken`.

use super::head::{RaiserHead, TakerHead};
use super::{Form, KIND, Payload, Posted, Raised, TRIES_MAX, TakenEvent};
use super::{load_payload, store_entry};
use crate::{AtomicU64, LayoutError, PeerFault};

/// Who raises. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Raiser<W> {
    head: RaiserHead<W>,
    slots: u32,
}

impl<W: AsRef<[AtomicU64]>> Raiser<W> {
    /// Takes up a segment of [`Form::Ring`] with `slots`; one raiser at a time. O(words).
    ///
    /// # Errors
    /// It is no such segment, of another version, or its words cannot be.
    pub fn attach(words: W, slots: u32) -> Result<Self, LayoutError> {
        let head = RaiserHead::attach(words, Form::Ring { slots }, u64::from(slots))?;
        Ok(Raiser { head, slots })
    }

    /// Puts an event in the next slot: [`Posted::Stored`], or [`Posted::Lost`] and counted if the
    /// ring is full. Wait-free; stores, and a load of the taker's line once in `slots` events.
    ///
    /// # Errors
    /// The taker wrote what cannot be; nothing was posted.
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

    /// Whether the taker must be told (by a system call, a user interrupt, a
    /// direct call): it has looked at all that it was told of, and something was posted
    /// since this was asked last. Once for any number of posts; `true` once, so who is
    /// answered so tells. Wait-free: a fence and a load, or nothing if nothing was posted.
    ///
    /// # Errors
    /// The taker wrote what cannot be.
    #[inline]
    #[must_use = "the taker does not look by itself"]
    pub fn must_notify(&mut self) -> Result<bool, PeerFault> {
        self.head.must_notify()
    }

    /// [`Self::post`] and [`Self::must_notify`].
    ///
    /// # Errors
    /// As those two; what was posted before the second stays so.
    #[inline]
    pub fn raise(&mut self, payload: &Payload) -> Result<Raised, PeerFault> {
        let posted = self.post(payload)?;
        Ok(Raised { posted, must_notify: self.must_notify()? })
    }
}

/// Who takes. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Taker<W> {
    head: TakerHead<W>,
    slots: u32,
}

impl<W: AsRef<[AtomicU64]>> Taker<W> {
    /// Takes up a segment of [`Form::Ring`] with `slots`; one taker at a time. O(words).
    ///
    /// # Errors
    /// As [`Raiser::attach`].
    pub fn attach(words: W, slots: u32) -> Result<Self, LayoutError> {
        let head = TakerHead::attach(words, Form::Ring { slots }, u64::from(slots))?;
        Ok(Taker { head, slots })
    }

    /// The oldest event that is pending. `None`: nothing is, and who raises next is told to
    /// tell. Wait-free; a load where nothing is new.
    ///
    /// # Errors
    /// More is pending than there are slots, or less than there was.
    /// [`PeerFault::Torn`]: the count changed at every try; look again.
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

    /// How many events found the ring full since this was asked last, as the
    /// raiser says.
    pub fn lost(&mut self) -> u64 {
        self.head.lost()
    }
}

/// The slot of an event by its serial number; `slots` is a power of two.
#[expect(clippy::cast_possible_truncation, reason = "less than `slots`")]
const fn slot(serial: u64, slots: u32) -> u32 {
    (serial & (slots as u64 - 1)) as u32
}
