//! Many datagrams with one system call: sendmmsg(2).

use super::limits::{BATCH_MAX, PAYLOAD_BYTES_MAX, TRIES_MAX};
use super::socket::UdpSocket;
use crate::OsError;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// A queue of datagrams for a connected socket, its memory taken once.
pub struct SendBatch {
    /// Slots of `bytes_each`, used in a circle.
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

// SAFETY: as for ReceiveBatch: the pointers in `vectors` and `headers` point
// into boxes that move along, and are used only in `try_send`, which writes
// them anew first.
unsafe impl Send for SendBatch {}

impl SendBatch {
    /// Room for `datagrams` (1 to [`BATCH_MAX`]) of at most `bytes_each` (1 to
    /// [`PAYLOAD_BYTES_MAX`]); values outside are taken as the nearest inside.
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

    /// Queues a copy of `payload`. O(bytes); does not allocate.
    ///
    /// # Errors
    /// The queue is full, or the payload longer than a slot. Nothing changes.
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

    /// Sends what is queued, oldest first, and says how many datagrams the
    /// kernel took. The rest stays queued: call again later.
    ///
    /// One system call, unless the kernel stops early; then as many as it
    /// takes to learn why, at most two a datagram. That the peer's port was
    /// closed a moment ago ("port unreachable") stops nothing. Never blocks,
    /// never allocates.
    ///
    /// # Errors
    /// What the kernel says of the oldest datagram still queued: `EMSGSIZE`,
    /// `EDESTADDRREQ` (not connected), `ENETUNREACH`, `EPERM` (a firewall). It
    /// stays queued; [`Self::clear`] gives it up.
    pub fn flush(&mut self, socket: &UdpSocket) -> Result<usize, OsError> {
        let before = self.queued;
        // Each round sends something or meets one error, and each datagram
        // sent can bring back one refusal.
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

    /// Forgets what is queued.
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

    /// Times the peer's host has said that nobody listens there (ICMP "port
    /// unreachable"). At most as many as datagrams were sent.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// One sendmmsg of all that is queued.
    fn try_send(&mut self, socket: &UdpSocket) -> Result<usize, OsError> {
        self.point_headers();
        #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_MAX")]
        let count = self.queued as libc::c_uint;
        // SAFETY: at least `count` headers exist, and `point_headers` has
        // just made each of them point at memory that the boxes of `self` own
        // and that is as long as it says. The kernel only reads payloads.
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

    /// Makes the first `queued` headers point at the queued payloads, oldest
    /// first.
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

/// Headers that point nowhere.
pub(super) fn empty_headers(count: usize) -> Box<[libc::mmsghdr]> {
    // SAFETY: integers and pointers; all zero is a valid value, with no name,
    // no buffers and no control messages.
    let empty: libc::mmsghdr = unsafe { core::mem::zeroed() };
    vec![empty; count].into()
}

/// Vectors that point nowhere.
pub(super) fn empty_vectors(count: usize) -> Box<[libc::iovec]> {
    vec![libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; count].into()
}

/// Why a datagram was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// All slots are taken.
    Full {
        /// How many there are.
        datagrams: usize,
    },
    /// It does not fit into a slot.
    Length {
        /// Its bytes.
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
