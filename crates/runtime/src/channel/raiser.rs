//! The end that raises: posts into its segment, and tells the taker if it must.
//!
//! Used from any thread of the process; by handlers, too. One raises at a time: an ordinary thread
//! waits for the other, a scheduling thread never does ([`RaiseError::Busy`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use upcall_core::events::Verdict;
use upcall_shm::PeerFault;
use upcall_shm::channel::bell::Bell;
use upcall_shm::channel::{Posted, SegmentError};
use upcall_sys::futex;
use upcall_sys::process::PidFd;

use super::errors::RaiseError;
use super::lock::lock;
use super::notifier::Caller;
use super::peer::{Fate, Gone, PeerId};
use super::raise::Raise;
use super::segment::{Part, Raises};
use super::thread_context as here;

/// How the taker wants to be told.
#[derive(Debug)]
pub(super) enum Tell {
    /// Its bell: it looks there, or sleeps on it.
    Bell,
    /// A real-time signal with a value.
    Signal { process: PidFd, number: i32, value: i32 },
}

/// What decides in the raiser's process, on the taker's behalf.
pub(super) type Behalf = dyn Fn(PeerId, &Raise) -> Verdict + Send + Sync;

/// One raising end. Used by its handle, and by handlers that answer.
pub(super) struct Out {
    pub(super) peer: PeerId,
    pub(super) raises: Mutex<Raises>,
    pub(super) bell: Bell<Part>,
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
        let must = raises.must_tell().map_err(|fault| self.failed(fault))?;
        drop(raises);
        // Relaxed, here and below: nothing is handed over with it; one that is missed is found
        // by the next.
        let owed = self.owed.load(Ordering::Relaxed) && self.owed.swap(false, Ordering::Relaxed);
        if !must && !owed {
            return Ok(());
        }
        match &self.tell {
            Tell::Bell => self.ring(),
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

    fn ring(&self) {
        if self.bell.ring() {
            // Relaxed: a number for itself.
            self.system_calls.fetch_add(1, Ordering::Relaxed);
            futex::wake_shared(self.bell.word(), 1);
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
            caller.ring();
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
