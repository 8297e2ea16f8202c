//! The messages about packet quotas: how many packets a destination may get.
//!
//! ```text
//!   client (no domain)                            daemon
//!   Set             ------------------------->    (limits the destination on its interfaces)
//!                   <-------------------------    Granted, or Refused
//!   Count           ------------------------->
//!                   <-------------------------    Counted, or Refused
//! ```
//!
//! A quota holds until the connection of its Set closes. Each destination has one quota at most.

use core::fmt;
use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddr};

use super::frame::{WireError, encode, narrow};

/// The first kind of these messages, in both directions.
const SET: u32 = 64;
const COUNT: u32 = 65;
/// The kinds of the requests.
pub(super) const REQUESTS: core::ops::RangeInclusive<u32> = SET..=COUNT;

const GRANTED: u32 = 64;
const REFUSED: u32 = 65;
const COUNTED: u32 = 66;
/// The kinds of the replies.
pub(super) const REPLIES: core::ops::RangeInclusive<u32> = GRANTED..=COUNTED;

/// Where packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PacketDestination {
    /// An IPv6 address, or an IPv4 address in its mapped form (RFC 4291, section 2.5.5.2). Zeros:
    /// any address.
    pub address: [u8; 16],
    /// The protocol of IP: 17 is UDP, 6 is TCP.
    pub protocol: u8,
    /// The port.
    pub port: u16,
}

/// How many packets a destination may get (docs/decisions/0024-network.md, section 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketQuota {
    /// The destination.
    pub destination: PacketDestination,
    /// Time between the eligible times of two packets, at least 1.
    pub interval_ns: u64,
    /// How many packets may be ahead of their eligible times, at least 1.
    pub depth: u32,
}

/// A request about packet quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketQuotaRequest {
    /// Asks for a quota, as long as this connection is open.
    Set {
        /// The quota.
        quota: PacketQuota,
        /// The process of its program, for display.
        pid: u32,
        /// The name of its program, for display.
        name: String,
    },
    /// Asks for the counts of a quota of this connection.
    Count {
        /// Its destination.
        destination: PacketDestination,
    },
}

/// Why there is no quota, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum PacketQuotaCause {
    /// The user may not ask.
    NoRight = 1,
    /// The daemon has no interface for quotas.
    NoInterface = 2,
    /// An interface refused the program that drops packets.
    Interface = 3,
    /// The destination has a quota already.
    Taken = 4,
    /// A limit of the daemon is reached.
    Limit = 5,
    /// A number is out of its range.
    Terms = 6,
    /// The caller is in another network namespace.
    OtherNamespace = 7,
    /// The connection has no quota for the destination.
    Unknown = 8,
}

/// What a quota let pass and dropped so far, on all interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets that passed.
    pub passed: u64,
    /// Packets that were dropped.
    pub dropped: u64,
}

/// A reply about packet quotas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PacketQuotaReply {
    /// The quota holds.
    Granted {
        /// Where packets are dropped, a line for each interface.
        places: String,
    },
    /// There is no quota, or no count.
    Refused {
        /// The cause.
        cause: PacketQuotaCause,
        /// The cause, and what would help, in one line.
        reason: String,
    },
    /// The counts.
    Counted(PacketCounts),
}

/// The state of a quota on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketQuotaStatus {
    /// The quota.
    pub quota: PacketQuota,
    /// What it let pass and dropped on this interface.
    pub counts: PacketCounts,
    /// The process of its program, as its user stated.
    pub pid: u32,
    /// When the daemon read the counts (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// The name of the interface.
    pub interface: String,
    /// The name of the program, as its user stated.
    pub name: String,
}

impl PacketDestination {
    /// Stands for all destinations without a quota of their own.
    pub const OTHERS: PacketDestination =
        PacketDestination { address: [0; 16], protocol: 0, port: 0 };
    /// UDP in [`PacketDestination::protocol`].
    pub const UDP: u8 = 17;
}

/// For people: `udp:5004`, `udp:10.0.0.2:5004`, `udp:[::1]:5004`, `others`.
impl fmt::Display for PacketDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == PacketDestination::OTHERS {
            return f.write_str("others");
        }
        match self.protocol {
            PacketDestination::UDP => f.write_str("udp:")?,
            protocol => write!(f, "protocol-{protocol}:")?,
        }
        match Ipv6Addr::from(self.address) {
            Ipv6Addr::UNSPECIFIED => write!(f, "{}", self.port),
            address => SocketAddr::new(address.to_canonical(), self.port).fmt(f),
        }
    }
}

impl PacketDestination {
    const WORDS: usize = 3;

    fn words(&self) -> [u64; PacketDestination::WORDS] {
        let address = u128::from_be_bytes(self.address);
        let high = u64::try_from(address >> 64).unwrap_or(0);
        let low = u64::try_from(address & u128::from(u64::MAX)).unwrap_or(0);
        [high, low, u64::from(self.protocol) << 16 | u64::from(self.port)]
    }

    fn of(words: &[u64], content: WireError) -> Result<Self, WireError> {
        let &[high, low, rest] = words else { return Err(content) };
        let port = u16::try_from(rest & 0xffff).map_err(|_| content)?;
        let protocol = u8::try_from(rest >> 16).map_err(|_| content)?;
        let address = u128::from(high) << 64 | u128::from(low);
        Ok(PacketDestination { address: address.to_be_bytes(), protocol, port })
    }
}

impl PacketQuota {
    const WORDS: usize = PacketDestination::WORDS + 2;

    fn words(&self) -> [u64; PacketQuota::WORDS] {
        let [high, low, rest] = self.destination.words();
        [high, low, rest, self.interval_ns, u64::from(self.depth)]
    }

    fn of(words: &[u64], content: WireError) -> Result<Self, WireError> {
        let &[ref destination @ .., interval_ns, depth] = words else { return Err(content) };
        let destination = PacketDestination::of(destination, content)?;
        Ok(PacketQuota { destination, interval_ns, depth: narrow(depth, content)? })
    }
}

impl PacketQuotaRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            PacketQuotaRequest::Set { quota, pid, name } => {
                let mut words = quota.words().to_vec();
                words.push(u64::from(*pid));
                encode(SET, &words, &[name])
            }
            PacketQuotaRequest::Count { destination } => encode(COUNT, &destination.words(), &[]),
        }
    }

    pub(super) fn decode(
        kind: u32,
        words: &[u64],
        texts: &mut VecDeque<String>,
    ) -> Result<Self, WireError> {
        let content = WireError::Content { kind };
        match (kind, words) {
            (SET, &[ref quota @ .., pid]) => Ok(PacketQuotaRequest::Set {
                quota: PacketQuota::of(quota, content)?,
                pid: narrow(pid, content)?,
                name: texts.pop_front().ok_or(content)?,
            }),
            (COUNT, words) => {
                let destination = PacketDestination::of(words, content)?;
                Ok(PacketQuotaRequest::Count { destination })
            }
            _ => Err(content),
        }
    }
}

impl PacketQuotaCause {
    /// All causes.
    pub const ALL: [PacketQuotaCause; 8] = [
        PacketQuotaCause::NoRight,
        PacketQuotaCause::NoInterface,
        PacketQuotaCause::Interface,
        PacketQuotaCause::Taken,
        PacketQuotaCause::Limit,
        PacketQuotaCause::Terms,
        PacketQuotaCause::OtherNamespace,
        PacketQuotaCause::Unknown,
    ];

    /// The cause with this number in a message; `None`: there is none.
    pub fn of_number(number: u32) -> Option<Self> {
        PacketQuotaCause::ALL.into_iter().find(|&cause| cause as u32 == number)
    }
}

impl PacketQuotaReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            PacketQuotaReply::Granted { places } => encode(GRANTED, &[], &[places]),
            PacketQuotaReply::Refused { cause, reason } => {
                encode(REFUSED, &[u64::from(*cause as u32)], &[reason])
            }
            PacketQuotaReply::Counted(PacketCounts { passed, dropped }) => {
                encode(COUNTED, &[*passed, *dropped], &[])
            }
        }
    }

    pub(super) fn decode(
        kind: u32,
        words: &[u64],
        texts: &mut VecDeque<String>,
    ) -> Result<Self, WireError> {
        let content = WireError::Content { kind };
        let mut text = || texts.pop_front().ok_or(content);
        match (kind, words) {
            (GRANTED, []) => Ok(PacketQuotaReply::Granted { places: text()? }),
            (REFUSED, &[cause]) => Ok(PacketQuotaReply::Refused {
                cause: PacketQuotaCause::of_number(narrow(cause, content)?).ok_or(content)?,
                reason: text()?,
            }),
            (COUNTED, &[passed, dropped]) => {
                Ok(PacketQuotaReply::Counted(PacketCounts { passed, dropped }))
            }
            _ => Err(content),
        }
    }
}

impl PacketQuotaStatus {
    pub(super) fn words(&self) -> Vec<u64> {
        let PacketCounts { passed, dropped } = self.counts;
        let mut words = self.quota.words().to_vec();
        words.extend([passed, dropped, u64::from(self.pid), self.at_ns]);
        words
    }

    pub(super) fn of(
        words: &[u64],
        [interface, name]: [String; 2],
        content: WireError,
    ) -> Result<Self, WireError> {
        let &[ref quota @ .., passed, dropped, pid, at_ns] = words else {
            return Err(content);
        };
        Ok(PacketQuotaStatus {
            quota: PacketQuota::of(quota, content)?,
            counts: PacketCounts { passed, dropped },
            pid: narrow(pid, content)?,
            at_ns,
            interface,
            name,
        })
    }
}
