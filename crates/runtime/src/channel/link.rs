//! This process's end of a channel, as its dispatcher holds it: one per peer.

use std::sync::Arc;

use upcall_core::events::{ROUTE_MAX, SourceId};
use upcall_shm::channel::wake_line::WakeLine;
use upcall_sys::local::Connection;

use super::peer::{Gone, PeerId};
use super::raiser::RaisingEnd;
use super::segment::{Part, SegmentTaker};

/// See the module's head.
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) taker: SegmentTaker,
    pub(super) wake_line: WakeLine<Part>,
    pub(super) raising_end: Arc<RaisingEnd>,
    /// Whether the peer is in this process. The dispatcher trusts only such a peer to say which
    /// handlers led to its events.
    pub(super) is_local: bool,
    pub(super) connection: Arc<Connection>,
    pub(super) state: LinkState,
}

/// The dispatcher's own state of a link.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    /// The slot of the registrant.
    pub(super) slot: usize,
    pub(super) source: Option<SourceId>,
    /// The peer has notified.
    pub(super) notified: bool,
    /// The segment may hold more events. The wake word is not read until they are taken.
    pub(super) more_to_take: bool,
    /// How many notifications in a row came without an event.
    pub(super) empty_notifications: u32,
    pub(super) gone: Option<Gone>,
    /// How many of the peer's events are pending.
    pub(super) pending: u32,
    /// The newest event at each handler of the route.
    pub(super) newest: [Option<u64>; ROUTE_MAX],
}
