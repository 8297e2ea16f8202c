//! Frames that are sent. Each function writes one into a buffer and returns its length. Frames have
//! no VLAN tags, and packets have no options and are not fragmented.

use super::check::wire;
use super::{Arp, Headers, LinkAddress};
use crate::flow::{ICMP, ICMPV6, UDP};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, Icmpv4DstUnreachable, Icmpv4Message, Icmpv4Packet, Icmpv6DstUnreachable,
    Icmpv6Message, Icmpv6Packet, Icmpv6Repr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr,
    NdiscNeighborFlags, NdiscRepr, UdpPacket,
};

/// The hop limit of packets: the recommended default (IANA, "IP Parameters").
const HOP_LIMIT: u8 = 64;
/// The hop limit of neighbor discovery (RFC 4861 §4.3).
const HOP_LIMIT_OF_LINK: u8 = 255;
/// The header of Ethernet, in bytes.
pub(crate) const ETHERNET: usize = 14;
/// The header of ICMP and of UDP, in bytes.
const HEADER: usize = 8;
/// The most bytes of an error over IPv4 (RFC 1812 §4.3.2.3) and IPv6 (RFC 4443 §2.4): packets of
/// this length need no fragments.
const ERROR_BYTES_MAX: [usize; 2] = [576, 1280];

const BROADCAST: LinkAddress = [0xff; 6];
const NO_LINK: LinkAddress = [0; 6];

/// Why no frame was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// The buffer is too short.
    NoSpace {
        /// The length of the frame in bytes.
        needed: usize,
    },
    /// The packet would be longer than 65535 bytes.
    TooLong,
    /// One address is of IPv4, and the other one of IPv6.
    MixedFamilies,
    /// No answer may be sent to this packet: it came from or went to a group, it is an error
    /// itself, or a fragment (RFC 1122 §3.2.2, RFC 4443 §2.4).
    MustNotAnswer,
    /// The packet is no echo request.
    NotEchoRequest,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::NoSpace { needed } => write!(f, "the frame needs {needed} bytes"),
            BuildError::TooLong => f.write_str("the packet would be longer than 65535 bytes"),
            BuildError::MixedFamilies => f.write_str("addresses of IPv4 and IPv6 in one packet"),
            BuildError::MustNotAnswer => f.write_str("no answer may be sent to this packet"),
            BuildError::NotEchoRequest => f.write_str("the packet is no echo request"),
        }
    }
}

impl core::error::Error for BuildError {}

/// From where to where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The sender on the link.
    pub link_source: LinkAddress,
    /// The next receiver on the link.
    pub link_destination: LinkAddress,
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
}

impl Path {
    /// The way back to the sender of a packet.
    ///
    /// # Errors
    /// [`BuildError::MustNotAnswer`] if either end is not one device, as far as the packet shows: a
    /// receiver that is a broadcast address of its network came by broadcast on the link.
    pub fn back(headers: &Headers) -> Result<Path, BuildError> {
        let path = Path {
            link_source: headers.link.destination,
            link_destination: headers.link.source,
            source: headers.destination.address.to_canonical(),
            destination: headers.source.to_canonical(),
        };
        let is_group = |link: LinkAddress| link[0] & 1 == 1;
        let is_device = |address: IpAddr| {
            !address.is_unspecified() && !address.is_multicast() && address != Ipv4Addr::BROADCAST
        };
        let may = !is_group(path.link_source)
            && !is_group(path.link_destination)
            && is_device(path.source)
            && is_device(path.destination);
        may.then_some(path).ok_or(BuildError::MustNotAnswer)
    }
}

/// The link address of a group (RFC 1112 §6.4, RFC 2464 §7). For any other address that of all
/// devices.
pub fn group_link(group: IpAddr) -> LinkAddress {
    match group {
        IpAddr::V4(group) if group.is_multicast() => {
            let [_, a, b, c] = group.octets();
            [0x01, 0x00, 0x5e, a & 0x7f, b, c]
        }
        IpAddr::V6(group) if group.is_multicast() => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
        _ => BROADCAST,
    }
}

/// The group of those who may have `address` (RFC 4291 §2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = (u16::from(a) | 0xff00, u16::from_be_bytes([b, c]));
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, low.0, low.1)
}

/// Writes a request of ARP: who has `asked`?
///
/// # Errors
/// If the buffer is too short.
pub fn arp_request(
    out: &mut [u8],
    own_link: LinkAddress,
    own: Ipv4Addr,
    asked: Ipv4Addr,
) -> Result<usize, BuildError> {
    arp(out, ArpOperation::Request, (own_link, own), (NO_LINK, asked), BROADCAST)
}

/// Writes a request of ARP to one device: are you still `asked`? (RFC 1122 §2.3.2.1)
///
/// # Errors
/// If the buffer is too short.
pub fn arp_poll(
    out: &mut [u8],
    own_link: LinkAddress,
    own: Ipv4Addr,
    (asked_link, asked): (LinkAddress, Ipv4Addr),
) -> Result<usize, BuildError> {
    arp(out, ArpOperation::Request, (own_link, own), (asked_link, asked), asked_link)
}

/// Writes the reply to a request of ARP for the address `request.target`, which is that of
/// `own_link`.
///
/// # Errors
/// If the buffer is too short.
pub fn arp_reply(
    out: &mut [u8],
    own_link: LinkAddress,
    request: &Arp,
) -> Result<usize, BuildError> {
    let (own, to) = ((own_link, request.target), (request.source_link, request.source));
    arp(out, ArpOperation::Reply, own, to, request.source_link)
}

fn arp(
    out: &mut [u8],
    operation: ArpOperation,
    (own_link, own): (LinkAddress, Ipv4Addr),
    (target_link, target): (LinkAddress, Ipv4Addr),
    to: LinkAddress,
) -> Result<usize, BuildError> {
    let message = ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr: EthernetAddress(own_link),
        source_protocol_addr: own,
        target_hardware_addr: EthernetAddress(target_link),
        target_protocol_addr: target,
    };
    let needed = ETHERNET + message.buffer_len();
    let body = ethernet(out, own_link, to, EthernetProtocol::Arp, needed)?;
    message.emit(&mut ArpPacket::new_unchecked(body));
    Ok(needed)
}

/// Writes a neighbor solicitation: who has `asked`? (RFC 4861 §4.3)
///
/// # Errors
/// If the buffer is too short.
pub fn neighbor_solicitation(
    out: &mut [u8],
    own_link: LinkAddress,
    own: Ipv6Addr,
    asked: Ipv6Addr,
) -> Result<usize, BuildError> {
    let group = solicited_node(asked).into();
    let link_destination = group_link(group);
    let (source, destination) = (own.into(), group);
    let path = Path { link_source: own_link, link_destination, source, destination };
    solicit(out, path, asked)
}

/// Writes a neighbor solicitation to one device: are you still `asked`? (RFC 4861 §7.3.3)
///
/// # Errors
/// If the buffer is too short.
pub fn neighbor_poll(
    out: &mut [u8],
    own_link: LinkAddress,
    own: Ipv6Addr,
    (asked_link, asked): (LinkAddress, Ipv6Addr),
) -> Result<usize, BuildError> {
    let (source, destination) = (own.into(), asked.into());
    let path = Path { link_source: own_link, link_destination: asked_link, source, destination };
    solicit(out, path, asked)
}

fn solicit(out: &mut [u8], path: Path, target_addr: Ipv6Addr) -> Result<usize, BuildError> {
    let lladdr = Some(EthernetAddress(path.link_source).into());
    discovery(out, path, &NdiscRepr::NeighborSolicit { target_addr, lladdr })
}

/// Writes the neighbor advertisement that answers a solicitation for `own` (RFC 4861 §4.4). `to`
/// and `to_link` are those of the one who asked; if it had no address (`::`), the answer goes to
/// all nodes.
///
/// # Errors
/// If the buffer is too short.
pub fn neighbor_advertisement(
    out: &mut [u8],
    (own_link, own): (LinkAddress, Ipv6Addr),
    (to_link, to): (LinkAddress, Ipv6Addr),
) -> Result<usize, BuildError> {
    let is_asked = !to.is_unspecified();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let path = Path {
        link_source: own_link,
        link_destination: if is_asked { to_link } else { [0x33, 0x33, 0, 0, 0, 1] },
        source: own.into(),
        destination: if is_asked { to } else { all_nodes }.into(),
    };
    let solicited =
        if is_asked { NdiscNeighborFlags::SOLICITED } else { NdiscNeighborFlags::empty() };
    let message = NdiscRepr::NeighborAdvert {
        flags: NdiscNeighborFlags::OVERRIDE | solicited,
        target_addr: own,
        lladdr: Some(EthernetAddress(own_link).into()),
    };
    discovery(out, path, &message)
}

fn discovery(out: &mut [u8], path: Path, message: &NdiscRepr<'_>) -> Result<usize, BuildError> {
    let (IpAddr::V6(source), IpAddr::V6(destination)) = (path.source, path.destination) else {
        return Err(BuildError::MixedFamilies);
    };
    let message = Icmpv6Repr::Ndisc(*message);
    let (body, length) = ip(out, path, ICMPV6, HOP_LIMIT_OF_LINK, message.buffer_len())?;
    let mut packet = Icmpv6Packet::new_unchecked(body);
    message.emit(&source, &destination, &mut packet, &ChecksumCapabilities::default());
    Ok(length)
}

/// Writes an echo request of either family.
///
/// # Errors
/// If the buffer is too short, the payload too long, or the addresses of two families.
pub fn echo_request(
    out: &mut [u8],
    path: Path,
    (id, sequence): (u16, u16),
    payload: &[u8],
) -> Result<usize, BuildError> {
    let types = (Icmpv4Message::EchoRequest, Icmpv6Message::EchoRequest);
    let [a, b] = id.to_be_bytes();
    let [c, d] = sequence.to_be_bytes();
    icmp(out, path, types, 0, [a, b, c, d], payload)
}

/// Writes the reply to the echo request in `frame`.
///
/// # Errors
/// If the packet is no echo request, must not be answered, or does not fit into the buffer.
pub fn echo_reply(out: &mut [u8], frame: &[u8], headers: &Headers) -> Result<usize, BuildError> {
    let request = frame.get(headers.transport.clone()).unwrap_or(&[]);
    let (Some((header, payload)), None) = (request.split_first_chunk::<HEADER>(), headers.fragment)
    else {
        return Err(BuildError::NotEchoRequest);
    };
    let expected = match (headers.is_ipv4(), headers.destination.protocol) {
        (true, ICMP) => u8::from(Icmpv4Message::EchoRequest),
        (false, ICMPV6) => u8::from(Icmpv6Message::EchoRequest),
        _ => return Err(BuildError::NotEchoRequest),
    };
    if header[0] != expected || header[1] != 0 {
        return Err(BuildError::NotEchoRequest);
    }
    let types = (Icmpv4Message::EchoReply, Icmpv6Message::EchoReply);
    let [.., a, b, c, d] = *header;
    icmp(out, Path::back(headers)?, types, 0, [a, b, c, d], payload)
}

/// Writes the error that no receiver has the port of the packet in `frame`, with as much of the
/// packet as an error may have.
///
/// # Errors
/// If the packet must not be answered, or the error does not fit into the buffer.
pub fn port_unreachable(
    out: &mut [u8],
    frame: &[u8],
    headers: &Headers,
) -> Result<usize, BuildError> {
    let is_icmp = matches!(headers.destination.protocol, ICMP | ICMPV6);
    if is_icmp || !headers.has_transport() {
        return Err(BuildError::MustNotAnswer);
    }
    let path = Path::back(headers)?;
    let types = (Icmpv4Message::DstUnreachable, Icmpv6Message::DstUnreachable);
    let (code, most) = if headers.is_ipv4() {
        (u8::from(Icmpv4DstUnreachable::PortUnreachable), ERROR_BYTES_MAX[0] - 20 - HEADER)
    } else {
        (u8::from(Icmpv6DstUnreachable::PortUnreachable), ERROR_BYTES_MAX[1] - 40 - HEADER)
    };
    let packet = frame.get(headers.packet.clone()).unwrap_or(&[]);
    icmp(out, path, types, code, [0; 4], &packet[..packet.len().min(most)])
}

/// Writes a message of ICMP or ICMPv6, by the family of the addresses.
fn icmp(
    out: &mut [u8],
    path: Path,
    (v4, v6): (Icmpv4Message, Icmpv6Message),
    code: u8,
    rest: [u8; 4],
    payload: &[u8],
) -> Result<usize, BuildError> {
    let protocol = if path.source.is_ipv4() { ICMP } else { ICMPV6 };
    let (body, length) = ip(out, path, protocol, HOP_LIMIT, HEADER + payload.len())?;
    body[4..HEADER].copy_from_slice(&rest);
    body[HEADER..].copy_from_slice(payload);
    match (path.source, path.destination) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let mut packet = Icmpv6Packet::new_unchecked(body);
            packet.set_msg_type(v6);
            packet.set_msg_code(code);
            packet.fill_checksum(&source, &destination);
        }
        _ => {
            let mut packet = Icmpv4Packet::new_unchecked(body);
            packet.set_msg_type(v4);
            packet.set_msg_code(code);
            packet.fill_checksum();
        }
    }
    Ok(length)
}

/// Writes a datagram of UDP from the first port to the second one, with its checksum.
///
/// # Errors
/// If the buffer is too short, the payload too long, or the addresses of two families.
pub fn udp(
    out: &mut [u8],
    path: Path,
    ports: (u16, u16),
    payload: &[u8],
) -> Result<usize, BuildError> {
    let start = udp_headers_bytes(path);
    let needed = start + payload.len();
    let place = out.get_mut(start..needed).ok_or(BuildError::NoSpace { needed })?;
    place.copy_from_slice(payload);
    udp_headers(out, path, ports, payload.len())
}

/// Bytes of the headers that [`udp_headers`] writes.
pub fn udp_headers_bytes(path: Path) -> usize {
    ETHERNET + if path.source.is_ipv4() { 20 } else { 40 } + HEADER
}

/// Writes the headers of a datagram whose payload is in its place already: `payload_bytes` behind
/// the [`udp_headers_bytes`]. Returns the length of the frame. O(payload), for the checksum.
///
/// # Errors
/// As [`udp`].
pub fn udp_headers(
    out: &mut [u8],
    path: Path,
    (source_port, port): (u16, u16),
    payload_bytes: usize,
) -> Result<usize, BuildError> {
    let bytes = HEADER + payload_bytes;
    let (body, length) = ip(out, path, UDP, HOP_LIMIT, bytes)?;
    let mut packet = UdpPacket::new_unchecked(body);
    packet.set_src_port(source_port);
    packet.set_dst_port(port);
    packet.set_len(u16::try_from(bytes).map_err(|_| BuildError::TooLong)?);
    packet.fill_checksum(&wire(path.source), &wire(path.destination));
    Ok(length)
}

/// Writes the headers of Ethernet and IP. Returns the place for `bytes` of the protocol, and the
/// length of the frame.
fn ip(
    out: &mut [u8],
    path: Path,
    protocol: u8,
    hop_limit: u8,
    bytes: usize,
) -> Result<(&mut [u8], usize), BuildError> {
    let (ether_type, header) = match path.source {
        IpAddr::V4(_) => (EthernetProtocol::Ipv4, 20),
        IpAddr::V6(_) => (EthernetProtocol::Ipv6, 40),
    };
    // The length field of IPv4 counts the header too.
    let counted = if header == 20 { header + bytes } else { bytes };
    if counted > usize::from(u16::MAX) {
        return Err(BuildError::TooLong);
    }
    let needed = ETHERNET + header + bytes;
    let Path { link_source, link_destination, .. } = path;
    let packet = ethernet(out, link_source, link_destination, ether_type, needed)?;
    let (next_header, payload_len) = (protocol.into(), bytes);
    match (path.source, path.destination) {
        (IpAddr::V4(src_addr), IpAddr::V4(dst_addr)) => {
            let header = Ipv4Repr { src_addr, dst_addr, next_header, payload_len, hop_limit };
            let mut packet = Ipv4Packet::new_unchecked(&mut *packet);
            header.emit(&mut packet, &ChecksumCapabilities::default());
        }
        (IpAddr::V6(src_addr), IpAddr::V6(dst_addr)) => {
            let header = Ipv6Repr { src_addr, dst_addr, next_header, payload_len, hop_limit };
            header.emit(&mut Ipv6Packet::new_unchecked(&mut *packet));
        }
        _ => return Err(BuildError::MixedFamilies),
    }
    Ok((&mut packet[header..], needed))
}

/// Writes the header of Ethernet. Returns the place for the rest of a frame of `needed` bytes.
pub(crate) fn ethernet(
    out: &mut [u8],
    source: LinkAddress,
    destination: LinkAddress,
    ethertype: EthernetProtocol,
    needed: usize,
) -> Result<&mut [u8], BuildError> {
    let frame = out.get_mut(..needed).ok_or(BuildError::NoSpace { needed })?;
    let (src_addr, dst_addr) = (EthernetAddress(source), EthernetAddress(destination));
    EthernetRepr { src_addr, dst_addr, ethertype }
        .emit(&mut EthernetFrame::new_unchecked(&mut *frame));
    Ok(&mut frame[ETHERNET..])
}
