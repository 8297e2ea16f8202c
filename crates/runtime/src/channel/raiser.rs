//! The raising end of a channel: posts events into a segment, and notifies the taker if it must.
//!
//! Any thread of the process may use it, and handlers may, too. One thread raises at a time. An
//! ordinary thread waits until the other thread has raised. A scheduling thread never waits
//! ([`RaiseError::Busy`]), and neither does the thread of an I/O event service.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use upcall_core::events::Verdict;
use upcall_shm::PeerFault;
use upcall_shm::channel::wake_line::WakeLine;
use upcall_shm::channel::{Posted, SegmentError};
use upcall_sys::futex;
use upcall_sys::process::PidFd;

use super::errors::RaiseError;
use super::lock::lock;
use super::notifier::DispatcherNotifier;
use super::peer::{ExitState, Gone, PeerId};
use super::raise::Raise;
use super::segment::{Part, SegmentRaiser};
use super::thread_context;

/// How the taker wants to be notified.
#[derive(Debug)]
pub(super) enum Notification {
    /// By its wake word, which it polls or sleeps on.
    WakeWord,
    /// By a real-time signal with a value.
    Signal { process: PidFd, number: i32, value: i32 },
}

/// A handler that decides in the raiser's process, on the taker's behalf.
pub(super) type OnBehalf = dyn Fn(PeerId, &Raise) -> Verdict + Send + Sync;

/// One raising end, shared by its handle and by handlers that reply.
pub(super) struct RaisingEnd {
    pub(super) peer: PeerId,
    pub(super) raiser: Mutex<SegmentRaiser>,
    pub(super) wake_line: WakeLine<Part>,
    pub(super) notification: Notification,
    pub(super) exit: Arc<ExitState>,
    pub(super) on_behalf: Option<Arc<OnBehalf>>,
    pub(super) system_calls: AtomicU64,
    /// Sending a signal to the taker failed, and the next raise sends it.
    pub(super) signal_owed: AtomicBool,
    /// The dispatcher of this end, if there is one. It detaches a peer at fault.
    pub(super) own_dispatcher: Option<DispatcherNotifier>,
}

impl RaisingEnd {
    pub(super) fn raise(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.post(raise, true)
    }

    /// Posts an event. Notifies the taker if `notify` is set and the handler on its behalf passes
    /// the event.
    fn post(&self, raise: &Raise, notify: bool) -> Result<Posted, RaiseError> {
        if let Some(gone) = self.exit.gone() {
            return Err(RaiseError::Gone(gone));
        }
        let verdict =
            self.on_behalf.as_ref().map_or(Verdict::Pass, |decides| decides(self.peer, raise));
        if verdict == Verdict::Drop {
            return Err(RaiseError::Dropped);
        }
        let mut raiser = self.lock_raiser()?;
        let posted = raiser.post(raise.row, &raise.payload()).map_err(|error| match error {
            SegmentError::Peer(fault) => self.failed(fault),
            error => RaiseError::Post(error),
        })?;
        if notify && verdict == Verdict::Pass {
            self.notify(raiser)?;
        }
        Ok(posted)
    }

    /// Notifies the taker of all posted events if it must. Releases the lock first: the taker may
    /// reply at once, and an executor would fail to raise if the lock were held.
    fn notify(&self, mut raiser: MutexGuard<'_, SegmentRaiser>) -> Result<(), RaiseError> {
        let must = raiser.must_notify().map_err(|fault| self.failed(fault))?;
        drop(raiser);
        // Relaxed, here and below: the flag orders no other data. If a raise misses the flag, the
        // next raise sends the signal.
        let owed = self.signal_owed.load(Ordering::Relaxed)
            && self.signal_owed.swap(false, Ordering::Relaxed);
        if !must && !owed {
            return Ok(());
        }
        match &self.notification {
            Notification::WakeWord => self.notify_wake_word(),
            Notification::Signal { process, number, value } => {
                // Relaxed: the counter orders nothing else.
                self.system_calls.fetch_add(1, Ordering::Relaxed);
                process.queue_signal(*number, *value).map_err(|error| {
                    self.signal_owed.store(true, Ordering::Relaxed);
                    RaiseError::Signal(error)
                })?;
            }
        }
        Ok(())
    }

    fn notify_wake_word(&self) {
        if self.wake_line.wake_word().notify() {
            // Relaxed: the counter orders nothing else.
            self.system_calls.fetch_add(1, Ordering::Relaxed);
            futex::wake_shared(self.wake_line.wake_word().word(), 1);
        }
    }

    fn lock_raiser(&self) -> Result<MutexGuard<'_, SegmentRaiser>, RaiseError> {
        if !thread_context::waits_for_none() {
            return Ok(lock(&self.raiser));
        }
        match self.raiser.try_lock() {
            Ok(raiser) => Ok(raiser),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(RaiseError::Busy),
        }
    }

    fn failed(&self, fault: PeerFault) -> RaiseError {
        self.exit.set(Gone::Fault(fault));
        if let Some(own_dispatcher) = &self.own_dispatcher {
            own_dispatcher.notify();
        }
        RaiseError::Gone(Gone::Fault(fault))
    }
}

/// Raises events towards one peer: the service of a [`Client`](super::Client), or a client of a
/// [`Service`](super::Service). Cheap to clone. Any thread and any handler may use it.
#[derive(Clone)]
pub struct Raiser(pub(super) Arc<RaisingEnd>);

impl std::fmt::Debug for Raiser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Raiser").field("gone", &self.0.exit.gone()).finish()
    }
}

impl Raiser {
    /// Posts an event. Notifies the taker if it has taken all earlier events: by a store to its
    /// wake word, and by a system call only if it sleeps or wants a signal. Never waits for the
    /// taker, and does not allocate.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn raise(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.0.raise(raise)
    }

    /// Posts an event without notifying. The taker finds the event after the next
    /// [`Raiser::notify`] or raise.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn post(&self, raise: &Raise) -> Result<Posted, RaiseError> {
        self.0.post(raise, false)
    }

    /// Notifies the taker of all posted events, if it must be notified.
    ///
    /// # Errors
    /// See [`RaiseError`].
    pub fn notify(&self) -> Result<(), RaiseError> {
        let raiser = self.0.lock_raiser()?;
        self.0.notify(raiser)
    }

    /// How many system calls this end made to wake its taker, or to send it a signal.
    pub fn system_calls(&self) -> u64 {
        // Relaxed: the counter orders nothing else.
        self.0.system_calls.load(Ordering::Relaxed)
    }

    /// How the other end went. `None` while the other end seems to be there. A load.
    pub fn gone(&self) -> Option<Gone> {
        self.0.exit.gone()
    }
}
