//! Which device an interface gets, and the reason that is stated.

use super::frames::FORM;
use super::interfaces::{in_own_network, veth};
use upcall_runtime::net::{Choice, Chosen, DeviceError, Redirect, area, choose};
use upcall_sys::early_drop::{EarlyDrop, Request};
use upcall_sys::interface::index;

#[test]
#[ignore = "needs root, ip and unshare: an interface in its own network"]
fn the_choice_says_why() {
    in_own_network("choice::the_choice_says_why", &[], || {
        veth();
        let (area, ours) = (area(FORM).unwrap(), index("ours").unwrap());
        let Choice { device, reason } = choose(&area, ours, Redirect::Missing).unwrap();
        assert!(matches!(device, Chosen::PacketRing(_)), "{reason}");
        assert_eq!(
            reason,
            "packet socket with rings: no XDP program of the interface redirects frames to a socket"
        );
        for (request, expected) in [
            (Request::Native, "AF_XDP with one copy, native: the driver cannot do without (bind"),
            (Request::Generic, "AF_XDP with one copy, generic: its XDP program runs after the"),
        ] {
            let _program = EarlyDrop::attach(ours, request).unwrap();
            let Choice { device, reason } = choose(&area, ours, Redirect::Attached).unwrap();
            assert!(matches!(device, Chosen::Xdp(_)) && reason.starts_with(expected), "{reason}");
            assert_eq!(reason.contains("EOPNOTSUPP"), request == Request::Native, "{reason}");
            // The queue has a socket now.
            let second = choose(&area, ours, Redirect::Attached).unwrap();
            let Choice { device: second, reason } = second;
            assert!(matches!(second, Chosen::PacketRing(_)), "{reason}");
            assert!(
                reason.contains("AF_XDP does not work") && reason.contains("EBUSY"),
                "{reason}"
            );
            drop(device);
        }
        let error = choose(&area, 9999, Redirect::Attached).unwrap_err();
        assert!(matches!(error, DeviceError::Down(_)), "{error}");
    });
}

#[test]
#[ignore = "needs root, ip, unshare and setpriv: a program without rights"]
fn without_rights_there_are_udp_sockets() {
    let without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    in_own_network("choice::without_rights_there_are_udp_sockets", &without, || {
        let area = area(FORM).unwrap();
        let Choice { device, reason } = choose(&area, 1, Redirect::Attached).unwrap();
        assert!(matches!(device, Chosen::Udp(_)), "{reason}");
        let refused = "packet sockets do not work here (socket(AF_PACKET)";
        assert!(reason.starts_with("UDP sockets: AF_XDP does not work here ("), "{reason}");
        assert!(reason.contains(refused) && reason.matches("EPERM").count() == 2, "{reason}");
    });
}
