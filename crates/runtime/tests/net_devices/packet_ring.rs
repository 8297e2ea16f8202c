//! Packet sockets with rings.

use super::files::packet;
use super::frames::{AnyPort, FORM, port};
use super::interfaces::{delete, in_own_network, veth};
use super::suite::{End, Pair, conform};
use upcall_runtime::net::{PacketRingDevice, area};
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
