use super::*;
use crate::flow::TCP;
use crate::packet::{ChecksumError, parse};
use core::net::Ipv4Addr;
use smoltcp::wire::{Icmpv4Packet, Icmpv6Packet, Ipv4Packet};
use upcall_core::time::Span;

mod damage;
mod path_errors;

const OWN: LinkAddress = [2, 0, 0, 0, 0, 1];
const PEER: LinkAddress = [2, 0, 0, 0, 0, 2];
const ROUTER: LinkAddress = [2, 0, 0, 0, 0, 9];
const T0: Instant = Instant::ZERO;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn settings() -> HostSettings {
    let own = [("10.0.0.1", 24), ("fe80::1", 64), ("2001:db8::1", 64)];
    let addresses = own.map(|(text, prefix_bits)| AddressPrefix { address: ip(text), prefix_bits });
    let gateways = vec![ip("10.0.0.9"), ip("fe80::9")];
    HostSettings { link: OWN, mtu: 1500, addresses: addresses.into(), gateways, seed: 7 }
}

/// A host that has sent what it sends at the start.
fn host() -> Host {
    let mut host = Host::new(settings()).unwrap();
    for second in 0..60 {
        sent(&mut host, T0 + Span::from_secs(second));
    }
    host
}

/// All frames that are due.
fn sent(host: &mut Host, now: Instant) -> Vec<Vec<u8>> {
    let mut out = vec![0xaa; 1514];
    let next = || host.output(&mut out, now).map(|length| out[..length].to_vec());
    std::iter::from_fn(next).collect()
}

fn input(host: &mut Host, frame: &[u8]) -> Input {
    host.input(frame, &parse(frame).unwrap(), T0)
}

fn built(write: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>) -> Vec<u8> {
    let mut out = vec![0xaa; 9_000];
    let length = write(&mut out).unwrap();
    out.truncate(length);
    out
}

fn headers(frame: &[u8]) -> Headers {
    let Ok(Frame::Ip(headers)) = parse(frame) else { panic!("{frame:?}") };
    assert_eq!(check(frame, &headers), Ok(()));
    headers
}

/// A way of a peer to the host.
fn way(source: &str, destination: &str) -> Path {
    let (link_source, link_destination) = (PEER, OWN);
    Path { link_source, link_destination, source: ip(source), destination: ip(destination) }
}

const WAYS: [(&str, &str); 2] = [("10.0.0.2", "10.0.0.1"), ("2001:db8::2", "2001:db8::1")];

fn echo(path: Path, payload: &[u8]) -> Vec<u8> {
    built(|out| build::echo_request(out, path, (1, 2), payload))
}

fn datagram(path: Path) -> Vec<u8> {
    built(|out| build::udp(out, path, (7, 5004), b"payload"))
}

/// The error that the router sends about `packet` of the host: type and code, the word after the
/// checksum, and the whole packet.
fn error_about(packet: &[u8], (kind, code): (u8, u8), word: u32) -> Vec<u8> {
    let is_v4 = packet[12..14] == [8, 0];
    let (router, own) = if is_v4 { ("10.0.0.9", "10.0.0.1") } else { ("fe80::9", "2001:db8::1") };
    let path = Path { link_source: ROUTER, ..way(router, own) };
    let quote = &packet[14..packet.len().min(14 + 548)];
    let mut frame = built(|out| build::echo_request(out, path, (0, 0), quote));
    let at = if is_v4 { 34 } else { 54 };
    (frame[at], frame[at + 1]) = (kind, code);
    frame[at + 4..at + 8].copy_from_slice(&word.to_be_bytes());
    if is_v4 {
        Icmpv4Packet::new_unchecked(&mut frame[at..]).fill_checksum();
    } else {
        let (source, to) = (v6(router), v6(own));
        Icmpv6Packet::new_unchecked(&mut frame[at..]).fill_checksum(&source, &to);
    }
    frame
}

/// A datagram of the host to a peer behind the router.
fn own_datagram(source: &str, destination: &str, payload: usize) -> Vec<u8> {
    let path = Path { link_source: OWN, link_destination: ROUTER, ..way(source, destination) };
    built(|out| build::udp(out, path, (5004, 7), &vec![0; payload]))
}

const FAR: [(&str, &str); 2] = [("10.0.0.1", "192.0.2.2"), ("2001:db8::1", "2002::2")];

#[test]
fn a_host_announces_its_addresses_and_groups_at_the_start() {
    let mut host = Host::new(settings()).unwrap();
    assert_eq!(host.next_deadline(), Some(T0));
    let frames = sent(&mut host, T0);
    let announcement =
        Arp { is_request: true, source_link: OWN, source: v4("10.0.0.1"), target: v4("10.0.0.1") };
    assert_eq!(parse(&frames[0]), Ok(Frame::Arp(announcement)));
    for (frame, target) in frames[1..3].iter().zip(["fe80::1", "2001:db8::1"]) {
        let headers = headers(frame);
        assert_eq!(headers.destination.address, v6("ff02::1"));
        let (target, link) = (v6(target), Some(OWN));
        let expected =
            Neighbor::Advertisement { target, link, is_solicited: false, is_override: true };
        assert_eq!(neighbor(frame, &headers), Some(expected));
    }
    // Both addresses are in one solicited-node group.
    assert_eq!(frames.len(), 4);
    let report = headers(&frames[3]);
    assert_eq!(report.destination.address, v6("ff02::16"));
    assert_eq!(frames[3][report.transport.start + 12..], v6("ff02::1:ff00:1").octets());
    assert_eq!(report.source, v6("fe80::1"));
    let repeat = host.next_deadline().unwrap();
    assert_eq!(sent(&mut host, repeat), [frames[3].clone()]);
    assert_eq!(host.next_deadline(), None);
    assert_eq!(host.counts(), HostCounts { sent: 5, ..HostCounts::default() });
}

#[test]
fn a_host_has_its_addresses_groups_and_broadcasts() {
    let mut host = host();
    let own = ["10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "10.0.0.255", "255.255.255.255"];
    let groups = ["224.0.0.1", "ff02::1", "ff02::1:ff00:1"];
    for text in own.into_iter().chain(groups) {
        assert!(host.is_own(ip(text)), "{text}");
    }
    for text in ["10.0.0.2", "fe80::2", "10.0.1.255", "239.1.2.3", "0.0.0.0", "::", "127.0.0.1"] {
        assert!(!host.is_own(ip(text)), "{text}");
    }
    host.join(ip("239.1.2.3"), T0).unwrap();
    assert!(host.is_own(ip("239.1.2.3")));
    host.leave(ip("239.1.2.3"), T0).unwrap();
    assert!(!host.is_own(ip("239.1.2.3")));
    let only = AddressPrefix { address: ip("10.0.0.1"), prefix_bits: 24 };
    let settings = HostSettings { addresses: vec![only], gateways: vec![], ..settings() };
    let mut host = Host::new(settings).unwrap();
    assert_eq!(host.join(ip("ff02::5"), T0), Err(MembershipError::NoAddress));
}

#[test]
fn arp_is_answered_and_learned_from() {
    let mut host = host();
    let asks = |asked| built(|out| build::arp_request(out, PEER, v4("10.0.0.2"), v4(asked)));
    assert_eq!(input(&mut host, &asks("10.0.0.1")), Input::Handled);
    let frames = sent(&mut host, T0);
    let reply =
        Arp { is_request: false, source_link: OWN, source: v4("10.0.0.1"), target: v4("10.0.0.2") };
    assert_eq!((parse(&frames[0]), &frames[0][..6]), (Ok(Frame::Arp(reply)), &PEER[..]));
    let path = host.path(None, ip("10.0.0.2"), T0).unwrap();
    assert_eq!((path.link_destination, path.source), (PEER, ip("10.0.0.1")));
    let other = Input::Ignored(IgnoreReason::OtherReceiver);
    assert_eq!(input(&mut host, &asks("10.0.0.3")), other);
    // Another device in the network has no entry, but a known one that moved is noticed.
    let moved = built(|out| build::arp_request(out, ROUTER, v4("10.0.0.2"), v4("10.0.0.2")));
    assert_eq!(input(&mut host, &moved), other);
    assert_eq!(host.path(None, ip("10.0.0.2"), T0).unwrap().link_destination, ROUTER);
    // Who looks for duplicates has no address.
    let looks = built(|out| build::arp_request(out, PEER, v4("0.0.0.0"), v4("10.0.0.1")));
    assert_eq!((input(&mut host, &looks), sent(&mut host, T0).len()), (Input::Handled, 1));
    // A device that is on no link of the host gets an answer, and no entry.
    let far = built(|out| build::arp_request(out, PEER, v4("192.0.2.5"), v4("10.0.0.1")));
    assert_eq!((input(&mut host, &far), sent(&mut host, T0).len()), (Input::Handled, 1));
    assert_eq!(host.neighbors.resolve(ip("192.0.2.5"), T0), Err(RouteError::Resolving));
    sent(&mut host, T0);
    let claim = built(|out| build::arp_request(out, PEER, v4("10.0.0.1"), v4("10.0.0.1")));
    assert_eq!(input(&mut host, &claim), Input::Ignored(IgnoreReason::Conflict));
    let loops = built(|out| build::arp_request(out, OWN, v4("10.0.0.1"), v4("10.0.0.2")));
    assert_eq!(input(&mut host, &loops), Input::Ignored(IgnoreReason::BadSource));
    assert_eq!((host.counts().conflicts, sent(&mut host, T0).len()), (1, 0));
}

#[test]
fn a_request_is_sent_and_its_answer_gives_the_way() {
    for (asked, next_hop) in [("10.0.0.2", "10.0.0.2"), ("192.0.2.1", "10.0.0.9")] {
        let mut host = host();
        assert_eq!(host.path(None, ip(asked), T0), Err(RouteError::Resolving));
        assert_eq!(host.next_deadline(), Some(T0));
        let frames = sent(&mut host, T0);
        let Ok(Frame::Arp(request)) = parse(&frames[0]) else { panic!() };
        assert_eq!((request.source, request.target), (v4("10.0.0.1"), v4(next_hop)));
        assert_eq!(frames[0][..6], [0xff; 6]);
        let reply = built(|out| build::arp_reply(out, PEER, &request));
        assert_eq!(input(&mut host, &reply), Input::Handled);
        let path = host.path(None, ip(asked), T0).unwrap();
        assert_eq!((path.link_source, path.link_destination), (OWN, PEER));
        assert_eq!((path.source, path.destination), (ip("10.0.0.1"), ip(asked)));
    }
    for (asked, next_hop, source) in [
        ("fe80::2", "fe80::2", "fe80::1"),
        ("2001:db8::2", "2001:db8::2", "2001:db8::1"),
        ("2002::2", "fe80::9", "2001:db8::1"),
    ] {
        let mut host = host();
        assert_eq!(host.path(None, ip(asked), T0), Err(RouteError::Resolving));
        let frames = sent(&mut host, T0);
        let found = headers(&frames[0]);
        let asks = Neighbor::Solicitation { target: v6(next_hop), link: Some(OWN) };
        assert_eq!(neighbor(&frames[0], &found), Some(asks));
        let to = (OWN, found.source);
        let answer = built(|out| build::neighbor_advertisement(out, (PEER, v6(next_hop)), to));
        assert_eq!(input(&mut host, &answer), Input::Handled);
        let path = host.path(None, ip(asked), T0).unwrap();
        assert_eq!((path.link_destination, path.source), (PEER, ip(source)));
    }
}

#[test]
fn an_answer_to_all_is_not_evidence() {
    let mut host = host();
    let later = T0 + Span::from_secs(5);
    assert_eq!(host.path(None, ip("10.0.0.2"), T0), Err(RouteError::Resolving));
    sent(&mut host, T0);
    let (source, target) = (v4("10.0.0.1"), v4("10.0.0.2"));
    let request = Arp { is_request: true, source_link: OWN, source, target };
    let mut reply = built(|out| build::arp_reply(out, PEER, &request));
    reply[..6].fill(0xff);
    assert_eq!(input(&mut host, &reply), Input::Handled);
    assert_eq!(host.path(None, ip("10.0.0.2"), T0).unwrap().link_destination, PEER);
    // It is asked again, alone.
    let polls = sent(&mut host, later);
    assert_eq!((polls.len(), &polls[0][..6]), (1, &PEER[..]));
    // RFC 4861 §7.1.2: an advertisement to all answers nobody.
    let to_all = ([0; 6], Ipv6Addr::UNSPECIFIED);
    let mut answer = built(|out| build::neighbor_advertisement(out, (PEER, v6("fe80::2")), to_all));
    assert_eq!(input(&mut host, &answer), Input::Handled);
    answer[58] |= 0x40;
    let (from, to) = (v6("fe80::2"), v6("ff02::1"));
    Icmpv6Packet::new_unchecked(&mut answer[54..]).fill_checksum(&from, &to);
    assert_eq!(input(&mut host, &answer), Input::Ignored(IgnoreReason::Invalid));
}

#[test]
fn there_is_no_way_to_what_is_no_destination() {
    let mut host = host();
    let path = |host: &mut Host, source, text| host.path(source, ip(text), T0);
    for text in ["0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1", "fe80::1", "240.0.0.1"] {
        assert_eq!(path(&mut host, None, text), Err(RouteError::NoRoute), "{text}");
    }
    for source in ["10.0.0.2", "fe80::1", "224.0.0.1"] {
        assert_eq!(path(&mut host, Some(ip(source)), "10.0.0.2"), Err(RouteError::NotOwn));
    }
    for (text, link) in [
        ("239.129.2.3", [1, 0, 0x5e, 1, 2, 3]),
        ("ff0e::5", [0x33, 0x33, 0, 0, 0, 5]),
        ("255.255.255.255", [0xff; 6]),
        ("10.0.0.255", [0xff; 6]),
    ] {
        assert_eq!(path(&mut host, None, text).unwrap().link_destination, link);
    }
    let given = path(&mut host, Some(ip("fe80::1")), "ff0e::5").unwrap();
    assert_eq!(given.source, ip("fe80::1"));
    let unspecified = path(&mut host, Some(ip("::")), "10.0.0.255").unwrap();
    assert_eq!(unspecified.source, ip("10.0.0.1"));
    let settings = HostSettings { gateways: vec![], ..settings() };
    let mut host = Host::new(settings).unwrap();
    assert_eq!(path(&mut host, None, "192.0.2.1"), Err(RouteError::NoRoute));
}

#[test]
fn static_neighbors_are_other_devices_on_the_link() {
    let mut host = host();
    host.set_neighbor(ip("10.0.0.2"), PEER).unwrap();
    host.set_neighbor(ip("fe80::9"), ROUTER).unwrap();
    assert_eq!(host.path(None, ip("10.0.0.2"), T0).unwrap().link_destination, PEER);
    assert_eq!(host.path(None, ip("2002::2"), T0).unwrap().link_destination, ROUTER);
    for (text, link) in [
        ("10.0.0.1", PEER),
        ("10.0.0.255", PEER),
        ("10.0.1.2", PEER),
        ("239.1.2.3", PEER),
        ("10.0.0.3", [0; 6]),
        ("10.0.0.3", [0xff; 6]),
    ] {
        assert_eq!(host.set_neighbor(ip(text), link), Err(NeighborError::NotANeighbor), "{text}");
    }
}

#[test]
fn solicitations_are_answered() {
    let mut host = host();
    let (own, peer) = (v6("2001:db8::1"), v6("2001:db8::2"));
    let asks = |asker, asked| built(|out| build::neighbor_solicitation(out, PEER, asker, asked));
    assert_eq!(input(&mut host, &asks(peer, own)), Input::Handled);
    let frames = sent(&mut host, T0);
    let (link, target) = (Some(OWN), own);
    let answer = Neighbor::Advertisement { target, link, is_solicited: true, is_override: true };
    assert_eq!(neighbor(&frames[0], &headers(&frames[0])), Some(answer));
    assert_eq!(headers(&frames[0]).destination.address, peer);
    // It has an entry now.
    assert_eq!(host.path(None, peer.into(), T0).unwrap().link_destination, PEER);
    let ignored = |host: &mut Host, frame: &[u8], reason| {
        assert_eq!(input(host, frame), Input::Ignored(reason));
        assert_eq!(sent(host, T0).len(), 0);
    };
    let other = v6("2001:db8::ff00:1");
    ignored(&mut host, &asks(peer, other), IgnoreReason::OtherReceiver);
    ignored(&mut host, &asks(v6("fe80::1"), own), IgnoreReason::Conflict);
    ignored(&mut host, &asks(v6("::1"), own), IgnoreReason::BadSource);
    // RFC 4861 §7.1.1: without an address there is no link address.
    ignored(&mut host, &asks(Ipv6Addr::UNSPECIFIED, own), IgnoreReason::Invalid);
    let mut looks = asks(Ipv6Addr::UNSPECIFIED, own);
    looks.truncate(14 + 40 + 24);
    looks[18..20].copy_from_slice(&[0, 24]);
    let to = v6("ff02::1:ff00:1");
    Icmpv6Packet::new_unchecked(&mut looks[54..]).fill_checksum(&Ipv6Addr::UNSPECIFIED, &to);
    assert_eq!(input(&mut host, &looks), Input::Handled);
    let frames = sent(&mut host, T0);
    assert_eq!(headers(&frames[0]).destination.address, v6("ff02::1"));
    // Another device says that it has our address.
    let claim = built(|out| {
        build::neighbor_advertisement(out, (PEER, own), ([0; 6], Ipv6Addr::UNSPECIFIED))
    });
    ignored(&mut host, &claim, IgnoreReason::Conflict);
}

#[test]
fn an_echo_request_to_an_address_is_answered() {
    for (source, destination) in WAYS {
        let mut host = host();
        let request = echo(way(source, destination), b"ping");
        assert_eq!(input(&mut host, &request), Input::Handled);
        assert_eq!(host.next_deadline(), Some(T0));
        let frames = sent(&mut host, T0);
        let found = headers(&frames[0]);
        assert_eq!(found.destination.address.to_canonical(), ip(source));
        assert_eq!(&frames[0][found.transport.start + 8..], b"ping");
        // A reply is not answered.
        let own = Path { link_destination: OWN, ..way(source, destination) };
        let mut reply = frames[0].clone();
        reply[..6].copy_from_slice(&own.link_destination);
        assert!(matches!(input(&mut host, &reply), Input::Ignored(_)));
    }
}

#[test]
fn packets_that_must_not_be_answered_are_not() {
    let mut host = host();
    let broadcast = Path { link_destination: [0xff; 6], ..way("10.0.0.2", "10.0.0.255") };
    let group = Path { link_destination: [0x33, 0x33, 0, 0, 0, 1], ..way("fe80::2", "ff02::1") };
    for (path, reason) in [
        (broadcast, IgnoreReason::Unsupported),
        (Path { link_destination: OWN, ..broadcast }, IgnoreReason::Unsupported),
        (group, IgnoreReason::Unsupported),
        (
            Path { link_destination: [0xff; 6], ..way("10.0.0.2", "10.0.0.1") },
            IgnoreReason::Invalid,
        ),
        (
            Path { link_destination: PEER, ..way("10.0.0.2", "10.0.0.1") },
            IgnoreReason::OtherReceiver,
        ),
        (way("10.0.0.2", "10.0.0.3"), IgnoreReason::OtherReceiver),
        (way("10.0.0.255", "10.0.0.1"), IgnoreReason::BadSource),
        (way("10.0.0.1", "10.0.0.1"), IgnoreReason::BadSource),
        (way("127.0.0.1", "10.0.0.1"), IgnoreReason::BadSource),
        (way("224.0.0.1", "10.0.0.1"), IgnoreReason::BadSource),
        (way("::1", "fe80::1"), IgnoreReason::BadSource),
        (way("::", "fe80::1"), IgnoreReason::BadSource),
    ] {
        assert_eq!(input(&mut host, &echo(path, b"ping")), Input::Ignored(reason), "{path:?}");
        let frame = datagram(path);
        host.unreachable(&frame, &headers(&frame), T0);
    }
    assert_eq!(sent(&mut host, T0), Vec::<Vec<u8>>::new());
    assert_eq!(host.counts().ignored, 24);
}

#[test]
fn tagged_damaged_and_other_frames_are_ignored() {
    let mut host = host();
    let request = echo(way("10.0.0.2", "10.0.0.1"), b"ping");
    let arp = built(|out| build::arp_request(out, PEER, v4("10.0.0.2"), v4("10.0.0.1")));
    for frame in [&request, &arp] {
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(input(&mut host, &tagged), Input::Ignored(IgnoreReason::Tagged));
    }
    let tagged = {
        let mut frame = datagram(way("10.0.0.2", "10.0.0.1"));
        frame.splice(12..12, [0x81, 0, 0, 5]);
        frame
    };
    host.unreachable(&tagged, &headers(&tagged), T0);
    let mut damaged = request.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let reason = IgnoreReason::Damaged(ChecksumError::Icmp);
    assert_eq!(input(&mut host, &damaged), Input::Ignored(reason));
    let mut fragment = request.clone();
    fragment.resize(14 + 20 + 16, 0);
    fragment[14 + 6] = 0x20;
    fragment[16..18].copy_from_slice(&[0, 36]);
    assert_eq!(input(&mut host, &fragment), Input::Ignored(IgnoreReason::Fragment));
    let unsupported = Input::Ignored(IgnoreReason::Unsupported);
    assert_eq!(input(&mut host, &datagram(way("10.0.0.2", "10.0.0.1"))), unsupported);
    let lldp = [&[1, 0x80, 0xc2, 0, 0, 0xe][..], &PEER, &[0x88, 0xcc], &[0; 46]].concat();
    assert_eq!(input(&mut host, &lldp), unsupported);
    let mut redirect = request;
    redirect[34] = 5;
    Icmpv4Packet::new_unchecked(&mut redirect[34..]).fill_checksum();
    assert_eq!(input(&mut host, &redirect), unsupported);
    assert_eq!((sent(&mut host, T0).len(), host.counts().handled), (0, 0));
}

#[test]
fn a_datagram_without_a_receiver_gets_an_error_up_to_ten_a_second() {
    for (source, destination) in WAYS {
        let mut host = host();
        let frame = datagram(way(source, destination));
        let mut answered = 0;
        for millisecond in 0..10_000 {
            let now = T0 + Span::from_millis(millisecond);
            host.unreachable(&frame, &headers(&frame), now);
            for error in sent(&mut host, now) {
                let found = headers(&error);
                assert_eq!(found.destination.address.to_canonical(), ip(source));
                let quote = &error[found.transport.start + 8..];
                assert_eq!(quote, &frame[14..]);
                answered += 1;
            }
        }
        assert!((109..=110).contains(&answered), "{answered}");
        assert_eq!(host.counts().errors_limited, 10_000 - answered);
        // One to a port of TCP, and a damaged one.
        let now = T0 + Span::from_secs(60);
        let mut other = headers(&frame);
        other.destination.protocol = TCP;
        host.unreachable(&frame, &other, now);
        let mut damaged = frame.clone();
        *damaged.last_mut().unwrap() ^= 1;
        host.unreachable(&damaged, &headers(&frame), now);
        assert_eq!(sent(&mut host, now), Vec::<Vec<u8>>::new());
    }
}

#[test]
fn queries_reach_the_groups() {
    let mut host = host();
    host.join(ip("239.1.2.3"), T0).unwrap();
    assert_eq!(sent(&mut host, T0).len(), 1);
    // A query is a report with another type. All hosts get it.
    let mut query = Vec::new();
    let mut other = Host::new(HostSettings { link: PEER, ..settings() }).unwrap();
    other.join(ip("239.1.2.3"), T0).unwrap();
    for frame in sent(&mut other, T0) {
        if frame[23] == 2 && frame[12] == 8 {
            query = frame;
        }
    }
    query[26..30].copy_from_slice(&[10, 0, 0, 9]);
    query[30..34].copy_from_slice(&[224, 0, 0, 1]);
    Ipv4Packet::new_unchecked(&mut query[14..]).fill_checksum();
    (query[38], query[39]) = (0x11, 10);
    smoltcp::wire::IgmpPacket::new_unchecked(&mut query[38..]).fill_checksum();
    assert_eq!(input(&mut host, &query), Input::Handled);
    let end = T0 + Span::from_secs(1);
    let reports = sent(&mut host, end);
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0][38], &reports[0][42..]), (0x16, &[239, 1, 2, 3][..]));
}

#[test]
fn an_echo_flood_drops_answers_and_does_not_stop_discovery() {
    let mut host = host();
    let request = echo(way("10.0.0.2", "10.0.0.1"), &[0; 1472]);
    for _ in 0..100 {
        assert_eq!(input(&mut host, &request), Input::Handled);
    }
    let arp = built(|out| build::arp_request(out, PEER, v4("10.0.0.2"), v4("10.0.0.1")));
    for _ in 0..100 {
        assert_eq!(input(&mut host, &arp), Input::Handled);
    }
    let frames = sent(&mut host, T0);
    assert_eq!(frames.len(), ANSWERS_MAX + DISCOVERY_ANSWERS_MAX);
    assert!(matches!(parse(&frames[0]), Ok(Frame::Arp(_))));
    assert_eq!(frames.last().map(Vec::len), Some(1514));
    let dropped = 200 - ANSWERS_MAX as u64 - DISCOVERY_ANSWERS_MAX as u64;
    assert_eq!(host.counts().answers_dropped, dropped);
    // The places are used again and again.
    for round in 0..20 {
        let request = echo(way("10.0.0.2", "10.0.0.1"), &[round; 9]);
        for _ in 0..=round % 3 {
            input(&mut host, &request);
        }
        let frames = sent(&mut host, T0);
        assert_eq!(frames.len(), usize::from(round % 3) + 1);
        assert!(frames.iter().all(|frame| frame.ends_with(&[round; 9])));
    }
}

#[test]
fn a_frame_that_does_not_fit_is_left_out() {
    let mut host = host();
    input(&mut host, &echo(way("10.0.0.2", "10.0.0.1"), &[0; 100]));
    input(&mut host, &echo(way("10.0.0.2", "10.0.0.1"), &[0; 10]));
    let mut out = [0; 60];
    assert_eq!((host.output(&mut out, T0), host.output(&mut out, T0)), (Some(52), None));
    assert_eq!(host.counts().too_long, 1);
    // A request beyond the interface has no room for its answer.
    input(&mut host, &echo(way("10.0.0.2", "10.0.0.1"), &[0; 2000]));
    assert_eq!((sent(&mut host, T0).len(), host.counts().answers_dropped), (0, 1));
}
