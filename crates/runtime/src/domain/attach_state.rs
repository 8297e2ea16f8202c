//! The state that the program's end of a domain shares with the listener.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use upcall_shm::wire::Need;
use upcall_sys::local::Connection;

use crate::rights::Notice;

/// See the module's head. Never locked for longer than sending a message takes.
#[derive(Debug, Default)]
pub(super) struct AttachState {
    /// `None`: the domain is an orphan.
    pub(super) connection: Option<Arc<Connection>>,
    /// Counts attempts to attach. An attempt claims only the activities that were noted before it
    /// began.
    pub(super) attempts: u64,
    /// The activities that the next attempt claims, by their places.
    pub(super) admitted: BTreeMap<u32, AdmittedActivity>,
    /// The shares of the event servers that the next attempt claims, in millionths, by CPU.
    pub(super) events: BTreeMap<u32, u32>,
    /// The thread of each CPU.
    pub(super) threads: BTreeMap<u32, u32>,
    pub(super) notices: Vec<Notice>,
}

/// An activity as it was admitted.
#[derive(Clone, Debug)]
pub(super) struct AdmittedActivity {
    pub(super) cpu: u32,
    pub(super) unscreened: bool,
    pub(super) need: Need,
    pub(super) name: String,
}

/// A poisoned lock is ignored: the state stays valid across panics.
pub(super) fn lock(state: &Mutex<AttachState>) -> MutexGuard<'_, AttachState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
