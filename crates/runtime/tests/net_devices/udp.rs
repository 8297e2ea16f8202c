//! UDP sockets as a device.

use super::frames::{areas, bytes_of, collect, fill, frame, port, receive_bytes, send_bytes};
use super::interfaces::skip;
use super::suite::{End, Pair, conform, end, wait_for};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use upcall_core::time::Instant;
use upcall_runtime::net::{Device, DeviceDrops, DeviceError, UDP_SOCKETS_MAX, UdpDevice, area};

/// Two devices with a socket each at `address`, which has port 0.
pub fn pair(address: &str) -> Pair {
    let areas = areas();
    let mut devices = [UdpDevice::new(&areas[0]), UdpDevice::new(&areas[1])];
    let ends = devices.each_mut().map(|device| device.bind(address.parse().unwrap()).unwrap());
    let ([a, b], [one, two]) = (devices, areas);
    let ports = [port(one, a), port(two, b)];
    Pair { ends, carries_frames: false, ..Pair::new(ports, End::Never) }
}

#[test]
fn udp_sockets_conform() {
    conform(|| pair("127.0.0.1:0"), |_| {});
}

#[test]
fn udp_sockets_over_ipv6_conform() {
    match UdpSocket::bind("[::1]:0") {
        Ok(_) => conform(|| pair("[::1]:0"), |_| {}),
        Err(error) => skip("udp::udp_sockets_over_ipv6_conform", &error.to_string()),
    }
}

#[test]
fn an_address_of_nobody_in_use_or_too_many_is_refused() {
    let area = area(super::frames::FORM).unwrap();
    let mut device = UdpDevice::new(&area);
    for address in ["0.0.0.0:0", "[::]:0", "224.0.0.1:5004"] {
        let error = device.bind(address.parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("EADDRNOTAVAIL"), "{error}");
    }
    let own = device.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = device.bind(own).unwrap_err();
    assert!(error.to_string().contains("EADDRINUSE"), "{error}");
    for _ in 1..UDP_SOCKETS_MAX {
        device.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    }
    let error = device.bind("127.0.0.1:0".parse().unwrap()).unwrap_err();
    assert!(matches!(error, DeviceError::Os(_)) && error.to_string().contains("ENOBUFS"));
}

/// Each socket of a device gets and sends its own, in batches that mix them.
#[test]
fn several_sockets_share_a_device() {
    let areas = areas();
    let mut device = UdpDevice::new(&areas[0]);
    let own = [(); 3].map(|()| device.bind("127.0.0.1:0".parse().unwrap()).unwrap());
    let mut port = port(areas[0].clone(), device);
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer_at = peer.local_addr().unwrap();
    let mut parts = Vec::new();
    let source = |number: u32| own[number as usize / 2 % 3];
    for number in 0..24 {
        let bytes = frame((source(number), peer_at), number, 100);
        parts.push(fill(&mut port, &bytes).unwrap());
    }
    assert_eq!(port.transmit(Instant::ZERO, None, &parts), Ok(24));
    collect(&mut port);
    let mut found = [0; 24];
    for _ in 0..24 {
        let mut bytes = [0; 200];
        let (length, from) = peer.recv_from(&mut bytes).unwrap();
        let number = u32::from_le_bytes(bytes[..4].try_into().unwrap());
        assert_eq!((length, from), (100 - 42, source(number)));
        found[number as usize] += 1;
        // An answer to each.
        peer.send_to(&bytes[..length], from).unwrap();
    }
    assert_eq!(found, [1; 24]);
    let mut missing: Vec<(u32, SocketAddr)> =
        (0..24).map(|number| (number, source(number))).collect();
    wait_for(
        || {
            for bytes in receive_bytes(&mut port, Instant::ZERO, 5).unwrap() {
                missing.retain(|&(number, own)| {
                    bytes[12..] != frame((peer_at, own), number, 100)[12..]
                });
            }
            missing.is_empty()
        },
        "the answers",
    );
    assert!(port.close().all_free());
}

/// Frames that no socket can carry are taken, do not hold up the others, and are counted.
#[test]
fn a_frame_without_a_socket_is_undelivered_and_the_others_go_out() {
    let areas = areas();
    let mut device = UdpDevice::new(&areas[0]);
    let own = device.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer_at = peer.local_addr().unwrap();
    let other = SocketAddr::from((Ipv4Addr::LOCALHOST, own.port() ^ 1));
    let no_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut arp = frame((own, peer_at), 0, 60);
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut damaged = frame((own, peer_at), 0, 60);
    damaged[50] ^= 1;
    let frames = [
        frame((own, peer_at), 0, 60),
        frame((other, peer_at), 1, 60),
        frame((own, peer_at), 2, 60),
        frame((own, no_port), 3, 60),
        frame((own, peer_at), 4, 60),
        arp,
        damaged,
        frame((own, peer_at), 7, 60),
    ];
    let mut parts = Vec::new();
    for (number, bytes) in (0..).zip(&frames) {
        let length = u16::try_from(bytes.len()).unwrap();
        let part = upcall_runtime::net::Descriptor { frame: number, offset: 0, length };
        areas[0].part(part).unwrap().fill(0, bytes);
        parts.push(part);
    }
    assert_eq!(device.transmit(Instant::ZERO, &parts), Ok(8));
    assert_eq!(device.undelivered(), 4);
    let mut sent = Vec::new();
    device.take_sent(&mut sent, 100).unwrap();
    assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 7]);
    for expected in [0, 2, 4, 7] {
        let mut bytes = [0; 200];
        assert_eq!(peer.recv(&mut bytes).unwrap(), 18);
        assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()), expected);
    }
}

/// A datagram without data has a frame too, and one that no frame holds is dropped and counted.
#[test]
fn datagrams_of_all_lengths_are_received_or_counted() {
    let mut pair = pair("127.0.0.1:0");
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let route = (peer.local_addr().unwrap(), pair.ends[1]);
    for bytes in [0, 1, 1878, 1879, 3000, 60_000] {
        peer.send_to(&vec![7; bytes], route.1).unwrap();
    }
    let mut found = Vec::new();
    wait_for(
        || {
            let frames = receive_bytes(&mut pair.ports[1], Instant::ZERO, 8).unwrap();
            found.extend(frames.iter().map(Vec::len));
            let dropped = DeviceDrops { no_room: 0, too_long: 3 };
            pair.ports[1].drops() == Ok(Some(dropped)) && found.len() == 3
        },
        "all datagrams",
    );
    assert_eq!(found, [42, 43, 1920]);
    // A frame that is too short to be one.
    assert_eq!(send_bytes(&mut pair.ports[0], &frame(route, 0, bytes_of(route, 0))[..13]), Ok(1));
    end(pair);
}
