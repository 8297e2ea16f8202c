//! Packet sockets with rings.

use super::files::packet;
use super::frames::{AnyPort, FORM, port};
use super::interfaces::{delete, in_own_network, veth};
use super::suite::{End, Pair, conform};
use super::xdp::xdp;
use std::time::{Duration, Instant};
use upcall_runtime::net::{PacketRingDevice, area};
use upcall_sys::early_drop::Request;
use upcall_sys::interface::index;

pub fn ring(interface: &str) -> AnyPort {
    let area = area(FORM).unwrap();
    let device = PacketRingDevice::open(&area, index(interface).unwrap()).unwrap();
    port(area, device)
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn packet_rings_conform() {
    in_own_network("packet_ring::packet_rings_conform", &[], || {
        let make = || {
            veth();
            Pair::new([ring("ours"), ring("theirs")], End::Interface("ours"))
        };
        conform(make, delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn a_packet_ring_conforms_with_a_packet_socket() {
    in_own_network("packet_ring::a_packet_ring_conforms_with_a_packet_socket", &[], || {
        let make = || {
            veth();
            Pair::new([packet("ours"), ring("theirs")], End::Interface("ours"))
        };
        conform(make, delete);
    });
}

/// Prints how long a lone frame takes from the call that sends it to the call that finds it.
#[test]
#[ignore = "measures; needs root, ip and unshare: an interface in its own network"]
fn what_a_lone_frame_waits_is_measured() {
    in_own_network("packet_ring::what_a_lone_frame_waits_is_measured", &[], || {
        for device in ["packet socket", "packet ring", "AF_XDP, generic", "AF_XDP, native"] {
            veth();
            let (theirs, _kept) = match device {
                "packet socket" => (packet("theirs"), None),
                "packet ring" => (ring("theirs"), None),
                "AF_XDP, generic" => some(xdp("theirs", Request::Generic)),
                _ => some(xdp("theirs", Request::Native)),
            };
            let mut pair = Pair::new([packet("ours"), theirs], End::Never);
            pair.receive(1, 1).unwrap();
            let mut waited = Vec::new();
            for number in 0..500 {
                // Not in step with a timer of the kernel.
                std::thread::sleep(Duration::from_micros(u64::from(number) * 7 % 3000));
                let start = Instant::now();
                assert_eq!(pair.send(0, number..number + 1), 1);
                while pair.receive(1, 4).unwrap().is_empty() {}
                waited.push(start.elapsed().as_micros());
                super::frames::collect(&mut pair.ports[0]);
            }
            waited.sort_unstable();
            let [middle, late, last] = [250, 495, 499].map(|place| waited[place]);
            println!("{device}: median {middle} us, 99% {late} us, worst {last} us");
        }
    });
}

fn some<A, B>((a, b): (A, B)) -> (A, Option<B>) {
    (a, Some(b))
}
