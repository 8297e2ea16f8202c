//! Parsers of values with a unit on the command line.

use std::net::IpAddr;

use upcall::admission::Share;
use upcall::packet_quota::{ReceiveNeed, UdpDestination};
use upcall::time::Span;

use crate::spec;

/// 10 ms to 7 days.
pub fn duration(text: &str) -> Result<Span, String> {
    let span = spec::parse_duration(text).map_err(|error| error.to_string())?;
    let longest = Span::from_secs(7 * 24 * 3600);
    if span < Span::from_millis(10) || span > longest {
        return Err(format!("{span} is outside 10 ms to 7 days"));
    }
    Ok(span)
}

/// Any time.
pub fn short_duration(text: &str) -> Result<Span, String> {
    spec::parse_duration(text).map_err(|error| error.to_string())
}

/// What a receiver takes: `udp:5004@90/s`, `udp:10.0.0.2:5004@90/s`, `udp:[::1]:5004@90/s`, each
/// with `,burst=8` at its end or without. From one packet an hour to 10,000,000 a second.
pub fn receive_need(text: &str) -> Result<ReceiveNeed, String> {
    const FORM: &str = "expected udp:PORT@RATE such as udp:5004@90/s";
    let rest = text
        .strip_prefix("udp:")
        .ok_or_else(|| format!("found no udp:, {FORM}; only UDP can be limited"))?;
    let (place, rest) = rest.split_once('@').ok_or_else(|| format!("found no @, {FORM}"))?;
    let (address, port) = match place.rsplit_once(':') {
        Some((address, port)) => (Some(address), port),
        None => (None, place),
    };
    let address = address.map(ip_address).transpose()?;
    let port = port.parse::<u16>().ok().filter(|&port| port > 0);
    let port = port.ok_or_else(|| "expected a port from 1 to 65535".to_owned())?;
    let (rate, burst) = match rest.split_once(",burst=") {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (rest, None),
    };
    let burst = burst.map(|text| match text.parse::<u32>() {
        Ok(burst) if burst <= BURST_MAX => Ok(burst),
        _ => Err(format!("found burst={text}, expected 0 to {BURST_MAX}")),
    });
    let period = spec::parse_packet_period(rate)?;
    let destination = UdpDestination { address, port };
    Ok(ReceiveNeed { destination, period, burst: burst.transpose()? })
}

/// The most packets that may come ahead of a rate.
const BURST_MAX: u32 = 1_000_000;

/// An IP address, an IPv6 address in brackets.
fn ip_address(text: &str) -> Result<IpAddr, String> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match inner {
        Some(inner) => inner.parse().map(IpAddr::V6),
        None => text.parse().map(IpAddr::V4),
    };
    address.map_err(|_| format!("found `{text}`, expected an address such as 10.0.0.2 or [::1]"))
}

/// More than 0 %, and at most 100 %.
pub fn share(text: &str) -> Result<Share, String> {
    let ppm = spec::parse_share(text).map_err(|error| error.to_string())?;
    Share::from_ppm(ppm).ok_or_else(|| "found 0 %, expected more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use upcall::packet_quota::RECEIVE_PERIOD_MIN;

    #[test]
    fn a_receive_need_has_a_port_a_rate_and_perhaps_an_address_and_a_burst() {
        let need = receive_need("udp:5004@90/s").unwrap();
        assert_eq!(need.destination, UdpDestination { address: None, port: 5004 });
        assert_eq!((need.period, need.burst), (Span::from_nanos(11_111_111), None));
        let need = receive_need("udp:10.0.0.2:5004@1/min,burst=8").unwrap();
        assert_eq!(need.destination.address, Some("10.0.0.2".parse().unwrap()));
        // A rate rounds up to a millionth a second.
        assert_eq!((need.period, need.burst), (Span::from_nanos(59_998_800_023), Some(8)));
        let need = receive_need("udp:[fe80::1]:65535@10000000/s,burst=0").unwrap();
        assert_eq!(need.destination.address, Some("fe80::1".parse().unwrap()));
        assert_eq!((need.period, need.burst), (RECEIVE_PERIOD_MIN, Some(0)));
    }

    #[test]
    fn each_wrong_receive_need_names_its_fault() {
        for (text, fault) in [
            ("5004@90/s", "found no udp:"),
            ("tcp:5004@90/s", "found no udp:"),
            ("udp:5004", "found no @"),
            ("udp:0@90/s", "a port from 1 to 65535"),
            ("udp:65536@90/s", "a port from 1 to 65535"),
            ("udp:host:5004@90/s", "found `host`, expected an address"),
            ("udp:fe80::1:5004@90/s", "found `fe80::1`, expected an address"),
            ("udp:5004@90", "90"),
            ("udp:5004@0/s", "1 packet an hour to 10,000,000 a second"),
            ("udp:5004@10000001/s", "1 packet an hour to 10,000,000 a second"),
            ("udp:5004@90/s,burst=-1", "found burst=-1, expected 0 to 1000000"),
            ("udp:5004@90/s,burst=1000001", "expected 0 to 1000000"),
        ] {
            let error = receive_need(text).unwrap_err();
            assert!(error.contains(fault), "{text}: {error}");
        }
    }
}
