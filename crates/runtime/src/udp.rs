//! UDP streams on kernel sockets, in batches, for use inside handlers.
//!
//! A receiver or sender belongs to one handler and moves into its closure; its
//! counters stay readable from outside. Neither ever blocks: what is not there
//! yet comes with the next period. All memory is taken at creation.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_core::time::Span;
use upcall_sys::OsError;
use upcall_sys::clock::realtime_ns;
use upcall_sys::udp::{ReceiveBatch, SendBatch, UdpSocket, receive_buffer_bytes};

/// What happened on one stream. Written by its handler only, so plain loads and
/// stores do; read by anyone, each value exact, the set not of one instant.
#[derive(Debug, Default)]
pub struct StreamCounters {
    /// Datagrams taken from the socket; for a sender, given to the kernel.
    pub received: Count,
    /// Payload bytes of these.
    pub received_bytes: Count,
    /// Datagrams whose PDU was processed.
    pub processed: Count,
    /// Payload bytes of these.
    pub processed_bytes: Count,
    /// Datagrams that were received and thrown away: malformed, too long, or
    /// part of a frame with a gap; for a sender, those the kernel did not take.
    pub dropped_queue: Count,
    /// Datagrams the kernel threw away because the socket buffer was full, by
    /// the kernel's own counter.
    pub dropped_socket: Count,
    /// Datagrams that had arrived but were not processed when the stream ended.
    pub unread: Count,
    /// PDUs that were processed later than `delay` after they arrived.
    pub late: Count,
    /// Longest time from arrival to the end of processing, in nanoseconds.
    pub delay_ns_max: Count,
    /// Errors the socket reported.
    pub errors: Count,
}

/// A counter with one writer, which any thread may read: [`Count::value`].
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The present value. Wait-free.
    pub fn value(&self) -> u64 {
        // Relaxed: a statistic, nothing hangs on its order.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        // Relaxed, as above.
        self.0.store(value, Ordering::Relaxed);
    }

    fn add(&self, more: u64) {
        // One writer, so load and store need not be one step.
        self.set(self.value() + more);
    }

    fn raise_to(&self, value: u64) {
        if value > self.value() {
            self.set(value);
        }
    }
}

/// The receiving end of a stream.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// # fn process(_: &[u8]) {}
/// # fn handler(batch: &mut upcall::Batch<'_>, receiver: &mut upcall::udp::Receiver) {
/// while batch.remaining() > 0 && receiver.ready() && batch.proceed() {
///     if let Some(datagram) = receiver.take() {
///         process(datagram);
///         receiver.processed();
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Receiver {
    socket: UdpSocket,
    batch: ReceiveBatch,
    /// Datagrams in `batch`, and how many of them were taken.
    held: usize,
    taken: usize,
    /// Taken and neither processed nor discarded yet.
    pending: u64,
    pending_bytes: u64,
    /// When the last datagram taken arrived, on the realtime clock.
    arrival_ns: Option<u64>,
    delay_ns_max: u64,
    buffer_shortfall: Option<(usize, usize)>,
    counters: Arc<StreamCounters>,
}

impl Receiver {
    /// Binds to `address` with room for `buffers` datagrams of up to
    /// `datagram_bytes` in the kernel; `batch_max` of them are fetched in one
    /// system call. `delay` is what counts as late.
    ///
    /// # Errors
    /// The system's, with the operation: the port is in use, the address is not
    /// ours, no memory.
    pub fn bind(
        address: SocketAddr,
        buffers: u32,
        batch_max: u32,
        datagram_bytes: u32,
        delay: Span,
    ) -> Result<Self, OsError> {
        let socket = UdpSocket::bind(address)?;
        let asked = receive_buffer_bytes(buffers as usize, datagram_bytes as usize);
        let granted = socket.set_receive_buffer(asked)?;
        Ok(Receiver {
            socket,
            batch: ReceiveBatch::new(batch_max.max(1) as usize, datagram_bytes as usize),
            held: 0,
            taken: 0,
            pending: 0,
            pending_bytes: 0,
            arrival_ns: None,
            delay_ns_max: delay.as_nanos(),
            buffer_shortfall: (granted < asked).then_some((asked, granted)),
            counters: Arc::default(),
        })
    }

    /// The address in use, with the port the system chose if none was named.
    ///
    /// # Errors
    /// The system's.
    pub fn local_address(&self) -> Result<SocketAddr, OsError> {
        self.socket.local_addr()
    }

    /// The counters, to be read by others.
    pub fn counters(&self) -> Arc<StreamCounters> {
        self.counters.clone()
    }

    /// Kernel memory asked for and granted, in bytes, if that was less: then a
    /// burst that was planned for may be dropped.
    pub fn buffer_shortfall(&self) -> Option<(usize, usize)> {
        self.buffer_shortfall
    }

    /// Whether a datagram is there to be taken. Fetches a batch from the kernel
    /// if none is held: one system call, that does not block.
    pub fn ready(&mut self) -> bool {
        self.taken < self.held || self.fetch()
    }

    /// The next datagram. `None` if [`Receiver::ready`] did not say there is one,
    /// or if it was longer than declared: what is left of it would pass for
    /// whole, so it is counted as dropped instead.
    pub fn take(&mut self) -> Option<&[u8]> {
        if self.taken == self.held {
            return None;
        }
        let datagram = self.batch.datagram(self.taken);
        self.taken += 1;
        if datagram.truncated {
            self.counters.dropped_queue.add(1);
            return None;
        }
        self.pending += 1;
        self.pending_bytes += datagram.payload.len() as u64;
        self.arrival_ns = datagram.arrival_realtime_ns.or(self.arrival_ns);
        Some(datagram.payload)
    }

    /// Says that the PDU made of all datagrams taken since the last call is
    /// processed. Its delay counts from the arrival of its last datagram.
    pub fn processed(&mut self) {
        self.counters.processed.add(self.pending);
        self.counters.processed_bytes.add(self.pending_bytes);
        if let Some(arrival_ns) = self.arrival_ns.take() {
            let delay_ns = realtime_ns().saturating_sub(arrival_ns);
            self.counters.delay_ns_max.raise_to(delay_ns);
            self.counters.late.add(u64::from(delay_ns > self.delay_ns_max));
        }
        self.pending = 0;
        self.pending_bytes = 0;
    }

    /// Says that all datagrams taken since the last call were thrown away.
    pub fn discarded(&mut self) {
        self.counters.dropped_queue.add(self.pending);
        self.pending = 0;
        self.pending_bytes = 0;
    }

    fn fetch(&mut self) -> bool {
        self.taken = 0;
        self.held = match self.batch.receive(&self.socket) {
            Ok(held) => held,
            Err(_) => {
                self.counters.errors.add(1);
                0
            }
        };
        let bytes: usize = (0..self.held).map(|at| self.batch.datagram(at).payload.len()).sum();
        self.counters.received.add(self.held as u64);
        self.counters.received_bytes.add(bytes as u64);
        self.counters.dropped_socket.raise_to(self.batch.socket_drops());
        self.held > 0
    }
}

impl Drop for Receiver {
    /// Settles the account: what waited is `unread`, and the kernel is asked for
    /// its drops once more, since it reports them only with later datagrams.
    fn drop(&mut self) {
        let mut unread = self.pending + (self.held - self.taken) as u64;
        // Bounded: a sender that goes on cannot keep us here.
        for _ in 0..1_000 {
            self.taken = self.held;
            if !self.fetch() {
                break;
            }
            unread += self.held as u64;
        }
        self.counters.unread.add(unread);
        if let Ok(drops) = self.socket.drops() {
            self.counters.dropped_socket.raise_to(drops);
        }
    }
}

/// Sends UDP datagrams from a handler, in batches: [`Sender::send`] puts one into the batch,
/// [`Sender::flush`] gives the batch to the kernel.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    batch: SendBatch,
    counters: Arc<StreamCounters>,
}

impl Sender {
    /// Sends to `address` from a port the system chooses; up to `batch_max`
    /// datagrams of up to `datagram_bytes` wait for one system call.
    ///
    /// # Errors
    /// The system's, with the operation.
    pub fn connect(
        address: SocketAddr,
        batch_max: u32,
        datagram_bytes: u32,
    ) -> Result<Self, OsError> {
        let any: SocketAddr = if address.is_ipv4() {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        let batch = SendBatch::new(batch_max.max(1) as usize, datagram_bytes as usize);
        Ok(Sender { socket, batch, counters: Arc::default() })
    }

    /// The counters, to be read by others.
    pub fn counters(&self) -> Arc<StreamCounters> {
        self.counters.clone()
    }

    /// Puts a datagram into the batch; flushes first if it is full. A datagram
    /// that does not fit even then is dropped and counted.
    pub fn send(&mut self, payload: &[u8]) {
        if self.batch.push(payload).is_err() {
            self.flush();
            if self.batch.push(payload).is_err() {
                self.counters.dropped_queue.add(1);
                return;
            }
        }
        self.counters.processed.add(1);
        self.counters.processed_bytes.add(payload.len() as u64);
    }

    /// Gives the batch to the kernel: one system call, that does not block. What
    /// the kernel does not take stays for the next time.
    pub fn flush(&mut self) {
        match self.batch.flush(&self.socket) {
            Ok(sent) => self.counters.received.add(sent as u64),
            Err(_) => self.counters.errors.add(1),
        }
    }
}
