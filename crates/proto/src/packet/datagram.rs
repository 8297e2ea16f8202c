//! Datagrams of UDP: what an owner of flows needs of their headers.

use super::check::{udp_is_right, wire};
use super::{Headers, LinkAddress};
use crate::flow::{Destination, UDP};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use smoltcp::wire::UdpPacket;

/// The bytes of a frame that [`Datagram::plain`] looks at: the headers of Ethernet, IPv6 and UDP.
pub const PLAIN_BYTES: usize = 62;

/// A whole datagram of UDP in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender on the link.
    pub link: LinkAddress,
    /// The sender; an address of IPv4 is mapped.
    pub source: Ipv6Addr,
    /// The port of the sender.
    pub source_port: u16,
    /// Where it goes.
    pub destination: Destination,
    /// The bytes of the frame that are its payload. 8 bytes before them are the header of UDP.
    pub payload: Range<u16>,
    /// The checksum of UDP.
    checksum: u16,
}

impl Datagram {
    /// The datagram of a frame of `frame_bytes` without VLAN tags, options and extension headers,
    /// by its first bytes. `None`: it is something else, or wrong, and [`super::parse`] says what.
    /// The checksum of the header of IPv4 is verified. A few instructions: this is the way of
    /// almost every packet.
    #[inline]
    pub fn plain(head: &[u8; PLAIN_BYTES], frame_bytes: usize) -> Option<Datagram> {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let link = [head[6], head[7], head[8], head[9], head[10], head[11]];
        let (source, address, udp, ip_end) = match (word(12), head[14], head[20]) {
            // No options; neither a fragment nor the first one of several.
            (0x0800, 0x45, _) if head[23] == UDP && word(20) & 0x3fff == 0 => {
                let sum: u32 = (14..34).step_by(2).map(|at| u32::from(word(at))).sum();
                if (sum & 0xffff) + (sum >> 16) != 0xffff {
                    return None;
                }
                (mapped(head, 26), mapped(head, 30), 34, 14 + usize::from(word(16)))
            }
            (0x86dd, 0x60..=0x6f, UDP) => {
                let (source, destination) = (whole(head, 22), whole(head, 38));
                let is_mapped = |it: Ipv6Addr| it.to_ipv4_mapped().is_some();
                if is_mapped(source) || is_mapped(destination) {
                    return None;
                }
                (source, destination, 54, 54 + usize::from(word(18)))
            }
            _ => return None,
        };
        let length = usize::from(word(udp + 4));
        if length < 8 || udp + length > ip_end || ip_end > frame_bytes {
            return None;
        }
        let end = u16::try_from(udp + length).ok()?;
        let destination = Destination { address, protocol: UDP, port: word(udp + 2) };
        let start = if udp == 34 { 42 } else { 62 };
        let (source_port, checksum) = (word(udp), word(udp + 6));
        Some(Datagram { link, source, source_port, destination, payload: start..end, checksum })
    }

    /// The datagram that [`super::parse`] found in `frame`. `None`: it is a fragment, or not of
    /// UDP.
    pub fn of(frame: &[u8], headers: &Headers) -> Option<Datagram> {
        if headers.destination.protocol != UDP || headers.fragment.is_some() {
            return None;
        }
        let header = frame.get(headers.transport.clone())?.first_chunk::<8>()?;
        let narrow = |at| u16::try_from(at).ok();
        Some(Datagram {
            link: headers.link.source,
            source: headers.source,
            source_port: headers.source_port,
            destination: headers.destination,
            payload: narrow(headers.payload.start)?..narrow(headers.payload.end)?,
            checksum: u16::from_be_bytes([header[6], header[7]]),
        })
    }

    /// Whether its source can be one on a wire: no loopback, unspecified, group or broadcast
    /// address, and not its own destination (RFC 1122 §3.2.1.3, RFC 4291 §2.5). O(1).
    #[inline]
    pub fn has_possible_source(&self) -> bool {
        let source = self.source.to_canonical();
        !source.is_loopback()
            && !source.is_unspecified()
            && !source.is_multicast()
            && source != IpAddr::V4(Ipv4Addr::BROADCAST)
            && self.source != self.destination.address
    }

    /// Whether the checksum is right for the bytes of `frame`. IPv4 may have none. O(length).
    pub fn is_right(&self, frame: &[u8]) -> bool {
        let transport = usize::from(self.payload.start) - 8..usize::from(self.payload.end);
        let Some(transport) = frame.get(transport) else { return false };
        udp_is_right(transport, self.source, self.destination.address).is_ok()
    }

    /// Whether the checksum is the one that a sender leaves to its interface: that of the
    /// addresses, the protocol and the length alone. A packet from this machine has it on a virtual
    /// interface (veth, TAP) with checksum offload, and was not damaged on a wire. O(1).
    #[inline]
    pub fn is_left_to_interface(&self) -> bool {
        let length = self.payload.end - self.payload.start + 8;
        let sum = u64::from(length)
            + u64::from(UDP)
            + sum_of(self.source)
            + sum_of(self.destination.address);
        let folded = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
        (folded & 0xffff) + (folded >> 16) == u64::from(self.checksum)
    }

    /// Writes the right checksum into `frame`, as the interface would have. O(length).
    pub fn fill_checksum(&self, frame: &mut [u8]) {
        let transport = usize::from(self.payload.start) - 8..usize::from(self.payload.end);
        let transport = frame.get_mut(transport).map(UdpPacket::new_checked);
        if let Some(Ok(mut packet)) = transport {
            let (source, destination) = (self.source, self.destination.address);
            let [source, destination] =
                [source, destination].map(|address| wire(address.to_canonical()));
            packet.fill_checksum(&source, &destination);
        }
    }
}

/// The sum of an address in words of 32 bits. One of IPv4 counts without the prefix of its mapping.
#[inline]
fn sum_of(address: Ipv6Addr) -> u64 {
    let word = |bytes: [u8; 4]| u64::from(u32::from_be_bytes(bytes));
    match address.to_ipv4_mapped() {
        Some(address) => word(address.octets()),
        None => address.octets().as_chunks::<4>().0.iter().map(|&bytes| word(bytes)).sum(),
    }
}

#[inline]
fn mapped(head: &[u8; PLAIN_BYTES], at: usize) -> Ipv6Addr {
    let mut octets = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0];
    octets[12..].copy_from_slice(&head[at..at + 4]);
    Ipv6Addr::from_octets(octets)
}

#[inline]
fn whole(head: &[u8; PLAIN_BYTES], at: usize) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets.copy_from_slice(&head[at..at + 16]);
    Ipv6Addr::from_octets(octets)
}
