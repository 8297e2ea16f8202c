//! Receives many datagrams with one system call: recvmmsg(2).

use super::address::{self, ADDRESS_BYTES, ADDRESS_LENGTH};
use super::control::{CONTROL_BYTES, Control};
use super::counter::count_on;
use super::icmp::is_icmp;
use super::limits::{BATCH_MAX, PAYLOAD_BYTES_MAX, TRIES_MAX};
use super::send::{empty_headers, empty_vectors};
use super::socket::UdpSocket;
use crate::OsError;
use core::net::{Ipv4Addr, SocketAddr};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// Buffers for the datagrams of one call, allocated once and reused.
pub struct ReceiveBatch {
    /// Slots of `bytes_each`.
    payloads: Box<[u8]>,
    /// Slots of `CONTROL_BYTES`.
    controls: Box<[u8]>,
    /// Slots of `ADDRESS_BYTES`.
    senders: Box<[u8]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    bytes_each: usize,
    received: usize,
    drops: u64,
    icmp_errors: u64,
}

// SAFETY: the pointers in `vectors` and `headers` make this type !Send. They point into the boxes
// beside them, which move with the batch. Only `receive` uses them, and it writes them anew first.
unsafe impl Send for ReceiveBatch {}

/// A datagram in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'batch> {
    /// The content, as far as it fits the buffer.
    pub payload: &'batch [u8],
    /// The sender. On an IPv6 socket that also receives IPv4, an IPv4 sender is `::ffff:a.b.c.d`.
    pub sender: SocketAddr,
    /// When the kernel took the datagram in, by `CLOCK_REALTIME`. If no socket of the machine had
    /// requested arrival times by then, this is the time of the receive call.
    pub arrival_realtime_ns: Option<u64>,
    /// Whether the end is missing because the datagram was longer than a buffer.
    pub truncated: bool,
    /// Bytes of each datagram in the payload, of which the last may be shorter, if the kernel
    /// joined several ([`UdpSocket::join_datagrams`]). More than 0.
    pub joined_bytes: Option<usize>,
}

impl ReceiveBatch {
    /// Buffers for `datagrams` (1 to [`BATCH_MAX`]) of `bytes_each` (1 to [`PAYLOAD_BYTES_MAX`]).
    /// Values outside are clamped.
    ///
    /// Allocates and touches all memory that receiving will ever need.
    pub fn new(datagrams: usize, bytes_each: usize) -> ReceiveBatch {
        let datagrams = datagrams.clamp(1, BATCH_MAX);
        let bytes_each = bytes_each.clamp(1, PAYLOAD_BYTES_MAX);
        // Zeroes would be pages without memory yet. Ones are written, so the memory is there.
        let filled = |bytes| vec![0xFF; bytes].into_boxed_slice();
        ReceiveBatch {
            payloads: filled(datagrams * bytes_each),
            controls: filled(datagrams * CONTROL_BYTES),
            senders: filled(datagrams * ADDRESS_BYTES),
            vectors: empty_vectors(datagrams),
            headers: empty_headers(datagrams),
            bytes_each,
            received: 0,
            drops: 0,
            icmp_errors: 0,
        }
    }

    /// Takes the datagrams that wait at `socket`, as many as fit, and returns their number; 0 if
    /// there are none. They replace those of the last call.
    ///
    /// One system call, or a few after signals and ICMP errors. Never blocks or allocates.
    /// O(datagrams that the batch can hold).
    ///
    /// # Errors
    /// A healthy socket is not expected to return one (`ENOMEM` is possible). The batch is empty
    /// then.
    pub fn receive(&mut self, socket: &UdpSocket) -> Result<usize, OsError> {
        self.received = 0;
        for _ in 0..TRIES_MAX {
            match self.try_receive(socket) {
                Ok(received) => {
                    self.received = received;
                    // The kernel's counts only grow, so the last datagram has the latest one.
                    if let Some(drops) = received.checked_sub(1).and_then(|i| self.control(i).drops)
                    {
                        self.drops = count_on(self.drops, drops);
                    }
                    return Ok(received);
                }
                Err(error) if error.is_would_block() => return Ok(0),
                Err(error) if error.raw_os_error() == libc::EINTR => {}
                Err(error) if is_icmp(error) => self.icmp_errors += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// Datagram `index` of the last [`Self::receive`], in order of arrival.
    ///
    /// # Panics
    /// If `index` is not below what [`Self::receive`] returned.
    pub fn datagram(&self, index: usize) -> Datagram<'_> {
        let header = &self.headers[..self.received][index];
        let start = index * self.bytes_each;
        let bytes = (header.msg_len as usize).min(self.bytes_each);
        let control = self.control(index);
        Datagram {
            payload: &self.payloads[start..start + bytes],
            sender: self.sender(index),
            arrival_realtime_ns: control.arrival_realtime_ns,
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            joined_bytes: control.joined_bytes.filter(|&bytes| bytes > 0),
        }
    }

    /// The datagrams of the last [`Self::receive`], in order of arrival.
    pub fn datagrams(&self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        (0..self.received).map(|index| self.datagram(index))
    }

    /// Datagrams that the socket had dropped when the last received datagram was queued, in total,
    /// by `SO_RXQ_OVFL`. Costs no system call, but lags behind: it misses drops with no datagram
    /// after them. For these see [`UdpSocket::drops`]. Use one socket per batch.
    pub fn socket_drops(&self) -> u64 {
        self.drops
    }

    /// ICMP errors received and skipped (such as "port unreachable" for datagrams that the same
    /// socket sent).
    pub fn icmp_errors(&self) -> u64 {
        self.icmp_errors
    }

    fn sender(&self, index: usize) -> SocketAddr {
        let start = index * ADDRESS_BYTES;
        let bytes = (self.headers[index].msg_hdr.msg_namelen as usize).min(ADDRESS_BYTES);
        // The kernel names the sender of every UDP datagram.
        address::parse(&self.senders[start..start + bytes])
            .unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into())
    }

    fn control(&self, index: usize) -> Control {
        let start = index * CONTROL_BYTES;
        let bytes = self.headers[index].msg_hdr.msg_controllen.min(CONTROL_BYTES);
        Control::parse(&self.controls[start..start + bytes])
    }

    /// Calls recvmmsg once.
    fn try_receive(&mut self, socket: &UdpSocket) -> Result<usize, OsError> {
        self.point_headers();
        #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_MAX")]
        let count = self.headers.len() as libc::c_uint;
        // SAFETY: `headers` has `count` entries. `point_headers` has just made each point at memory
        // that the boxes of `self` own. The memory is as long as the header says, and nothing else
        // refers to it while `self` is borrowed mutably.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| OsError::last("recvmmsg"))
    }

    /// Points each header at its payload, control and address buffer, at full length. The kernel
    /// overwrote the lengths, and the batch may have moved.
    fn point_headers(&mut self) {
        let payloads = self.payloads.chunks_exact_mut(self.bytes_each);
        let controls = self.controls.chunks_exact_mut(CONTROL_BYTES);
        let senders = self.senders.chunks_exact_mut(ADDRESS_BYTES);
        let buffers = payloads.zip(controls).zip(senders).zip(&mut self.vectors);
        for (header, (((payload, control), sender), vector)) in self.headers.iter_mut().zip(buffers)
        {
            header.msg_hdr.msg_name = sender.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = ADDRESS_LENGTH;
            vector.iov_base = payload.as_mut_ptr().cast();
            vector.iov_len = payload.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = control.len();
            header.msg_hdr.msg_flags = 0;
        }
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBatch")
            .field("datagrams", &self.headers.len())
            .field("bytes_each", &self.bytes_each)
            .field("received", &self.received)
            .field("drops", &self.drops)
            .finish_non_exhaustive()
    }
}
