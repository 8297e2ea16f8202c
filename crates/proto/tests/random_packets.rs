//! Random and damaged frames through the parsers, the demultiplexer and the host: no panic, bounded
//! memory, and the short way of a datagram agrees with the long one.
//!
//! `UPCALL_PACKETS=10000000 UPCALL_SEED=7` chooses how many and which.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use upcall_core::time::{Instant, Span};
use upcall_proto::flow::{Destination, FlowTable, UDP};
use upcall_proto::fragments::Fragments;
use upcall_proto::host::{AddressPrefix, Host, HostSettings};
use upcall_proto::packet::build::{self, Path};
use upcall_proto::packet::{self, Datagram, Frame, LinkAddress, PLAIN_WORDS};
use upcall_proto::quota::Quota;
use upcall_proto::schedule::{PacketSchedule, Service};

const OWN: LinkAddress = [2, 0, 0, 0, 0, 1];
const PEER: LinkAddress = [2, 0, 0, 0, 0, 2];
const FLOWS: u16 = 8;

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.word() % end as u64).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.word().to_le_bytes()[0]
    }
}

fn path(is_v4: bool) -> Path {
    let of = |last: u16| match is_v4 {
        true => IpAddr::V4(Ipv4Addr::new(10, 0, 0, last.to_le_bytes()[0])),
        false => IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)),
    };
    Path { link_source: PEER, link_destination: OWN, source: of(2), destination: of(1) }
}

/// A frame of one of the kinds that arrive, half of them damaged.
fn frame(random: &mut Random, out: &mut [u8; 2048]) -> usize {
    let way = path(random.below(2) == 0);
    let payload: Vec<u8> = (0..random.below(64)).map(|_| random.byte()).collect();
    let port = 5000 + u16::try_from(random.below(usize::from(FLOWS) + 2)).unwrap();
    let mut length = match random.below(8) {
        0 => (0..random.below(200)).map(|at| out[at] = random.byte()).count(),
        1 => build::arp_request(out, PEER, Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1))
            .unwrap(),
        2 => build::echo_request(out, way, (1, 2), &payload).unwrap(),
        _ => build::udp(out, way, (7, port), &payload).unwrap(),
    };
    if random.below(2) == 0 && length > 0 {
        for _ in 0..=random.below(4) {
            // Most of what matters is in the headers.
            let at = random.below(length.min(80));
            out[at] = random.byte();
        }
        if random.below(4) == 0 {
            length = random.below(length + 1);
        }
    }
    length
}

#[test]
fn random_packets_break_nothing() {
    let number = |name: &str, default| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let (packets, seed) = (number("UPCALL_PACKETS", 100_000), number("UPCALL_SEED", 7));
    let mut random = Random(seed);
    let address = |is_v4| AddressPrefix {
        address: path(is_v4).destination,
        prefix_bits: if is_v4 { 24 } else { 64 },
    };
    let settings = HostSettings {
        link: OWN,
        mtu: 1500,
        addresses: vec![address(true), address(false)],
        gateways: Vec::new(),
        seed,
    };
    let mut host = Host::new(settings).unwrap();
    let mut table = FlowTable::new(usize::from(FLOWS));
    let mut fragments = Fragments::new(64, Span::from_secs(30), seed);
    let mut schedule = PacketSchedule::new(Service::Eligible, FLOWS.into());
    for slot in 0..FLOWS {
        let any = Ipv6Addr::UNSPECIFIED.into();
        table.bind(Destination::new(any, UDP, 5000 + slot), slot.into()).unwrap();
        schedule.bind(slot.into(), Quota { step_ns: 0, interval_ns: 50_000, depth: 4, at_once: 1 });
    }
    let mut out = [0; 2048];
    let [mut datagrams, mut right, mut scheduled, mut taken, mut answers] = [0u64; 5];
    for number in 0..packets {
        let now = Instant::ZERO + Span::from_micros(number);
        let length = frame(&mut random, &mut out);
        let bytes = &out[..length];
        let parsed = packet::parse(bytes);
        // With what an earlier frame left behind this one.
        let mut head = [[0; 8]; PLAIN_WORDS];
        head.as_flattened_mut().copy_from_slice(&out[..8 * PLAIN_WORDS]);
        let plain = Datagram::plain(&head, length);
        let long = match &parsed {
            Ok(Frame::Ip(headers)) => Datagram::of(bytes, headers),
            _ => None,
        };
        if plain.is_some() {
            assert_eq!(plain, long, "packet {number} of seed {seed}");
        }
        if let Ok(Frame::Ip(headers)) = &parsed {
            let _ = headers.destination_by(&mut fragments, now);
        }
        if let Some(datagram) = &long {
            datagrams += 1;
            right += u64::from(datagram.is_right(bytes));
            match table.slot(datagram.destination()) {
                Some(slot) => scheduled += u64::from(schedule.push(slot, number, now).is_ok()),
                None => {
                    if let Ok(Frame::Ip(headers)) = &parsed
                        && packet::check(bytes, headers).is_ok()
                    {
                        host.unreachable(bytes, headers, now);
                    }
                }
            }
        } else if let Ok(parsed) = &parsed {
            let _ = host.input(bytes, parsed, now);
        }
        schedule.begin(4);
        taken += std::iter::from_fn(|| schedule.next(now)).count() as u64;
        let mut answer = [0; 2048];
        while host.next_deadline().is_some_and(|at| at <= now)
            && let Some(length) = host.output(&mut answer, now)
        {
            answers += 1;
            // What the host sends, it could read itself.
            assert!(packet::parse(&answer[..length]).is_ok(), "packet {number} of seed {seed}");
        }
    }
    println!(
        "{packets} packets of seed {seed}: {datagrams} datagrams, {right} right, {scheduled} \
         scheduled, {taken} taken, {answers} answers"
    );
    // Each kind was there, and each outcome.
    assert!(right > packets / 4 && right < datagrams && datagrams < packets);
    assert!(taken > 0 && taken < scheduled + 1 && scheduled < datagrams && answers > 0);
}
