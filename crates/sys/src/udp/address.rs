//! The address of a peer, as the kernel writes and reads it: `sockaddr_in`, `sockaddr_in6`.
//!
//! The module reads and writes bytes, without pointers, because a buffer holds either of the two.
//! See ip(7), ipv6(7).

use core::mem::size_of;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Size of the longer of the two.
pub(super) const ADDRESS_BYTES: usize = ADDRESS_LENGTH as usize;

/// The same size in the kernel's type.
pub(super) const ADDRESS_LENGTH: libc::socklen_t = 28;

const _: () = assert!(ADDRESS_BYTES == size_of::<libc::sockaddr_in6>());

/// The address in `bytes`, the part that the kernel filled in. `None` if it is neither IPv4 nor
/// IPv6.
pub(super) fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(field(bytes, 0)?));
    let port = u16::from_be_bytes(field(bytes, 2)?);
    match family {
        libc::AF_INET => {
            let ip = Ipv4Addr::from(field::<4>(bytes, 4)?);
            Some((ip, port).into())
        }
        libc::AF_INET6 => {
            // std keeps the flow label in the kernel's form, in network order.
            let flow = u32::from_ne_bytes(field(bytes, 4)?);
            let ip = Ipv6Addr::from(field::<16>(bytes, 8)?);
            let scope = u32::from_ne_bytes(field(bytes, 24)?);
            Some(SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

/// Writes `address` in the kernel's form, and returns how many bytes it has.
pub(super) fn write(address: SocketAddr, bytes: &mut [u8; ADDRESS_BYTES]) -> libc::socklen_t {
    #[expect(clippy::cast_possible_truncation, reason = "small constants")]
    let family = if address.is_ipv4() { libc::AF_INET as u16 } else { libc::AF_INET6 as u16 };
    bytes.fill(0);
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            bytes[4..8].copy_from_slice(&address.ip().octets());
            16
        }
        SocketAddr::V6(address) => {
            bytes[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
            bytes[8..24].copy_from_slice(&address.ip().octets());
            bytes[24..].copy_from_slice(&address.scope_id().to_ne_bytes());
            ADDRESS_LENGTH
        }
    }
}

fn field<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<[u8; BYTES]> {
    bytes.get(at..at + BYTES)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(family: i32, rest: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(family).unwrap().to_ne_bytes().to_vec();
        bytes.extend(rest);
        bytes
    }

    #[test]
    fn both_kinds_are_read_and_a_third_is_not() {
        let v4 = bytes_of(libc::AF_INET, &[0x13, 0x8c, 192, 0, 2, 7]);
        assert_eq!(parse(&v4), Some("192.0.2.7:5004".parse().unwrap()));
        let mut v6 = bytes_of(libc::AF_INET6, &[0x13, 0x8c, 0, 0, 0, 0]);
        v6.extend("fe80::7".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend(3u32.to_ne_bytes());
        assert_eq!(parse(&v6), Some("[fe80::7%3]:5004".parse().unwrap()));
        assert_eq!(v6.len(), ADDRESS_BYTES);
        assert_eq!(parse(&bytes_of(libc::AF_UNIX, &[0; 26])), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["192.0.2.7:5004", "[fe80::7%3]:5004", "[2001:db8::1]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut bytes = [0xEE; ADDRESS_BYTES];
            let length = write(address, &mut bytes) as usize;
            assert_eq!(parse(&bytes[..length]), Some(address));
        }
    }

    #[test]
    fn an_address_cut_short_is_none() {
        let whole = bytes_of(libc::AF_INET6, &[0; 26]);
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
    }
}
