//! Multicast groups: a socket joins and leaves them.
//!
//! Code that sets up a receiver calls this. See ip(7), ipv6(7).

use super::interface::Interface;
use super::socket::UdpSocket;
use crate::OsError;
use core::net::{Ipv4Addr, Ipv6Addr};
use rustix::net::sockopt;

#[cfg(test)]
mod tests;

impl UdpSocket {
    /// Joins an IPv4 group until the socket leaves it or is closed. One system call.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface, or no route to the group. `EINVAL`: `group` is no
    /// multicast address. `EADDRINUSE`: the socket has joined it already. `ENOBUFS`: more than
    /// `net.ipv4.igmp_max_memberships`. `ENOPROTOOPT`: an IPv6 socket.
    pub fn join_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        let (address, index) = interface.request();
        sockopt::set_ip_add_membership_with_ifindex(self, &group, &address, index)
            .map_err(OsError::of("setsockopt(IP_ADD_MEMBERSHIP)"))
    }

    /// Leaves an IPv4 group. Datagrams that arrived earlier can still be received. One system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: the socket has not joined it there. `ENODEV`: there is no such interface.
    pub fn leave_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        let (address, index) = interface.request();
        sockopt::set_ip_drop_membership_with_ifindex(self, &group, &address, index)
            .map_err(OsError::of("setsockopt(IP_DROP_MEMBERSHIP)"))
    }

    /// Joins an IPv6 group on the interface with this index (0: the interface that the routing
    /// table names), until the socket leaves it or is closed. One system call.
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface, or no route to the group. `EINVAL`: `group` is no
    /// multicast address. `EADDRINUSE`: the socket has joined it already. `ENOPROTOOPT`: an IPv4
    /// socket.
    pub fn join_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        sockopt::set_ipv6_add_membership(self, &group, interface)
            .map_err(OsError::of("setsockopt(IPV6_ADD_MEMBERSHIP)"))
    }

    /// Leaves an IPv6 group. Datagrams that arrived earlier can still be received. One system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: the socket has not joined it there.
    pub fn leave_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        sockopt::set_ipv6_drop_membership(self, &group, interface)
            .map_err(OsError::of("setsockopt(IPV6_DROP_MEMBERSHIP)"))
    }
}
