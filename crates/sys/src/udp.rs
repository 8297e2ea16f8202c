//! UDP sockets, read and written in batches.
//!
//! Called by the runtime's stream stages: a handler takes what has arrived
//! with one system call and without ever blocking, and the kernel's drop
//! counter says what it came too late for. Threads that may block have
//! [`UdpSocket::wait_readable`]. See udp(7), socket(7).

use crate::OsError;
use crate::clock::timespec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

mod address;
mod buffer;
mod control;
mod group;
mod icmp;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use buffer::receive_buffer_bytes;
pub use group::Interface;
pub(crate) use icmp::is_icmp;
pub use receive::{Datagram, ReceiveBatch};
pub use send::{PushError, SendBatch};

/// Datagrams one system call moves at most: the kernel's `UIO_MAXIOV`.
pub const BATCH_MAX: usize = 1024;

/// Longest UDP payload over IPv4: 65,535 less the headers of IP and UDP.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;

/// How often a call is tried again after a signal or an ICMP error, so that
/// neither can keep a thread in a loop.
const TRIES_MAX: u32 = 8;

/// A UDP socket that never blocks. Closed when dropped, and on exec.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    /// Drops so far, beyond the 32 bits the kernel counts in.
    drops: AtomicU64,
}

impl UdpSocket {
    /// A socket on `address`; port 0 lets the kernel choose. If `address` is a
    /// multicast group, it is joined on the interface the routing table names
    /// (IPv6: on the address's scope, where given).
    ///
    /// Arrival times and drop counts are asked for from the start.
    ///
    /// # Errors
    /// `EADDRINUSE`, for addresses are not shared; `EADDRNOTAVAIL`, `EACCES`
    /// (ports below 1024), `ENODEV` (no interface for the group).
    pub fn bind(address: SocketAddr) -> Result<UdpSocket, OsError> {
        let fd = rustix::net::socket_with(
            if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 },
            SocketType::DGRAM,
            SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
            None,
        )
        .map_err(OsError::of("socket"))?;
        let socket = UdpSocket { fd, drops: AtomicU64::new(0) };
        socket.ask_for_control()?;
        rustix::net::bind(&socket.fd, &address).map_err(OsError::of("bind"))?;
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

    /// A socket that somebody else made. Four things change on it, for all who share it: it does
    /// not block any more (`O_NONBLOCK`), the kernel does not join datagrams (`UDP_GRO`), and each
    /// datagram brings its arrival time (`SO_TIMESTAMPNS`, which takes the place of
    /// `SO_TIMESTAMP`) and the drops before it (`SO_RXQ_OVFL`). Six system calls.
    ///
    /// # Errors
    /// `ENOTSOCK`: no socket. `EPROTOTYPE`: no datagram socket of IPv4 or IPv6.
    pub fn from_fd(fd: OwnedFd) -> Result<UdpSocket, OsError> {
        let kind = sockopt::socket_type(&fd).map_err(OsError::of("getsockopt(SO_TYPE)"))?;
        let family = sockopt::socket_domain(&fd).map_err(OsError::of("getsockopt(SO_DOMAIN)"))?;
        let is_ip = matches!(family, AddressFamily::INET | AddressFamily::INET6);
        if kind != SocketType::DGRAM || !is_ip {
            return Err(OsError::new("receive datagrams from a socket", libc::EPROTOTYPE));
        }
        rustix::io::ioctl_fionbio(&fd, true).map_err(OsError::of("ioctl(FIONBIO)"))?;
        separate_datagrams(&fd)?;
        let socket = UdpSocket { fd, drops: AtomicU64::new(0) };
        socket.ask_for_control()?;
        Ok(socket)
    }

    /// Sends to `peer` from now on, and receives from nobody else.
    ///
    /// # Errors
    /// `ENETUNREACH` without a route, `EAFNOSUPPORT` for the other IP version.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), OsError> {
        rustix::net::connect(&self.fd, &peer).map_err(OsError::of("connect"))
    }

    /// The address the socket is bound to, with the port the kernel chose.
    ///
    /// # Errors
    /// None that stock Linux is known to return.
    pub fn local_addr(&self) -> Result<SocketAddr, OsError> {
        let failed = OsError::of("getsockname");
        let address = rustix::net::getsockname(&self.fd).map_err(&failed)?;
        SocketAddr::try_from(address).map_err(failed)
    }

    /// Asks for `bytes` of receive buffer and says how many were granted.
    ///
    /// Both are in the kernel's own accounting, overhead included, as
    /// [`receive_buffer_bytes`] computes and getsockopt(SO_RCVBUF) reports it:
    /// twice what one writes into `SO_RCVBUF`. Without `CAP_NET_ADMIN` the
    /// kernel grants at most twice `net.core.rmem_max`; with it, 2 GiB.
    ///
    /// # Errors
    /// None that stock Linux is known to return; too little is no error.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<usize, OsError> {
        let half = buffer_half(bytes);
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, half).is_err() {
            sockopt::set_socket_recv_buffer_size(&self.fd, half)
                .map_err(OsError::of("setsockopt(SO_RCVBUF)"))?;
        }
        self.receive_buffer()
    }

    /// The receive buffer in force, in the same accounting. One system call.
    ///
    /// # Errors
    /// None that stock Linux is known to return.
    pub fn receive_buffer(&self) -> Result<usize, OsError> {
        sockopt::socket_recv_buffer_size(&self.fd).map_err(OsError::of("getsockopt(SO_RCVBUF)"))
    }

    /// As [`Self::set_receive_buffer`], for what waits to be sent
    /// (`net.core.wmem_max`).
    ///
    /// # Errors
    /// None that stock Linux is known to return; too little is no error.
    pub fn set_send_buffer(&self, bytes: usize) -> Result<usize, OsError> {
        let half = buffer_half(bytes);
        if sockopt::set_socket_send_buffer_size_force(&self.fd, half).is_err() {
            sockopt::set_socket_send_buffer_size(&self.fd, half)
                .map_err(OsError::of("setsockopt(SO_SNDBUF)"))?;
        }
        sockopt::socket_send_buffer_size(&self.fd).map_err(OsError::of("getsockopt(SO_SNDBUF)"))
    }

    /// Datagrams the kernel has dropped at this socket so far because its
    /// buffer was full (or their checksum wrong).
    ///
    /// The kernel's own counter, by getsockopt(SO_MEMINFO): it is right at
    /// any time, whereas [`ReceiveBatch::socket_drops`] learns of drops only
    /// with the next datagram that is queued after them. One system call. The
    /// kernel counts in 32 bits; call at least once every 2^32 drops.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 4.12.
    pub fn drops(&self) -> Result<u64, OsError> {
        const OPERATION: &str = "getsockopt(SO_MEMINFO)";
        // Acquire pairs with the Release below: the kernel is asked after the
        // caller that stored `known`, so its count is not behind `known`.
        let known = self.drops.load(Ordering::Acquire);
        // include/uapi/linux/sock_diag.h: SK_MEMINFO_*, one u32 each.
        const COUNTERS: libc::socklen_t = libc::SK_MEMINFO_DROPS as libc::socklen_t + 1;
        const BYTES: libc::socklen_t = 4 * COUNTERS;
        let mut info = [0u32; COUNTERS as usize];
        let mut length = BYTES;
        // SAFETY: the kernel writes at most `length` bytes to `info`, and the
        // number of bytes to `length`.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(OsError::last(OPERATION));
        }
        if length != BYTES {
            return Err(OsError::new(OPERATION, libc::ENOPROTOOPT)); // no such counter
        }
        let total = count_on(known, info[libc::SK_MEMINFO_DROPS as usize]);
        // Release pairs with the Acquire above.
        Ok(self.drops.fetch_max(total, Ordering::AcqRel).max(total))
    }

    /// Blocks until there is something to receive (or an error to hear of),
    /// at most `timeout_ns`; says whether there is. A signal ends it early,
    /// with `false`. One system call.
    pub fn wait_readable(&self, timeout_ns: u64) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&timespec(timeout_ns))).is_ok_and(|ready| ready > 0)
    }

    /// Has the kernel say with each datagram when it arrived, and what was dropped before it.
    fn ask_for_control(&self) -> Result<(), OsError> {
        self.turn_on(libc::SO_RXQ_OVFL, "setsockopt(SO_RXQ_OVFL)")?;
        self.turn_on(libc::SO_TIMESTAMPNS, "setsockopt(SO_TIMESTAMPNS)")
    }

    /// Sets a flag of level `SOL_SOCKET`.
    fn turn_on(&self, option: i32, operation: &'static str) -> Result<(), OsError> {
        let on: i32 = 1;
        // SAFETY: the kernel reads one int from `on`.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const on).cast(),
                4,
            )
        };
        if result == 0 { Ok(()) } else { Err(OsError::last(operation)) }
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Has the kernel hand over each datagram by itself. With `UDP_GRO` it joins datagrams of one
/// sender into one, without a mark in the payload.
///
/// # Errors
/// What the kernel said, but for a socket that is not of UDP and knows no such option.
pub(crate) fn separate_datagrams(fd: &OwnedFd) -> Result<(), OsError> {
    let off: i32 = 0;
    // SAFETY: the kernel reads one int from `off`.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, (&raw const off).cast(), 4)
    };
    let error = OsError::last("setsockopt(UDP_GRO)");
    let unknown = [libc::ENOPROTOOPT, libc::EOPNOTSUPP].contains(&error.raw_os_error());
    if result == 0 || unknown { Ok(()) } else { Err(error) }
}

/// The value of `SO_RCVBUF` or `SO_SNDBUF` that makes the kernel account
/// `bytes`: it doubles it, and takes an int.
fn buffer_half(bytes: usize) -> usize {
    bytes.div_ceil(2).min(i32::MAX as usize / 2)
}

/// `known`, carried on to the next moment at which a 32-bit counter that has
/// gone on since stands at `counter`.
fn count_on(known: u64, counter: u32) -> u64 {
    let known_low = (known & 0xFFFF_FFFF) as u32; // the low half is what the kernel counted
    known + u64::from(counter.wrapping_sub(known_low))
}
