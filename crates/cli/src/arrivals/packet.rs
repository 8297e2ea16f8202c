//! The destination port and the payload of a UDP datagram, for each link type that a capture may
//! have.
//!
//! The parser is hand-written, without unsafe code: it only follows a few lengths. `etherparse`
//! 0.21 would do the same, but it reads out of bounds at a truncated IPv6 extension header
//! (docs/decisions/0002). Missing bytes end the parse.

/// The link-layer header of a packet, as in <https://www.tcpdump.org/linktypes.html>.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    Ethernet,
    /// "Linux cooked", of `tcpdump -i any`, first and second version.
    Cooked,
    Cooked2,
    /// An IP header.
    Raw,
    /// A protocol family of four bytes, in either byte order.
    Null,
}

/// EtherTypes.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// 802.1Q, 802.1ad and their predecessor. A tag has four bytes; the last two are the next
/// EtherType.
const VLAN_TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// IP protocols (IANA, "Assigned Internet Protocol Numbers").
const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;
const MOBILITY: u8 = 135;

impl Link {
    pub(super) fn of_type(number: u32) -> Option<Link> {
        match number {
            0 | 108 => Some(Link::Null),
            1 => Some(Link::Ethernet),
            // Some systems write 12 and 14, their own numbers for 101.
            12 | 14 | 101 | 228 | 229 => Some(Link::Raw),
            113 => Some(Link::Cooked),
            276 => Some(Link::Cooked2),
            _ => None,
        }
    }

    /// The destination port and the payload, if the packet is a UDP datagram or its first fragment,
    /// and the capture includes the port. The payload may be cut off.
    pub(super) fn udp(self, packet: &[u8]) -> Option<(u16, &[u8])> {
        let header = self.udp_header(packet)?;
        Some((two(header, 2)?, header.get(8..).unwrap_or(&[])))
    }

    /// The UDP header and what follows it.
    fn udp_header(self, packet: &[u8]) -> Option<&[u8]> {
        match self {
            Link::Ethernet => tagged(two(packet, 12)?, packet.get(14..)?),
            Link::Cooked => tagged(two(packet, 14)?, packet.get(16..)?),
            Link::Cooked2 => tagged(two(packet, 0)?, packet.get(20..)?),
            Link::Raw => ip(packet),
            Link::Null => {
                let (family, rest) = packet.split_first_chunk::<4>()?;
                let family = [u32::from_le_bytes(*family), u32::from_be_bytes(*family)];
                // AF_INET, and AF_INET6 of Linux, the BSDs and macOS.
                let known = family.iter().any(|family| matches!(family, 2 | 10 | 24 | 28 | 30));
                if known { ip(rest) } else { None }
            }
        }
    }
}

/// Parses from an EtherType on, through any number of VLAN tags.
fn tagged(mut ether_type: u16, mut rest: &[u8]) -> Option<&[u8]> {
    while VLAN_TAGS.contains(&ether_type) {
        ether_type = two(rest, 2)?;
        rest = rest.get(4..)?;
    }
    match ether_type {
        IPV4 => ipv4(rest),
        IPV6 => ipv6(rest),
        _ => None,
    }
}

fn ip(packet: &[u8]) -> Option<&[u8]> {
    match packet.first()? >> 4 {
        4 => ipv4(packet),
        6 => ipv6(packet),
        _ => None,
    }
}

/// RFC 791 §3.1. Only the first fragment has the ports.
fn ipv4(packet: &[u8]) -> Option<&[u8]> {
    let first = packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let later = two(packet, 6)? & 0x1fff > 0;
    if first >> 4 != 4 || header < 20 || later {
        return None;
    }
    let protocol = *packet.get(9)?;
    let rest = packet.get(header..)?;
    match protocol {
        UDP => Some(rest),
        AUTHENTICATION => extended(protocol, rest),
        _ => None,
    }
}

/// RFC 8200 §3.
fn ipv6(packet: &[u8]) -> Option<&[u8]> {
    if packet.first()? >> 4 != 6 {
        return None;
    }
    extended(*packet.get(6)?, packet.get(40..)?)
}

/// Skips extension headers (RFC 8200 §4). Each has at least eight bytes, so the loop ends.
fn extended(mut header: u8, mut rest: &[u8]) -> Option<&[u8]> {
    loop {
        let bytes = match header {
            UDP => return Some(rest),
            HOP_BY_HOP | ROUTING | DESTINATION | MOBILITY => 8 + 8 * usize::from(*rest.get(1)?),
            // RFC 4302 §2.2: the length in units of four bytes, minus two.
            AUTHENTICATION => 8 + 4 * usize::from(*rest.get(1)?),
            // The offset is in the upper 13 bits.
            FRAGMENT if two(rest, 2)? >> 3 == 0 => 8,
            _ => return None,
        };
        header = *rest.first()?;
        rest = rest.get(bytes..)?;
    }
}

/// The 16-bit number at `place`, in network byte order.
fn two(bytes: &[u8], place: usize) -> Option<u16> {
    bytes.get(place..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}
