//! What an owner counts. A packet that is dropped is in one of these, but for one case: the
//! interface refuses a packet of a flow apart, whose frame went back already. It stays in `sent`.

use upcall_proto::queues::Counts;

/// The packets of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Handed to the program.
    pub received: u64,
    /// Dropped: the program had not taken those before it.
    pub receive_full: u64,
    /// Dropped: the checksum is wrong.
    pub checksum: u64,
    /// Sent to the device.
    pub sent: u64,
    /// Dropped: longer than a packet to this peer may be. The program is told.
    pub too_long: u64,
    /// Dropped: there is no way to the peer, or it does not answer. The program is told.
    pub unreachable: u64,
    /// Dropped: the interface refuses it.
    pub refused: u64,
    /// Its queue before the checks: what passed and what was dropped by its quota.
    pub queue: Counts,
}

/// Packets of no flow, and faults of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounts {
    /// Answered or taken note of by the host: ARP, discovery, ICMP, groups.
    pub control: u64,
    /// Dropped: more of them than a host answers.
    pub control_dropped: u64,
    /// Dropped: headers that are cut off or contradict each other.
    pub malformed: u64,
    /// Dropped: fragments. The owner does not put them together.
    pub fragments: u64,
    /// Dropped: for nobody here.
    pub not_for_us: u64,
    /// Flows that were closed because their program broke a queue.
    pub faults: u64,
    /// Frames that were not where the account has them. Always 0.
    pub account_errors: u64,
}
