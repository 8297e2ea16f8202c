//! Which way the packets of an interface take best, and why.

use upcall_daemon::interface::Interface;

/// A way of packets between an interface and Upcall, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketPath {
    /// AF_XDP without a copy.
    ZeroCopy,
    /// AF_XDP with one copy.
    Copy,
    /// The kernel's sockets. Packets beyond a quota are dropped in the driver.
    SocketsWithEarlyDrop,
    /// The kernel's sockets alone.
    Sockets,
}

impl PacketPath {
    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            PacketPath::ZeroCopy => "AF_XDP, zero copy",
            PacketPath::Copy => "AF_XDP, copy",
            PacketPath::SocketsWithEarlyDrop => "sockets, early drop",
            PacketPath::Sockets => "sockets",
        }
    }
}

/// The best way of an interface, and the reason in one sentence.
pub fn of(interface: &Interface) -> (PacketPath, String) {
    let (path, reason) = match interface.features {
        _ if interface.is_loopback => (
            PacketPath::Sockets,
            "its packets never reach a driver, so nothing can be dropped before the protocol work",
        ),
        None => (
            PacketPath::Sockets,
            "this kernel does not say what its driver can do (Linux 6.3 and later do)",
        ),
        Some(features) if features.has_redirect() && features.has_zero_copy() => {
            (PacketPath::ZeroCopy, "its driver runs XDP and gives AF_XDP sockets its own buffers")
        }
        Some(features) if features.has_redirect() => {
            (PacketPath::Copy, "its driver runs XDP, and copies packets for AF_XDP sockets")
        }
        Some(features) if features.has_native() => (
            PacketPath::SocketsWithEarlyDrop,
            "its driver runs XDP, but cannot redirect packets to AF_XDP sockets",
        ),
        Some(_) => (
            PacketPath::Sockets,
            "its driver has no XDP; generic XDP drops a packet only after most of its cost",
        ),
    };
    let is_small = interface.features.is_some_and(|of| !of.has_fragments());
    let note = match interface.mtu_bytes {
        // A page, less the headroom of XDP and the kernel's own record.
        mtu if mtu > MTU_BYTES_MAX && is_small && path != PacketPath::Sockets => {
            format!("; its MTU of {mtu} is too great for XDP: at most {MTU_BYTES_MAX}")
        }
        _ => String::new(),
    };
    (path, format!("{reason}{note}"))
}

/// The greatest MTU that each driver with XDP takes without fragments: what a page of 4096 bytes
/// leaves beside 256 bytes of headroom, 320 of the kernel's record, and the Ethernet header with
/// two tags.
const MTU_BYTES_MAX: u32 = 3498;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_sockets_only_whatever_its_features() {
        let loopback = Interface { is_loopback: true, ..Interface::default() };
        assert_eq!(of(&loopback).0, PacketPath::Sockets);
        let unknown = Interface::default();
        assert!(of(&unknown).1.contains("does not say"));
    }
}
