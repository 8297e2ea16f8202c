//! The sender of a datagram, as the kernel writes it: `sockaddr_in`, `sockaddr_in6`.
//!
//! The module reads bytes, without pointers, because a buffer holds either of the two. See ip(7),
//! ipv6(7).

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
    fn an_address_cut_short_is_none() {
        let whole = bytes_of(libc::AF_INET6, &[0; 26]);
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length}");
        }
    }
}
