//! How the thread that serves a dispatcher is notified.

use std::sync::Arc;

use crate::doorbell::Doorbell;
use crate::executor::Shared;

/// How who serves a desk is called.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    Executor(Arc<Shared>),
    Thread(Arc<Doorbell>),
}

impl Caller {
    /// Has it look at its lines, and at what has become of its peers.
    pub(super) fn ring(&self) {
        match self {
            Caller::Executor(shared) => shared.doorbell.ring(),
            Caller::Thread(doorbell) => doorbell.ring(),
        }
    }
}
