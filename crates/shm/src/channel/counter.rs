//! Events that are only counted. This is the paper's `flag` (ecalls-2001 §2.3) without a list or
//! buffer.

use super::head::{RaiserHead, TakerHead};
use super::{Form, KIND, TRIES_MAX};
use crate::{AtomicU64, LayoutError, PeerFault};

/// The greatest number of events that can be pending. A larger difference means that the count went
/// back.
const PENDING_MAX: u64 = u64::MAX >> 1;

/// The end that raises. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Raiser<W>(RaiserHead<W>);

impl<W: AsRef<[AtomicU64]>> Raiser<W> {
    /// Attaches to a segment of [`Form::Counter`]. One raiser at a time. O(words).
    ///
    /// # Errors
    /// The memory is no such segment, has another version, or holds an impossible value.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        RaiserHead::attach(words, Form::Counter, PENDING_MAX).map(Raiser)
    }

    /// Counts an event. Costs one store.
    #[inline]
    pub fn post(&mut self) {
        self.0.accept();
    }

    /// See [`super::ring::Raiser::must_notify`].
    ///
    /// # Errors
    /// The taker wrote an impossible value.
    #[inline]
    #[must_use = "the taker must be notified"]
    pub fn must_notify(&mut self) -> Result<bool, PeerFault> {
        self.0.must_notify()
    }

    /// [`Self::post`] and [`Self::must_notify`].
    ///
    /// # Errors
    /// As [`Self::must_notify`]. The event was counted.
    #[inline]
    pub fn raise(&mut self) -> Result<bool, PeerFault> {
        self.post();
        self.must_notify()
    }
}

/// The end that takes. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Taker<W>(TakerHead<W>);

impl<W: AsRef<[AtomicU64]>> Taker<W> {
    /// Attaches to a segment of [`Form::Counter`]. One taker at a time. O(words).
    ///
    /// # Errors
    /// As [`Raiser::attach`].
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        TakerHead::attach(words, Form::Counter, PENDING_MAX).map(Taker)
    }

    /// Takes all pending events and returns their number. `None` if nothing is pending. The raiser
    /// then notifies the taker of the next event. Wait-free. Costs one load if nothing is new.
    ///
    /// # Errors
    /// The count went back. [`PeerFault::Torn`]: it changed at every try, so look again.
    #[inline]
    pub fn take(&mut self) -> Result<Option<u64>, PeerFault> {
        for _ in 0..TRIES_MAX {
            let raised = self.0.raised()?;
            let pending = raised.wrapping_sub(self.0.taken);
            if pending > 0 {
                self.0.advance(raised);
                return Ok(Some(pending));
            }
            if self.0.is_settled(raised) || self.0.settle()? {
                return Ok(None);
            }
        }
        Err(PeerFault::Torn { page: KIND.page })
    }
}
