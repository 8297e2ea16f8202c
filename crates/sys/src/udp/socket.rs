//! A UDP socket: its peer, its buffers, and the drops that the kernel counts.

use super::counter::count_on;
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
    /// Drops so far, beyond the 32 bits the kernel counts in.
    drops: AtomicU64,
}

impl UdpSocket {
    /// Wraps a descriptor. The caller sets its options.
    pub(super) fn of(fd: OwnedFd) -> UdpSocket {
        UdpSocket { fd, drops: AtomicU64::new(0) }
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
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The value of `SO_RCVBUF` or `SO_SNDBUF` that makes the kernel account
/// `bytes`: it doubles it, and takes an int.
fn buffer_half(bytes: usize) -> usize {
    bytes.div_ceil(2).min(i32::MAX as usize / 2)
}
