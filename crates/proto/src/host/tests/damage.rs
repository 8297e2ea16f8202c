//! Damaged frames.

use super::*;
use proptest::prelude::*;

/// Frames of all kinds for the host, each valid.
fn valid() -> Vec<Vec<u8>> {
    let mut frames = vec![
        built(|out| build::arp_request(out, PEER, v4("10.0.0.2"), v4("10.0.0.1"))),
        built(|out| {
            let (source, target) = (v4("10.0.0.1"), v4("10.0.0.2"));
            let request = Arp { is_request: true, source_link: OWN, source, target };
            build::arp_reply(out, PEER, &request)
        }),
        built(|out| build::neighbor_solicitation(out, PEER, v6("fe80::2"), v6("fe80::1"))),
        built(|out| {
            let (from, to) = ((PEER, v6("fe80::2")), (OWN, v6("fe80::1")));
            build::neighbor_advertisement(out, from, to)
        }),
    ];
    for (own, peer) in FAR {
        let packet = own_datagram(own, peer, 1400);
        let kinds = if own.contains(':') { [(1, 4), (2, 0)] } else { [(3, 3), (3, 4)] };
        frames.extend(kinds.map(|kind| error_about(&packet, kind, 1300)));
    }
    for (source, destination) in WAYS {
        frames.push(echo(way(source, destination), b"ping"));
        frames.push(datagram(way(source, destination)));
    }
    let mut other = Host::new(HostSettings { link: PEER, ..settings() }).unwrap();
    for group in ["239.1.2.3", "ff0e::5"] {
        other.join(ip(group), T0).unwrap();
    }
    frames.extend(sent(&mut other, T0));
    frames
}

/// Makes the checksums of a frame right, so that damage reaches what is behind them.
fn mended(mut frame: Vec<u8>) -> Vec<u8> {
    let Ok(Frame::Ip(headers)) = parse(&frame) else { return frame };
    let (transport, to) = (headers.transport.clone(), headers.destination);
    if headers.is_ipv4() {
        Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
    }
    match to.protocol {
        ICMP => Icmpv4Packet::new_unchecked(&mut frame[transport]).fill_checksum(),
        ICMPV6 => {
            let mut packet = Icmpv6Packet::new_unchecked(&mut frame[transport]);
            packet.fill_checksum(&headers.source, &to.address);
        }
        IGMP if transport.len() >= 8 => {
            smoltcp::wire::IgmpPacket::new_unchecked(&mut frame[transport]).fill_checksum();
        }
        _ => {}
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Damaged frames never make a host panic, and what it sends is always valid.
    #[test]
    fn damaged_frames_do_no_harm(
        steps in prop::collection::vec(
            (any::<prop::sample::Index>(), prop::collection::vec((any::<u16>(), any::<u8>()), 0..5),
             any::<bool>(), any::<prop::sample::Index>(), 0u64..3_000_000_000),
            1..200,
        ),
    ) {
        let frames = valid();
        let mut host = Host::new(settings()).unwrap();
        host.join(ip("239.1.2.3"), T0).unwrap();
        let mut now = T0;
        for (index, damage, is_mended, cut, later) in steps {
            let mut frame = index.get(&frames).clone();
            for (at, byte) in damage {
                let at = usize::from(at) % frame.len();
                frame[at] = byte;
            }
            if cut.index(4) == 0 {
                frame.truncate(cut.index(frame.len()));
            }
            let frame = if is_mended && frame.len() > 34 { mended(frame) } else { frame };
            now += Span::from_nanos(later);
            if let Ok(parsed) = parse(&frame) {
                host.input(&frame, &parsed, now);
                if let Frame::Ip(headers) = parsed {
                    host.unreachable(&frame, &headers, now);
                    let _any = host.path(None, headers.source.into(), now);
                }
            }
            for frame in sent(&mut host, now) {
                prop_assert!(frame.len() <= 1514);
                prop_assert_eq!(frame[6..12].to_vec(), OWN);
                if let Frame::Ip(headers) = parse(&frame).unwrap() {
                    prop_assert_eq!(check(&frame, &headers), Ok(()));
                }
            }
            prop_assert!(host.next_deadline().is_none_or(|at| at > now));
        }
    }
}
