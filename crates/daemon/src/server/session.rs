//! Connections, and what each of them is: an inspector's, or a domain's.
//!
//! Plain data of the server's thread.

use core::fmt;
use core::num::NonZeroU64;
use std::sync::Arc;

use upcall_shm::DomainId;
use upcall_sys::local::{Connection, Credentials};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::PidFd;
use upcall_sys::readiness::Watch;

use crate::group::{DomainGroup, Member};
use crate::status::StatusReply;

/// A connection.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) credentials: Credentials,
    pub(super) process: PidFd,
    pub(super) connection_watch: Watch,
    pub(super) _process_watch: Watch,
    pub(super) domain: Option<Attached>,
    /// It asked how things stand.
    pub(super) status_reply: Option<StatusReply>,
}

/// A connection that is a domain.
pub(super) struct Attached {
    pub(super) number: DomainId,
    pub(super) generation: NonZeroU64,
    pub(super) virtual_processors: Vec<VirtualProcessor>,
}

/// A domain on a CPU.
pub(super) struct VirtualProcessor {
    pub(super) group: Arc<DomainGroup>,
    /// Its area, until its thread is there.
    pub(super) memory: Option<SharedMapping>,
    /// From its thread on.
    pub(super) member: Option<Arc<Member>>,
}

/// What ends a session, in a few words.
pub(super) struct SessionEnd(pub(super) String);

impl<E: fmt::Display> From<E> for SessionEnd {
    fn from(error: E) -> Self {
        SessionEnd(error.to_string())
    }
}

impl Session {
    /// Why it is over, where its connection closed or its process ended, and no
    /// [`ToDaemon::Detach`] came before.
    pub(super) fn closed(&self) -> SessionEnd {
        SessionEnd(match self.process.has_exited() {
            Ok(true) => "its process ended before it detached".to_owned(),
            // A process that is just dying closes its descriptors first.
            _ => "its connection closed before it detached".to_owned(),
        })
    }
}
