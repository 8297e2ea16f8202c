//! Connections and their kinds: inspectors, domains, and clients with a program, packet quotas or a
//! flow.
//!
//! Plain data of the server's thread.

use core::fmt;
use core::num::NonZeroU64;
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_runtime::net::{FlowOffer, FlowTerms};
use upcall_shm::DomainId;
use upcall_sys::local::{Connection, Credentials};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::PidFd;
use upcall_sys::readiness::Watch;

use super::raised_member::RaisedMember;
use crate::group::DomainGroup;
use crate::member_thread::MemberProcess;
use crate::status::StatusReply;

/// A connection and the process at its other end.
pub(super) struct Session {
    pub(super) connection: Connection,
    pub(super) credentials: Credentials,
    pub(super) process: Arc<PidFd>,
    pub(super) connection_watch: Watch,
    pub(super) _process_watch: Watch,
    pub(super) domain: Option<Attached>,
    /// The program whose share ends with this connection.
    pub(super) program: Option<u64>,
    /// Whether packet quotas end with this connection.
    pub(super) has_packet_quotas: bool,
    /// The flow whose memory the program has not taken yet. It keeps no place.
    pub(super) offered_flow: Option<OfferedFlow>,
    /// Whether a flow ends with this connection.
    pub(super) has_flow: bool,
    /// The reply to an inspector that is being sent.
    pub(super) status_reply: Option<StatusReply>,
    /// When its last message came, or its connection.
    pub(super) heard_at: Instant,
    /// Whether its process has ended. Its last messages are still read.
    pub(super) has_exited: bool,
}

/// A flow whose program has its memory and has not taken it yet.
pub(super) struct OfferedFlow {
    pub(super) interface: String,
    pub(super) terms: FlowTerms,
    pub(super) offer: FlowOffer,
}

/// The domain of a session.
pub(super) struct Attached {
    pub(super) number: DomainId,
    pub(super) generation: NonZeroU64,
    pub(super) process: Arc<MemberProcess>,
    pub(super) virtual_processors: Vec<VirtualProcessor>,
}

/// A domain on a CPU.
pub(super) struct VirtualProcessor {
    pub(super) group: Arc<DomainGroup>,
    /// The user area, until the domain's thread is attached.
    pub(super) memory: Option<SharedMapping>,
    /// The member of the group, once the domain's thread is attached.
    pub(super) member: Option<RaisedMember>,
}

/// Why a session ends, in a few words.
pub(super) struct SessionEnd(pub(super) String);

impl<E: fmt::Display> From<E> for SessionEnd {
    fn from(error: E) -> Self {
        SessionEnd(error.to_string())
    }
}

impl Session {
    /// Whether it keeps a place as long as it lasts. Others end when they send nothing.
    pub(super) fn keeps_a_place(&self) -> bool {
        self.domain.is_some() || self.program.is_some() || self.has_packet_quotas || self.has_flow
    }

    /// Why the session ended, after its connection closed or its process ended without
    /// [`ToDaemon::Detach`].
    ///
    /// [`ToDaemon::Detach`]: upcall_shm::wire::ToDaemon::Detach
    pub(super) fn closed(&self) -> SessionEnd {
        SessionEnd(match self.process.has_exited() {
            Ok(true) => "its process ended before it detached".to_owned(),
            // A dying process closes its descriptors before it counts as exited.
            _ => "its connection closed before it detached".to_owned(),
        })
    }
}
