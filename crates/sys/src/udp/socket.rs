//! A UDP socket: its peer, its buffers, and the drops that the kernel counts.

use super::counter::count_on;
use super::gro::set_joining;
use crate::OsError;
use crate::clock::timespec;
use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A UDP socket that never blocks. Closed when dropped, and on exec.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    /// Drops so far. The kernel counts only 32 bits of them.
    drops: AtomicU64,
}

impl UdpSocket {
    /// Wraps a descriptor. The caller sets its options.
    pub(super) fn of(fd: OwnedFd) -> UdpSocket {
        UdpSocket { fd, drops: AtomicU64::new(0) }
    }

    /// Sends to `peer` from now on, and receives only from `peer`.
    ///
    /// # Errors
    /// `ENETUNREACH` without a route, `EAFNOSUPPORT` for the other IP version.
    pub fn connect(&self, peer: SocketAddr) -> Result<(), OsError> {
        rustix::net::connect(&self.fd, &peer).map_err(OsError::of("connect"))
    }

    /// The address of the socket, with the port that the kernel chose.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn local_addr(&self) -> Result<SocketAddr, OsError> {
        let failed = OsError::of("getsockname");
        let address = rustix::net::getsockname(&self.fd).map_err(&failed)?;
        SocketAddr::try_from(address).map_err(failed)
    }

    /// Lets the kernel join datagrams of one peer that come one after the other (`UDP_GRO`). A
    /// [`super::ReceiveBatch`] for it has slots of [`super::PAYLOAD_BYTES_MAX`], and each
    /// [`super::Datagram`] tells how to take them apart.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 5.0.
    pub fn join_datagrams(&self) -> Result<(), OsError> {
        set_joining(&self.fd, 1)
    }

    /// Requests `bytes` of receive buffer and returns how many were granted.
    ///
    /// Both numbers use the kernel's accounting, overhead included, as computed by
    /// [`super::receive_buffer_bytes`] and reported by getsockopt(SO_RCVBUF). They are twice the
    /// value that a program writes into `SO_RCVBUF`. Without `CAP_NET_ADMIN` the kernel grants at
    /// most twice `net.core.rmem_max`; with it, 2 GiB.
    ///
    /// # Errors
    /// Stock Linux is not known to return one. A smaller grant is no error.
    pub fn set_receive_buffer(&self, bytes: usize) -> Result<usize, OsError> {
        let half = buffer_half(bytes);
        if sockopt::set_socket_recv_buffer_size_force(&self.fd, half).is_err() {
            sockopt::set_socket_recv_buffer_size(&self.fd, half)
                .map_err(OsError::of("setsockopt(SO_RCVBUF)"))?;
        }
        self.receive_buffer()
    }

    /// The present receive buffer, in the same accounting. One system call.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn receive_buffer(&self) -> Result<usize, OsError> {
        sockopt::socket_recv_buffer_size(&self.fd).map_err(OsError::of("getsockopt(SO_RCVBUF)"))
    }

    /// As [`Self::set_receive_buffer`], for the send buffer (`net.core.wmem_max`).
    ///
    /// # Errors
    /// Stock Linux is not known to return one. A smaller grant is no error.
    pub fn set_send_buffer(&self, bytes: usize) -> Result<usize, OsError> {
        let half = buffer_half(bytes);
        if sockopt::set_socket_send_buffer_size_force(&self.fd, half).is_err() {
            sockopt::set_socket_send_buffer_size(&self.fd, half)
                .map_err(OsError::of("setsockopt(SO_SNDBUF)"))?;
        }
        sockopt::socket_send_buffer_size(&self.fd).map_err(OsError::of("getsockopt(SO_SNDBUF)"))
    }

    /// Datagrams that the kernel has dropped at this socket so far, because its buffer was full or
    /// their checksum wrong.
    ///
    /// Reads the kernel's own counter by getsockopt(SO_MEMINFO), which is always up to date.
    /// [`super::ReceiveBatch::socket_drops`] learns of drops only with the next datagram that is
    /// queued after them. One system call. The kernel counts in 32 bits, so call at least once
    /// every 2^32 drops.
    ///
    /// # Errors
    /// `ENOPROTOOPT` before Linux 4.12.
    pub fn drops(&self) -> Result<u64, OsError> {
        const OPERATION: &str = "getsockopt(SO_MEMINFO)";
        // Acquire pairs with the Release below: this call asks the kernel after the caller that
        // stored `known` did. So the kernel's count is not behind `known`.
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
            // the kernel has no such counter
            return Err(OsError::new(OPERATION, libc::ENOPROTOOPT));
        }
        let total = count_on(known, info[libc::SK_MEMINFO_DROPS as usize]);
        // Release pairs with the Acquire above.
        Ok(self.drops.fetch_max(total, Ordering::AcqRel).max(total))
    }

    /// Blocks until there is a datagram or an error to receive, at most `timeout_ns`. Returns
    /// whether there is. A signal ends the wait early, with `false`. One system call.
    pub fn wait_readable(&self, timeout_ns: u64) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&timespec(timeout_ns))).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The value of `SO_RCVBUF` or `SO_SNDBUF` for which the kernel accounts `bytes`. The kernel
/// doubles the value and takes an int.
fn buffer_half(bytes: usize) -> usize {
    bytes.div_ceil(2).min(i32::MAX as usize / 2)
}
