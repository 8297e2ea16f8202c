//! Errors of ICMP (RFC 792, RFC 1191 §4) and ICMPv6 (RFC 4443 §3) about packets that the host sent.
//! [`super::Host`] alone calls it.

use crate::flow::{Destination, TCP, UDP, mapped};
use crate::packet::Headers;
use core::net::IpAddr;
use smoltcp::wire::{
    Icmpv4Message, Icmpv4Packet, Icmpv6Message, Icmpv6Packet, Ipv4Packet, Ipv6Packet,
};

/// What became of a packet, as a device on its way says. Anybody may say so: an error ends no flow
/// by itself (RFC 1122 §4.2.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathError {
    /// The sender of the packet: an address of the host, and the protocol. The port is 0 if the
    /// protocol is neither UDP nor TCP.
    pub local: Destination,
    /// Where the packet was to go: the address, and the port or 0.
    pub peer: (IpAddr, u16),
    /// What happened.
    pub kind: PathErrorKind,
}

/// What happened to a packet on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathErrorKind {
    /// A router knows no way to the network.
    NetworkUnreachable,
    /// The last router does not find the device.
    HostUnreachable,
    /// The device does not have the protocol.
    ProtocolUnreachable,
    /// Nobody there has the port.
    PortUnreachable,
    /// A device on the way does not let it pass.
    Prohibited,
    /// The next link takes smaller packets only.
    TooBig {
        /// The greatest packet that the host sends there now, in bytes.
        mtu: u16,
    },
    /// It passed too many routers, or its fragments did not come together.
    Expired,
    /// A device does not understand its header.
    BadHeader,
}

/// An error with the part of the packet that it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quoted {
    /// `TooBig` has the value 0.
    pub(super) kind: PathErrorKind,
    /// The limit that `TooBig` names, or 0.
    pub(super) named_mtu: u32,
    /// The length of the packet, as its header says.
    pub(super) packet_bytes: u16,
    pub(super) local: Destination,
    pub(super) peer: (IpAddr, u16),
}

/// The error in the packet of ICMP or ICMPv6 in `frame`, if it is one and quotes a packet such as
/// [`crate::packet::build`] writes: without options, and no later fragment.
/// [`crate::packet::check`] must have accepted the packet.
pub(super) fn quoted(frame: &[u8], headers: &Headers) -> Option<Quoted> {
    let message = frame.get(headers.transport.clone())?;
    let quote = message.get(8..)?;
    let named = u32::from_be_bytes(*message[4..].first_chunk()?);
    let (kind, named_mtu, packet) = if headers.is_ipv4() {
        // The upper half is not used (RFC 1191 §4).
        (kind_v4(&Icmpv4Packet::new_checked(message).ok()?)?, named & 0xffff, v4(quote)?)
    } else {
        (kind_v6(&Icmpv6Packet::new_unchecked(message))?, named, v6(quote)?)
    };
    let Packet { source, peer, protocol, packet_bytes, rest } = packet;
    let [a, b, c, d] = match protocol {
        UDP | TCP => *rest.first_chunk()?,
        _ => [0; 4],
    };
    let port = u16::from_be_bytes([a, b]);
    let local = Destination { address: mapped(source), protocol, port };
    let peer = (peer, u16::from_be_bytes([c, d]));
    Some(Quoted { kind, named_mtu, packet_bytes, local, peer })
}

/// RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1. A source quench is none (RFC 6633 §3).
fn kind_v4(message: &Icmpv4Packet<&[u8]>) -> Option<PathErrorKind> {
    Some(match (message.msg_type(), message.msg_code()) {
        (Icmpv4Message::DstUnreachable, code) => match code {
            0 | 5 | 6 | 11 => PathErrorKind::NetworkUnreachable,
            2 => PathErrorKind::ProtocolUnreachable,
            3 => PathErrorKind::PortUnreachable,
            4 => PathErrorKind::TooBig { mtu: 0 },
            9 | 10 | 13 => PathErrorKind::Prohibited,
            _ => PathErrorKind::HostUnreachable,
        },
        (Icmpv4Message::TimeExceeded, _) => PathErrorKind::Expired,
        (Icmpv4Message::ParamProblem, _) => PathErrorKind::BadHeader,
        _ => return None,
    })
}

/// RFC 4443 §3.
fn kind_v6(message: &Icmpv6Packet<&[u8]>) -> Option<PathErrorKind> {
    Some(match (message.msg_type(), message.msg_code()) {
        (Icmpv6Message::DstUnreachable, code) => match code {
            0 => PathErrorKind::NetworkUnreachable,
            1 | 5 | 6 => PathErrorKind::Prohibited,
            4 => PathErrorKind::PortUnreachable,
            _ => PathErrorKind::HostUnreachable,
        },
        (Icmpv6Message::PktTooBig, _) => PathErrorKind::TooBig { mtu: 0 },
        (Icmpv6Message::TimeExceeded, _) => PathErrorKind::Expired,
        // The device understood the rest, but not what follows the header of IP.
        (Icmpv6Message::ParamProblem, 1) => PathErrorKind::ProtocolUnreachable,
        (Icmpv6Message::ParamProblem, _) => PathErrorKind::BadHeader,
        _ => return None,
    })
}

/// What is left of a packet in an error.
struct Packet<'a> {
    source: IpAddr,
    peer: IpAddr,
    protocol: u8,
    packet_bytes: u16,
    /// From the header of the protocol on.
    rest: &'a [u8],
}

fn v4(quote: &[u8]) -> Option<Packet<'_>> {
    let rest = quote.get(20..)?;
    // Not `new_checked`: the packet is cut off.
    let ip = Ipv4Packet::new_unchecked(quote);
    let is_ours = ip.version() == 4 && ip.header_len() == 20 && ip.frag_offset() == 0;
    is_ours.then(|| Packet {
        source: ip.src_addr().into(),
        peer: ip.dst_addr().into(),
        protocol: ip.next_header().into(),
        packet_bytes: ip.total_len(),
        rest,
    })
}

fn v6(quote: &[u8]) -> Option<Packet<'_>> {
    let rest = quote.get(40..)?;
    let ip = Ipv6Packet::new_unchecked(quote);
    (ip.version() == 6).then(|| Packet {
        source: ip.src_addr().into(),
        peer: ip.dst_addr().into(),
        protocol: ip.next_header().into(),
        packet_bytes: ip.payload_len().saturating_add(40),
        rest,
    })
}
