//! Sends many datagrams with one system call: sendmmsg(2).

use super::address::{self, ADDRESS_BYTES};
use super::limits::{BATCH_MAX, PAYLOAD_BYTES_MAX, SEGMENTS_MAX, TRIES_MAX};
use super::socket::UdpSocket;
use crate::OsError;
use core::net::SocketAddr;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd};

/// Words of a control message with `UDP_SEGMENT`: length, level and type, and the value.
const SEGMENT_WORDS: usize = 3;

/// A queue of datagrams for a socket, allocated once.
pub struct SendBatch {
    /// Slots of `bytes_each`, used as a ring.
    payloads: Box<[u8]>,
    /// Bytes used of each slot.
    lengths: Box<[usize]>,
    /// Where each slot goes, if not to the peer of the connected socket.
    peers: Box<[Option<SocketAddr>]>,
    /// Addresses of the headers.
    names: Box<[[u8; ADDRESS_BYTES]]>,
    /// Control messages of the headers.
    controls: Box<[[u64; SEGMENT_WORDS]]>,
    /// Datagrams of each header.
    runs: Box<[usize]>,
    /// Whether a header may have several datagrams.
    joins: bool,
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
            peers: vec![None; datagrams].into(),
            names: vec![[0; ADDRESS_BYTES]; datagrams].into(),
            controls: vec![[0; SEGMENT_WORDS]; datagrams].into(),
            runs: vec![0; datagrams].into(),
            joins: false,
            vectors: empty_vectors(datagrams),
            headers: empty_headers(datagrams),
            bytes_each,
            first: 0,
            queued: 0,
            refusals: 0,
        }
    }

    /// From now on the kernel gets neighbouring datagrams of one length and peer as one payload,
    /// and takes it apart (`UDP_SEGMENT`, Linux 4.18). That saves most of its work for each. Where
    /// the interface or the MTU of the path does not allow it, they go one by one.
    pub fn join_runs(&mut self) {
        self.joins = true;
    }

    /// Queues a copy of `payload` for the peer of the connected socket. O(bytes). Does not
    /// allocate.
    ///
    /// # Errors
    /// The queue is full, or the payload is longer than a slot. Nothing changes then.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), PushError> {
        self.push_for(payload, None)
    }

    /// As [`SendBatch::push`], for `peer`, of the socket's IP version.
    ///
    /// # Errors
    /// As [`SendBatch::push`].
    pub fn push_to(&mut self, payload: &[u8], peer: SocketAddr) -> Result<(), PushError> {
        self.push_for(payload, Some(peer))
    }

    fn push_for(&mut self, payload: &[u8], peer: Option<SocketAddr>) -> Result<(), PushError> {
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
        self.peers[slot] = peer;
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
        let mut joins = self.joins;
        // Each round sends something or meets one error. Each datagram sent can cause one refusal.
        for _ in 0..2 * before + TRIES_MAX as usize {
            if self.queued == 0 {
                break;
            }
            match self.try_send(socket, joins) {
                Ok(headers) => {
                    let sent: usize = self.runs[..headers].iter().sum();
                    self.first = (self.first + sent) % self.lengths.len();
                    self.queued -= sent;
                }
                // No checksum by the interface, or a datagram longer than the MTU.
                Err(error)
                    if self.runs[0] > 1
                        && [libc::EIO, libc::EINVAL, libc::EMSGSIZE]
                            .contains(&error.raw_os_error()) =>
                {
                    joins = false;
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

    /// Calls sendmmsg once for all queued datagrams. Returns how many headers the kernel took.
    fn try_send(&mut self, socket: &UdpSocket, joins: bool) -> Result<usize, OsError> {
        #[expect(clippy::cast_possible_truncation, reason = "at most BATCH_MAX")]
        let count = self.point_headers(joins) as libc::c_uint;
        // SAFETY: at least `count` headers exist. `point_headers` has just made each of them point
        // at memory that the boxes of `self` own and that is as long as the header says. The kernel
        // only reads payloads, addresses and control messages.
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

    /// Points headers at the queued payloads, oldest first, and returns how many headers.
    fn point_headers(&mut self, joins: bool) -> usize {
        let slots = (self.first..self.lengths.len()).chain(0..self.first).take(self.queued);
        for (vector, slot) in self.vectors.iter_mut().zip(slots) {
            let start = slot * self.bytes_each;
            let payload = &mut self.payloads[start..start + self.lengths[slot]];
            vector.iov_base = payload.as_mut_ptr().cast();
            vector.iov_len = payload.len();
        }
        let (mut at, mut headers) = (0, 0);
        while at < self.queued {
            let slot = (self.first + at) % self.lengths.len();
            let run = if joins { self.run(at) } else { 1 };
            self.runs[headers] = run;
            let header = &mut self.headers[headers].msg_hdr;
            header.msg_iov = &raw mut self.vectors[at];
            header.msg_iovlen = run;
            (header.msg_name, header.msg_namelen) = (core::ptr::null_mut(), 0);
            if let Some(peer) = self.peers[slot] {
                let name = &mut self.names[headers];
                header.msg_namelen = address::write(peer, name);
                header.msg_name = name.as_mut_ptr().cast();
            }
            (header.msg_control, header.msg_controllen) = (core::ptr::null_mut(), 0);
            if run > 1 {
                let control = &mut self.controls[headers];
                *control = segment_message(self.lengths[slot]);
                header.msg_control = control.as_mut_ptr().cast();
                header.msg_controllen = size_of_val(control);
            }
            (at, headers) = (at + run, headers + 1);
        }
        headers
    }

    /// How many of the queued datagrams from `at` on can go as one payload: those of one peer and
    /// one length, and a shorter one at the end.
    fn run(&self, at: usize) -> usize {
        let slot = |at: usize| (self.first + at) % self.lengths.len();
        let (length, peer) = (self.lengths[slot(at)], self.peers[slot(at)]);
        if length == 0 {
            return 1;
        }
        let most = (PAYLOAD_BYTES_MAX / length).clamp(1, SEGMENTS_MAX).min(self.queued - at);
        let fits = |&at: &usize| {
            let is_next = self.lengths[slot(at - 1)] == length;
            let this = self.lengths[slot(at)];
            is_next && (1..=length).contains(&this) && self.peers[slot(at)] == peer
        };
        1 + (at + 1..at + most).take_while(fits).count()
    }
}

/// The control message with which the kernel takes a payload apart into datagrams of `bytes`.
fn segment_message(bytes: usize) -> [u64; SEGMENT_WORDS] {
    let [level, kind] = [libc::SOL_UDP, libc::UDP_SEGMENT].map(i32::to_ne_bytes);
    let ([a, b, c, d], [e, f, g, h]) = (level, kind);
    let [low, high] = u16::try_from(bytes).unwrap_or(u16::MAX).to_ne_bytes();
    let value = u64::from_ne_bytes([low, high, 0, 0, 0, 0, 0, 0]);
    // `CMSG_LEN(2)`.
    [16 + 2, u64::from_ne_bytes([a, b, c, d, e, f, g, h]), value]
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
