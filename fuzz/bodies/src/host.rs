//! A host with frames of any bytes, and calls of its owner between them.

use core::net::{IpAddr, Ipv6Addr};
use upcall_core::time::{Instant, Span};
use upcall_proto::host::{AddressPrefix, Host, HostSettings};
use upcall_proto::packet::{Frame, LinkAddress, check, parse};

use crate::bytes::Bytes;

/// Most steps of an input.
const STEPS_MAX: usize = 64;
/// Longer than a frame of the host: 1500 bytes and the header of Ethernet.
const FRAME_BYTES_MAX: usize = 1_600;
const LINK: LinkAddress = [2, 0, 0, 0, 0, 1];
const OWN: [(&str, u8); 3] = [("10.0.0.1", 24), ("fe80::1", 64), ("2001:db8::1", 64)];
const GROUPS: [&str; 4] = ["239.1.2.3", "224.0.0.1", "ff0e::5", "ff01::5"];
const DESTINATIONS: [&str; 6] =
    ["10.0.0.2", "192.0.2.2", "10.0.0.255", "fe80::2", "2001:db8::2", "2002::2"];

#[derive(Debug)]
enum Step {
    Frame(Vec<u8>),
    Join(usize),
    Leave(usize),
    Path(usize),
    /// Packets to many neighbors, so that their table fills up.
    Neighbors {
        from: u32,
        how_many: u32,
    },
    Wait {
        us: u64,
    },
}

/// Drives a host as the bytes say. Panics if it sends a frame that is not valid, or if it says that
/// it has nothing to send and sends.
pub fn host(data: &[u8]) {
    let address = |text: &str| -> IpAddr { text.parse().unwrap() };
    let addresses = OWN.map(|(text, bits)| (address(text), bits));
    let addresses = addresses.map(|(address, prefix_bits)| AddressPrefix { address, prefix_bits });
    let gateways = vec![address("10.0.0.9"), address("fe80::9")];
    let settings =
        HostSettings { link: LINK, mtu: 1500, addresses: addresses.into(), gateways, seed: 7 };
    let mut host = Host::new(settings).unwrap();
    let mut now = Instant::ZERO;
    for step in &Bytes(data).all(STEPS_MAX, step).0 {
        match step {
            Step::Frame(frame) => {
                let Ok(parsed) = parse(frame) else { continue };
                let _any = host.input(frame, &parsed, now);
                if let Frame::Ip(headers) = &parsed {
                    host.unreachable(frame, headers, now);
                    let _any = host.path(None, headers.source.into(), now);
                }
            }
            Step::Join(group) => {
                let _full = host.join(address(GROUPS[*group]), now);
            }
            Step::Leave(group) => {
                let _not_joined = host.leave(address(GROUPS[*group]), now);
            }
            Step::Path(destination) => {
                let destination = address(DESTINATIONS[*destination]);
                let _unknown = host.path(None, destination, now);
                let bytes = host.packet_bytes_max(destination, now);
                let least = if destination.is_ipv4() { 552 } else { 1280 };
                assert!((least..=1500).contains(&bytes), "{bytes}");
            }
            Step::Neighbors { from, how_many } => {
                for number in *from..from + how_many {
                    let address = Ipv6Addr::from((0xfe80 << 112) + 0x1_0000 + u128::from(number));
                    let _unknown = host.path(None, address.into(), now);
                }
            }
            Step::Wait { us } => now += Span::from_micros(*us),
        }
        send(&mut host, now);
    }
}

/// Takes and checks all frames that are due.
fn send(host: &mut Host, now: Instant) {
    let mut out = [0; 1_514];
    let is_due = host.next_deadline().is_some_and(|at| at <= now);
    let mut sent = 0;
    while let Some(length) = host.output(&mut out, now) {
        let frame = &out[..length];
        assert_eq!(frame[6..12], LINK);
        match parse(frame) {
            Ok(Frame::Ip(headers)) => assert_eq!(check(frame, &headers), Ok(())),
            Ok(Frame::Arp(arp)) => assert_eq!(arp.source_link, LINK),
            other => panic!("{other:?}"),
        }
        sent += 1;
    }
    assert!(is_due || sent == 0, "{sent}");
    assert!(host.next_deadline().is_none_or(|at| at > now));
    assert_eq!(host.counts().too_long, 0);
}

fn step(bytes: &mut Bytes<'_>) -> Step {
    match bytes.small(12) {
        0 => Step::Join(bytes.small(4) as usize),
        1 => Step::Leave(bytes.small(4) as usize),
        2 => Step::Path(bytes.small(6) as usize),
        3 => {
            let (from, how_many) = (100 * bytes.small(4), bytes.small(64));
            Step::Neighbors { from, how_many }
        }
        4 | 5 => Step::Wait { us: bytes.below(20_000_000) },
        _ => {
            let length = usize::try_from(bytes.below(FRAME_BYTES_MAX as u64)).unwrap();
            let (frame, rest) = bytes.0.split_at(length.min(bytes.0.len()));
            bytes.0 = rest;
            Step::Frame(frame.to_vec())
        }
    }
}
