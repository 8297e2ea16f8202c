//! The interface on which a socket joins an IPv4 group.

use core::net::Ipv4Addr;

/// The interface on which a socket joins an IPv4 group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The interface that the routing table names for the group.
    #[default]
    Routed,
    /// The interface with this address.
    Address(Ipv4Addr),
    /// The interface with this index, as if_nametoindex(3) returns it.
    Index(u32),
}

impl Interface {
    /// Address and index of a `struct ip_mreqn`.
    pub(super) fn request(self) -> (Ipv4Addr, u32) {
        match self {
            Interface::Routed => (Ipv4Addr::UNSPECIFIED, 0),
            Interface::Address(address) => (address, 0),
            Interface::Index(index) => (Ipv4Addr::UNSPECIFIED, index),
        }
    }
}
