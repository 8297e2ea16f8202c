//! Checks that read the whole packet, for packets that were not dropped early.

use super::{ChecksumError, Headers, LinkAddress};
use crate::flow::{ICMP, ICMPV6, UDP};
use core::net::{IpAddr, Ipv6Addr};
use smoltcp::wire::{
    Icmpv4Packet, Icmpv6Packet, Ipv4Packet, Ipv6Packet, NdiscNeighborFlags, NdiscRepr,
    RawHardwareAddress, UdpPacket,
};

/// Verifies the checksums of a packet: that of the header of IPv4, and those of UDP and ICMP if the
/// packet is no fragment. O(length).
///
/// # Errors
/// If one of them is wrong. `headers` must be those of `frame`, as [`super::parse`] found them.
pub fn check(frame: &[u8], headers: &Headers) -> Result<(), ChecksumError> {
    header_is_right(frame, headers).then_some(()).ok_or(ChecksumError::Ipv4Header)?;
    if headers.fragment.is_some() {
        return Ok(());
    }
    let transport = frame.get(headers.transport.clone()).unwrap_or(&[]);
    match headers.destination.protocol {
        UDP => udp_is_right(transport, headers.source, headers.destination.address),
        ICMP if headers.is_ipv4() => {
            let packet = Icmpv4Packet::new_checked(transport);
            let is_right = packet.is_ok_and(|packet| packet.verify_checksum());
            is_right.then_some(()).ok_or(ChecksumError::Icmp)
        }
        ICMPV6 if !headers.is_ipv4() => {
            // Every type is checked, also those that smoltcp does not know.
            let packet = Icmpv6Packet::new_unchecked(transport);
            let is_right = packet.verify_checksum(&headers.source, &headers.destination.address);
            is_right.then_some(()).ok_or(ChecksumError::Icmp)
        }
        _ => Ok(()),
    }
}

/// Whether the checksum of the header of IPv4 is right. IPv6 has none. O(header).
pub fn header_is_right(frame: &[u8], headers: &Headers) -> bool {
    let packet = frame.get(headers.packet.clone()).map(Ipv4Packet::new_checked);
    !headers.is_ipv4() || packet.is_some_and(|packet| packet.is_ok_and(|it| it.verify_checksum()))
}

/// Verifies the checksum of a datagram with its header, between two addresses.
pub(super) fn udp_is_right(
    transport: &[u8],
    source: Ipv6Addr,
    destination: Ipv6Addr,
) -> Result<(), ChecksumError> {
    let packet = UdpPacket::new_checked(transport).map_err(|_| ChecksumError::Udp)?;
    if packet.checksum() == 0 {
        // IPv4 may have none.
        return source.to_ipv4_mapped().map(|_| ()).ok_or(ChecksumError::UdpMissing);
    }
    let length = packet.len();
    let sum = u64::from(UDP)
        + u64::from(length)
        + sum_of(source.to_bits())
        + sum_of(destination.to_bits())
        + sum_of_bytes(&transport[..length.into()]);
    (folded(sum) == 0xffff).then_some(()).ok_or(ChecksumError::Udp)
}

/// A sum of words of 32 bits, as a sum of words of 16 bits with the carries of RFC 1071. At most
/// 65536 words.
#[inline]
pub(super) fn folded(sum: u64) -> u64 {
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

/// The sum of both halves.
#[inline]
pub(super) fn halves(word: u64) -> u64 {
    (word >> 32) + (word & 0xffff_ffff)
}

/// The sum of an address in words of 32 bits. The prefix of a mapped one of IPv4 adds `0xffff`,
/// which is 0 in this sum.
#[inline]
pub(super) fn sum_of(address: u128) -> u64 {
    // The low half is moved up and down again: so its value is known to fit.
    halves((address >> 64) as u64) + halves((address << 64 >> 64) as u64)
}

/// The sum of at most 64 KiB in words of 16 bits of the network, folded. O(bytes).
///
/// The order of the bytes in a word does not matter until the end (RFC 1071 §2). So the loop takes
/// words of 8 bytes of this machine. It adds to four sums, so that no addition waits for the one
/// before.
pub(super) fn sum_of_bytes(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut sums = [0u128; 4];
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
            *sum += u128::from(u64::from_ne_bytes(*word));
        }
    }
    let (words, rest) = rest.as_chunks::<8>();
    let mut sum: u128 = sums.iter().sum();
    for word in words {
        sum += u128::from(u64::from_ne_bytes(*word));
    }
    // At most 7 bytes, and zeros behind them.
    let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    let sum = sum + u128::from(last.to_le());
    let sum = halves((sum >> 64) as u64) + halves((sum << 64 >> 64) as u64);
    u16::from_be((folded(sum) & 0xffff) as u16).into()
}

/// The address in smoltcp's form.
pub(super) fn wire(address: IpAddr) -> smoltcp::wire::IpAddress {
    address.into()
}

/// Whether the packet is a message of discovery of IPv6: types 133 to 137 (RFC 4861 §4). O(1).
pub fn is_discovery(frame: &[u8], headers: &Headers) -> bool {
    let first = frame.get(headers.transport.clone()).and_then(|bytes| bytes.first());
    headers.destination.protocol == ICMPV6
        && headers.fragment.is_none()
        && first.is_some_and(|kind| (133..=137).contains(kind))
}

/// A message of neighbor discovery (RFC 4861 §4.3 and §4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbor {
    /// The sender asks for the link address of `target`.
    Solicitation {
        /// The address that is asked for.
        target: Ipv6Addr,
        /// The link address of the sender, if it has an address yet.
        link: Option<LinkAddress>,
    },
    /// `target` is at `link`.
    Advertisement {
        /// The address.
        target: Ipv6Addr,
        /// Its link address, if stated.
        link: Option<LinkAddress>,
        /// Whether it answers to a solicitation of the receiver.
        is_solicited: bool,
        /// Whether a link address that is known already gives way.
        is_override: bool,
    },
}

/// The message of neighbor discovery in a packet, if it is a valid one (RFC 4861 §7.1). [`check`]
/// must have accepted the packet.
pub fn neighbor(frame: &[u8], headers: &Headers) -> Option<Neighbor> {
    if headers.destination.protocol != ICMPV6 || headers.is_ipv4() || headers.fragment.is_some() {
        return None;
    }
    let ip = Ipv6Packet::new_checked(frame.get(headers.packet.clone())?).ok()?;
    let packet = Icmpv6Packet::new_checked(frame.get(headers.transport.clone())?).ok()?;
    // A packet from another link has passed a router, which lowers the limit.
    if ip.hop_limit() != 255 || packet.msg_code() != 0 || !packet.msg_type().is_ndisc() {
        return None;
    }
    match NdiscRepr::parse(&packet).ok()? {
        NdiscRepr::NeighborSolicit { target_addr: target, lladdr } if !target.is_multicast() => {
            Some(Neighbor::Solicitation { target, link: lladdr.and_then(ethernet) })
        }
        NdiscRepr::NeighborAdvert { target_addr: target, lladdr, flags }
            if !target.is_multicast() =>
        {
            let is_solicited = flags.contains(NdiscNeighborFlags::SOLICITED);
            let is_override = flags.contains(NdiscNeighborFlags::OVERRIDE);
            let link = lladdr.and_then(ethernet);
            Some(Neighbor::Advertisement { target, link, is_solicited, is_override })
        }
        _ => None,
    }
}

fn ethernet(address: RawHardwareAddress) -> Option<LinkAddress> {
    address.as_bytes().get(..6)?.try_into().ok()
}
