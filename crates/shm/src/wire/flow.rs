//! The messages about flows: UDP in user space on an interface of the daemon.
//!
//! ```text
//!   client (no domain)                            daemon
//!   OpenFlow        ------------------------->
//!                   <-------------------------    Offered with five descriptors: frames, receive,
//!                                                 received, transmit, transmitted; or Refused
//!   (maps the memory, makes all pages and the queues, and seals it)
//!   TakeFlow        ------------------------->    (binds the address on its interface)
//!                   <-------------------------    Opened with the socket of wake-ups; or Refused
//! ```
//!
//! A connection has one flow at most. The flow is closed when the connection is. A client that does
//! not send `TakeFlow` has no flow, and is a silent one.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::frame::{WireError, encode, flag, narrow};

/// The kinds of the requests.
pub(super) const OPEN: u32 = 80;
pub(super) const TAKE: u32 = 81;

const OPENED: u32 = 80;
const REFUSED: u32 = 81;
const OFFERED: u32 = 82;
/// The kinds of the replies.
pub(super) const REPLIES: core::ops::RangeInclusive<u32> = OPENED..=OFFERED;

/// How many descriptors come with [`FlowReply::Offered`].
pub const FLOW_DESCRIPTORS: usize = 5;

/// How many datagrams a flow gets (docs/decisions/0024-network.md, section 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowQuota {
    /// Time between the eligible times of two datagrams, at least 1.
    pub interval_ns: u64,
    /// 0, or the period at whose multiples datagrams become eligible together.
    pub step_ns: u64,
    /// How many may be ahead of their eligible times, at least 1.
    pub depth: u32,
    /// How many of those are handed over when they come.
    pub at_once: u32,
}

/// When a flow may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowShare {
    /// A packet each so many ns, at least 1.
    Paced(u64),
    /// What paced flows leave, by weight, at least 1.
    Weight(u32),
}

/// Asks for a flow, as long as this connection is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFlow {
    /// The name of the interface.
    pub interface: String,
    /// Where its datagrams go and come from. Port 0: the daemon chooses one. On the wire without
    /// the scope and flow label of IPv6.
    pub local: SocketAddr,
    /// What it receives. `None`: all that fits its queue.
    pub receive: Option<FlowQuota>,
    /// When it sends.
    pub send: FlowShare,
    /// Datagrams that it can hold, a power of two.
    pub receive_slots: u32,
    /// Frames that it has for sending, a power of two.
    pub transmit_slots: u32,
}

/// A flow that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedFlow {
    /// Its number on its interface.
    pub flow: u32,
    /// Its address, with its port.
    pub local: SocketAddr,
}

/// Why there is no flow, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FlowCause {
    /// The user may not have this port.
    NoRight = 1,
    /// The daemon was not given this interface.
    NoInterface = 2,
    /// The interface refused.
    Interface = 3,
    /// A program, a packet quota or another flow has the port.
    Taken = 4,
    /// The user has as many flows, frames or waiting datagrams as a user may have.
    Limit = 5,
    /// All users together have as many as the interface can have.
    Full = 6,
    /// A number is out of its range.
    Terms = 7,
    /// The address is not one of the interface.
    NotLocal = 8,
    /// The caller is in another network namespace.
    OtherNamespace = 9,
    /// The caller has not taken the memory as it must, or there is none.
    Memory = 10,
}

/// A reply about a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowReply {
    /// The memory of the flow, which is not open yet. Comes with [`FLOW_DESCRIPTORS`] descriptors.
    Offered {
        /// Bytes of a frame of its area. There is a frame for each slot that was asked for.
        frame_bytes: u32,
    },
    /// The flow is open. Comes with a descriptor, the socket of wake-ups.
    Opened(OpenedFlow),
    /// There is no flow.
    Refused {
        /// The cause.
        cause: FlowCause,
        /// The cause, and what would help, in one line.
        reason: String,
    },
}

/// What happened to the datagrams of a flow. Each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Handed to the program.
    pub received: u64,
    /// Dropped beyond its quota, before the kernel or the daemon worked on them.
    pub over_quota: u64,
    /// Dropped before that work too: the program had not taken those before.
    pub behind: u64,
    /// Dropped in the daemon: too many waited for their eligible times.
    pub queue_full: u64,
    /// Dropped: the program had not taken those before.
    pub receive_full: u64,
    /// Dropped: the checksum is wrong.
    pub checksum: u64,
    /// Dropped: the owner of the interface had not taken those before.
    pub undelivered: u64,
    /// Given to the interface.
    pub sent: u64,
    /// Not sent: longer than a packet to the peer may be.
    pub too_long: u64,
    /// Not sent: there is no way to the peer, or it does not answer.
    pub unreachable: u64,
    /// Not sent: the interface refused it.
    pub refused: u64,
}

/// The state of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStatus {
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its address, with its port.
    pub local: SocketAddr,
    /// Its datagrams.
    pub counts: FlowCounts,
    /// When the daemon read the counts (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// The name of its interface.
    pub interface: String,
}

/// Frames of an interface with flows that no flow got. Each is in one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDrops {
    /// Dropped in the driver: the destination is behind more headers than are read.
    pub hidden: u64,
    /// Dropped in the kernel: no frame was free, or a ring was full.
    pub no_room: u64,
    /// Dropped in the kernel: longer than the room of a frame.
    pub too_long: u64,
    /// Dropped in the daemon: headers that are cut off or contradict each other.
    pub malformed: u64,
    /// Dropped in the daemon: fragments of a datagram.
    pub fragments: u64,
    /// Dropped in the daemon: for no flow that is there.
    pub not_for_us: u64,
}

/// The state of an interface with flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedInterfaceStatus {
    /// Frames of its area.
    pub frames: u32,
    /// Frames that nobody has.
    pub free: u32,
    /// Frames that the device has to receive into.
    pub receiving: u32,
    /// Frames that the device sends.
    pub sending: u32,
    /// Frames that wait in the owner for their eligible times, or to be sent.
    pub waiting: u32,
    /// Flows that were closed because their programs broke a queue.
    pub faults: u64,
    /// Frames that no flow got.
    pub drops: InterfaceDrops,
    /// When the daemon read this (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Its name.
    pub interface: String,
    /// Which path its packets take, and why.
    pub path: String,
}

impl OpenFlow {
    pub(super) fn encode(&self) -> Vec<u8> {
        let [high, low, port] = address_words(self.local);
        let FlowQuota { interval_ns, step_ns, depth, at_once } = self.receive.unwrap_or_default();
        let (is_paced, send) = match self.send {
            FlowShare::Paced(interval_ns) => (1, interval_ns),
            FlowShare::Weight(weight) => (0, weight.into()),
        };
        let words = [
            high,
            low,
            port,
            u64::from(self.receive.is_some()),
            interval_ns,
            step_ns,
            depth.into(),
            at_once.into(),
            is_paced,
            send,
            self.receive_slots.into(),
            self.transmit_slots.into(),
        ];
        encode(OPEN, &words, &[&self.interface])
    }

    pub(super) fn decode(words: &[u64], texts: &mut VecDeque<String>) -> Result<Self, WireError> {
        let content = WireError::Content { kind: OPEN };
        let &[
            high,
            low,
            port,
            has_quota,
            interval_ns,
            step_ns,
            depth,
            at_once,
            is_paced,
            send,
            receive_slots,
            transmit_slots,
        ] = words
        else {
            return Err(content);
        };
        let quota = FlowQuota {
            interval_ns,
            step_ns,
            depth: narrow(depth, content)?,
            at_once: narrow(at_once, content)?,
        };
        Ok(OpenFlow {
            interface: texts.pop_front().ok_or(content)?,
            local: address_of([high, low, port], content)?,
            receive: flag(has_quota, content)?.then_some(quota),
            send: match flag(is_paced, content)? {
                true => FlowShare::Paced(send),
                false => FlowShare::Weight(narrow(send, content)?),
            },
            receive_slots: narrow(receive_slots, content)?,
            transmit_slots: narrow(transmit_slots, content)?,
        })
    }
}

impl FlowCause {
    /// All causes.
    pub const ALL: [FlowCause; 10] = [
        FlowCause::NoRight,
        FlowCause::NoInterface,
        FlowCause::Interface,
        FlowCause::Taken,
        FlowCause::Limit,
        FlowCause::Full,
        FlowCause::Terms,
        FlowCause::NotLocal,
        FlowCause::OtherNamespace,
        FlowCause::Memory,
    ];

    /// The cause with this number in a message; `None`: there is none.
    pub fn of_number(number: u32) -> Option<Self> {
        FlowCause::ALL.into_iter().find(|&cause| cause as u32 == number)
    }
}

impl FlowReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            FlowReply::Offered { frame_bytes } => encode(OFFERED, &[u64::from(*frame_bytes)], &[]),
            FlowReply::Opened(OpenedFlow { flow, local }) => {
                let [high, low, port] = address_words(*local);
                encode(OPENED, &[u64::from(*flow), high, low, port], &[])
            }
            FlowReply::Refused { cause, reason } => {
                encode(REFUSED, &[u64::from(*cause as u32)], &[reason])
            }
        }
    }

    pub(super) fn decode(
        kind: u32,
        words: &[u64],
        texts: &mut VecDeque<String>,
    ) -> Result<Self, WireError> {
        let content = WireError::Content { kind };
        let small = |word| narrow(word, content);
        match (kind, words) {
            (OFFERED, &[frame_bytes]) => {
                Ok(FlowReply::Offered { frame_bytes: small(frame_bytes)? })
            }
            (OPENED, &[flow, high, low, port]) => Ok(FlowReply::Opened(OpenedFlow {
                flow: small(flow)?,
                local: address_of([high, low, port], content)?,
            })),
            (REFUSED, &[cause]) => Ok(FlowReply::Refused {
                cause: FlowCause::of_number(small(cause)?).ok_or(content)?,
                reason: texts.pop_front().ok_or(content)?,
            }),
            _ => Err(content),
        }
    }
}

impl FlowCounts {
    fn words(&self) -> [u64; 11] {
        [
            self.received,
            self.over_quota,
            self.behind,
            self.queue_full,
            self.receive_full,
            self.checksum,
            self.undelivered,
            self.sent,
            self.too_long,
            self.unreachable,
            self.refused,
        ]
    }

    fn of(words: &[u64; 11]) -> Self {
        let &[
            received,
            over_quota,
            behind,
            queue_full,
            receive_full,
            checksum,
            undelivered,
            sent,
            too_long,
            unreachable,
            refused,
        ] = words;
        FlowCounts {
            received,
            over_quota,
            behind,
            queue_full,
            receive_full,
            checksum,
            undelivered,
            sent,
            too_long,
            unreachable,
            refused,
        }
    }
}

impl FlowStatus {
    pub(super) fn words(&self) -> Vec<u64> {
        let mut words = vec![u64::from(self.pid), u64::from(self.uid), self.at_ns];
        words.extend(address_words(self.local));
        words.extend(self.counts.words());
        words
    }

    pub(super) fn of(
        words: &[u64],
        interface: String,
        content: WireError,
    ) -> Result<Self, WireError> {
        let &[pid, uid, at_ns, high, low, port, ref counts @ ..] = words else {
            return Err(content);
        };
        Ok(FlowStatus {
            pid: narrow(pid, content)?,
            uid: narrow(uid, content)?,
            local: address_of([high, low, port], content)?,
            counts: FlowCounts::of(counts.try_into().map_err(|_| content)?),
            at_ns,
            interface,
        })
    }
}

impl OwnedInterfaceStatus {
    pub(super) fn words(&self) -> [u64; 13] {
        let OwnedInterfaceStatus { frames, free, receiving, sending, waiting, .. } = *self;
        let [frames, free, receiving, sending, waiting] =
            [frames, free, receiving, sending, waiting].map(u64::from);
        let InterfaceDrops { hidden, no_room, too_long, malformed, fragments, not_for_us } =
            self.drops;
        [
            frames,
            free,
            receiving,
            sending,
            waiting,
            self.faults,
            hidden,
            no_room,
            too_long,
            malformed,
            fragments,
            not_for_us,
            self.at_ns,
        ]
    }

    pub(super) fn of(
        words: &[u64],
        [interface, path]: [String; 2],
        content: WireError,
    ) -> Result<Self, WireError> {
        let &[
            frames,
            free,
            receiving,
            sending,
            waiting,
            faults,
            hidden,
            no_room,
            too_long,
            malformed,
            fragments,
            not_for_us,
            at_ns,
        ] = words
        else {
            return Err(content);
        };
        Ok(OwnedInterfaceStatus {
            frames: narrow(frames, content)?,
            free: narrow(free, content)?,
            receiving: narrow(receiving, content)?,
            sending: narrow(sending, content)?,
            waiting: narrow(waiting, content)?,
            faults,
            drops: InterfaceDrops { hidden, no_room, too_long, malformed, fragments, not_for_us },
            at_ns,
            interface,
            path,
        })
    }
}

/// The address in two words, as a number in the order of the network with IPv4 mapped, and the
/// port.
fn address_words(address: SocketAddr) -> [u64; 3] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let [a, b, c, d, e, f, g, h] = ip.segments().map(u64::from);
    let word = |[a, b, c, d]: [u64; 4]| a << 48 | b << 32 | c << 16 | d;
    [word([a, b, c, d]), word([e, f, g, h]), address.port().into()]
}

fn address_of([high, low, port]: [u64; 3], content: WireError) -> Result<SocketAddr, WireError> {
    let ip = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)).to_canonical();
    Ok(SocketAddr::new(ip, u16::try_from(port).map_err(|_| content)?))
}
