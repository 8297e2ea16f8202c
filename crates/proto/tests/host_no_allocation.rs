//! A host allocates when it is made, and never again: full tables and queues included.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use upcall_core::time::{Instant, Span};
use upcall_proto::host::{AddressPrefix, Host, HostSettings, IgnoreReason, Input};
use upcall_proto::packet::build::{self, Path};
use upcall_proto::packet::{Frame, LinkAddress, parse};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const OWN: LinkAddress = [2, 0, 0, 0, 0, 1];
const PEER: LinkAddress = [2, 0, 0, 0, 0, 2];

#[test]
fn a_host_does_not_allocate() {
    let _profiler = dhat::Profiler::builder().testing().build();
    // The thread that waits for the test may allocate once meanwhile. A host does so each time.
    let tries: Vec<u64> = (0..3).map(|_| allocations()).collect();
    assert!(tries.contains(&0), "{tries:?}");
    // Checks that the test can fail: an allocation is counted.
    let before = dhat::HeapStats::get().total_blocks;
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(dhat::HeapStats::get().total_blocks, before + 1);
}

/// How often a host allocates while all its tables and queues are filled.
fn allocations() -> u64 {
    let (own, peer) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let addresses = vec![
        AddressPrefix { address: own.into(), prefix_bits: 8 },
        AddressPrefix { address: "2001:db8::1".parse().unwrap(), prefix_bits: 64 },
    ];
    let settings = HostSettings { link: OWN, mtu: 1500, addresses, gateways: vec![], seed: 7 };
    let mut host = Host::new(settings).unwrap();
    let (mut frame, mut out) = ([0; 1514], [0; 1514]);
    let mut now = Instant::ZERO;
    let blocks = || dhat::HeapStats::get().total_blocks;
    let (before, mut sent) = (blocks(), 0);
    for number in 0..2_000u32 {
        now += Span::from_millis(7);
        let other = Ipv4Addr::from(0x0a01_0000 + number);
        let path = Path {
            link_source: PEER,
            link_destination: OWN,
            source: peer.into(),
            destination: own.into(),
        };
        let lengths = [
            |frame: &mut [u8], other, _| {
                build::arp_request(frame, PEER, other, Ipv4Addr::new(10, 0, 0, 1))
            },
            |frame: &mut [u8], _, path| build::echo_request(frame, path, (1, 2), &[0; 1000]),
            |frame: &mut [u8], _, path| build::udp(frame, path, (7, 9), &[0; 1000]),
            // The host has sent it to `other`, and the peer says that it is too big.
            |frame: &mut [u8], other: Ipv4Addr, path: Path| {
                let mut quote = [0; 28];
                (quote[0], quote[2], quote[3], quote[9]) = (0x45, 5, 0xdc, 17);
                quote[12..16].copy_from_slice(&[10, 0, 0, 1]);
                quote[16..20].copy_from_slice(&other.octets());
                let length = build::echo_request(frame, path, (0, 1400), &quote)?;
                (frame[34], frame[35]) = (3, 4);
                let mut packet = smoltcp::wire::Icmpv4Packet::new_unchecked(&mut frame[34..length]);
                packet.fill_checksum();
                Ok(length)
            },
        ];
        for write in lengths {
            let length = write(&mut frame, other, path).unwrap();
            let parsed = parse(&frame[..length]).unwrap();
            let found = host.input(&frame[..length], &parsed, now);
            if let Frame::Ip(headers) = &parsed {
                host.unreachable(&frame[..length], headers, now);
            }
            // A datagram is not for `input`.
            let is_datagram = found == Input::Ignored(IgnoreReason::Unsupported);
            assert!(is_datagram || !matches!(found, Input::Ignored(_)), "{found:?}");
        }
        let _resolving = host.path(None, Ipv4Addr::from(0x0a02_0000 + number).into(), now);
        let group: IpAddr =
            Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, u16::try_from(number % 99).unwrap()).into();
        let _full = host.join(group, now);
        let _not_joined = host.leave(group, now);
        let _full = host.join(group, now);
        while host.output(&mut out, now).is_some() {
            sent += 1;
        }
    }
    let found = blocks() - before;
    assert!(sent > 4_000, "{sent}");
    let counts = host.counts();
    assert!(counts.neighbors_refused > 0 && counts.paths_lowered == 2_000, "{counts:?}");
    found
}
