//! What the program must do with a packet, written a second time.
//!
//! From the documents of the formats (RFC 791, 8200, 4302, 4861) and decision 0024, without a look
//! at the steps of the program.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::Destination;

/// Source, destination, identification and protocol of a fragment.
pub type FragmentKey = (Ipv6Addr, Ipv6Addr, u32, u8);

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NotIp,
    Discovery,
    Malformed,
    /// The destination is behind more headers than the program reads.
    Hidden,
    Whole(Destination),
    First(Destination, FragmentKey),
    Later(FragmentKey),
}

/// The bytes of a packet that are left.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
}

fn number16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

/// What `frame` is. It has at least the 14 bytes of its first header.
pub fn kind(frame: &[u8]) -> Kind {
    ethernet(frame).unwrap_or(Kind::Malformed)
}

fn ethernet(frame: &[u8]) -> Option<Kind> {
    let mut bytes = Bytes(frame);
    let mut ether_type = number16(&bytes.take(14)?[12..]);
    for _ in 0..2 {
        if [0x8100, 0x88a8].contains(&ether_type) {
            ether_type = number16(&bytes.take(4)?[2..]);
        }
    }
    match ether_type {
        0x8100 | 0x88a8 => Some(Kind::Hidden),
        0x0800 => ipv4(bytes),
        0x86dd => ipv6(bytes),
        _ => Some(Kind::NotIp),
    }
}

fn ipv4(mut bytes: Bytes<'_>) -> Option<Kind> {
    let first = *bytes.0.first()?;
    let header_bytes = usize::from(first & 15) * 4;
    if first >> 4 != 4 || header_bytes < 20 || bytes.0.len() < 20 {
        return None;
    }
    let total = usize::from(number16(&bytes.0[2..]));
    let mut packet = Bytes(bytes.take(total)?);
    let (id, fragment) = (number16(&packet.0.get(..20)?[4..]), number16(&packet.0[6..]));
    let (protocol, addresses) = (packet.0[9], &packet.0[12..20]);
    let address = |at: usize| {
        Ipv4Addr::new(addresses[at], addresses[at + 1], addresses[at + 2], addresses[at + 3])
    };
    let (from, to) = (address(0).to_ipv6_mapped(), address(4).to_ipv6_mapped());
    packet.take(header_bytes)?;
    // The program takes the identification as it stands in memory.
    let key = (from, to, u32::from(id.swap_bytes()), protocol);
    let (is_later, more) = (fragment & 0x1fff != 0, fragment & 0x2000 != 0);
    if is_later {
        return Some(Kind::Later(key));
    }
    let destination = transport(&packet, to, protocol)?;
    Some(if more { Kind::First(destination, key) } else { Kind::Whole(destination) })
}

fn ipv6(mut bytes: Bytes<'_>) -> Option<Kind> {
    let header = bytes.take(40)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut rest = Bytes(bytes.take(number16(&header[4..]).into())?);
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap());
    let (from, to, hops) = (address(8), address(24), header[7]);
    let mut next = header[6];
    if rest.0.is_empty() && next == 0 {
        return Some(Kind::Hidden);
    }
    let mut key = None;
    let mut extensions = 0;
    while [0, 43, 44, 51, 60].contains(&next) {
        extensions += 1;
        if extensions > 6 {
            return Some(Kind::Hidden);
        }
        let start = rest.0.get(..8)?;
        let length = usize::from(start[1]);
        let bytes = match next {
            44 => 8,
            51 => (length + 2) * 4,
            _ => (length + 1) * 8,
        };
        if next == 44 {
            let (offset, more) = (number16(&start[2..]) >> 3, start[3] & 1 != 0);
            let id = u32::from_ne_bytes([start[4], start[5], start[6], start[7]]);
            let this = (from, to, id, start[0]);
            if offset != 0 {
                return Some(Kind::Later(this));
            }
            if more {
                key = Some(this);
            }
        }
        next = start[0];
        rest.take(bytes)?;
    }
    let start = rest.0.get(..4).map(|start| start[0]);
    if next == 58 && hops == 255 && key.is_none() && matches!(start, Some(133..=137)) {
        return Some(Kind::Discovery);
    }
    let destination = transport(&rest, to, next)?;
    Some(match key {
        Some(key) => Kind::First(destination, key),
        None => Kind::Whole(destination),
    })
}

fn transport(packet: &Bytes<'_>, to: Ipv6Addr, protocol: u8) -> Option<Destination> {
    let port = match protocol {
        6 | 17 => number16(&packet.0.get(..4)?[2..]),
        _ => 0,
    };
    Some(Destination { address: IpAddr::V6(to), protocol, port })
}

/// The slot of a destination: exact, or else any address of the family, or else 0.
pub fn slot_of(destinations: &HashMap<Destination, u32>, mut to: Destination) -> u32 {
    if let Some(slot) = destinations.get(&to) {
        return *slot;
    }
    let IpAddr::V6(address) = to.address else { unreachable!("mapped before") };
    to.address = match address.to_ipv4_mapped() {
        Some(_) => Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().into(),
        None => Ipv6Addr::UNSPECIFIED.into(),
    };
    *destinations.get(&to).unwrap_or(&0)
}

/// The words of the owner's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub interval: u64,
    pub step: u64,
    pub depth: u64,
}

impl Quota {
    /// The next eligible time if a packet at `now` passes; `None` if it is dropped.
    pub fn charge(self, eligible: u64, now: u64) -> Option<u64> {
        let at = if self.step > 0 { now - now % self.step } else { now };
        let next = eligible.max(at) + self.interval;
        (next <= at + self.depth * self.interval).then_some(next)
    }
}
