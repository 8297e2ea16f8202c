//! What the processes of a cell count. Each prints one of these objects at its end.

use serde::{Deserialize, Serialize};

/// Of a receiver.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Received {
    /// Packets that it processed.
    pub packets: u64,
    /// Those that it had processed within a period of their sending.
    pub on_time: u64,
    /// From sending to the end of processing. Null without packets.
    pub delay_ns_p50: Option<u64>,
    pub delay_ns_p99: Option<u64>,
    /// Packets that waited in its socket at the end.
    pub left: u64,
    /// Packets that the kernel dropped because the socket was full.
    pub socket_drops: u64,
}

/// Of the background program.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Computed {
    pub iterations: u64,
}

/// Of a sender.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Sent {
    /// Packets that the kernel took.
    pub packets: u64,
}

/// Of the owner of the quotas.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Quotas {
    /// Whether drops happen in the driver, before the kernel allocates anything.
    pub native: bool,
    /// Packets beyond the quotas.
    pub dropped: u64,
}
