//! Packet quotas: how many packets a destination of this machine may get.
//!
//! `upcall exec --receive` uses it for programs that nobody changed. A daemon drops packets beyond
//! a quota in the driver of its interfaces, before any protocol work, so that a flood to one
//! destination costs others little (docs/decisions/0024-network.md).

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use upcall_core::time::{Instant, Span};
use upcall_proto::quota::Quota;
use upcall_shm::wire::{
    self, PacketDestination, PacketQuotaReply, PacketQuotaRequest, ToDaemon, ToDomain,
};
use upcall_sys::local::Connection;

pub use upcall_shm::wire::{PacketCounts, PacketQuotaCause};

use crate::clock;
use crate::daemon_fault::DaemonFault;
use crate::status::{StatusError, ask, connect, next_message};

/// How long the daemon, an ordinary thread, may take for an answer.
const ANSWER_WITHIN: Span = Span::from_secs(10);
/// The part by which a quota exceeds the rate of its receiver: for clocks that run faster than this
/// machine's, and for packets that nobody asked for (proportional-share-1998 §4.4).
const INFLATION_PPM: u32 = 100_000;
/// For how long packets of the rate may wait together: the period of protocol processing in
/// proportional-share-1998 §5.
const TOGETHER: Span = Span::from_millis(10);
/// Packets that may come ahead of the rate, beside those that may wait together
/// (proportional-share-1998 §5: "1 or 2 additional packets to buffer short bursts").
const BURST_DEFAULT: u32 = 2;
/// The shortest time between two packets of a receiver.
pub const RECEIVE_PERIOD_MIN: Span = Span::from_nanos(100);
/// The longest.
pub const RECEIVE_PERIOD_MAX: Span = Span::from_secs(3600);

/// Where UDP packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UdpDestination {
    /// The address. `None`: any address of the machine.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

/// What a receiver can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveNeed {
    /// Where its packets go.
    pub destination: UdpDestination,
    /// The time between two packets, from [`RECEIVE_PERIOD_MIN`] to
    /// [`RECEIVE_PERIOD_MAX`].
    pub period: Span,
    /// Packets that may come ahead of the rate. `None`: 2.
    pub burst: Option<u32>,
}

/// A quota as it was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantedPacketQuota {
    /// Time between the eligible times of two packets.
    pub interval: Span,
    /// How many packets may be ahead of their eligible times.
    pub depth: u32,
    /// Where packets are dropped, a line for each interface, with a warning where a flood takes the
    /// time of a CPU that the daemon schedules.
    pub places: Vec<String>,
}

/// A connection to a daemon for packet quotas. Its quotas hold until it is dropped, or this process
/// ends.
#[derive(Debug)]
pub struct PacketQuotaConnection {
    connection: Connection,
}

/// Why there is no quota, or no count.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketQuotaError {
    /// The daemon refused. Nothing was changed.
    Refused {
        /// The cause.
        cause: PacketQuotaCause,
        /// The cause, and what would help, in one line.
        reason: String,
    },
    /// The daemon did not answer as it must.
    Daemon(StatusError),
}

impl fmt::Display for PacketQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PacketQuotaError::Refused { reason, .. } => f.write_str(reason),
            PacketQuotaError::Daemon(error) => error.fmt(f),
        }
    }
}

upcall_core::debug_as_display!(PacketQuotaError);

impl std::error::Error for PacketQuotaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PacketQuotaError::Refused { .. } => None,
            PacketQuotaError::Daemon(error) => Some(error),
        }
    }
}

impl From<StatusError> for PacketQuotaError {
    fn from(error: StatusError) -> Self {
        PacketQuotaError::Daemon(error)
    }
}

impl fmt::Display for UdpDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        wire_destination(*self).fmt(f)
    }
}

impl PacketQuotaConnection {
    /// Connects to the daemon at `socket`. Blocks while too many connections wait for it, at most
    /// 10 s; allocates.
    ///
    /// # Errors
    /// [`StatusError::Connect`].
    pub fn open(socket: &Path) -> Result<Self, StatusError> {
        let connection = connect(socket, clock::now() + ANSWER_WITHIN)?;
        Ok(PacketQuotaConnection { connection })
    }

    /// Limits the packets of a destination to what its receiver can take: one packet in each period
    /// and 10 % more, and ahead of that as many as come in 10 ms, and the burst. `pid` and `name`
    /// are the receiver's, for display. Blocks until the daemon answers, at most 10 s; allocates.
    /// So does the call below.
    ///
    /// # Errors
    /// See [`PacketQuotaError`].
    pub fn limit(
        &self,
        need: &ReceiveNeed,
        pid: u32,
        name: &str,
    ) -> Result<GrantedPacketQuota, PacketQuotaError> {
        let quota = quota_of(need);
        let request = PacketQuotaRequest::Set { quota, pid, name: name.to_owned() };
        match self.ask(request)? {
            PacketQuotaReply::Granted { places } => Ok(GrantedPacketQuota {
                interval: Span::from_nanos(quota.interval_ns),
                depth: quota.depth,
                places: places.lines().map(str::to_owned).collect(),
            }),
            other => Err(out_of_place(other)),
        }
    }

    /// Whether the daemon still keeps the quotas. Does not block; allocates.
    pub fn is_kept(&self) -> bool {
        // The daemon sends nothing unasked, so a message is a fault, and an end is one.
        matches!(next_message(&self.connection, Instant::from_nanos(0)), Err(StatusError::Silent))
    }

    /// What the quota of a destination let pass and dropped so far.
    ///
    /// # Errors
    /// See [`PacketQuotaError`].
    pub fn counts(&self, destination: UdpDestination) -> Result<PacketCounts, PacketQuotaError> {
        let destination = wire_destination(destination);
        match self.ask(PacketQuotaRequest::Count { destination })? {
            PacketQuotaReply::Counted(counts) => Ok(counts),
            other => Err(out_of_place(other)),
        }
    }

    /// Sends a request, and returns the reply. A refusal is an error.
    fn ask(&self, request: PacketQuotaRequest) -> Result<PacketQuotaReply, PacketQuotaError> {
        let until = clock::now() + ANSWER_WITHIN;
        match ask(&self.connection, &ToDaemon::PacketQuota(request), until)? {
            ToDomain::PacketQuota(PacketQuotaReply::Refused { cause, reason }) => {
                Err(PacketQuotaError::Refused { cause, reason })
            }
            ToDomain::PacketQuota(reply) => Ok(reply),
            other => Err(StatusError::from(DaemonFault::out_of_place(other)).into()),
        }
    }
}

fn out_of_place(reply: PacketQuotaReply) -> PacketQuotaError {
    StatusError::from(DaemonFault::out_of_place(ToDomain::PacketQuota(reply))).into()
}

/// The time between the eligible times of two packets for a receiver that takes one in each
/// `period`, and how many may be ahead of them: as many as come in 10 ms, and `burst` (`None`: 2).
/// The rate is a tenth higher than the receiver's (proportional-share-1998 §4.4 and §4.5).
pub fn limit_of(period: Span, burst: Option<u32>) -> (Span, u32) {
    let period = period.max(RECEIVE_PERIOD_MIN).min(RECEIVE_PERIOD_MAX);
    let burst = burst.unwrap_or(BURST_DEFAULT);
    let quota = Quota::of_receiver(period, INFLATION_PPM, burst, TOGETHER);
    (Span::from_nanos(quota.interval_ns), quota.depth)
}

fn quota_of(need: &ReceiveNeed) -> wire::PacketQuota {
    let (interval, depth) = limit_of(need.period, need.burst);
    let destination = wire_destination(need.destination);
    wire::PacketQuota { destination, interval_ns: interval.as_nanos(), depth }
}

fn wire_destination(destination: UdpDestination) -> PacketDestination {
    let address = match destination.address {
        None => [0; 16],
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(address)) => address.octets(),
    };
    PacketDestination { address, protocol: PacketDestination::UDP, port: destination.port }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(per_second: u64, burst: Option<u32>) -> ReceiveNeed {
        let destination = UdpDestination { address: None, port: 5004 };
        ReceiveNeed { destination, period: Span::from_nanos(1_000_000_000 / per_second), burst }
    }

    /// The queues of the paper have 2, 2 and 3 entries for these receivers, with 1 or 2 entries for
    /// bursts among them.
    #[test]
    fn the_depth_is_what_comes_in_10_ms_and_the_burst() {
        let of = |rate, burst| quota_of(&need(rate, burst)).depth;
        assert_eq!([of(50, Some(1)), of(90, Some(1)), of(200, Some(1))], [2, 2, 3]);
        assert_eq!([of(50, None), of(90, None), of(200, None)], [3, 3, 4]);
    }

    #[test]
    fn the_interval_is_a_tenth_shorter_than_the_period() {
        assert_eq!(quota_of(&need(90, None)).interval_ns, 10_101_010);
        let shortest = ReceiveNeed { period: Span::ZERO, ..need(90, None) };
        assert_eq!(quota_of(&shortest).interval_ns, 90);
    }

    #[test]
    fn a_destination_names_an_ipv4_address_in_its_mapped_form() {
        let at = |text: &str| UdpDestination { address: Some(text.parse().unwrap()), port: 5004 };
        let mapped = wire_destination(at("10.0.0.2"));
        assert_eq!(mapped.address[10..], [0xff, 0xff, 10, 0, 0, 2]);
        assert_eq!((mapped.protocol, mapped.port), (17, 5004));
        assert_eq!(wire_destination(at("::1")).address[15], 1);
        assert_eq!(at("10.0.0.2").to_string(), "udp:10.0.0.2:5004");
        assert_eq!(at("fe80::1").to_string(), "udp:[fe80::1]:5004");
        assert_eq!(need(1, None).destination.to_string(), "udp:5004");
    }
}
