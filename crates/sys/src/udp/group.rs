//! Multicast groups: a socket joins and leaves them.
//!
//! Called where a receiver is set up. See ip(7), ipv6(7).

use super::UdpSocket;
use crate::OsError;
use core::net::{Ipv4Addr, Ipv6Addr};
use rustix::net::sockopt;

#[cfg(test)]
mod tests;

/// The interface on which a socket hears an IPv4 group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// The one that the routing table names for the group.
    #[default]
    Routed,
    /// The one that has this address.
    Address(Ipv4Addr),
    /// The one with this index, as if_nametoindex(3) gives it.
    Index(u32),
}

impl Interface {
    /// Address and index of a `struct ip_mreqn`.
    fn request(self) -> (Ipv4Addr, u32) {
        match self {
            Interface::Routed => (Ipv4Addr::UNSPECIFIED, 0),
            Interface::Address(address) => (address, 0),
            Interface::Index(index) => (Ipv4Addr::UNSPECIFIED, index),
        }
    }
}

impl UdpSocket {
    /// Joins an IPv4 group until it is left or the socket is closed. One system call.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface, or no route to the group. `EINVAL`: `group` is no
    /// multicast address. `EADDRINUSE`: joined already. `ENOBUFS`: more than
    /// `net.ipv4.igmp_max_memberships`. `ENOPROTOOPT`: an IPv6 socket.
    pub fn join_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        let (address, index) = interface.request();
        sockopt::set_ip_add_membership_with_ifindex(&self.fd, &group, &address, index)
            .map_err(OsError::of("setsockopt(IP_ADD_MEMBERSHIP)"))
    }

    /// Leaves an IPv4 group. What had arrived by then can still be received. One system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there. `ENODEV`: there is no such interface.
    pub fn leave_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        let (address, index) = interface.request();
        sockopt::set_ip_drop_membership_with_ifindex(&self.fd, &group, &address, index)
            .map_err(OsError::of("setsockopt(IP_DROP_MEMBERSHIP)"))
    }

    /// Joins an IPv6 group on the interface with this index (0: the one the routing table names)
    /// until it is left or the socket is closed. One system call.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface, or no route to the group. `EINVAL`: `group` is no
    /// multicast address. `EADDRINUSE`: joined already. `ENOPROTOOPT`: an IPv4 socket.
    pub fn join_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        sockopt::set_ipv6_add_membership(&self.fd, &group, interface)
            .map_err(OsError::of("setsockopt(IPV6_ADD_MEMBERSHIP)"))
    }

    /// Leaves an IPv6 group. What had arrived by then can still be received. One system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there.
    pub fn leave_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        sockopt::set_ipv6_drop_membership(&self.fd, &group, interface)
            .map_err(OsError::of("setsockopt(IPV6_DROP_MEMBERSHIP)"))
    }
}
