//! Sends many datagrams with one system call: sendmmsg(2).

use super::limits::{BATCH_MAX, PAYLOAD_BYTES_MAX, TRIES_MAX};
use super::socket::UdpSocket;
use crate::OsError;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// A queue of datagrams for a connected socket, allocated once.
pub struct SendBatch {
    /// Slots of `bytes_each`, used as a ring.
    payloads: Box<[u8]>,
    /// Bytes used of each slot.
    lengths: Box<[usize]>,
    vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    bytes_each: usize,
    /// Slot of the oldest datagram.
    first: usize,
    queued: usize,
    refusals: u64,
}

// SAFETY: as for ReceiveBatch. The pointers in `vectors` and `headers` point into boxes that move
// along. Only `try_send` uses them, and it writes them anew first.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Slots for `datagrams` (1 to [`BATCH_MAX`]) of at most `bytes_each` (1 to
    /// [`PAYLOAD_BYTES_MAX`]). Values outside are clamped.
    ///
    /// Allocates and touches all memory that sending will ever need.
    pub fn new(datagrams: usize, bytes_each: usize) -> SendBatch {
        let datagrams = datagrams.clamp(1, BATCH_MAX);
        let bytes_each = bytes_each.clamp(1, PAYLOAD_BYTES_MAX);
        SendBatch {
            payloads: vec![0xFF; datagrams * bytes_each].into(), // see ReceiveBatch::new
            lengths: vec![0; datagrams].into(),
            vectors: empty_vectors(datagrams),
            headers: empty_headers(datagrams),
            bytes_each,
            first: 0,
            queued: 0,
            refusals: 0,
        }
    }

    /// Queues a copy of `payload`. O(bytes). Does not allocate.
    ///
    /// # Errors
    /// The queue is full, or the payload is longer than a slot. Nothing changes then.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), PushError> {
        if payload.len() > self.bytes_each {
            return Err(PushError::Length { found: payload.len(), most: self.bytes_each });
        }
        if self.queued == self.lengths.len() {
            return Err(PushError::Full { datagrams: self.queued });
        }
        let slot = (self.first + self.queued) % self.lengths.len();
        let start = slot * self.bytes_each;
        self.payloads[start..start + payload.len()].copy_from_slice(payload);
        self.lengths[slot] = payload.len();
        self.queued += 1;
        Ok(())
    }

    /// Sends the queued datagrams, oldest first, and returns how many the kernel took. The rest
    /// stays queued for a later call.
    ///
    /// One system call, unless the kernel stops early. Then it makes more calls to learn why, at
    /// most two per datagram. An earlier "port unreachable" of the peer does not stop it. Never
    /// blocks or allocates.
    ///
    /// # Errors
    /// The kernel's error for the oldest datagram still queued: `EMSGSIZE`, `EDESTADDRREQ` (not
    /// connected), `ENETUNREACH`, `EPERM` (a firewall). That datagram stays queued; [`Self::clear`]
    /// drops it.
    pub fn flush(&mut self, socket: &UdpSocket) -> Result<usize, OsError> {
        let before = self.queued;
        // Each round sends something or meets one error. Each datagram sent can cause one refusal.
        for _ in 0..2 * before + TRIES_MAX as usize {
            if self.queued == 0 {
                break;
            }
            match self.try_send(socket) {
                Ok(sent) => {
                    self.first = (self.first + sent) % self.lengths.len();
                    self.queued -= sent;
                }
                Err(error) if error.is_would_block() => break,
                Err(error) if error.raw_os_error() == libc::EINTR => {}
                Err(error) if error.raw_os_error() == libc::ECONNREFUSED => self.refusals += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(before - self.queued)
    }

    /// Drops the queued datagrams.
    pub fn clear(&mut self) {
        self.queued = 0;
    }

    /// Datagrams queued.
    pub fn len(&self) -> usize {
        self.queued
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }

    /// How often the peer's host reported that no process listens there (ICMP "port unreachable").
    /// At most the number of datagrams sent.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Calls sendmmsg once for all queued datagrams.
    fn try_send(&mut self, socket: &UdpSocket) -> Result<usize, OsError> {
        self.point_headers();
        #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_MAX")]
        let count = self.queued as libc::c_uint;
        // SAFETY: at least `count` headers exist. `point_headers` has just made each of them point
        // at memory that the boxes of `self` own and that is as long as the header says. The kernel
        // only reads payloads.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_fd().as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| OsError::last("sendmmsg"))
    }

    /// Points the first `queued` headers at the queued payloads, oldest first.
    fn point_headers(&mut self) {
        let slots = (self.first..self.lengths.len()).chain(0..self.first);
        let places = self.headers.iter_mut().zip(&mut self.vectors).take(self.queued);
        for ((header, vector), slot) in places.zip(slots) {
            let start = slot * self.bytes_each;
            let payload = &mut self.payloads[start..start + self.lengths[slot]];
            vector.iov_base = payload.as_mut_ptr().cast();
            vector.iov_len = payload.len();
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
    }
}

impl fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch")
            .field("datagrams", &self.lengths.len())
            .field("bytes_each", &self.bytes_each)
            .field("queued", &self.queued)
            .finish_non_exhaustive()
    }
}

/// Headers with null pointers.
pub(super) fn empty_headers(count: usize) -> Box<[libc::mmsghdr]> {
    // SAFETY: the struct has only integers and pointers. All zero is valid: no name, no buffers, no
    // control messages.
    let empty: libc::mmsghdr = unsafe { core::mem::zeroed() };
    vec![empty; count].into()
}

/// Vectors with null pointers.
pub(super) fn empty_vectors(count: usize) -> Box<[libc::iovec]> {
    vec![libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; count].into()
}

/// The reason why a datagram was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// All slots are taken.
    Full {
        /// The number of slots.
        datagrams: usize,
    },
    /// The payload is longer than a slot.
    Length {
        /// Bytes of the payload.
        found: usize,
        /// Bytes of a slot.
        most: usize,
    },
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PushError::Full { datagrams } => {
                write!(f, "send queue is full: {datagrams} datagrams wait")
            }
            PushError::Length { found, most } => {
                write!(f, "datagram has {found} bytes, expected at most {most}")
            }
        }
    }
}

impl std::error::Error for PushError {}
