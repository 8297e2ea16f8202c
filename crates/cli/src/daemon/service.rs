//! Messages to a service manager: sd_notify(3). No effect without a service manager.

use sd_notify::NotifyState;

/// Reports that the daemon listens; `status` is for people.
pub(super) fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that the daemon ends.
pub(super) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Blocks while the manager's socket is full.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("NOTIFY_SOCKET: the service manager was not notified: {error}");
    }
}
