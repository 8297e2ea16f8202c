//! Parsers of values with a unit on the command line.

use std::net::IpAddr;

use upcall::admission::Share;
use upcall::packet_quota::{RECEIVE_PERIOD_MIN, ReceiveNeed, UdpDestination};
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

/// What a receiver takes: `udp:5004@90/s`, `udp:10.0.0.2:5004@90/s`, `udp:[::1]:5004@90/s`, each with
/// `,burst=8` at its end or without. At most 10,000,000 packets a second, at least one an hour.
pub fn receive_need(text: &str) -> Result<ReceiveNeed, String> {
    const FORM: &str = "expected udp:PORT@RATE such as udp:5004@90/s";
    let rest = text.strip_prefix("udp:").ok_or_else(|| format!("found no udp:, {FORM}"))?;
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
    let micro_hertz = spec::parse_rate(rate).map_err(|error| error.to_string())?.as_micro_hertz();
    // The period rounds down: a quota is never smaller than asked for.
    let period_ns = 1_000_000_000_000_000_u64.checked_div(micro_hertz);
    let period = Span::from_nanos(period_ns.unwrap_or(u64::MAX));
    if period < RECEIVE_PERIOD_MIN || period > Span::from_secs(3600) {
        return Err(format!("found {rate}, expected 1 packet an hour to 10,000,000 a second"));
    }
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
