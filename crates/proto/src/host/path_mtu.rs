//! The greatest packets on the way to destinations (RFC 1191, RFC 8201). [`super::Host`] alone
//! calls it, with the errors of routers about packets that the host may have sent.
//!
//! A destination is in the table while its packets are limited. A forged error costs small packets
//! for ten minutes at most. A flood of them evicts the others, and each is learned again from the
//! next packet that is too big.

use super::addresses::MTU_V6_MIN;
use core::net::IpAddr;
use upcall_core::time::{Instant, Span};

/// The most destinations with a limit: one a neighbor, as in their table.
pub const PATHS_MAX: usize = 256;

/// RFC 1191 §6.3, RFC 8201 §5.3.
const LOWERED_FOR: Span = Span::from_secs(600);
/// The least limit of IPv4: that of Linux (`min_pmtu`, ip-sysctl.rst). RFC 1191 §3 demands 68 at
/// least, but a forger could ask for it, and no link in use is so narrow.
const MTU_V4_MIN: u16 = 552;
/// The plateaus below the greatest packet (RFC 1191 §7.1), for routers that name no limit.
const PLATEAUS: [u16; 7] = [32000, 17914, 8166, 4352, 2002, 1492, 1006];

#[derive(Debug)]
struct Path {
    destination: IpAddr,
    bytes_max: u16,
    since: Instant,
}

#[derive(Debug)]
pub(super) struct Paths {
    /// Ordered by destination. Never longer than its first capacity.
    paths: Vec<Path>,
    mtu: u16,
    /// Limits that were lowered.
    pub(super) lowered: u64,
}

impl Paths {
    /// No limits but the `mtu` of the interface.
    pub(super) fn new(mtu: u16) -> Paths {
        Paths { paths: Vec::with_capacity(PATHS_MAX), mtu, lowered: 0 }
    }

    /// The greatest packet to `destination` in bytes. O(log paths).
    pub(super) fn bytes_max(&self, destination: IpAddr, now: Instant) -> u16 {
        let place = self.place(destination).ok();
        let path = place.map(|place| &self.paths[place]);
        path.filter(|path| now < path.since + LOWERED_FOR).map_or(self.mtu, |path| path.bytes_max)
    }

    /// A router says that a packet of `packet_bytes` did not fit, and names the limit, or 0.
    /// Returns the limit that holds now; `None`: the host sent no such packet. O(paths).
    pub(super) fn too_big(
        &mut self,
        destination: IpAddr,
        packet_bytes: u16,
        named: u32,
        now: Instant,
    ) -> Option<u16> {
        let named = u16::try_from(named).unwrap_or(u16::MAX);
        // Neither is about a packet of the host. An error never raises a limit (RFC 1191 §3).
        if packet_bytes > self.mtu || packet_bytes <= named {
            return None;
        }
        let bytes_max = match destination {
            // RFC 8201 §4: it is discarded.
            IpAddr::V6(_) if named < MTU_V6_MIN => return None,
            IpAddr::V6(_) => named,
            IpAddr::V4(_) => {
                let below = PLATEAUS.into_iter().find(|plateau| *plateau < packet_bytes);
                let named = if named == 0 { below.unwrap_or(0) } else { named };
                named.max(MTU_V4_MIN)
            }
        };
        let before = self.bytes_max(destination, now);
        if bytes_max >= before {
            return Some(before);
        }
        self.lowered += 1;
        let path = Path { destination, bytes_max, since: now };
        match self.place(destination) {
            Ok(place) => self.paths[place] = path,
            Err(_) => {
                if self.paths.len() >= PATHS_MAX {
                    let each = self.paths.iter().enumerate();
                    let oldest = each.min_by_key(|(_, path)| path.since);
                    self.paths.remove(oldest.map_or(0, |(place, _)| place));
                }
                let place = self.place(destination).unwrap_or_else(|place| place);
                self.paths.insert(place, path);
            }
        }
        Some(bytes_max)
    }

    fn place(&self, destination: IpAddr) -> Result<usize, usize> {
        self.paths.binary_search_by_key(&destination, |path| path.destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};

    fn v4(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    fn v6(number: u16) -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number).into()
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn an_error_lowers_the_limit_of_its_destination_for_ten_minutes() {
        let mut paths = Paths::new(1500);
        assert_eq!(paths.too_big(v4(1), 1500, 1400, at(5)), Some(1400));
        assert_eq!(paths.too_big(v4(1), 1400, 1300, at(6)), Some(1300));
        // Neither a higher limit, nor the same one again.
        assert_eq!(paths.too_big(v4(1), 1500, 1400, at(7)), Some(1300));
        assert_eq!(paths.too_big(v4(1), 1500, 1300, at(7)), Some(1300));
        assert_eq!(paths.lowered, 2);
        assert_eq!(
            (paths.bytes_max(v4(1), at(605)), paths.bytes_max(v4(2), at(605))),
            (1300, 1500)
        );
        assert_eq!(paths.bytes_max(v4(1), at(606)), 1500);
        assert_eq!(paths.too_big(v4(1), 1500, 1400, at(606)), Some(1400));
    }

    #[test]
    fn errors_about_packets_that_the_host_cannot_have_sent_are_ignored() {
        let mut paths = Paths::new(1500);
        for (bytes, named) in [(1501, 1400), (1400, 1400), (1500, 1 << 16), (1500, 9000)] {
            assert_eq!(paths.too_big(v4(1), bytes, named, at(0)), None);
            assert_eq!(paths.too_big(v6(1), bytes, named, at(0)), None);
        }
        assert!(paths.paths.is_empty());
    }

    #[test]
    fn no_limit_is_below_that_of_the_family() {
        let mut paths = Paths::new(1500);
        assert_eq!(paths.too_big(v4(1), 1500, 68, at(0)), Some(552));
        assert_eq!(paths.too_big(v6(1), 1500, 1279, at(0)), None);
        assert_eq!(paths.too_big(v6(1), 1500, 0, at(0)), None);
        assert_eq!(paths.too_big(v6(1), 1500, 1280, at(0)), Some(1280));
    }

    #[test]
    fn without_a_named_limit_the_next_plateau_is_taken() {
        let mut paths = Paths::new(9000);
        for (bytes, limit) in [(9000, 8166), (1500, 1492), (1492, 1006), (1006, 552)] {
            assert_eq!(paths.too_big(v4(1), bytes, 0, at(0)), Some(limit));
        }
        assert_eq!(paths.too_big(v4(1), 552, 0, at(0)), Some(552));
    }

    #[test]
    fn the_table_keeps_the_latest_limits() {
        let mut paths = Paths::new(1500);
        let max = u32::try_from(PATHS_MAX).unwrap();
        for number in 0..=max {
            assert!(paths.too_big(v4(number), 1500, 1400, at(number.into())).is_some());
        }
        assert_eq!((paths.paths.len(), paths.paths.capacity()), (PATHS_MAX, PATHS_MAX));
        let limits = [0, 1, max].map(|number| paths.bytes_max(v4(number), at(300)));
        assert_eq!(limits, [1500, 1400, 1400]);
    }
}
