//! The end that raises: posts into its segment, and tells the taker if it must.
//!
//! Used from any thread of the process; by handlers, too. One raises at a time: an ordinary thread
//! waits for the other, a scheduling thread never does ([`RaiseError::Busy`]).

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use upcall_core::events::{Verdict, When};
use upcall_core::time::Span;
use upcall_shm::PeerFault;
use upcall_shm::channel::wake_line::WakeLine;
use upcall_shm::channel::{Payload, Posted, SegmentError};
use upcall_sys::futex;
use upcall_sys::process::PidFd;

use super::line::Caller;
use super::segment::{Part, Raises};
use super::{Gone, PeerId, RaiseError, Words, here};

/// An event to be raised.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::channel::Raise;
/// use upcall::channel::When;
/// let volume = Raise::row(2).words([80, 0, 0, 0, 0]).when(When::BeforeScheduling);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise {
    pub(super) row: u32,
    pub(super) words: Words,
    pub(super) rank: Option<u16>,
    pub(super) when: Option<When>,
}

impl Default for Raise {
    fn default() -> Self {
        Raise::row(0)
    }
}

impl Raise {
    /// Of this type or level; 0 in a ring and in a counter.
    pub const fn row(row: u32) -> Self {
        Raise { row, words: [0; 5], rank: None, when: None }
    }

    /// With these words, which a counter does not carry.
    #[must_use]
    pub const fn words(mut self, words: Words) -> Self {
        self.words = words;
        self
    }

    /// Smaller ones are handled first; the type or level, if none is given.
    #[must_use]
    pub const fn rank(mut self, rank: u16) -> Self {
        self.rank = Some(rank);
        self
    }

    /// When its handler is to be invoked (§2.3.1), in place of what the taker registered. A delay is rounded
    /// up to microseconds, at most 2^32 - 1 of them, and counted from when the taker finds
    /// the event: at its next crossing, at once if it sleeps.
    #[must_use]
    pub const fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }

    /// As the segment holds it: the last two words are the channel's.
    pub(super) fn payload(&self) -> Payload {
        let (kind, delay_us) = match self.when {
            None => (0, 0),
            Some(When::Now) => (1, 0),
            Some(When::NextCrossing) => (2, 0),
            Some(When::BeforeScheduling) => (3, 0),
            Some(When::After(delay)) => {
                (4, delay.as_nanos().div_ceil(1_000).min(u64::from(u32::MAX)))
            }
        };
        let rank = self.rank.unwrap_or(u16::try_from(self.row).unwrap_or(u16::MAX));
        let from = here::origin();
        let head = kind | u64::from(from.desk & DESK_MAX) << 4 | u64::from(rank) << 16;
        let [a, b, c, d, e] = self.words;
        [a, b, c, d, e, head | delay_us << 32, from.led_by]
    }
}

/// Desks have numbers up to this; 0 is none.
pub(super) const DESK_MAX: u16 = 0xFFF;

/// What a raiser wrote behind its words. Nothing in it can be wrong: at worst it is
/// another event than its raiser meant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) when: Option<When>,
    pub(super) rank: u64,
    /// The desk whose handlers led to it, 0: none; and which.
    pub(super) desk: u16,
    pub(super) led_by: u64,
}

impl Label {
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub(super) const fn of(payload: &Payload) -> Self {
        let [.., head, led_by] = *payload;
        let when = match head & 0xF {
            1 => Some(When::Now),
            2 => Some(When::NextCrossing),
            3 => Some(When::BeforeScheduling),
            4 => Some(When::After(Span::from_micros(head >> 32))),
            _ => None,
        };
        Label { when, rank: head >> 16 & 0xFFFF, desk: (head >> 4) as u16 & DESK_MAX, led_by }
    }
}

/// What has become of the other end. Of this process, and so no peer's.
#[derive(Debug, Default)]
pub(super) struct Fate {
    word: AtomicU32,
    fault: Mutex<Option<PeerFault>>,
}

impl Fate {
    /// A load, while it is there.
    #[inline]
    pub(super) fn gone(&self) -> Option<Gone> {
        // Acquire pairs with the Release in `set`: the fault is there.
        match self.word.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Gone::Ended),
            2 => Some(Gone::Died),
            _ => (*lock(&self.fault)).map(Gone::Fault).or(Some(Gone::Died)),
        }
    }

    /// Says so; the first to say so says how.
    pub(super) fn set(&self, gone: Gone) {
        let word = match gone {
            Gone::Ended => 1,
            Gone::Died => 2,
            Gone::Fault(fault) => {
                lock(&self.fault).get_or_insert(fault);
                3
            }
        };
        // Release pairs with the Acquire in `gone`; a failure says nothing.
        let _ = self.word.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed);
    }
}

/// How the taker wants to be told.
#[derive(Debug)]
pub(super) enum Tell {
    /// Its wake_line: it looks there, or sleeps on it.
    WakeWord,
    /// A real-time signal with a value.
    Signal { process: PidFd, number: i32, value: i32 },
}

/// What decides in the raiser's process, on the taker's behalf.
pub(super) type Behalf = dyn Fn(PeerId, &Raise) -> Verdict + Send + Sync;

/// One raising end. Used by its handle, and by handlers that answer.
pub(super) struct Out {
    pub(super) peer: PeerId,
    pub(super) raises: Mutex<Raises>,
    pub(super) wake_line: WakeLine<Part>,
    pub(super) tell: Tell,
    pub(super) fate: Arc<Fate>,
    pub(super) behalf: Option<Arc<Behalf>>,
    pub(super) system_calls: AtomicU64,
    /// The taker was to be told, and its signal could not be sent.
    pub(super) owed: AtomicBool,
    /// Who takes on this side, if a desk does: it detaches a peer that is found at fault.
    pub(super) caller: Option<Caller>,
}

impl Out {
    pub(super) fn raise(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.put(raise, true)
    }

    /// Posts, and tells if `tell`.
    pub(super) fn put(&self, raise: &Raise, tell: bool) -> Result<Posted, RaiseError> {
        if let Some(gone) = self.fate.gone() {
            return Err(RaiseError::Gone(gone));
        }
        let verdict =
            self.behalf.as_ref().map_or(Verdict::Pass, |decides| decides(self.peer, raise));
        if verdict == Verdict::Drop {
            return Err(RaiseError::Dropped);
        }
        let mut raises = self.raises()?;
        let posted = raises.post(raise.row, &raise.payload()).map_err(|error| match error {
            SegmentError::Peer(fault) => self.failed(fault),
            error => RaiseError::Post(error),
        })?;
        if tell && verdict == Verdict::Pass {
            self.tell(raises)?;
        }
        Ok(posted)
    }

    /// Tells of all that was posted, if the taker must be told.
    pub(super) fn tell_now(&self) -> Result<(), RaiseError> {
        let raises = self.raises()?;
        self.tell(raises)
    }

    /// Tells if it must. The lock is given back first: who is told may answer at once, and an
    /// executor does not wait for it.
    fn tell(&self, mut raises: MutexGuard<'_, Raises>) -> Result<(), RaiseError> {
        let must = raises.must_notify().map_err(|fault| self.failed(fault))?;
        drop(raises);
        // Relaxed, here and below: nothing is handed over with it; one that is missed is found
        // by the next.
        let owed = self.owed.load(Ordering::Relaxed) && self.owed.swap(false, Ordering::Relaxed);
        if !must && !owed {
            return Ok(());
        }
        match &self.tell {
            Tell::WakeWord => self.notify(),
            Tell::Signal { process, number, value } => {
                // Relaxed: a number for itself.
                self.system_calls.fetch_add(1, Ordering::Relaxed);
                process.queue_signal(*number, *value).map_err(|error| {
                    self.owed.store(true, Ordering::Relaxed);
                    RaiseError::Signal(error)
                })?;
            }
        }
        Ok(())
    }

    fn notify(&self) {
        if self.wake_line.wake_word().notify() {
            // Relaxed: a number for itself.
            self.system_calls.fetch_add(1, Ordering::Relaxed);
            futex::wake_shared(self.wake_line.wake_word().word(), 1);
        }
    }

    fn raises(&self) -> Result<MutexGuard<'_, Raises>, RaiseError> {
        if !here::is_executor() {
            return Ok(lock(&self.raises));
        }
        match self.raises.try_lock() {
            Ok(raises) => Ok(raises),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(RaiseError::Busy),
        }
    }

    fn failed(&self, fault: PeerFault) -> RaiseError {
        self.fate.set(Gone::Fault(fault));
        if let Some(caller) = &self.caller {
            caller.notify();
        }
        RaiseError::Gone(Gone::Fault(fault))
    }
}

/// Raises events towards one peer: the service of a [`Client`](super::Client), or a client of a
/// [`Service`](super::Service). Cheap to clone; for any thread, and for handlers.
#[derive(Clone)]
pub struct Raiser(pub(super) Arc<Out>);

impl std::fmt::Debug for Raiser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raiser").field("gone", &self.0.fate.gone()).finish()
    }
}

impl Raiser {
    /// Posts an event, and tells the taker if it has taken all that it was told of: a store to its bell, and
    /// a system call only if it sleeps or wants a signal. Never waits for the taker; allocates
    /// nothing.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn raise(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.0.raise(raise)
    }

    /// Posts an event and tells nobody: the taker finds it when it is next told, by [`Raiser::tell`] or a raise.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn post(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.0.put(raise, false)
    }

    /// Tells of all that was posted, if the taker must be told.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn tell(&self) -> Result<(), RaiseError> {
        self.0.tell_now()
    }

    /// System calls that it made to wake its taker, or to send it a signal.
    pub fn system_calls(&self) -> u64 {
        // Relaxed: a number for itself.
        self.0.system_calls.load(Ordering::Relaxed)
    }

    /// What has become of the other end; `None`: it is there, as far as is known. A load.
    pub fn gone(&self) -> Option<Gone> {
        self.0.fate.gone()
    }
}

/// What a thread that panicked left is as good as before.
pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_raiser_says_of_its_event_is_read_again() {
        let late = Span::from_micros(u64::from(u32::MAX));
        for (when, read) in [
            (When::Now, When::Now),
            (When::NextCrossing, When::NextCrossing),
            (When::BeforeScheduling, When::BeforeScheduling),
            (When::After(Span::from_nanos(1)), When::After(Span::from_micros(1))),
            (When::After(Span::MAX), When::After(late)),
        ] {
            let payload = Raise::row(3).words([1, 2, 3, 4, u64::MAX]).when(when).payload();
            let label = Label::of(&payload);
            assert_eq!((label.when, label.rank, label.desk), (Some(read), 3, 0));
            assert_eq!(payload[..5], [1, 2, 3, 4, u64::MAX]);
        }
        here::set_origin(here::Origin { desk: DESK_MAX, led_by: 5 });
        let label = Label::of(&Raise::row(70_000).rank(u16::MAX).payload());
        here::set_origin(here::Origin::default());
        assert_eq!((label.when, label.rank), (None, u64::from(u16::MAX)));
        assert_eq!((label.desk, label.led_by), (DESK_MAX, 5));
        // Anything can be read, and means something.
        assert_eq!(Label::of(&[u64::MAX; 7]).when, None);
    }

    #[test]
    fn the_first_to_say_what_has_become_of_a_peer_says_how() {
        let fate = Fate::default();
        assert_eq!(fate.gone(), None);
        let fault = PeerFault::Torn { page: "channel" };
        fate.set(Gone::Fault(fault));
        fate.set(Gone::Died);
        assert_eq!(fate.gone(), Some(Gone::Fault(fault)));
        let fate = Fate::default();
        fate.set(Gone::Ended);
        fate.set(Gone::Fault(fault));
        assert_eq!(fate.gone(), Some(Gone::Ended));
    }
}
