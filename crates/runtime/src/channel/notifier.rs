//! How other threads notify the thread that serves a dispatcher.

use std::sync::Arc;

use crate::doorbell::Doorbell;
use crate::executor::Shared;

/// Notifies the thread that serves a dispatcher: an executor, or a handler thread.
#[derive(Clone, Debug)]
pub(crate) enum DispatcherNotifier {
    Executor(Arc<Shared>),
    Thread(Arc<Doorbell>),
}

impl DispatcherNotifier {
    /// Asks the dispatcher to take requests, and to look which peers are gone.
    pub(super) fn notify(&self) {
        match self {
            DispatcherNotifier::Executor(shared) => shared.doorbell.ring(),
            DispatcherNotifier::Thread(doorbell) => doorbell.ring(),
        }
    }
}
