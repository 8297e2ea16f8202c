//! Where the datagrams of a receiver come from: a socket of the kernel, or a flow in user space.
//!
//! [`super::Receiver`] drives it: it fetches a batch, and reads its datagrams until the next fetch.
//! Nothing here blocks, or allocates after it was made.

use std::net::SocketAddr;

use upcall_core::time::Instant;
use upcall_sys::OsError;
use upcall_sys::clock::realtime_ahead_ns;
use upcall_sys::udp::{BATCH_MAX, ReceiveBatch, UdpSocket};

use crate::clock;
use crate::net::{FlowError, Received, UdpFlow};

/// `EOPNOTSUPP` of errno.h.
const NOT_SUPPORTED: i32 = 95;

/// A datagram that was taken from a [`Receiver`](super::Receiver). It lies where the kernel put it,
/// or is a copy of the frame of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The whole payload.
    pub payload: &'a [u8],
    /// The sender's address. An IPv6 socket that also receives IPv4 has `::ffff:a.b.c.d` here.
    pub sender: SocketAddr,
    /// When the kernel received it (`SO_TIMESTAMPNS`), as a moment of `CLOCK_MONOTONIC`. `None` if
    /// the kernel gave no time.
    ///
    /// The kernel uses the realtime clock. The receiver compares the two clocks once per batch,
    /// which adds an error below 1 us. If the realtime clock is set between arrival and
    /// [`Receiver::ready`](super::Receiver::ready), the moment is wrong by as much. It is never
    /// later than the fetch of the batch. A datagram that arrived before any socket of the machine
    /// asked for arrival times has the time of the fetch. For a flow it is the time at which the
    /// owner took the datagram from the interface, and not later than the fetch.
    pub arrival: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum Source {
    Socket(SocketSource),
    Flow(Box<FlowSource>),
}

/// One batch from the kernel at a time.
#[derive(Debug)]
pub(super) struct SocketSource {
    socket: UdpSocket,
    batch: ReceiveBatch,
    /// How far the realtime clock was ahead of the monotonic one at the last fetch, and the time of
    /// that fetch.
    realtime_ahead_ns: u64,
    fetched_at: Instant,
    /// The kernel's drop counter when the socket was adopted.
    dropped_before: u64,
}

/// Copies of the datagrams of a flow. The owner of the interface, another process, could write the
/// frames.
#[derive(Debug)]
pub(super) struct FlowSource {
    flow: UdpFlow,
    /// Places of `place_bytes`, one for each of `arrived`.
    bytes: Box<[u8]>,
    place_bytes: usize,
    arrived: Vec<Arrived>,
    batch_max: usize,
}

#[derive(Debug)]
struct Arrived {
    bytes: usize,
    sender: SocketAddr,
    arrival: Instant,
    truncated: bool,
}

/// A datagram of the last fetch.
pub(super) struct Held<'a> {
    pub(super) datagram: Datagram<'a>,
    /// Whether its end is missing: it was longer than declared.
    pub(super) truncated: bool,
}

/// What a fetch found.
pub(super) struct Fetched {
    /// Datagrams that are held now.
    pub(super) held: usize,
    /// Errors of the socket or the flow.
    pub(super) errors: u64,
}

impl SocketSource {
    pub(super) fn new(
        socket: UdpSocket,
        dropped_before: u64,
        (batch_max, bytes): (usize, usize),
    ) -> Self {
        SocketSource {
            socket,
            batch: ReceiveBatch::new(batch_max, bytes),
            realtime_ahead_ns: 0,
            fetched_at: clock::now(),
            dropped_before,
        }
    }

    fn fetch(&mut self) -> Fetched {
        let (held, errors) = match self.batch.receive(&self.socket) {
            Ok(held) => (held, 0),
            Err(_) => (0, 1),
        };
        if held > 0 {
            self.realtime_ahead_ns = realtime_ahead_ns();
            self.fetched_at = clock::now();
        }
        Fetched { held, errors }
    }

    fn held(&self, at: usize) -> Held<'_> {
        let datagram = self.batch.datagram(at);
        let monotonic = |at_ns: u64| {
            // Not after the fetch.
            Instant::from_nanos(at_ns.wrapping_sub(self.realtime_ahead_ns)).min(self.fetched_at)
        };
        let arrival = datagram.arrival_realtime_ns.map(monotonic);
        Held {
            datagram: Datagram { payload: datagram.payload, sender: datagram.sender, arrival },
            truncated: datagram.truncated,
        }
    }
}

impl FlowSource {
    pub(super) fn new(flow: UdpFlow, (batch_max, bytes_max): (usize, usize)) -> Self {
        let batch_max = batch_max.clamp(1, BATCH_MAX);
        // A frame has no more.
        let place_bytes = bytes_max.min(flow.payload_bytes_max().into());
        FlowSource {
            flow,
            // Zeroes would be pages without memory yet. Ones are written, so the memory is there.
            bytes: vec![0xFF; batch_max * place_bytes].into(),
            place_bytes,
            arrived: Vec::with_capacity(batch_max),
            batch_max,
        }
    }

    fn fetch(&mut self) -> Fetched {
        self.arrived.clear();
        let mut errors = 0;
        // Bounded: an owner that goes on lending cannot keep this loop running.
        for _ in 0..self.batch_max {
            match self.take() {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    errors += 1;
                    break;
                }
            }
        }
        self.flow.flush();
        if !self.arrived.is_empty() {
            // As for a socket: nothing arrives after it was fetched, whatever the owner says.
            let now = clock::now();
            self.arrived.iter_mut().for_each(|each| each.arrival = each.arrival.min(now));
        }
        Fetched { held: self.arrived.len(), errors }
    }

    /// Copies the oldest datagram and gives its frame back. `false`: there is none.
    fn take(&mut self) -> Result<bool, FlowError> {
        let datagram = match self.flow.take()? {
            Some(Received::Datagram(datagram)) => datagram,
            // A receiver sends nothing, so no error is about a datagram of its own.
            Some(Received::Error { .. }) => return Ok(true),
            None => return Ok(false),
        };
        let start = self.arrived.len() * self.place_bytes;
        let place = &mut self.bytes[start..start + self.place_bytes];
        let bytes = self.flow.payload(&datagram)?.copy_to(0, place);
        self.arrived.push(Arrived {
            bytes,
            sender: datagram.peer(),
            arrival: datagram.arrival(),
            truncated: datagram.len() > bytes,
        });
        self.flow.release(datagram)?;
        Ok(true)
    }

    fn held(&self, at: usize) -> Held<'_> {
        let Arrived { bytes, sender, arrival, truncated } = self.arrived[at];
        let payload = &self.bytes[at * self.place_bytes..][..bytes];
        Held { datagram: Datagram { payload, sender, arrival: Some(arrival) }, truncated }
    }
}

impl Source {
    /// Replaces what is held by what has arrived since. Does not block.
    pub(super) fn fetch(&mut self) -> Fetched {
        match self {
            Source::Socket(source) => source.fetch(),
            Source::Flow(source) => source.fetch(),
        }
    }

    /// Datagram `at` of the last fetch, which must be below what that held.
    pub(super) fn held(&self, at: usize) -> Held<'_> {
        match self {
            Source::Socket(source) => source.held(at),
            Source::Flow(source) => source.held(at),
        }
    }

    /// Datagrams that the kernel dropped, as far as the last fetch tells.
    pub(super) fn drops(&self) -> u64 {
        match self {
            Source::Socket(source) => {
                source.batch.socket_drops().saturating_sub(source.dropped_before)
            }
            Source::Flow(_) => 0,
        }
    }

    /// As [`Source::drops`], up to now: asks the kernel.
    pub(super) fn drops_now(&self) -> u64 {
        match self {
            Source::Socket(source) => {
                let drops = source.socket.drops().unwrap_or(0);
                drops.saturating_sub(source.dropped_before)
            }
            Source::Flow(_) => 0,
        }
    }

    pub(super) fn local_address(&self) -> Result<SocketAddr, OsError> {
        match self {
            Source::Socket(source) => source.socket.local_addr(),
            Source::Flow(source) => Ok(source.flow.local()),
        }
    }

    /// The socket, for `operation`.
    pub(super) fn socket(&self, operation: &'static str) -> Result<&UdpSocket, OsError> {
        match self {
            Source::Socket(source) => Ok(&source.socket),
            Source::Flow(_) => Err(OsError::new(operation, NOT_SUPPORTED)),
        }
    }
}
