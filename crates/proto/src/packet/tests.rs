use super::build::{self, BuildError, Path};
use super::*;
use core::net::IpAddr;
use proptest::prelude::*;
use upcall_core::time::Span;

const A: LinkAddress = [2, 0, 0, 0, 0, 1];
const B: LinkAddress = [2, 0, 0, 0, 0, 2];
const ANY_TYPE: usize = 12;

fn v4() -> Path {
    let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    Path {
        link_source: A,
        link_destination: B,
        source: source.into(),
        destination: destination.into(),
    }
}

fn v6() -> Path {
    let address = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
    Path { source: address(1).into(), destination: address(2).into(), ..v4() }
}

/// The frame that `write` builds.
fn built(write: impl Fn(&mut [u8]) -> Result<usize, BuildError>) -> Vec<u8> {
    let mut out = vec![0xaa; 2_000];
    let length = write(&mut out).unwrap();
    out.truncate(length);
    assert_eq!(write(&mut vec![0; length - 1]), Err(BuildError::NoSpace { needed: length }));
    out
}

fn udp_frame(path: Path, payload: &[u8]) -> Vec<u8> {
    built(|out| build::udp(out, path, (7, 5004), payload))
}

fn headers(frame: &[u8]) -> Headers {
    match parse(frame) {
        Ok(Frame::Ip(headers)) => headers,
        other => panic!("{other:?}"),
    }
}

fn error(frame: &[u8]) -> ParseError {
    parse(frame).unwrap_err()
}

/// The frame with `bytes` put in at `at`.
fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame.splice(at..at, bytes.iter().copied());
    frame
}

/// The frame with the bytes at `at` replaced.
fn patched(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// A datagram over IPv6 with `extension` before it, of which the first byte is `next_header`.
fn extended(next_header: u8, extension: &[u8]) -> Vec<u8> {
    let frame = with(udp_frame(v6(), b"payload!"), 54, extension);
    let length = u16::try_from(frame.len() - 54).unwrap().to_be_bytes();
    patched(patched(frame, 20, &[next_header]), 18, &length)
}

/// A segment of TCP without data, of which the header says that it has so many words of 4 bytes, in
/// the upper half of `words`.
fn tcp(words: u8) -> Vec<u8> {
    let frame = with(udp_frame(v4(), b"pay"), 45, &[0; 9]);
    patched(patched(patched(frame, 16, &[0, 40]), 23, &[TCP]), 46, &[words])
}

#[test]
fn a_segment_of_tcp_has_its_ports() {
    let found = headers(&tcp(0x50));
    assert_eq!((found.source_port, found.destination.port), (7, 5004));
    assert!(found.payload.is_empty() && found.payload.start == found.transport.end);
}

#[test]
fn a_datagram_of_either_family_has_its_destination_and_payload() {
    for path in [v4(), v6()] {
        // Ethernet fills up short frames.
        let frame = [udp_frame(path, b"pay"), vec![0; 9]].concat();
        let headers = headers(&frame);
        assert_eq!(headers.destination, Destination::new(path.destination, UDP, 5004));
        assert_eq!(headers.source.to_canonical(), path.source);
        assert_eq!((headers.source_port, headers.fragment), (7, None));
        assert_eq!(&frame[headers.payload.clone()], b"pay");
        assert_eq!(headers.packet.end, frame.len() - 9);
        assert_eq!((headers.link.source, headers.link.destination), (A, B));
        assert_eq!(check(&frame, &headers), Ok(()));
    }
}

#[test]
fn two_tags_are_read_and_a_third_is_refused() {
    let (tag, plain) = ([0x81, 0, 0, 5], udp_frame(v4(), b"pay"));
    let mut frame = plain;
    for tags in 0..=TAGS_MAX {
        let headers = headers(&frame);
        assert_eq!(headers.link.tags, tags);
        assert_eq!(&frame[headers.payload.clone()], b"pay");
        assert_eq!(check(&frame, &headers), Ok(()));
        frame = with(frame, ANY_TYPE, &tag);
    }
    assert_eq!(error(&frame), ParseError::TooManyTags);
    assert_eq!(error(&frame[..15]), ParseError::TagCutOff);
}

#[test]
fn options_of_ipv4_are_skipped() {
    let frame = with(udp_frame(v4(), b"pay"), 34, &[1; 8]);
    let mut frame = patched(patched(frame, 14, &[0x47]), 16, &[0, 39]);
    let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
    packet.fill_checksum();
    let headers = headers(&frame);
    assert_eq!((headers.destination.port, &frame[headers.payload.clone()]), (5004, &b"pay"[..]));
    assert_eq!(check(&frame, &headers), Ok(()));
}

#[test]
fn extension_headers_are_followed_up_to_the_limit() {
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    for count in 1..=EXTENSIONS_MAX {
        let mut chain = [options(DESTINATION_OPTIONS)].repeat(count - 1);
        chain.push(options(UDP));
        let frame = extended(DESTINATION_OPTIONS, &chain.concat());
        assert_eq!(&frame[headers(&frame).payload], b"payload!", "{count}");
        assert_eq!(check(&frame, &headers(&frame)), Ok(()));
    }
    let chain = [[options(DESTINATION_OPTIONS)].repeat(EXTENSIONS_MAX), vec![options(UDP)]];
    let frame = extended(DESTINATION_OPTIONS, &chain.concat().concat());
    assert_eq!(error(&frame), ParseError::TooManyExtensions);
    // An authentication header counts in units of 4 bytes.
    let frame = extended(AUTHENTICATION, &[UDP, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(&frame[headers(&frame).payload], b"payload!");
    let too_long = extended(DESTINATION_OPTIONS, &[UDP, 9, 1, 4, 0, 0, 0, 0]);
    assert_eq!(error(&too_long), ParseError::ExtensionCutOff);
}

#[test]
fn fragments_of_ipv4_have_a_key_and_only_the_first_has_ports() {
    let frame = udp_frame(v4(), b"payload!");
    let first = patched(frame.clone(), 18, &[0, 9, 0x20, 0]);
    let headers_of_first = headers(&first);
    let fragment = headers_of_first.fragment.unwrap();
    assert_eq!((fragment.key.id, fragment.offset, fragment.more), (9, 0, true));
    assert_eq!((headers_of_first.destination.port, fragment.key.protocol), (5004, UDP));
    let last = headers(&patched(frame.clone(), 18, &[0, 9, 0, 2]));
    assert_eq!(last.fragment, Some(Fragment { offset: 16, more: false, ..fragment }));
    assert_eq!((last.destination.port, last.has_transport()), (0, false));
    assert_eq!(last.payload, last.transport);
    // A datagram that goes on in other fragments is longer than this one.
    let longer = headers(&patched(first, 38, &[0, 200]));
    assert_eq!(longer.payload.len(), 8);
    assert_eq!(error(&patched(frame.clone(), 18, &[0, 9, 0x1f, 0xff])), BEYOND_END);
    let odd = patched(patched(frame, 18, &[0, 9, 0x20, 0]), 16, &[0, 35]);
    assert_eq!(error(&odd), ParseError::FragmentLength);
}

#[test]
fn all_fragments_go_where_the_first_went() {
    let mut table = Fragments::new(4, Span::from_secs(1), 0);
    let mut goes = |frame: &[u8]| headers(frame).destination_by(&mut table, Instant::ZERO);
    let (whole, port) = (udp_frame(v4(), b"payload!"), Some(5004));
    let first = patched(whole.clone(), 18, &[0, 9, 0x20, 0]);
    let last = patched(whole.clone(), 18, &[0, 9, 0, 2]);
    assert_eq!(goes(&last), None, "the first is not known yet");
    assert_eq!(goes(&first).map(|to| to.port), port);
    assert_eq!(goes(&last).map(|to| to.port), port);
    let other = patched(last, 18, &[0, 10]);
    assert_eq!((goes(&other), goes(&whole).map(|to| to.port)), (None, port));
}

const BEYOND_END: ParseError = ParseError::FragmentBeyondEnd;

#[test]
fn fragments_of_ipv6_have_a_key_and_a_single_one_is_whole() {
    let header = |offset: u16, more: u16| {
        let [a, b] = (offset * 8 + more).to_be_bytes();
        [UDP, 0, a, b, 0, 0, 1, 2]
    };
    let first = headers(&extended(FRAGMENT, &header(0, 1)));
    let fragment = first.fragment.unwrap();
    assert_eq!((fragment.key.id, fragment.key.protocol, fragment.more), (258, 0, true));
    assert_eq!(first.destination.port, 5004);
    let last = headers(&extended(FRAGMENT, &header(2, 0)));
    assert_eq!(last.fragment, Some(Fragment { offset: 16, more: false, ..fragment }));
    assert_eq!(last.destination.port, 0);
    assert_eq!(headers(&extended(FRAGMENT, &header(0, 0))).fragment, None);
    let twice = [[FRAGMENT, 0, 0, 1, 0, 0, 0, 1], header(0, 1)].concat();
    assert_eq!(error(&extended(FRAGMENT, &twice)), ParseError::SecondFragmentHeader);
}

#[test]
fn each_malformation_has_its_error() {
    use ParseError::*;
    let (four, six) = (udp_frame(v4(), b"pay"), udp_frame(v6(), b"pay"));
    let arp = built(|out| build::arp_request(out, A, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST));
    for (frame, expected) in [
        (four[..13].to_vec(), EthernetCutOff),
        (four[..33].to_vec(), Ipv4CutOff),
        (patched(four.clone(), 14, &[0x65]), IpVersion),
        (patched(four.clone(), 14, &[0x44]), Ipv4HeaderLength),
        (patched(four.clone(), 16, &[0, 19]), Ipv4TotalLength),
        (patched(four.clone(), 16, &[0, 32]), Ipv4TotalLength),
        (patched(four.clone(), 16, &[0, 27]), UdpCutOff),
        (patched(four.clone(), 38, &[0, 7]), UdpLength),
        (patched(four.clone(), 38, &[0, 12]), UdpLength),
        (patched(four.clone(), 23, &[TCP]), TcpCutOff),
        (tcp(0x4f), TcpHeaderLength),
        (tcp(0x60), TcpHeaderLength),
        (patched(patched(four.clone(), 16, &[0, 27]), 23, &[ICMP]), IcmpCutOff),
        (six[..53].to_vec(), Ipv6CutOff),
        (patched(six.clone(), 14, &[0x45]), IpVersion),
        (patched(six.clone(), 18, &[0, 12]), Ipv6PayloadLength),
        (patched(six.clone(), 22, &Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets()), Ipv6Mapped),
        (patched(six, 20, &[HOP_BY_HOP]), ExtensionCutOff),
        (arp[..30].to_vec(), ArpCutOff),
        (patched(arp.clone(), 20, &[0, 9]), ArpKind),
        (patched(arp, 14, &[0, 9]), ArpKind),
    ] {
        assert_eq!(parse(&frame), Err(expected), "{frame:02x?}");
    }
    let other = patched(four, ANY_TYPE, &[0x88, 0xcc]);
    assert_eq!(parse(&other), Ok(Frame::Other { ether_type: 0x88cc }));
}

#[test]
fn one_wrong_bit_fails_a_check() {
    let ping = |path| built(|out| build::echo_request(out, path, (1, 2), b"ping"));
    for (frame, from) in [
        (udp_frame(v4(), b"pay"), 24),
        (udp_frame(v6(), b"pay"), 54),
        (ping(v4()), 24),
        (ping(v6()), 58),
    ] {
        for byte in from..frame.len() {
            let wrong = patched(frame.clone(), byte, &[frame[byte] ^ 4]);
            let Ok(Frame::Ip(headers)) = parse(&wrong) else { continue };
            assert!(check(&wrong, &headers).is_err(), "byte {byte} of {frame:02x?}");
        }
    }
    let frame = patched(udp_frame(v6(), b"pay"), 60, &[0, 0]);
    assert_eq!(check(&frame, &headers(&frame)), Err(ChecksumError::UdpMissing));
    let frame = patched(udp_frame(v4(), b"pay"), 40, &[0, 0]);
    assert_eq!(check(&frame, &headers(&frame)), Ok(()));
}

#[test]
fn arp_is_answered() {
    let (own, asker) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
    let request = built(|out| build::arp_request(out, A, asker, own));
    assert_eq!(request[..6], [0xff; 6]);
    let Ok(Frame::Arp(request)) = parse(&request) else { panic!("{request:?}") };
    let expected = Arp { is_request: true, source_link: A, source: asker, target: own };
    assert_eq!(request, expected);
    let reply = built(|out| build::arp_reply(out, B, &request));
    assert_eq!(reply[..12], [A, B].concat());
    let expected = Arp { is_request: false, source_link: B, source: own, target: asker };
    assert_eq!(parse(&reply), Ok(Frame::Arp(expected)));
}

#[test]
fn neighbors_are_found() {
    let (IpAddr::V6(asker), IpAddr::V6(own)) = (v6().source, v6().destination) else {
        unreachable!()
    };
    let frame = built(|out| build::neighbor_solicitation(out, A, asker, own));
    let found = headers(&frame);
    assert_eq!(found.destination.address, "ff02::1:ff00:2".parse::<Ipv6Addr>().unwrap());
    assert_eq!(check(&frame, &found), Ok(()));
    let asked = Neighbor::Solicitation { target: own, link: Some(A) };
    assert_eq!(neighbor(&frame, &found), Some(asked));
    for (to, link) in [((A, asker), A), ((A, Ipv6Addr::UNSPECIFIED), [0x33, 0x33, 0, 0, 0, 1])] {
        let frame = built(|out| build::neighbor_advertisement(out, (B, own), to));
        assert_eq!((check(&frame, &headers(&frame)), &frame[..6]), (Ok(()), &link[..]));
        let (target, link, is_override) = (own, Some(B), true);
        let is_solicited = !to.1.is_unspecified();
        let answer = Neighbor::Advertisement { target, link, is_solicited, is_override };
        assert_eq!(neighbor(&frame, &headers(&frame)), Some(answer));
    }
    // A message that passed a router is from elsewhere.
    let routed = patched(frame, 21, &[254]);
    assert_eq!(neighbor(&routed, &headers(&routed)), None);
}

#[test]
fn a_neighbor_is_asked_alone_at_its_known_link_address() {
    let (IpAddr::V4(own), IpAddr::V4(asked)) = (v4().source, v4().destination) else {
        unreachable!()
    };
    let poll = built(|out| build::arp_poll(out, A, own, (B, asked)));
    let expected = Arp { is_request: true, source_link: A, source: own, target: asked };
    assert_eq!((&poll[..6], parse(&poll)), (&B[..], Ok(Frame::Arp(expected))));
    let (IpAddr::V6(own), IpAddr::V6(asked)) = (v6().source, v6().destination) else {
        unreachable!()
    };
    let poll = built(|out| build::neighbor_poll(out, A, own, (B, asked)));
    let found = headers(&poll);
    assert_eq!((&poll[..6], found.destination.address), (&B[..], asked));
    assert_eq!(check(&poll, &found), Ok(()));
    let solicitation = Neighbor::Solicitation { target: asked, link: Some(A) };
    assert_eq!(neighbor(&poll, &found), Some(solicitation));
}

#[test]
fn groups_have_link_addresses() {
    for (group, link) in [
        ("239.129.2.3", [1, 0, 0x5e, 1, 2, 3]),
        ("ff02::1:ff00:2", [0x33, 0x33, 0xff, 0, 0, 2]),
        ("10.0.0.255", [0xff; 6]),
    ] {
        assert_eq!(build::group_link(group.parse().unwrap()), link);
    }
}

#[test]
fn an_echo_request_is_answered_and_nothing_else() {
    for path in [v4(), v6()] {
        let request = built(|out| build::echo_request(out, path, (1, 2), b"ping"));
        let reply = built(|out| build::echo_reply(out, &request, &headers(&request)));
        let (asked, found) = (headers(&request), headers(&reply));
        assert_eq!(check(&reply, &found), Ok(()));
        assert_eq!(found.destination.address, asked.source);
        assert_eq!(reply[found.transport.clone()][4..], request[asked.transport.clone()][4..]);
        let twice = build::echo_reply(&mut [0; 99], &reply, &found);
        assert_eq!(twice, Err(BuildError::NotEchoRequest));
    }
}

#[test]
fn an_unknown_port_is_reported_with_the_packet() {
    for (path, most) in [(v4(), 576), (v6(), 1_280)] {
        for bytes in [3, 1_400] {
            let frame = udp_frame(path, &vec![7; bytes]);
            let error = built(|out| build::port_unreachable(out, &frame, &headers(&frame)));
            let found = headers(&error);
            assert_eq!(check(&error, &found), Ok(()));
            assert!(found.packet.len() <= most);
            assert!(frame[14..].starts_with(&error[found.transport.clone()][8..]));
            let again = build::port_unreachable(&mut [0; 2_000], &error, &found);
            assert_eq!(again, Err(BuildError::MustNotAnswer), "an error about an error");
        }
    }
    let group = Path { destination: Ipv4Addr::new(224, 0, 0, 1).into(), ..v4() };
    let broadcast = Path { link_destination: [0xff; 6], ..v4() };
    for path in [group, broadcast] {
        let frame = udp_frame(path, b"pay");
        let error = build::port_unreachable(&mut [0; 2_000], &frame, &headers(&frame));
        assert_eq!(error, Err(BuildError::MustNotAnswer));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut out = vec![0; 70_000];
    let mixed = Path { source: v6().source, ..v4() };
    assert_eq!(build::udp(&mut out, mixed, (1, 2), b""), Err(BuildError::MixedFamilies));
    for (path, most) in [(v4(), 65_535 - 28), (v6(), 65_535 - 8)] {
        assert!(build::udp(&mut out, path, (1, 2), &vec![0; most]).is_ok());
        let too_long = build::udp(&mut out, path, (1, 2), &vec![0; most + 1]);
        assert_eq!(too_long, Err(BuildError::TooLong));
    }
}

/// Frames that reach far, with some bytes changed and perhaps cut off.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let options = [UDP, 0, 1, 4, 0, 0, 0, 0];
    let frames = vec![
        udp_frame(v4(), b"payload!"),
        udp_frame(v6(), b"payload!"),
        with(udp_frame(v4(), b"payload!"), ANY_TYPE, &[0x81, 0, 0, 5]),
        extended(DESTINATION_OPTIONS, &options),
        extended(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 1, 2]),
        tcp(0x50),
        built(|out| build::echo_request(out, v4(), (1, 2), b"ping")),
        built(|out| build::neighbor_solicitation(out, A, Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST)),
        built(|out| build::arp_request(out, A, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)),
    ];
    let changes = prop::collection::vec((0usize..100, any::<u8>()), 0..6);
    (prop::sample::select(frames), changes, 0usize..120).prop_map(|(mut frame, changes, end)| {
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(end);
        frame
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_frame_panics(frame in any_frame()) {
        let Ok(Frame::Ip(headers)) = parse(&frame) else { return Ok(()) };
        prop_assert!(headers.packet.end <= frame.len());
        prop_assert!(headers.transport.start >= headers.packet.start);
        prop_assert!(headers.payload.start >= headers.transport.start);
        prop_assert!(headers.payload.start <= headers.payload.end);
        prop_assert!(headers.payload.end <= headers.transport.end);
        prop_assert!(headers.transport.end == headers.packet.end);
        let _ = (check(&frame, &headers), neighbor(&frame, &headers));
        for answer in [build::echo_reply, build::port_unreachable] {
            let mut out = [0; 2_000];
            if let Ok(length) = answer(&mut out, &frame, &headers) {
                let answer = &out[..length];
                let Ok(Frame::Ip(headers)) = parse(answer) else {
                    panic!("{answer:02x?}");
                };
                prop_assert_eq!(check(answer, &headers), Ok(()));
            }
        }
    }

    #[test]
    fn a_datagram_that_is_built_is_found_again(
        is_ipv4 in any::<bool>(),
        ports in any::<(u16, u16)>(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let path = if is_ipv4 { v4() } else { v6() };
        let frame = built(|out| build::udp(out, path, ports, &payload));
        let headers = headers(&frame);
        prop_assert_eq!((headers.source_port, headers.destination.port), ports);
        prop_assert_eq!(&frame[headers.payload.clone()], &payload[..]);
        prop_assert_eq!(check(&frame, &headers), Ok(()));
    }
}

/// The datagram by its first bytes alone.
fn plain(frame: &[u8]) -> Option<Datagram> {
    // Behind the frame stands what an earlier one left.
    let mut head = [[0x45; 8]; PLAIN_WORDS];
    let bytes = frame.len().min(8 * PLAIN_WORDS);
    head.as_flattened_mut()[..bytes].copy_from_slice(&frame[..bytes]);
    Datagram::plain(&head, frame.len())
}

/// The datagram by all headers.
fn by_headers(frame: &[u8]) -> Option<Datagram> {
    match parse(frame) {
        Ok(Frame::Ip(headers)) => Datagram::of(frame, &headers),
        _ => None,
    }
}

#[test]
fn a_checksum_left_to_the_interface_is_known() {
    use smoltcp::wire::{IpAddress, IpProtocol};
    // The sum has a carry after its first carries were added.
    let (source, destination) =
        (Ipv4Addr::new(255, 254, 255, 227).into(), Ipv4Addr::new(255, 255, 0, 0).into());
    let other = Path { source, destination, ..v4() };
    for (path, udp) in [(v4(), 34), (other, 34), (v6(), 54)] {
        let frame = udp_frame(path, &[1, 2, 3, 4, 5]);
        let datagram = plain(&frame).unwrap();
        assert!(datagram.is_right(&frame) && !datagram.is_left_to_interface());
        // As Linux leaves it (`CHECKSUM_PARTIAL`): the sum of the pseudo header, by smoltcp.
        let mut pseudo = Vec::new();
        for address in [path.source, path.destination] {
            match IpAddress::from(address) {
                IpAddress::Ipv4(it) => pseudo.extend(it.octets()),
                IpAddress::Ipv6(it) => pseudo.extend(it.octets()),
            }
        }
        pseudo.extend([0, u8::from(IpProtocol::Udp), 0, 13]);
        let words = pseudo.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        let left = patched(frame, udp + 6, &sum.to_be_bytes());
        let datagram = plain(&left).unwrap();
        assert!(datagram.is_left_to_interface() && !datagram.is_right(&left));
        let mut filled = left.clone();
        datagram.fill_checksum(&mut filled);
        assert_eq!(filled, udp_frame(path, &[1, 2, 3, 4, 5]));
        let other = patched(left, udp + 6, &(sum ^ 1).to_be_bytes());
        assert!(!plain(&other).unwrap().is_left_to_interface());
    }
}

#[test]
fn sources_that_cannot_be_on_a_wire_are_known() {
    let is_possible = |source: &str| {
        let source: IpAddr = source.parse().unwrap();
        let path = if source.is_ipv4() { v4() } else { v6() };
        plain(&udp_frame(Path { source, ..path }, b"1")).unwrap().has_possible_source()
    };
    for source in ["1.0.0.0", "126.255.255.255", "128.0.0.1", "223.255.255.255", "240.0.0.1"] {
        assert!(is_possible(source), "{source}");
    }
    for source in ["::2", "fe80::3", "feff::1", "2001:db8::1"] {
        assert!(is_possible(source), "{source}");
    }
    // The last of each family is the destination.
    for source in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "239.1.1.1", "255.255.255.255", "10.0.0.2"]
    {
        assert!(!is_possible(source), "{source}");
    }
    for source in ["::", "::1", "ff02::1", "fe80::2"] {
        assert!(!is_possible(source), "{source}");
    }
}

proptest! {
    /// The short way finds what the long way finds, or leaves it to the long way.
    #[test]
    fn the_short_way_agrees_with_the_long_way(
        is_v4: bool,
        payload in prop::collection::vec(any::<u8>(), 0..80),
        damage in prop::collection::vec((0usize..140, any::<u8>()), 0..4),
        cut in 0usize..200,
    ) {
        let mut frame = udp_frame(if is_v4 { v4() } else { v6() }, &payload);
        if damage.is_empty() {
            prop_assert_eq!(plain(&frame), by_headers(&frame));
            prop_assert!(plain(&frame).unwrap().is_right(&frame));
        }
        for (at, value) in damage {
            if let Some(byte) = frame.get_mut(at) {
                *byte = value;
            }
        }
        frame.truncate(cut.max(14));
        if let Some(found) = plain(&frame) {
            prop_assert_eq!(Some(found.clone()), by_headers(&frame));
            // It is right by one way if it is by the other.
            let headers = headers(&frame);
            prop_assert_eq!(found.is_right(&frame), check(&frame, &headers).is_ok());
        }
    }

    /// By the plain loop of RFC 1071, for all lengths of the last block and the greatest sums.
    #[test]
    fn the_sum_of_bytes_is_that_of_a_plain_loop(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(u8::MAX)], 0..2_000),
        length in 0usize..200,
    ) {
        for bytes in [&bytes[..], &bytes[..length.min(bytes.len())], &vec![u8::MAX; length * 300]] {
            let mut sum = 0;
            for pair in bytes.chunks(2) {
                sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
                sum = (sum & 0xffff) + (sum >> 16);
            }
            // 0 and `0xffff` are the same number, but only bytes of 0 have the sum 0.
            prop_assert_eq!(check::sum_of_bytes(bytes), u64::from(sum));
        }
    }

    /// smoltcp writes the checksum. A payload of any length is right, and one other bit is wrong.
    #[test]
    fn a_checksum_of_another_writer_is_right_until_a_bit_changes(
        is_v4: bool,
        payload in prop::collection::vec(any::<u8>(), 0..1_400),
        bit in 0usize..12_000,
    ) {
        let mut frame = udp_frame(if is_v4 { v4() } else { v6() }, &payload);
        let datagram = by_headers(&frame).unwrap();
        prop_assert!(datagram.is_right(&frame));
        let first = usize::from(datagram.payload.start) * 8;
        if bit < payload.len() * 8 {
            frame[(first + bit) / 8] ^= 1 << (bit % 8);
            prop_assert!(!datagram.is_right(&frame));
        }
    }
}
