//! Datagrams of UDP: what an owner of flows needs of their headers.

use super::Headers;
use super::check::{folded, halves, sum_of, udp_is_right, wire};
use crate::flow::{Destination, UDP};
use core::net::{Ipv4Addr, Ipv6Addr};
use core::ops::Range;
use smoltcp::wire::UdpPacket;

/// The words of 8 bytes that [`Datagram::plain`] looks at. They hold the headers of Ethernet, IPv6
/// and UDP: 62 bytes.
pub const PLAIN_WORDS: usize = 8;

/// `::ffff:0:0`, the mapped addresses of IPv4.
const MAPPED: u128 = 0xffff << 32;

/// A whole datagram of UDP in a frame.
///
/// Addresses are numbers, because the compiler moves an array of 16 bytes by the byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The sender, by [`Ipv6Addr::to_bits`]; an address of IPv4 is mapped.
    pub source_bits: u128,
    destination_bits: u128,
    /// The port of the sender.
    pub source_port: u16,
    destination_port: u16,
    /// The bytes of the frame that are its payload. 8 bytes before them are the header of UDP.
    pub payload: Range<u16>,
    /// The checksum of UDP.
    checksum: u16,
}

impl Datagram {
    /// The datagram of a frame of `frame_bytes` without VLAN tags, options and extension headers,
    /// by its first bytes. What stands behind the frame in `head` may be anything. `None`: it is
    /// something else, or wrong, and [`super::parse`] says what. The checksum of the header of IPv4
    /// is verified. A few instructions: this is the way of almost every packet.
    #[inline(always)]
    pub fn plain(head: &[[u8; 8]; PLAIN_WORDS], frame_bytes: usize) -> Option<Datagram> {
        // Shifts of whole words, because a load of other bytes than one store wrote has to wait.
        let mut words = [0; PLAIN_WORDS];
        for (word, bytes) in words.iter_mut().zip(head) {
            *word = u64::from_be_bytes(*bytes);
        }
        // The big-endian numbers at a place, which is even.
        let word = |at: usize| (words[at / 8] >> (48 - at % 8 * 8) & 0xffff) as u16;
        let double = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        let ([first, _], [_, protocol]) = (word(14).to_be_bytes(), word(22).to_be_bytes());
        let (source_bits, destination_bits, udp, ip_end) =
            match (word(12), first, word(20).to_be_bytes()[0]) {
                // No options; neither a fragment nor the first one of several.
                (0x0800, 0x45, _) if protocol == UDP && word(20) & 0x3fff == 0 => {
                    let sum = u64::from(word(14))
                        + halves(words[2])
                        + halves(words[3])
                        + u64::from(word(32));
                    if folded(sum) != 0xffff {
                        return None;
                    }
                    let mapped = |at| MAPPED | u128::from(double(at));
                    (mapped(26), mapped(30), 34, 14 + usize::from(word(16)))
                }
                (0x86dd, 0x60..=0x6f, UDP) => {
                    let part = |at: usize| u128::from(double(at));
                    let whole = |at: usize| {
                        part(at) << 96 | part(at + 4) << 64 | part(at + 8) << 32 | part(at + 12)
                    };
                    let (source, destination) = (whole(22), whole(38));
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
        let start = if udp == 34 { 42 } else { 62 };
        Some(Datagram {
            source_bits,
            destination_bits,
            source_port: word(udp),
            destination_port: word(udp + 2),
            payload: start..end,
            checksum: word(udp + 6),
        })
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
            source_bits: headers.source.to_bits(),
            destination_bits: headers.destination.address.to_bits(),
            source_port: headers.source_port,
            destination_port: headers.destination.port,
            payload: narrow(headers.payload.start)?..narrow(headers.payload.end)?,
            checksum: u16::from_be_bytes([header[6], header[7]]),
        })
    }

    /// Where it goes.
    pub fn destination(&self) -> Destination {
        let address = Ipv6Addr::from_bits(self.destination_bits);
        Destination { address, protocol: UDP, port: self.destination_port }
    }

    /// Whether it goes there. O(1).
    #[inline]
    pub fn is_to(&self, destination: &Destination) -> bool {
        self.destination_bits == destination.address.to_bits()
            && self.destination_port == destination.port
            && destination.protocol == UDP
    }

    /// Whether its source can be one on a wire: no loopback, unspecified, group or broadcast
    /// address, and not its own destination (RFC 1122 §3.2.1.3, RFC 4291 §2.5). O(1).
    #[inline]
    pub fn has_possible_source(&self) -> bool {
        let source = self.source_bits;
        let is_impossible = if is_mapped(source) {
            let [.., a, b, c, d] = source.to_be_bytes();
            let source = Ipv4Addr::new(a, b, c, d);
            source.is_loopback()
                || source.is_unspecified()
                || source.is_multicast()
                || source.is_broadcast()
        } else {
            // `::`, `::1` and `ff00::/8`.
            source <= 1 || source >> 120 == 0xff
        };
        !is_impossible && source != self.destination_bits
    }

    /// Whether the checksum is right for the bytes of `frame`. IPv4 may have none. O(length).
    pub fn is_right(&self, frame: &[u8]) -> bool {
        let transport = usize::from(self.payload.start) - 8..usize::from(self.payload.end);
        let Some(transport) = frame.get(transport) else { return false };
        let [source, destination] =
            [self.source_bits, self.destination_bits].map(Ipv6Addr::from_bits);
        udp_is_right(transport, source, destination).is_ok()
    }

    /// Whether the checksum is the one that a sender leaves to its interface: that of the
    /// addresses, the protocol and the length alone. A packet from this machine has it on a virtual
    /// interface (veth, TAP) with checksum offload, and was not damaged on a wire. O(1).
    #[inline(always)]
    pub fn is_left_to_interface(&self) -> bool {
        let length = self.payload.end - self.payload.start + 8;
        let sum = u64::from(length)
            + u64::from(UDP)
            + sum_of(self.source_bits)
            + sum_of(self.destination_bits);
        folded(sum) == u64::from(self.checksum)
    }

    /// Writes the right checksum into `frame`, as the interface would have. O(length).
    pub fn fill_checksum(&self, frame: &mut [u8]) {
        let transport = usize::from(self.payload.start) - 8..usize::from(self.payload.end);
        let transport = frame.get_mut(transport).map(UdpPacket::new_checked);
        if let Some(Ok(mut packet)) = transport {
            let [source, destination] = [self.source_bits, self.destination_bits]
                .map(|address| wire(Ipv6Addr::from_bits(address).to_canonical()));
            packet.fill_checksum(&source, &destination);
        }
    }
}

/// Whether it is an address of IPv4 (RFC 4291 §2.5.5.2).
#[inline]
fn is_mapped(address: u128) -> bool {
    address >> 32 == MAPPED >> 32
}
