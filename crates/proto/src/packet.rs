//! Ethernet frames: headers, checks and answers.
//!
//! [`parse`] finds out where a frame goes, which is all that an early drop needs. [`check`]
//! verifies checksums afterwards, for packets that were not dropped. [`build`] writes frames. No
//! bytes of a peer make any of them panic.
//!
//! ```text
//! Ethernet, at most 2 VLAN tags --+-- ARP
//!                                 +-- IPv4 with options ------------------+-- UDP, TCP: ports
//!                                 +-- IPv6, at most 6 extension headers --+-- others: port 0
//! ```

use crate::flow::{Destination, ICMP, ICMPV6, TCP, UDP};
use crate::fragments::{FragmentKey, Fragments};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetFrame, EthernetProtocol, Ipv4Packet, Ipv6ExtHeader,
    Ipv6FragmentHeader, Ipv6Packet, TcpPacket, UdpPacket,
};
use upcall_core::time::Instant;

pub mod build;
mod check;
mod datagram;
mod error;
#[cfg(test)]
mod tests;

pub use check::{Neighbor, check, header_is_right, is_discovery, neighbor};
pub use datagram::{Datagram, PLAIN_WORDS};
pub use error::{ChecksumError, ParseError};

/// The address of a device on Ethernet.
pub type LinkAddress = [u8; 6];

/// The most VLAN tags of a frame.
pub const TAGS_MAX: usize = 2;
/// The most extension headers of an IPv6 packet.
pub const EXTENSIONS_MAX: usize = 6;

/// 802.1Q and 802.1ad. A tag has four bytes; the last two are the next EtherType.
const VLAN_TAGS: [u16; 2] = [0x8100, 0x88a8];

/// Extension headers (IANA, "IPv6 Extension Header Types").
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const MOBILITY: u8 = 135;

/// What a frame is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message of ARP.
    Arp(Arp),
    /// A packet of IPv4 or IPv6.
    Ip(Headers),
    /// Anything else.
    Other {
        /// The EtherType after all tags; up to 1500 it is a length (IEEE 802.3).
        ether_type: u16,
    },
}

/// The Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkHeader {
    /// The sender.
    pub source: LinkAddress,
    /// The receiver, or a group.
    pub destination: LinkAddress,
    /// How many VLAN tags follow.
    pub tags: usize,
}

/// A message of ARP for IPv4 on Ethernet (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Whether it asks. Otherwise it answers.
    pub is_request: bool,
    /// The sender on the link.
    pub source_link: LinkAddress,
    /// The sender.
    pub source: Ipv4Addr,
    /// The address that is asked for, or that of the one who asked.
    pub target: Ipv4Addr,
}

/// The place of a packet among the fragments of its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// What all the fragments have in common.
    pub key: FragmentKey,
    /// Where its data begins in the datagram, in bytes.
    pub offset: u32,
    /// Whether others follow.
    pub more: bool,
}

/// The headers of a packet of IP. Ranges are of the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// The Ethernet header.
    pub link: LinkHeader,
    /// The sender; an address of IPv4 is mapped.
    pub source: Ipv6Addr,
    /// The port of the sender, or 0.
    pub source_port: u16,
    /// Where it goes. The port is 0 if the protocol has none, and in all fragments but the first.
    pub destination: Destination,
    /// Its place if it is a fragment.
    pub fragment: Option<Fragment>,
    /// The packet from the header of IP on, without what Ethernet filled up.
    pub packet: Range<usize>,
    /// From the header of UDP, TCP or another protocol on. In a fragment other than the first, its
    /// data.
    pub transport: Range<usize>,
    /// The data after the header of UDP or TCP; otherwise as `transport`.
    pub payload: Range<usize>,
}

impl Headers {
    /// Whether it is a packet of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.source.to_ipv4_mapped().is_some()
    }

    /// Whether it has the header of the protocol: any packet but a later fragment.
    pub fn has_transport(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }

    /// Where the datagram goes. A first fragment is noted in `fragments`, and the others follow it:
    /// `None` if it is not known. O(1) on average.
    pub fn destination_by(&self, fragments: &mut Fragments, now: Instant) -> Option<Destination> {
        let Some(Fragment { key, offset, .. }) = self.fragment else {
            return Some(self.destination);
        };
        if offset > 0 {
            return fragments.follow(key, now);
        }
        fragments.first(key, self.destination, now);
        Some(self.destination)
    }
}

/// Reads the headers of an Ethernet frame. O(1).
///
/// # Errors
/// If a header is cut off, or says what cannot be. Checksums are not looked at.
pub fn parse(frame: &[u8]) -> Result<Frame, ParseError> {
    let ethernet = EthernetFrame::new_checked(frame).map_err(|_| ParseError::EthernetCutOff)?;
    let mut link =
        LinkHeader { source: ethernet.src_addr().0, destination: ethernet.dst_addr().0, tags: 0 };
    let mut ether_type = u16::from(ethernet.ethertype());
    let mut at = EthernetFrame::<&[u8]>::header_len();
    while VLAN_TAGS.contains(&ether_type) {
        if link.tags == TAGS_MAX {
            return Err(ParseError::TooManyTags);
        }
        let tag = frame.get(at..at + 4).ok_or(ParseError::TagCutOff)?;
        ether_type = u16::from_be_bytes([tag[2], tag[3]]);
        (at, link.tags) = (at + 4, link.tags + 1);
    }
    match EthernetProtocol::from(ether_type) {
        EthernetProtocol::Arp => arp(&frame[at..]).map(Frame::Arp),
        EthernetProtocol::Ipv4 => ipv4(frame, at, link).map(Frame::Ip),
        EthernetProtocol::Ipv6 => ipv6(frame, at, link).map(Frame::Ip),
        EthernetProtocol::Unknown(_) => Ok(Frame::Other { ether_type }),
    }
}

fn arp(bytes: &[u8]) -> Result<Arp, ParseError> {
    let packet = ArpPacket::new_checked(bytes).map_err(|_| ParseError::ArpCutOff)?;
    let parsed = ArpRepr::parse(&packet).map_err(|_| ParseError::ArpKind)?;
    let ArpRepr::EthernetIpv4 {
        operation,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    } = parsed
    else {
        return Err(ParseError::ArpKind);
    };
    let is_request = match operation {
        ArpOperation::Request => true,
        ArpOperation::Reply => false,
        ArpOperation::Unknown(_) => return Err(ParseError::ArpKind),
    };
    let (source, target) = (source_protocol_addr, target_protocol_addr);
    Ok(Arp { is_request, source_link: source_hardware_addr.0, source, target })
}

/// RFC 791 §3.1.
fn ipv4(frame: &[u8], at: usize, link: LinkHeader) -> Result<Headers, ParseError> {
    let bytes = &frame[at..];
    if bytes.len() < 20 {
        return Err(ParseError::Ipv4CutOff);
    }
    let unchecked = Ipv4Packet::new_unchecked(bytes);
    if unchecked.version() != 4 {
        return Err(ParseError::IpVersion);
    }
    let header_len = usize::from(unchecked.header_len());
    if header_len < 20 {
        return Err(ParseError::Ipv4HeaderLength);
    }
    // What is left to refuse are lengths beyond each other or the frame.
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| ParseError::Ipv4TotalLength)?;
    let end = at + usize::from(packet.total_len());
    let protocol = u8::from(packet.next_header());
    let (source, destination) =
        (packet.src_addr().to_ipv6_mapped(), packet.dst_addr().to_ipv6_mapped());
    let (offset, more) = (u32::from(packet.frag_offset()), packet.more_frags());
    let fragment = (offset > 0 || more).then(|| {
        let id = u32::from(packet.ident());
        Fragment { key: FragmentKey { source, destination, id, protocol }, offset, more }
    });
    let found = Found { at, end, source, destination, protocol, fragment };
    found.headers(frame, link, at + header_len)
}

/// RFC 8200 §3 and §4.
fn ipv6(frame: &[u8], at: usize, link: LinkHeader) -> Result<Headers, ParseError> {
    let bytes = &frame[at..];
    if bytes.len() < 40 {
        return Err(ParseError::Ipv6CutOff);
    }
    let packet = Ipv6Packet::new_checked(bytes).map_err(|_| ParseError::Ipv6PayloadLength)?;
    if packet.version() != 6 {
        return Err(ParseError::IpVersion);
    }
    let (source, destination) = (packet.src_addr(), packet.dst_addr());
    if source.to_ipv4_mapped().is_some() || destination.to_ipv4_mapped().is_some() {
        // It would pass for a packet of IPv4 (RFC 4291 §2.5.5.2: never on the wire).
        return Err(ParseError::Ipv6Mapped);
    }
    let end = at + packet.total_len();
    let mut protocol = u8::from(packet.next_header());
    let (mut next, mut fragment) = (at + packet.header_len(), None);
    let mut extensions = 0;
    while let HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS | MOBILITY =
        protocol
    {
        if extensions == EXTENSIONS_MAX {
            return Err(ParseError::TooManyExtensions);
        }
        extensions += 1;
        let rest = &frame[next..end];
        let length = extension_length(protocol, rest).ok_or(ParseError::ExtensionCutOff)?;
        if protocol == FRAGMENT {
            if fragment.is_some() {
                return Err(ParseError::SecondFragmentHeader);
            }
            fragment = fragment_of(&rest[2..length], source, destination)?;
        }
        protocol = rest[0];
        next += length;
        if fragment.is_some_and(|fragment: Fragment| fragment.offset > 0) {
            break;
        }
    }
    let found = Found { at, end, source, destination, protocol, fragment };
    found.headers(frame, link, next)
}

/// The length of the extension header in bytes, if all of it is there. At least 8.
fn extension_length(protocol: u8, bytes: &[u8]) -> Option<usize> {
    let length = match protocol {
        FRAGMENT => 8,
        // RFC 4302 §2.2: in units of 4 bytes, less 2.
        AUTHENTICATION => (usize::from(*bytes.get(1)?) + 2) * 4,
        _ => 8 + 8 * usize::from(Ipv6ExtHeader::new_checked(bytes).ok()?.header_len()),
    };
    (length <= bytes.len()).then_some(length)
}

/// The place that a fragment header gives, without its first two bytes. A datagram in one fragment
/// is whole (RFC 6946).
fn fragment_of(
    bytes: &[u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Result<Option<Fragment>, ParseError> {
    let header = Ipv6FragmentHeader::new_checked(bytes).map_err(|_| ParseError::ExtensionCutOff)?;
    let (offset, more) = (u32::from(header.frag_offset()) * 8, header.more_frags());
    let key = FragmentKey { source, destination, id: header.ident(), protocol: 0 };
    Ok((offset > 0 || more).then_some(Fragment { key, offset, more }))
}

/// What the header of IP says.
struct Found {
    /// Where the packet begins in the frame.
    at: usize,
    /// Where it ends.
    end: usize,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    fragment: Option<Fragment>,
}

impl Found {
    /// The headers, with those of the protocol from `next` on.
    fn headers(self, frame: &[u8], link: LinkHeader, next: usize) -> Result<Headers, ParseError> {
        let Found { at, end, source, destination, protocol, fragment } = self;
        let transport = next..end;
        let bytes = &frame[transport.clone()];
        let mut ports = (0, 0);
        let mut payload = transport.clone();
        let is_first = fragment.is_none_or(|fragment| fragment.offset == 0);
        let is_whole = fragment.is_none();
        if let Some(Fragment { offset, more, .. }) = fragment {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            // RFC 791 §3.2, RFC 8200 §4.5.
            if more && (length == 0 || !length.is_multiple_of(8)) {
                return Err(ParseError::FragmentLength);
            }
            if offset.saturating_add(length) > u32::from(u16::MAX) {
                return Err(ParseError::FragmentBeyondEnd);
            }
        }
        match protocol {
            UDP if is_first => {
                let (header, length) = udp(bytes, is_whole)?;
                ports = header;
                payload = next + 8..next + length;
            }
            TCP if is_first => {
                let (header, length) = tcp(bytes)?;
                ports = header;
                payload = next + length..end;
            }
            ICMP | ICMPV6 if is_first && bytes.len() < 8 => return Err(ParseError::IcmpCutOff),
            _ => {}
        }
        let (source_port, port) = ports;
        let destination = Destination { address: destination, protocol, port };
        let packet = at..end;
        Ok(Headers { link, source, source_port, destination, fragment, packet, transport, payload })
    }
}

/// The ports, and the bytes of header and data that are here (RFC 768).
fn udp(bytes: &[u8], is_whole: bool) -> Result<((u16, u16), usize), ParseError> {
    if bytes.len() < 8 {
        return Err(ParseError::UdpCutOff);
    }
    let packet = UdpPacket::new_unchecked(bytes);
    let length = usize::from(packet.len());
    if length < 8 || (is_whole && length > bytes.len()) {
        return Err(ParseError::UdpLength);
    }
    Ok(((packet.src_port(), packet.dst_port()), length.min(bytes.len())))
}

/// The ports, and the length of the header in bytes (RFC 9293 §3.1).
fn tcp(bytes: &[u8]) -> Result<((u16, u16), usize), ParseError> {
    if bytes.len() < 20 {
        return Err(ParseError::TcpCutOff);
    }
    let packet = TcpPacket::new_unchecked(bytes);
    let length = usize::from(packet.header_len());
    if length < 20 || length > bytes.len() {
        return Err(ParseError::TcpHeaderLength);
    }
    Ok(((packet.src_port(), packet.dst_port()), length))
}
