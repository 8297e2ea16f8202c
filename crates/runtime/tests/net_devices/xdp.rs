//! AF_XDP, by programs in the driver and after it.

use super::files::packet;
use super::frames::{AnyPort, FORM, PORT, port};
use super::interfaces::{delete, in_own_network, veth};
use super::suite::{End, Pair, conform};
use upcall_runtime::net::{XdpDevice, area};
use upcall_shm::quota_page::{Action, Owner};
use upcall_sys::af_xdp::CopyMode;
use upcall_sys::early_drop::{Destination, EarlyDrop, Request};
use upcall_sys::interface::index;

/// Makes `program` redirect our frames to the socket of `device`.
fn redirect(program: &mut EarlyDrop, device: &XdpDevice) {
    let page = Owner::new(program.map_quota_page().unwrap()).unwrap();
    page.set_action(1, Action::Redirect { socket: 0 });
    program.insert_socket(0, device.socket()).unwrap();
    let address = std::net::Ipv4Addr::UNSPECIFIED.into();
    program.insert(Destination { address, protocol: 17, port: PORT }, 1).unwrap();
}

/// A device on `interface`, and the program that redirects our frames to it.
pub fn xdp(interface: &str, request: Request) -> (AnyPort, EarlyDrop) {
    let area = area(FORM).unwrap();
    let device = XdpDevice::open(&area, index(interface).unwrap(), 0, CopyMode::Copy).unwrap();
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
