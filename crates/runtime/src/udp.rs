//! UDP streams on kernel sockets, in batches, for use inside handlers.
//!
//! A receiver or sender belongs to one handler and moves into its closure; its
//! counters stay readable from outside. Neither ever blocks: what is not there
//! yet comes with the next period. All memory is taken at creation.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_core::time::{Instant, Span};
use upcall_sys::OsError;
use upcall_sys::clock::realtime_ahead_ns;
use upcall_sys::udp::{ReceiveBatch, SendBatch, UdpSocket, receive_buffer_bytes};

use crate::clock;

pub use upcall_sys::udp::Interface;

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

/// How a [`Receiver`] is set up. The default suits most streams of small packets:
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// # use upcall::udp::{Receiver, ReceiverOptions};
/// let receiver = Receiver::bind("127.0.0.1:0".parse()?, &ReceiverOptions::default())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Datagrams that the kernel holds for the handler at least. 64 of 2048 bytes, the default,
    /// are granted to every user as Linux is delivered.
    pub buffered: u32,
    /// Datagrams that one system call fetches at most: 1 to 1024. 32 by default.
    pub batch_max: u32,
    /// Longest payload, in bytes: 1 to 65,507. 2048 by default. A longer datagram is dropped.
    pub datagram_bytes_max: u32,
    /// From arrival to [`Receiver::processed`]; what takes longer counts as late. Without bound
    /// by default.
    pub delay_max: Span,
}

impl Default for ReceiverOptions {
    fn default() -> Self {
        ReceiverOptions {
            buffered: 64,
            batch_max: 32,
            datagram_bytes_max: 2048,
            delay_max: Span::MAX,
        }
    }
}

/// A datagram that was taken from a [`Receiver`], where the kernel put it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// What it carries, whole.
    pub payload: &'a [u8],
    /// Who sent it. An IPv6 socket that hears IPv4 too has `::ffff:a.b.c.d` here.
    pub sender: SocketAddr,
    /// When the kernel took it in (`SO_TIMESTAMPNS`), as a moment of `CLOCK_MONOTONIC`. `None`
    /// if the kernel did not say.
    ///
    /// The kernel notes it by the realtime clock. The receiver compares the two clocks once a
    /// batch, which costs less than 1 us of exactness. If somebody sets the realtime clock
    /// between arrival and [`Receiver::ready`], the moment is wrong by so much, but never later
    /// than the batch was fetched. A datagram that arrived before any socket of the machine asked
    /// for arrival times has the time at which it was fetched.
    pub arrival: Option<Instant>,
}

/// The receiving end of a stream.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// # use upcall::udp::{Datagram, Receiver};
/// # fn process(_: Datagram<'_>) {}
/// # fn handler(batch: &mut upcall::Batch<'_>, receiver: &mut Receiver) {
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
    /// What the realtime clock was ahead of the monotonic one when they were fetched, and when
    /// that was.
    realtime_ahead_ns: u64,
    fetched_at: Instant,
    /// Taken and neither processed nor discarded yet.
    pending: u64,
    pending_bytes: u64,
    /// When the last datagram taken arrived.
    arrival: Option<Instant>,
    delay_max: Span,
    buffer_shortfall: Option<(usize, usize)>,
    /// What the kernel had dropped before the socket was adopted.
    dropped_before: u64,
    counters: Arc<StreamCounters>,
}

impl Receiver {
    /// Binds a new socket to `address`; port 0 lets the kernel choose. If `address` is a
    /// multicast group, it is joined on the interface that the routing table names; for another
    /// interface bind to the unspecified address and call [`Receiver::join_v4`]. Some system
    /// calls; takes all memory that receiving will need.
    ///
    /// # Errors
    /// The system's, with the operation: the port is in use, the address is not
    /// ours, no memory.
    pub fn bind(address: SocketAddr, options: &ReceiverOptions) -> Result<Self, OsError> {
        let socket = UdpSocket::bind(address)?;
        let asked = options.buffer_bytes();
        let granted = socket.set_receive_buffer(asked)?;
        Ok(Receiver::new(socket, (asked, granted), options))
    }

    /// Receives from a socket that the program made, such as a `std::net::UdpSocket`: one that
    /// shares its port, or came from another process. What waits in it is received first.
    ///
    /// The receiver changes these things on the socket, for all who share it: the socket does
    /// not block any more, the kernel does not join datagrams (`UDP_GRO`), its arrival times (`SO_TIMESTAMPNS`) and drop counter (`SO_RXQ_OVFL`)
    /// are on, and its receive buffer grows to what `options` say. A larger one stays as it is.
    /// Some system calls; takes all memory that receiving will need.
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// # use upcall::udp::{Receiver, ReceiverOptions};
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let receiver = Receiver::from_socket(socket, &ReceiverOptions::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The system's, with the operation: `ENOTSOCK`, `EPROTOTYPE` (no datagram socket of IPv4 or
    /// IPv6).
    pub fn from_socket(
        socket: impl Into<OwnedFd>,
        options: &ReceiverOptions,
    ) -> Result<Self, OsError> {
        let socket = UdpSocket::from_fd(socket.into())?;
        let asked = options.buffer_bytes();
        let mut granted = socket.receive_buffer()?;
        if granted < asked {
            granted = socket.set_receive_buffer(asked)?;
        }
        let dropped_before = socket.drops()?;
        let mut receiver = Receiver::new(socket, (asked, granted), options);
        receiver.dropped_before = dropped_before;
        Ok(receiver)
    }

    fn new(socket: UdpSocket, buffer: (usize, usize), options: &ReceiverOptions) -> Self {
        let batch_max = options.batch_max as usize;
        Receiver {
            socket,
            batch: ReceiveBatch::new(batch_max, options.datagram_bytes_max as usize),
            held: 0,
            taken: 0,
            realtime_ahead_ns: 0,
            fetched_at: clock::now(),
            pending: 0,
            pending_bytes: 0,
            arrival: None,
            delay_max: options.delay_max,
            buffer_shortfall: (buffer.1 < buffer.0).then_some(buffer),
            dropped_before: 0,
            counters: Arc::default(),
        }
    }

    /// Joins an IPv4 multicast group, until it is left or the receiver dropped. One system call.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// # use upcall::udp::{Interface, Receiver, ReceiverOptions};
    /// let receiver = Receiver::bind("0.0.0.0:5004".parse()?, &ReceiverOptions::default())?;
    /// receiver.join_v4([239, 1, 2, 3].into(), Interface::Address([192, 168, 1, 7].into()))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `ENODEV`: there is no such interface, or no route to the group. `EINVAL`: `group` is no
    /// multicast address. `EADDRINUSE`: joined already. `ENOBUFS`: too many groups.
    /// `ENOPROTOOPT`: an IPv6 socket.
    pub fn join_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        self.socket.join_v4(group, interface)
    }

    /// Leaves an IPv4 multicast group. What had arrived by then is still received. One system
    /// call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there. `ENODEV`: there is no such interface.
    pub fn leave_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        self.socket.leave_v4(group, interface)
    }

    /// Joins an IPv6 multicast group on the interface with this index (0: the one the routing
    /// table names), until it is left or the receiver dropped. One system call.
    ///
    /// # Errors
    /// As [`Receiver::join_v4`]; `ENOPROTOOPT`: an IPv4 socket.
    pub fn join_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        self.socket.join_v6(group, interface)
    }

    /// Leaves an IPv6 multicast group. What had arrived by then is still received. One system
    /// call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there.
    pub fn leave_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        self.socket.leave_v6(group, interface)
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
    /// whole, so it is counted as dropped instead. Neither a system call nor an allocation.
    pub fn take(&mut self) -> Option<Datagram<'_>> {
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
        let arrival = datagram.arrival_realtime_ns.map(|arrival_ns| {
            let arrival = Instant::from_nanos(arrival_ns.wrapping_sub(self.realtime_ahead_ns));
            arrival.min(self.fetched_at)
        });
        self.arrival = arrival.or(self.arrival);
        Some(Datagram { payload: datagram.payload, sender: datagram.sender, arrival })
    }

    /// Says that the PDU made of all datagrams taken since the last call is
    /// processed. Its delay counts from the arrival of its last datagram.
    pub fn processed(&mut self) {
        self.counters.processed.add(self.pending);
        self.counters.processed_bytes.add(self.pending_bytes);
        if let Some(arrival) = self.arrival.take() {
            let delay = clock::now().since(arrival);
            self.counters.delay_ns_max.raise_to(delay.as_nanos());
            self.counters.late.add(u64::from(delay > self.delay_max));
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
        if self.held > 0 {
            self.realtime_ahead_ns = realtime_ahead_ns();
            self.fetched_at = clock::now();
        }
        let bytes: usize = (0..self.held).map(|at| self.batch.datagram(at).payload.len()).sum();
        self.counters.received.add(self.held as u64);
        self.counters.received_bytes.add(bytes as u64);
        self.note_drops(self.batch.socket_drops());
        self.held > 0
    }

    fn note_drops(&self, drops: u64) {
        self.counters.dropped_socket.raise_to(drops.saturating_sub(self.dropped_before));
    }
}

impl ReceiverOptions {
    /// Receive buffer for `buffered` datagrams, in the kernel's accounting.
    fn buffer_bytes(&self) -> usize {
        receive_buffer_bytes(self.buffered as usize, self.datagram_bytes_max as usize)
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
            self.note_drops(drops);
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
            (Ipv4Addr::UNSPECIFIED, 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
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
