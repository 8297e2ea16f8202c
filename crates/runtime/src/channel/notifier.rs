//! How other threads notify the thread that serves a dispatcher.

use std::sync::Arc;

use crate::mailbox::Shared;
use crate::notify::Notifier;

/// Notifies the thread that serves a dispatcher: an executor, or a handler thread.
#[derive(Clone, Debug)]
pub(crate) enum DispatcherNotifier {
    Executor(Arc<Shared>),
    Thread(Arc<Notifier>),
}

impl DispatcherNotifier {
    /// Asks the dispatcher to take requests, and to look which peers are gone.
    pub(super) fn notify(&self) {
        match self {
            DispatcherNotifier::Executor(shared) => shared.notifier.notify(),
            DispatcherNotifier::Thread(notifier) => notifier.notify(),
        }
    }
}
