//! Two owners of interfaces with hosts of their own, over a wire with faults, in virtual time. No
//! right is needed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "support/lent.rs"]
mod lent;

use std::net::{IpAddr, SocketAddr};

use upcall_core::time::{Instant, Span};
use upcall_runtime::net::host::{AddressPrefix, Host, HostSettings};
use upcall_runtime::net::{
    BindError, Checksums, FlowForm, FlowTerms, FrameForm, FrameSize, LinkSpec, MemoryDevice,
    NoteKind, Owner, OwnerError, OwnerSettings, Paths, Port, Quota, Received, Share, Spread,
    UdpFlow, area,
};

use lent::lent;

const FORM: FrameForm = FrameForm { frames: 1024, size: FrameSize::Half };
const MTU: u16 = 1500;

type TestOwner = Owner<MemoryDevice>;

/// The address of host 1 or 2.
fn address(host: u8, is_v4: bool) -> IpAddr {
    match is_v4 {
        true => IpAddr::from([10, 0, 0, host]),
        false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]),
    }
}

fn owners(spec: LinkSpec, seed: u64, link_bits_per_second: Option<u64>) -> [TestOwner; 2] {
    let areas = [area(FORM).unwrap(), area(FORM).unwrap()];
    let devices = MemoryDevice::pair([&areas[0], &areas[1]], spec, seed, 512);
    let mut host = 0;
    areas
        .into_iter()
        .zip(devices)
        .map(|(area, device)| {
            host += 1;
            let settings = HostSettings {
                link: [2, 0, 0, 0, 0, host],
                mtu: MTU,
                addresses: vec![
                    AddressPrefix { address: address(host, true), prefix_bits: 24 },
                    AddressPrefix { address: address(host, false), prefix_bits: 64 },
                ],
                gateways: Vec::new(),
                seed: seed + u64::from(host),
            };
            let paths = Paths::Own(Box::new(Host::new(settings).unwrap()));
            let spread = Spread { period: Span::from_millis(1), link_bits_per_second };
            let settings = OwnerSettings { flows_max: 16, spread, checksums: Checksums::Right };
            Owner::new(Port::new(area, device, FORM.frames / 2), paths, settings)
        })
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
}

fn terms(host: u8, is_v4: bool, port: u16) -> FlowTerms {
    FlowTerms::new(SocketAddr::new(address(host, is_v4), port))
}

fn at(us: u64) -> Instant {
    Instant::ZERO + Span::from_micros(us)
}

/// Whether the account of a closed owner has all frames.
fn is_whole(mut owner: TestOwner) -> bool {
    assert_eq!(owner.counts().account_errors, 0);
    let mut sent = Vec::with_capacity(1024);
    owner.port().collect(&mut sent).unwrap();
    owner.close().all_free()
}

/// The payload with this number: each length up to the longest comes up.
fn payload(number: u32) -> Vec<u8> {
    let mut bytes = vec![number.to_le_bytes()[0]; 4 + (number as usize * 11) % 1440];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn take_all(flow: &mut UdpFlow, mut each: impl FnMut(&[u8], SocketAddr)) {
    let mut bytes = [0; 2048];
    while let Some((length, peer, _)) = flow.receive(&mut bytes).unwrap() {
        each(&bytes[..length], peer);
    }
}

#[test]
fn datagrams_are_echoed_unchanged_over_a_faulty_wire() {
    let run = |seed| {
        let spec = LinkSpec {
            loss_ppm: 50_000,
            duplication_ppm: 50_000,
            reordering_ppm: 100_000,
            lateness: Span::from_micros(300),
            corruption_ppm: 50_000,
            ..LinkSpec::new(1_000_000_000, Span::from_micros(50))
        };
        let [mut one, mut two] = owners(spec, seed, None);
        let mut echoed = [Vec::new(), Vec::new()];
        for (is_v4, echoed) in [true, false].into_iter().zip(&mut echoed) {
            let (slot, mut flow) = one.bind(terms(1, is_v4, 5004)).unwrap();
            // The program of another process, as the owner has it.
            let local = terms(2, is_v4, 7);
            let (memory, of_program) = lent(local.form);
            let (_, wake) = two.bind_apart(local, memory).unwrap();
            let mut echo = of_program.attach(local.local, wake).unwrap();
            let peer = SocketAddr::new(address(2, is_v4), 7);
            let mut number = 0;
            for us in (0..4_000_000).step_by(100) {
                if number < 2_000 && us % 500 == 0 && flow.send(&payload(number), peer).unwrap() {
                    number += 1;
                }
                flow.flush();
                for owner in [&mut one, &mut two] {
                    owner.input(at(us), 32).unwrap();
                    owner.output(at(us), 32).unwrap();
                }
                let mut back = Vec::new();
                take_all(&mut echo, |bytes, peer| back.push((bytes.to_vec(), peer)));
                for (bytes, peer) in back {
                    assert_eq!(peer, SocketAddr::new(address(1, is_v4), 5004));
                    let _ = echo.send(&bytes, peer).unwrap();
                }
                echo.flush();
                take_all(&mut flow, |bytes, from| {
                    let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                    assert!(from == peer && bytes == payload(number), "{number} was changed");
                    echoed.push(number);
                });
            }
            assert_eq!(number, 2_000);
            let counts = one.flow_counts(slot).unwrap();
            assert!(counts.checksum + one.counts().malformed > 0, "no damage was found");
            drop(flow);
        }
        for owner in [&mut one, &mut two] {
            assert_eq!(owner.counts().faults, 0);
        }
        assert!(is_whole(one) && is_whole(two));
        echoed
    };
    let first = run(7);
    for echoed in &first {
        let mut distinct = echoed.clone();
        distinct.sort_unstable();
        distinct.dedup();
        // Lost or damaged: 9.75 % in each direction.
        assert!((1_500..1_800).contains(&distinct.len()), "{} came back", distinct.len());
        assert!(distinct.len() < echoed.len() && !echoed.is_sorted());
    }
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[test]
fn flows_share_the_link_by_weight_whatever_their_sizes() {
    // rtu-1996 §8, Figure 7: six streams. Here also with ratios.
    for weights in [[1; 6], [1, 2, 3, 4, 5, 6]] {
        let [mut one, mut two] = owners(LinkSpec::new(0, Span::ZERO), 1, Some(100_000_000));
        let mut flows = Vec::new();
        for (weight, port) in weights.into_iter().zip(5000..) {
            let terms = FlowTerms { send: Share::Weight(weight), ..terms(1, true, port) };
            flows.push(one.bind(terms).unwrap().1);
        }
        let (slot, mut sink) = two.bind(terms(2, true, 7)).unwrap();
        let peer = SocketAddr::new(address(2, true), 7);
        let mut bytes = [0u64; 6];
        for us in (0..1_300_000).step_by(500) {
            for (flow, number) in flows.iter_mut().zip(0..) {
                while flow.send(&vec![number; 200 + 200 * usize::from(number)], peer).unwrap() {}
                flow.flush();
            }
            one.input(at(us), 64).unwrap();
            one.output(at(us), 256).unwrap();
            two.input(at(us), 256).unwrap();
            two.output(at(us), 64).unwrap();
            take_all(&mut sink, |payload, _| {
                if us >= 100_000 {
                    bytes[usize::from(payload[0])] += payload.len() as u64 + 42;
                }
            });
        }
        let counts = two.flow_counts(slot).unwrap();
        assert_eq!((counts.receive_full, two.port().drops().unwrap().unwrap().all()), (0, 0));
        let all: u64 = bytes.iter().sum();
        // 100 Mbit/s for 1.2 s.
        assert!(all.abs_diff(15_000_000) < 30_000, "{all}");
        let parts: u64 = weights.iter().map(|&weight| u64::from(weight)).sum();
        for (got, weight) in bytes.iter().zip(weights) {
            let expected = all * u64::from(weight) / parts;
            assert!(got.abs_diff(expected) * 100 <= expected, "{got}, expected {expected}");
        }
    }
}

#[test]
fn a_flow_with_a_quota_gets_its_packets_in_a_flood() {
    let [mut one, mut two] = owners(LinkSpec::new(0, Span::ZERO), 3, None);
    let (_, mut flood) = one.bind(terms(1, true, 1)).unwrap();
    let (_, mut honest) = one.bind(terms(1, true, 2)).unwrap();
    let quota = |interval_ns, depth| Some(Quota { step_ns: 0, interval_ns, depth, at_once: 1 });
    let limited = FlowTerms { receive: quota(10_000_000, 2), ..terms(2, true, 5004) };
    let wanted = FlowTerms { receive: quota(5_000_000, 2), ..terms(2, true, 5006) };
    let (flooded, mut flooded_end) = two.bind(limited).unwrap();
    let (_, mut honest_end) = two.bind(wanted).unwrap();
    let target = |port| SocketAddr::new(address(2, true), port);
    let (mut got, mut times) = (0, Vec::new());
    for us in (0..1_020_000).step_by(1_000) {
        if us % 5_000 == 0 && us < 1_000_000 {
            assert!(honest.send(b"honest", target(5006)).unwrap());
        }
        for _ in 0..20 {
            let _ = flood.send(b"flood", target(5004)).unwrap();
        }
        flood.flush();
        honest.flush();
        for owner in [&mut one, &mut two] {
            owner.input(at(us), 64).unwrap();
            owner.output(at(us), 64).unwrap();
        }
        two.input(at(us), 64).unwrap();
        take_all(&mut flooded_end, |_, _| times.push(us));
        take_all(&mut honest_end, |_, _| got += 1);
    }
    assert_eq!(got, 200);
    assert!((100..=104).contains(&times.len()), "{}", times.len());
    // Eligible times: never two of the flood within 9 ms, once the first ones are through.
    assert!(times.windows(2).skip(2).all(|pair| pair[1] - pair[0] >= 9_000), "{times:?}");
    let queue = two.flow_counts(flooded).unwrap().queue;
    assert!(queue.dropped_in_all() > 10_000, "{queue:?}");
    drop((flood, honest, flooded_end, honest_end));
    assert!(is_whole(one) && is_whole(two));
}

#[test]
fn a_program_learns_why_its_datagrams_do_not_arrive() {
    let [mut one, mut two] = owners(LinkSpec::new(0, Span::ZERO), 3, None);
    for is_v4 in [true, false] {
        let (slot, mut flow) = one.bind(terms(1, is_v4, 5004)).unwrap();
        let nobody = SocketAddr::new(address(2, is_v4), 9);
        let absent = SocketAddr::new(address(77, is_v4), 9);
        let far: SocketAddr =
            if is_v4 { "192.0.2.1:9" } else { "[2001:db8::1]:9" }.parse().unwrap();
        let start = if is_v4 { 0 } else { 20_000_000 };
        assert!(flow.send(b"nobody", nobody).unwrap());
        assert!(flow.send(b"absent", absent).unwrap());
        assert!(flow.send(b"far", far).unwrap());
        assert!(flow.send(&[0; 1500], nobody).unwrap());
        flow.flush();
        let mut told = Vec::new();
        for us in (start..start + 8_000_000).step_by(1_000) {
            for owner in [&mut one, &mut two] {
                owner.input(at(us), 64).unwrap();
                owner.output(at(us), 64).unwrap();
            }
            while let Some(received) = flow.take().unwrap() {
                let Received::Error { peer, kind } = received else { panic!("{received:?}") };
                told.push((peer, kind));
            }
        }
        assert_eq!(
            told,
            [
                (nobody, NoteKind::PortUnreachable),
                (absent, NoteKind::HostUnreachable),
                (far, NoteKind::HostUnreachable),
                (nobody, NoteKind::TooLong { packet_bytes_max: MTU }),
            ]
        );
        let counts = one.flow_counts(slot).unwrap();
        assert_eq!((counts.sent, counts.unreachable, counts.too_long), (1, 2, 1));
    }
    assert!(is_whole(one) && is_whole(two));
}

#[test]
fn an_address_has_one_flow_and_a_closed_flow_leaves_nothing() {
    let [mut one, _two] = owners(LinkSpec::new(0, Span::ZERO), 3, None);
    let (slot, flow) = one.bind(terms(1, true, 5004)).unwrap();
    assert!(one.bind(terms(1, true, 5004)).is_err());
    let taken = terms(1, true, 5004);
    assert!(one.bind_apart(taken, lent(taken.form).0).is_err());
    let odd = FlowForm { receive_slots: 3, transmit_slots: 64 };
    assert!(one.bind(FlowTerms { form: odd, ..terms(1, true, 5005) }).is_err());
    let greedy = FlowForm { receive_slots: 4, transmit_slots: 4096 };
    assert!(one.bind(FlowTerms { form: greedy, ..terms(1, true, 5005) }).is_err());
    drop(flow);
    one.input(at(0), 1).unwrap();
    assert!(one.take_closed() && one.flow_counts(slot).is_none());
    for _ in 0..100 {
        let (slot, flow) = one.bind(terms(1, true, 5004)).unwrap();
        one.unbind(slot);
        drop(flow);
    }
    assert!(is_whole(one));
}

#[test]
fn there_are_no_more_flows_than_there_may_be_and_a_free_slot_is_taken_again() {
    let [mut one, _two] = owners(LinkSpec::new(0, Span::ZERO), 3, None);
    let bind = |one: &mut TestOwner, port| {
        let terms = terms(1, true, port);
        one.bind_apart(terms, lent(terms.form).0).map(|(slot, _)| slot)
    };
    let slots: Vec<u32> = (5000..5016).map(|port| bind(&mut one, port).unwrap()).collect();
    assert!(slots.iter().copied().eq(0..16));
    assert!(matches!(bind(&mut one, 5016), Err(OwnerError::Bind(BindError::Full))));
    one.unbind(7);
    assert_eq!(bind(&mut one, 5016).unwrap(), 7);
    assert!(bind(&mut one, 5017).is_err());
    assert!(is_whole(one));
}

#[test]
fn flows_whose_packets_have_no_way_keep_no_other_from_sending() {
    let [mut one, mut two] = owners(LinkSpec::new(0, Span::ZERO), 3, None);
    let (_, mut honest) = one.bind(terms(1, true, 5000)).unwrap();
    let mut hostile: Vec<UdpFlow> =
        (5001..5006).map(|port| one.bind(terms(1, true, port)).unwrap().1).collect();
    let (_, mut sink) = two.bind(terms(2, true, 7)).unwrap();
    let peer = SocketAddr::new(address(2, true), 7);
    let far: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let (mut sent, mut received, mut worst, mut waits) = (0u32, 0u32, 0u32, 0u32);
    // Calls of the owner with a small batch, as those of the daemon.
    for us in (0..200_000).step_by(100) {
        for flow in &mut hostile {
            while flow.send(b"nowhere", far).unwrap() {}
            while flow.take().unwrap().is_some() {}
            flow.flush();
        }
        if sent == received && us >= 10_000 {
            assert!(honest.send(b"honest", peer).unwrap());
            honest.flush();
            (sent, waits) = (sent + 1, 0);
        }
        one.input(at(us), 16).unwrap();
        one.output(at(us), 16).unwrap();
        two.input(at(us), 16).unwrap();
        two.output(at(us), 16).unwrap();
        take_all(&mut sink, |_, _| received += 1);
        waits += u32::from(received < sent);
        // The first one finds out the link address.
        if sent > 1 {
            worst = worst.max(waits);
        }
    }
    assert!(received > 100, "{received}");
    assert!(worst <= 20, "an honest packet waited for {worst} calls");
}
