//! The address of a stream's packets: `udp://127.0.0.1:5004`, or `xdp://eth1/10.0.0.2:5004`.
//!
//! The host is an IP literal or `localhost`. No name server is asked: its answer could change
//! between admission and the next run.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Longest name of an interface in bytes: `IFNAMSIZ` of linux/if.h without the end.
const INTERFACE_BYTES_MAX: usize = 15;

/// Where the packets of a stream go, and what processes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address and port.
    pub socket: SocketAddr,
    /// `xdp://`: the interface whose packets are processed in user space. `None`: the kernel's UDP.
    pub interface: Option<String>,
}

impl fmt::Display for Address {
    /// As in the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            None => write!(f, "udp://{}", self.socket),
            Some(interface) => write!(f, "xdp://{interface}/{}", self.socket),
        }
    }
}

/// Why a text is not the address of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// It starts neither with `udp://` nor with `xdp://`.
    Scheme,
    /// After `xdp://` there is no name of an interface and a slash.
    Interface,
    /// The host is neither an IP address nor `localhost`.
    Host,
    /// An IPv6 address has no brackets.
    Brackets,
    /// There is no port, or it is not a number from 1 to 65535.
    Port,
}

/// Parses `udp://host:port` or `xdp://interface/host:port`. `localhost` is 127.0.0.1.
///
/// # Errors
/// See [`EndpointError`].
pub fn parse_endpoint(text: &str) -> Result<Address, EndpointError> {
    if let Some(rest) = text.strip_prefix("udp://") {
        return Ok(Address { socket: parse_socket(rest)?, interface: None });
    }
    let rest = text.strip_prefix("xdp://").ok_or(EndpointError::Scheme)?;
    let (name, rest) = rest.split_once('/').ok_or(EndpointError::Interface)?;
    if !is_interface_name(name) {
        return Err(EndpointError::Interface);
    }
    Ok(Address { socket: parse_socket(rest)?, interface: Some(name.to_owned()) })
}

/// Whether the kernel takes such a name.
fn is_interface_name(name: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && byte != b':' && byte != b'/';
    !matches!(name, "" | "." | "..")
        && name.len() <= INTERFACE_BYTES_MAX
        && name.bytes().all(is_valid)
}

/// Parses `host:port`.
fn parse_socket(rest: &str) -> Result<SocketAddr, EndpointError> {
    if let Some(rest) = rest.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or(EndpointError::Brackets)?;
        let host = host.parse().map(IpAddr::V6).map_err(|_| EndpointError::Host)?;
        let port = rest.strip_prefix(':').ok_or(EndpointError::Port)?;
        return Ok(SocketAddr::new(host, parse_port(port)?));
    }
    if rest.parse::<IpAddr>().is_ok_and(|host| host.is_ipv6()) {
        return Err(EndpointError::Brackets);
    }
    let (host, port) = rest.rsplit_once(':').unwrap_or((rest, ""));
    let host = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        _ => match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => return Err(EndpointError::Brackets),
            Ok(host) => host,
            Err(_) => return Err(EndpointError::Host),
        },
    };
    Ok(SocketAddr::new(host, parse_port(port)?))
}

/// Whether two sockets that receive on these addresses would get the same packets: their ports are
/// equal, and their addresses are equal or one is unspecified.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port()
        && one.is_ipv4() == other.is_ipv4()
        && (any || one.ip() == other.ip())
}

fn parse_port(text: &str) -> Result<u16, EndpointError> {
    match text.parse() {
        Ok(port) if port > 0 && text.bytes().all(|b| b.is_ascii_digit()) => Ok(port),
        _ => Err(EndpointError::Port),
    }
}

impl EndpointError {
    /// What is valid in the file.
    pub const fn expected(self) -> &'static str {
        match self {
            EndpointError::Scheme => "an address such as \"udp://127.0.0.1:5004\"",
            EndpointError::Interface => {
                "an interface and an address such as \"xdp://eth1/10.0.0.2:5004\""
            }
            EndpointError::Host => "an IP address or localhost (no other names are looked up)",
            EndpointError::Brackets => "an IPv6 address in brackets such as \"udp://[::1]:5004\"",
            EndpointError::Port => "a port from 1 to 65535 such as \"udp://127.0.0.1:5004\"",
        }
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected())
    }
}

impl core::error::Error for EndpointError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_localhost_are_accepted() {
        for (text, address) in [
            ("udp://127.0.0.1:5004", "127.0.0.1:5004"),
            ("udp://localhost:1", "127.0.0.1:1"),
            ("udp://0.0.0.0:65535", "0.0.0.0:65535"),
            ("udp://239.1.2.3:5004", "239.1.2.3:5004"),
            ("udp://[::1]:5004", "[::1]:5004"),
        ] {
            let socket = address.parse().unwrap();
            assert_eq!(parse_endpoint(text), Ok(Address { socket, interface: None }), "{text}");
        }
    }

    #[test]
    fn an_interface_stands_before_its_address() {
        for (text, interface, address) in [
            ("xdp://eth1/10.0.0.2:5004", "eth1", "10.0.0.2:5004"),
            ("xdp://veth-r/0.0.0.0:1", "veth-r", "0.0.0.0:1"),
            ("xdp://enp3s0.100@if7/[fe80::1]:5004", "enp3s0.100@if7", "[fe80::1]:5004"),
            ("xdp://lo/localhost:5004", "lo", "127.0.0.1:5004"),
        ] {
            let interface = Some(interface.to_owned());
            let address = Address { socket: address.parse().unwrap(), interface };
            assert_eq!(parse_endpoint(text).as_ref(), Ok(&address), "{text}");
            assert_eq!(parse_endpoint(&address.to_string()), Ok(address));
        }
    }

    #[test]
    fn each_invalid_part_is_named() {
        use EndpointError::{Brackets, Host, Interface, Port, Scheme};
        for (text, error) in [
            ("", Scheme),
            ("127.0.0.1:5004", Scheme),
            ("tcp://127.0.0.1:5004", Scheme),
            ("UDP://127.0.0.1:5004", Scheme),
            ("xdp:/eth1/10.0.0.2:5004", Scheme),
            ("xdp://", Interface),
            ("xdp://10.0.0.2:5004", Interface),
            ("xdp:///10.0.0.2:5004", Interface),
            ("xdp://../10.0.0.2:5004", Interface),
            ("xdp://eth 1/10.0.0.2:5004", Interface),
            ("xdp://eth:1/10.0.0.2:5004", Interface),
            ("xdp://a-name-with-16-b/10.0.0.2:5004", Interface),
            ("xdp://eth1/", Host),
            ("xdp://eth1/10.0.0.2", Port),
            ("xdp://eth1/10.0.0.2:5004/", Port),
            ("xdp://eth1/fe80::1:5004", Brackets),
            ("xdp://eth1/eth2/10.0.0.2:5004", Host),
            ("udp://eth1/10.0.0.2:5004", Host),
            ("udp://", Host),
            ("udp://:5004", Host),
            ("udp://example.org:5004", Host),
            ("udp://127.0.0.1.:5004", Host),
            ("udp://127.1:5004", Host),
            ("udp:// 127.0.0.1:5004", Host),
            ("udp://user@127.0.0.1:5004", Host),
            ("udp://[127.0.0.1]:5004", Host),
            ("udp://[::1%lo]:5004", Host),
            ("udp://::1", Brackets),
            ("udp://::1:5004", Brackets),
            ("udp://2001:db8:0:0:0:0:0:1:5004", Brackets),
            ("udp://[::1:5004", Brackets),
            ("udp://[::1]", Port),
            ("udp://[::1]5004", Port),
            ("udp://127.0.0.1", Port),
            ("udp://127.0.0.1:", Port),
            ("udp://127.0.0.1:0", Port),
            ("udp://127.0.0.1:65536", Port),
            ("udp://127.0.0.1:+5", Port),
            ("udp://127.0.0.1:-5", Port),
            ("udp://127.0.0.1:5004/", Port),
            ("udp://127.0.0.1:5004 ", Port),
        ] {
            assert_eq!(parse_endpoint(text), Err(error), "{text}");
        }
    }

    #[test]
    fn the_unspecified_address_overlaps_its_family_on_one_port() {
        let all = ["127.0.0.1:1", "0.0.0.0:1", "10.0.0.1:1", "127.0.0.1:2", "[::]:1", "[::1]:1"];
        let overlaps =
            |one: &str, other: &str| overlap(one.parse().unwrap(), other.parse().unwrap());
        for one in all {
            assert!(overlaps(one, one));
            for other in all {
                assert_eq!(overlaps(one, other), overlaps(other, one));
            }
        }
        assert!(overlaps("127.0.0.1:1", "0.0.0.0:1"));
        assert!(overlaps("[::]:1", "[::1]:1"));
        assert!(!overlaps("127.0.0.1:1", "10.0.0.1:1"));
        assert!(!overlaps("127.0.0.1:1", "127.0.0.1:2"));
        assert!(!overlaps("0.0.0.0:1", "[::]:1"));
    }
}
