//! Errors of devices on the way.

use super::*;
use crate::flow::Destination;

#[test]
fn errors_name_the_flow_and_what_happened() {
    use PathErrorKind::{
        BadHeader, Expired, HostUnreachable, NetworkUnreachable, PortUnreachable, Prohibited,
        ProtocolUnreachable,
    };
    let kinds_v4 = [
        ((3, 0), NetworkUnreachable),
        ((3, 1), HostUnreachable),
        ((3, 2), ProtocolUnreachable),
        ((3, 3), PortUnreachable),
        ((3, 13), Prohibited),
        ((3, 99), HostUnreachable),
        ((11, 0), Expired),
        ((12, 0), BadHeader),
    ];
    let kinds_v6 = [
        ((1, 0), NetworkUnreachable),
        ((1, 1), Prohibited),
        ((1, 3), HostUnreachable),
        ((1, 4), PortUnreachable),
        ((3, 0), Expired),
        ((4, 0), BadHeader),
        ((4, 1), ProtocolUnreachable),
    ];
    let mut host = host();
    for ((own, peer), kinds) in FAR.into_iter().zip([&kinds_v4[..], &kinds_v6[..]]) {
        let packet = own_datagram(own, peer, 30);
        for (kind, expected) in kinds {
            let found = input(&mut host, &error_about(&packet, *kind, 0));
            let local = Destination::new(ip(own), UDP, 5004);
            let error = PathError { local, peer: (ip(peer), 7), kind: *expected };
            assert_eq!(found, Input::Error(error), "{kind:?}");
        }
    }
}

#[test]
fn errors_about_packets_of_others_are_ignored() {
    let mut host = host();
    for (own, peer) in FAR {
        let packet = own_datagram(own, peer, 1000);
        let kind = if own.contains(':') { (1, 4) } else { (3, 3) };
        let mut refused = |packet: &[u8]| {
            let found = input(&mut host, &error_about(packet, kind, 0));
            assert_eq!(found, Input::Ignored(IgnoreReason::Invalid));
        };
        let (source, destination) = if own.contains(':') { (22, 38) } else { (26, 30) };
        let with = |at: usize, bytes: &[u8]| {
            let mut packet = packet.clone();
            packet[at..at + bytes.len()].copy_from_slice(bytes);
            packet
        };
        // Sender, receiver, version.
        refused(&with(source, &[192]));
        refused(&with(destination, &packet[source..destination]));
        refused(&with(14, &[0x75]));
        if own.contains(':') {
            // The error goes to another address of the host.
            refused(&own_datagram("fe80::1", peer, 1000));
        } else {
            // Options, and a later fragment.
            refused(&with(14, &[0x46]));
            refused(&with(21, &[1]));
        }
        for length in [14, 20, 14 + 20, 14 + 23, 14 + 40, 14 + 43] {
            if own.contains(':') || length < 14 + 24 {
                refused(&packet[..length]);
            }
        }
    }
}

#[test]
fn a_packet_that_is_too_big_lowers_the_limit_of_its_destination() {
    let later = T0 + Span::from_secs(600);
    for ((own, peer), kind) in FAR.into_iter().zip([(3, 4), (2, 0)]) {
        let mut host = host();
        let header = if own.contains(':') { 48 } else { 28 };
        let packet = own_datagram(own, peer, 1500 - header);
        let Input::Error(error) = input(&mut host, &error_about(&packet, kind, 1300)) else {
            panic!()
        };
        assert_eq!((error.kind, error.peer), (PathErrorKind::TooBig { mtu: 1300 }, (ip(peer), 7)));
        assert_eq!(host.packet_bytes_max(ip(peer), T0), 1300);
        assert_eq!(host.packet_bytes_max(ip("192.0.2.99"), T0), 1500);
        assert_eq!(host.packet_bytes_max(ip(peer), later), 1500);
        // Another flow gets the error of its packet too, and nothing gets bigger.
        let again = input(&mut host, &error_about(&packet, kind, 1400));
        assert_eq!(again, Input::Error(error));
        // The packet was not too big.
        let small = own_datagram(own, peer, 100);
        let found = input(&mut host, &error_about(&small, kind, 1290));
        assert_eq!(found, Input::Ignored(IgnoreReason::Invalid));
        assert_eq!((host.packet_bytes_max(ip(peer), T0), host.counts().paths_lowered), (1300, 1));
    }
}
