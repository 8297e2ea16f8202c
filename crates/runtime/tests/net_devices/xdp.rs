//! AF_XDP, by programs in the driver and after it.

use super::files::packet;
use super::frames::{AnyPort, FORM, PORT, bytes_of, frame, port, receive_bytes, send_bytes};
use super::interfaces::{delete, in_own_network, ip, quiet, veth, wait_until_up};
use super::suite::{End, Pair, conform, wait_for};
use std::net::SocketAddr;
use upcall_core::time::Instant;
use upcall_runtime::net::{XdpDevice, area};
use upcall_shm::quota_page::{Action, Owner};
use upcall_sys::af_xdp::CopyMode;
use upcall_sys::early_drop::{Destination, EarlyDrop, Request};
use upcall_sys::interface::{index, receive_queues};

/// Makes `program` redirect our frames to the sockets of `device`.
fn redirect(program: &mut EarlyDrop, device: &XdpDevice) {
    let page = Owner::new(program.map_quota_page().unwrap()).unwrap();
    page.set_action(1, Action::Redirect { socket: 0 });
    for (number, socket) in (0..).zip(device.sockets()) {
        program.insert_socket(number, socket).unwrap();
    }
    let address = std::net::Ipv4Addr::UNSPECIFIED.into();
    program.insert(Destination { address, protocol: 17, port: PORT }, 1).unwrap();
}

/// A device on `interface`, and the program that redirects our frames to it.
pub fn xdp(interface: &str, request: Request) -> (AnyPort, EarlyDrop) {
    let area = area(FORM).unwrap();
    let device = XdpDevice::open(&area, index(interface).unwrap(), 1, CopyMode::Copy).unwrap();
    let mut program = EarlyDrop::attach(index(interface).unwrap(), request).unwrap();
    redirect(&mut program, &device);
    (port(area, device), program)
}

/// A veth pair with AF_XDP at both ends.
pub fn pair(request: Request) -> Pair {
    veth();
    let [(one, first), (two, second)] = [xdp("ours", request), xdp("theirs", request)];
    Pair { _kept: vec![first, second], ..Pair::new([one, two], End::Interface("ours")) }
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn af_xdp_conforms_with_af_xdp() {
    in_own_network("xdp::af_xdp_conforms_with_af_xdp", &[], || {
        conform(|| pair(Request::Native), delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn generic_af_xdp_conforms_with_generic_af_xdp() {
    in_own_network("xdp::generic_af_xdp_conforms_with_generic_af_xdp", &[], || {
        conform(|| pair(Request::Generic), delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn af_xdp_conforms_with_a_packet_socket() {
    in_own_network("xdp::af_xdp_conforms_with_a_packet_socket", &[], || {
        let make = || {
            veth();
            let (theirs, program) = xdp("theirs", Request::Native);
            let ports = [packet("ours"), theirs];
            Pair { _kept: vec![program], ..Pair::new(ports, End::Interface("ours")) }
        };
        conform(make, delete);
    });
}

/// The kernel spreads the flows of one veth end over the receive queues of the other.
#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn a_device_gets_the_packets_of_all_receive_queues() {
    const FLOWS: u16 = 48;
    let test = "xdp::a_device_gets_the_packets_of_all_receive_queues";
    in_own_network(test, &[], || {
        let arrived = |queues: u32| {
            // A pair has as many queues in use as it was asked for at both ends.
            let queues_of_end = "numrxqueues 4 numtxqueues 4";
            ip(&format!(
                "link add ours {queues_of_end} type veth peer name theirs {queues_of_end}"
            ));
            ["ours", "theirs"].into_iter().for_each(quiet);
            ["ours", "theirs"].into_iter().for_each(wait_until_up);
            assert_eq!(receive_queues("ours").unwrap(), 4);
            let interface = index("ours").unwrap();
            let area = area(FORM).unwrap();
            let device = XdpDevice::open(&area, interface, queues, CopyMode::Copy).unwrap();
            let mut program = EarlyDrop::attach(interface, Request::Native).unwrap();
            redirect(&mut program, &device);
            let mut ours = port(area, device);
            // Frames for all queues.
            assert!(receive_bytes(&mut ours, Instant::ZERO, 32).unwrap().is_empty());
            let mut theirs = packet("theirs");
            let peer = |source| SocketAddr::from(([10, 0, 0, 2], 20_000 + source));
            let local = SocketAddr::from(([10, 0, 0, 1], PORT));
            let mut found = Vec::new();
            for source in 0..FLOWS {
                let route = (peer(source), local);
                let bytes = frame(route, source.into(), bytes_of(route, source.into()));
                assert_eq!(send_bytes(&mut theirs, &bytes), Ok(1));
                found.extend(receive_bytes(&mut ours, Instant::ZERO, 32).unwrap());
                // The frames of the packet socket.
                theirs.collect(&mut Vec::with_capacity(32)).unwrap();
            }
            let page = Owner::new(program.map_quota_page().unwrap()).unwrap();
            let all = usize::from(FLOWS);
            wait_for(
                || {
                    found.extend(receive_bytes(&mut ours, Instant::ZERO, 32).unwrap());
                    let undelivered = page.counters(1).undelivered;
                    found.len() + usize::try_from(undelivered).unwrap() == all
                },
                "each frame is received or counted",
            );
            found.sort_unstable();
            found.dedup();
            assert!(ours.close().all_free());
            delete("ours");
            found.len()
        };
        let [one, all] = [arrived(1), arrived(4)];
        assert!(one < all, "one queue had {one} of {all} frames");
        assert_eq!(all, usize::from(FLOWS));
    });
}
