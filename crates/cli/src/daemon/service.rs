//! What a service manager is told: sd_notify(3). Without one, nothing.

use sd_notify::NotifyState;

/// The daemon listens; `status` is for people.
pub(super) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The daemon ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Blocks until the manager's socket has room.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("NOTIFY_SOCKET: the service manager was not told: {error}");
    }
}
