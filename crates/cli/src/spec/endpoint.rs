//! The address of a stream's packets: `udp://127.0.0.1:5004`.
//!
//! The host is an IP literal or `localhost`. No name server is asked: its answer could change
//! between admission and the next run.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Why a text is not the address of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// It does not start with `udp://`.
    Scheme,
    /// The host is neither an IP address nor `localhost`.
    Host,
    /// An IPv6 address has no brackets.
    Brackets,
    /// There is no port, or it is not a number from 1 to 65535.
    Port,
}

/// Parses `udp://host:port`. `localhost` is 127.0.0.1.
///
/// # Errors
/// See [`EndpointError`].
pub fn parse_endpoint(text: &str) -> Result<SocketAddr, EndpointError> {
    let rest = text.strip_prefix("udp://").ok_or(EndpointError::Scheme)?;
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
            assert_eq!(parse_endpoint(text), Ok(address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn each_invalid_part_is_named() {
        use EndpointError::{Brackets, Host, Port, Scheme};
        for (text, error) in [
            ("", Scheme),
            ("127.0.0.1:5004", Scheme),
            ("tcp://127.0.0.1:5004", Scheme),
            ("UDP://127.0.0.1:5004", Scheme),
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
