//! The parser finds a datagram under every link, and takes nothing else for one.

use super::build::{ethernet, ipv4, ipv6, udp};
use crate::arrivals::packet::Link;

/// Asserts that packet `ip` goes to `port` under each of `links`.
#[track_caller]
fn assert_port(ip: &[u8], ether_type: u16, port: Option<u16>) {
    let cooked = [&[0; 14][..], &ether_type.to_be_bytes(), ip].concat();
    let cooked2 = [&ether_type.to_be_bytes()[..], &[0; 18], ip].concat();
    let (family, bsd) = if ether_type == 0x0800 { (2, 2) } else { (10, 30) };
    for (link, packet) in [
        (1, ethernet(&[], ether_type, ip)),
        (1, ethernet(&[0x8100], ether_type, ip)),
        (1, ethernet(&[0x88a8, 0x8100], ether_type, ip)),
        (113, cooked),
        (276, cooked2),
        (101, ip.to_vec()),
        (if ether_type == 0x0800 { 228 } else { 229 }, ip.to_vec()),
        (0, [&u32::to_le_bytes(family)[..], ip].concat()),
        (0, [&u32::to_be_bytes(bsd)[..], ip].concat()),
        (108, [&u32::to_be_bytes(bsd)[..], ip].concat()),
    ] {
        let found = Link::of_type(link).unwrap().udp(&packet).map(|(port, _)| port);
        assert_eq!(found, port, "link type {link}: {packet:02x?}");
        // At every cut the parser finds the right port or none.
        for cut in 0..packet.len() {
            let found = Link::of_type(link).unwrap().udp(&packet[..cut]).map(|(port, _)| port);
            assert!(found.is_none() || found == port, "link type {link}, {cut} bytes");
        }
    }
}

#[test]
fn a_port_is_found_under_ipv4() {
    assert_port(&ipv4(17, &[], 0, &udp(5004)), 0x0800, Some(5004));
    // Options: four times "no operation".
    assert_port(&ipv4(17, &[1; 8], 0, &udp(5004)), 0x0800, Some(5004));
    // TCP has its ports in the same place.
    assert_port(&ipv4(6, &[], 0, &udp(5004)), 0x0800, None);
    // A capture of the first 40 bytes lacks most of a long datagram.
    let long = [&udp(5004)[..], &[0; 1400]].concat();
    let packet = ethernet(&[], 0x0800, &ipv4(17, &[], 0, &long));
    assert_eq!(Link::Ethernet.udp(&packet[..42]).map(|(port, _)| port), Some(5004));
}

#[test]
fn only_the_first_fragment_has_a_port() {
    const MORE: u16 = 1 << 13;
    assert_port(&ipv4(17, &[], MORE, &udp(5004)), 0x0800, Some(5004));
    assert_port(&ipv4(17, &[], MORE | 2, &udp(5004)), 0x0800, None);
    assert_port(&ipv4(17, &[], 2, &udp(5004)), 0x0800, None);
    let fragment =
        |offset: u16| [&[17, 0][..], &offset.to_be_bytes(), &[0; 4], &udp(5004)].concat();
    // More fragments at offset 0; more at offset 8 bytes; the last one.
    assert_port(&ipv6(44, &fragment(1)), 0x86dd, Some(5004));
    assert_port(&ipv6(44, &fragment(9)), 0x86dd, None);
    assert_port(&ipv6(44, &fragment(8)), 0x86dd, None);
}

#[test]
fn a_port_is_found_under_ipv6_and_its_extensions() {
    assert_port(&ipv6(17, &udp(5004)), 0x86dd, Some(5004));
    let padding = [1, 4, 0, 0, 0, 0];
    // Hop by hop, routing (8 bytes more), destination options.
    let extended =
        [&[43, 0][..], &padding, &[60, 1], &[0; 14], &[17, 0], &padding, &udp(5004)].concat();
    assert_port(&ipv6(0, &extended), 0x86dd, Some(5004));
    assert_port(&ipv6(58, &udp(5004)), 0x86dd, None);
}

#[test]
fn other_protocols_have_no_port() {
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[3; 20]].concat();
    assert_eq!(Link::Ethernet.udp(&ethernet(&[], 0x0806, &arp)), None);
    let ip = ipv4(17, &[], 0, &udp(5004));
    // Another family, another EtherType.
    assert_eq!(Link::Null.udp(&[&[7, 0, 0, 0][..], &ip].concat()), None);
    assert_eq!(Link::Cooked.udp(&[&[0; 14][..], &[0, 4], &ip].concat()), None);
    assert_eq!(Link::Raw.udp(&[]), None);
    assert_eq!(Link::of_type(105), None);
}
