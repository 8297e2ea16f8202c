//! One peer of a dispatcher: its channel's end here.

use std::sync::Arc;

use upcall_core::events::{ROUTE_MAX, SourceId};
use upcall_shm::channel::bell::Bell;
use upcall_sys::local::Connection;

use super::peer::{Gone, PeerId};
use super::raiser::Out;
use super::segment::{Part, Takes};

/// One peer: its channel's end here.
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) takes: Takes,
    pub(super) bell: Bell<Part>,
    pub(super) out: Arc<Out>,
    /// Whether it is of this process: what it says of handlers is believed.
    pub(super) is_local: bool,
    pub(super) connection: Arc<Connection>,
    pub(super) at: Place,
}

/// What a desk knows of a link.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) party: usize,
    pub(super) source: Option<SourceId>,
    /// Its bell was rung.
    pub(super) rung: bool,
    /// There may be more that it was told of: its bell says nothing until it was looked at.
    pub(super) unfinished: bool,
    /// Rings for nothing, in a row.
    pub(super) idle: u32,
    pub(super) gone: Option<Gone>,
    /// Notes of its events.
    pub(super) notes: u32,
    /// The last that came to each handler of the route.
    pub(super) newest: [Option<u64>; ROUTE_MAX],
}
