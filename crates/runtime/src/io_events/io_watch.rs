//! A descriptor that an I/O event service watches.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use upcall_sys::OsError;
use upcall_sys::readiness::Watch;

use super::ready_table::{Changes, lock};
use super::target::IoTarget;
use super::urgency::{Urgency, UrgencyRaiser};

/// A descriptor of an [`IoEventService`](super::IoEventService), until this value is dropped.
///
/// The watch is armed at first. Once its descriptor is ready, it sends one event. It sends the next
/// one after it was armed again, at once if the descriptor is still ready. So data that the taker
/// leaves is not lost, and a descriptor that is ready all the time costs no more than its taker
/// asks for. An event may be spurious, so the descriptor should be non-blocking. The watch has a
/// duplicate of the descriptor, which the program may close. The file stays open until the watch is
/// dropped: the other side of a socket or pipe finds the end only then.
#[must_use = "the descriptor is watched only until this is dropped"]
pub struct IoWatch {
    pub(super) watch: Watch,
    pub(super) number: u64,
    pub(super) changes: Arc<Mutex<Changes>>,
    pub(super) urgency: UrgencyRaiser,
    pub(super) sent: Arc<AtomicU64>,
    /// The service's thread has it only while it sends an event.
    pub(super) _target: Arc<IoTarget>,
}

impl fmt::Debug for IoWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoWatch").field("number", &self.number).finish_non_exhaustive()
    }
}

impl IoWatch {
    /// Asks for the next event, of the same urgency. One system call. Does not block or allocate,
    /// so handlers may call it.
    ///
    /// # Errors
    /// The kernel has no memory (`ENOMEM`).
    pub fn arm(&self) -> Result<(), OsError> {
        self.watch.arm()
    }

    /// Asks for the next event, with this urgency: a player calls it with each next frame, after it
    /// has shown one. As [`IoWatch::arm`] otherwise. If an event waits for its slot at this moment,
    /// the new urgency counts for it.
    ///
    /// # Errors
    /// As [`IoWatch::arm`]. The urgency counts nevertheless.
    pub fn arm_as(&mut self, urgency: Urgency) -> Result<(), OsError> {
        self.urgency.state(urgency);
        self.watch.arm()
    }

    /// How many events the target got.
    pub fn sent(&self) -> u64 {
        // Acquire pairs with the Release of the service's thread: what the target does with an
        // event that is counted happens after the event.
        self.sent.load(Ordering::Acquire)
    }
}

impl Drop for IoWatch {
    /// Waits for other threads that add or drop watches, but not for the service's thread. An event
    /// that the thread is sending still comes.
    fn drop(&mut self) {
        let entry = lock(&self.changes).remove(self.number);
        drop(entry); // without the lock
    }
}
