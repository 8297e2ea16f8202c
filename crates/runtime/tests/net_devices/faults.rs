//! Frames that are damaged or too long, through every device: no frame of the area is lost, no
//! other frame is changed, and the device goes on.

use super::frames::{
    FORM, PORT, RECEIVING, Route, bytes_of, collect, frame, receive_bytes, send_bytes,
};
use super::interfaces::{in_own_network, ip, veth};
use super::suite::{End, Pair, end, wait_for};
use super::{files, packet_ring, udp, wire, xdp};
use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_runtime::net::{
    Area, Device, DeviceDrops, FileDevice, FrameForm, FrameSize, LinkSpec, MemoryDevice,
    PacketRingDevice, Port, UdpDevice, area,
};
use upcall_sys::early_drop::Request;
use upcall_sys::interface::index;

/// A frame of `route` with something wrong, and what.
fn damaged(route: Route) -> Vec<(&'static str, Vec<u8>)> {
    let good = frame(route, 1_000_000, 200);
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let mut all = vec![
        ("a wrong UDP checksum", changed(|bytes| bytes[150] ^= 0xFF)),
        ("a wrong header checksum", changed(|bytes| bytes[24] ^= 0xFF)),
        ("a length beyond the end", changed(|bytes| bytes[16..18].copy_from_slice(&[9, 9]))),
        ("a header of 8 bytes", changed(|bytes| bytes[14] = 0x42)),
        ("a later fragment", changed(|bytes| bytes[20..22].copy_from_slice(&[0x20, 5]))),
        ("a first fragment", changed(|bytes| bytes[20..22].copy_from_slice(&[0x20, 0]))),
        ("no known protocol", changed(|bytes| bytes[12..14].copy_from_slice(&[0x99, 0x99]))),
    ];
    all.extend((14..60).map(|bytes| ("an end that is missing", good[..bytes].to_vec())));
    all
}

/// A port whose frames hold longer frames than those of the other end.
fn large(make: impl FnOnce(&Arc<Area>) -> Box<dyn Device>) -> super::frames::AnyPort {
    let area = area(FrameForm { size: FrameSize::Page, ..FORM }).unwrap();
    let device = make(&area);
    Port::new(area, device, RECEIVING)
}

/// Sends damaged frames among good ones. `arrives`: whether one with that damage reaches the
/// receiver.
fn survive(mut pair: Pair, arrives: fn(&str) -> bool) {
    let route = pair.route(0);
    pair.receive(1, 1).unwrap();
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    let (mut refused, mut dropped) = (Vec::new(), 0);
    let all = damaged(route);
    for (number, (what, bytes)) in (0..).zip(&all) {
        match send_bytes(&mut pair.ports[0], bytes) {
            Ok(sent) => {
                assert_eq!(sent, 1, "{what}");
                if arrives(what) {
                    expected.push(bytes.clone());
                }
            }
            Err(error) => refused.push(format!("{what}: {error}")),
        }
        let good = frame(route, number, bytes_of(route, number));
        assert_eq!(send_bytes(&mut pair.ports[0], &good), Ok(1));
        expected.push(good);
        // A frame that is too long for the receiver.
        if number % 10 == 0 {
            let jumbo = send_bytes(&mut pair.ports[0], &frame(route, number, 3000));
            dropped += u64::from(jumbo == Ok(1));
            assert!(jumbo.is_ok(), "{jumbo:?}");
        }
        wait_for(
            || {
                collect(&mut pair.ports[0]);
                found.extend(receive_bytes(&mut pair.ports[1], Instant::ZERO, 8).unwrap());
                found.len() >= expected.len()
            },
            "a good frame",
        );
    }
    println!("refused: {refused:#?}");
    let link_free = |frames: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        frames.into_iter().map(|bytes| bytes[12..].to_vec()).collect()
    };
    assert!(link_free(found) == link_free(expected), "another frame, or another order");
    if pair.counts_drops {
        let expected = DeviceDrops { no_room: 0, too_long: dropped };
        wait_for(|| pair.ports[1].drops() == Ok(Some(expected)), "all drops");
    }
    for port in &mut pair.ports {
        wait_for(
            || {
                collect(port);
                port.account().counts().sending == 0
            },
            "sent frames",
        );
        let counts = port.account().counts();
        assert_eq!((counts.owner, counts.flows), (0, 0));
        assert_eq!(counts.free + counts.receiving, FORM.frames);
    }
    end(pair);
}

/// A veth pair that carries frames of 9000 bytes.
fn large_veth() {
    veth();
    for interface in ["ours", "theirs"] {
        ip(&format!("link set {interface} mtu 9000"));
    }
}

#[test]
fn a_wire_survives_damaged_frames() {
    let [one, two] = [area(FrameForm { size: FrameSize::Page, ..FORM }), area(FORM)];
    let (one, two) = (one.unwrap(), two.unwrap());
    let [a, b] = MemoryDevice::pair([&one, &two], LinkSpec::new(0, Span::ZERO), 1, 256);
    let ports = [super::frames::port(one, a), super::frames::port(two, b)];
    survive(Pair { ports, ..wire::pair() }, |_| true);
}

#[test]
fn udp_sockets_survive_damaged_frames() {
    let mut own = None;
    let device = large(|area| {
        let mut device = UdpDevice::new(area);
        own = Some(device.bind("127.0.0.1:0".parse().unwrap()).unwrap());
        Box::new(device)
    });
    let Pair { ports: [_, receiver], ends: [_, peer], .. } = udp::pair("127.0.0.1:0");
    let ends = [own.unwrap(), peer];
    let pair = Pair::new([device, receiver], End::Never);
    survive(Pair { ends, carries_frames: false, ..pair }, |_| false);
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn packet_sockets_survive_damaged_frames() {
    in_own_network("faults::packet_sockets_survive_damaged_frames", &[], || {
        large_veth();
        let ours = index("ours").unwrap();
        let ours = large(|area| Box::new(FileDevice::packet(area, ours).unwrap()));
        survive(Pair::new([ours, files::packet("theirs")], End::Interface("ours")), |_| true);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn packet_rings_survive_damaged_frames() {
    in_own_network("faults::packet_rings_survive_damaged_frames", &[], || {
        large_veth();
        let ours = index("ours").unwrap();
        let ours = large(|area| Box::new(PacketRingDevice::open(area, ours).unwrap()));
        survive(Pair::new([ours, packet_ring::ring("theirs")], End::Interface("ours")), |_| true);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn a_tap_device_survives_damaged_frames() {
    let test = "faults::a_tap_device_survives_damaged_frames";
    if !files::has_tap(test) {
        return;
    }
    in_own_network(test, &[], || {
        let mut pair = files::tap();
        ip("link set tap mtu 9000");
        let tap = index("tap").unwrap();
        pair.ports[0] = large(|area| Box::new(FileDevice::packet(area, tap).unwrap()));
        survive(pair, |_| true);
    });
}

/// The program reads headers only, and leaves frames with impossible ones to the kernel.
fn is_redirected(what: &str) -> bool {
    ["a wrong UDP checksum", "a wrong header checksum", "a first fragment"].contains(&what)
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn af_xdp_survives_damaged_frames() {
    in_own_network("faults::af_xdp_survives_damaged_frames", &[], || {
        for request in [Request::Native, Request::Generic] {
            large_veth();
            let (theirs, program) = xdp::xdp("theirs", request);
            let ours = index("ours").unwrap();
            let ours = large(|area| Box::new(PacketRingDevice::open(area, ours).unwrap()));
            let pair = Pair::new([ours, theirs], End::Interface("ours"));
            assert_eq!(pair.ends[1].port(), PORT);
            survive(Pair { _kept: vec![program], ..pair }, is_redirected);
        }
    });
}
