//! TAP devices and packet sockets without rings.

use super::frames::{AnyPort, FORM, port};
use super::interfaces::{delete, in_own_network, quiet, skip, veth, wait_until_up};
use super::suite::{End, Pair, conform};
use upcall_runtime::net::{FileDevice, area};
use upcall_sys::interface::index;

pub fn packet(interface: &str) -> AnyPort {
    let area = area(FORM).unwrap();
    let device = FileDevice::packet(&area, index(interface).unwrap()).unwrap();
    port(area, device)
}

/// A TAP device, and a packet socket at its interface.
pub fn tap() -> Pair {
    let area = area(FORM).unwrap();
    let device = FileDevice::tap(&area, "tap").unwrap();
    quiet("tap");
    wait_until_up("tap");
    let ports = [packet("tap"), port(area, device)];
    Pair { counts_drops: false, ..Pair::new(ports, End::Interface("tap")) }
}

/// Whether `test` can have a TAP device.
pub fn has_tap(test: &str) -> bool {
    let has = std::path::Path::new("/dev/net/tun").exists();
    if !has {
        skip(test, "no /dev/net/tun");
    }
    has
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn packet_sockets_conform() {
    in_own_network("files::packet_sockets_conform", &[], || {
        let make = || {
            veth();
            Pair::new([packet("ours"), packet("theirs")], End::Interface("ours"))
        };
        conform(make, delete);
    });
}

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn a_tap_device_conforms() {
    let test = "files::a_tap_device_conforms";
    if has_tap(test) {
        in_own_network(test, &[], || conform(tap, delete));
    }
}
