//! Makes a UDP socket ready to receive: a new one, or one made by other code.

use super::gro::separate_datagrams;
use super::interface::Interface;
use super::socket::UdpSocket;
use crate::OsError;
use core::net::SocketAddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

impl UdpSocket {
    /// A socket on `address`. With port 0 the kernel chooses the port. If `address` is a multicast
    /// group, the socket joins it on the interface that the routing table names (IPv6: on the
    /// address's scope, if given).
    ///
    /// The socket reports arrival times and drop counts from the start.
    ///
    /// # Errors
    /// `EADDRINUSE`, because addresses are not shared. `EADDRNOTAVAIL`, `EACCES` (ports below
    /// 1024), `ENODEV` (no interface for the group).
    pub fn bind(address: SocketAddr) -> Result<UdpSocket, OsError> {
        let fd = rustix::net::socket_with(
            if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 },
            SocketType::DGRAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )
        .map_err(OsError::of("socket"))?;
        let socket = UdpSocket::of(fd);
        socket.ask_for_control()?;
        rustix::net::bind(&socket, &address).map_err(OsError::of("bind"))?;
        match address {
            SocketAddr::V4(group) if group.ip().is_multicast() => {
                socket.join_v4(*group.ip(), Interface::Routed)?;
            }
            SocketAddr::V6(group) if group.ip().is_multicast() => {
                socket.join_v6(*group.ip(), group.scope_id())?;
            }
            _ => {}
        }
        Ok(socket)
    }

    /// A socket that other code made. Four things change, for all who share the socket. It no
    /// longer blocks (`O_NONBLOCK`). The kernel no longer joins datagrams (`UDP_GRO`). Each
    /// datagram brings its arrival time (`SO_TIMESTAMPNS`, which replaces `SO_TIMESTAMP`) and the
    /// number of drops before it (`SO_RXQ_OVFL`). Six system calls.
    ///
    /// # Errors
    /// `ENOTSOCK`: `fd` is no socket. `EPROTOTYPE`: `fd` is no datagram socket of IPv4 or IPv6.
    pub fn from_fd(fd: OwnedFd) -> Result<UdpSocket, OsError> {
        let kind = sockopt::socket_type(&fd).map_err(OsError::of("getsockopt(SO_TYPE)"))?;
        let family = sockopt::socket_domain(&fd).map_err(OsError::of("getsockopt(SO_DOMAIN)"))?;
        let is_ip = matches!(family, AddressFamily::INET | AddressFamily::INET6);
        if kind != SocketType::DGRAM || !is_ip {
            return Err(OsError::new("receive datagrams from a socket", libc::EPROTOTYPE));
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(OsError::of("ioctl(FIONBIO)"))?;
        separate_datagrams(&fd)?;
        let socket = UdpSocket::of(fd);
        socket.ask_for_control()?;
        Ok(socket)
    }

    /// Makes the kernel report the arrival time of each datagram, and the number of drops before
    /// it.
    fn ask_for_control(&self) -> Result<(), OsError> {
        self.set_control(1)
    }

    /// From now on a datagram brings no arrival time and no number of drops, which makes receiving
    /// cheaper. Two system calls.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn omit_control(&self) -> Result<(), OsError> {
        self.set_control(0)
    }

    fn set_control(&self, on: i32) -> Result<(), OsError> {
        self.set_flag(libc::SO_RXQ_OVFL, on, "setsockopt(SO_RXQ_OVFL)")?;
        self.set_flag(libc::SO_TIMESTAMPNS, on, "setsockopt(SO_TIMESTAMPNS)")
    }

    /// Sets a flag of level `SOL_SOCKET` to `on`, 0 or 1.
    fn set_flag(&self, option: i32, on: i32, operation: &'static str) -> Result<(), OsError> {
        // SAFETY: the kernel reads one int from `on`.
        let result = unsafe {
            libc::setsockopt(
                self.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const on).cast(),
                4,
            )
        };
        if result == 0 { Ok(()) } else { Err(OsError::last(operation)) }
    }
}
