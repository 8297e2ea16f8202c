//! UDP streams on kernel sockets, in batches, for use inside handlers.
//!
//! A receiver or sender belongs to one handler and moves into its closure. Other threads may read
//! its counters. Neither ever blocks: a datagram that has not arrived yet comes with the next
//! period. Both allocate all their memory when they are created.

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

/// The counters of one stream. Only its handler writes them, so plain loads and stores suffice. Any
/// thread may read them. Each value is exact, but the values are not of one moment.
#[derive(Debug, Default)]
pub struct StreamCounters {
    /// Datagrams that a receiver took from the socket, or a sender gave to the kernel.
    pub received: Count,
    /// Their payload bytes.
    pub received_bytes: Count,
    /// Datagrams whose PDU was processed. For a sender, datagrams that were added to a batch.
    pub processed: Count,
    /// Their payload bytes.
    pub processed_bytes: Count,
    /// Received datagrams that were thrown away: malformed, too long, or part of a frame with a
    /// gap. For a sender, datagrams that the kernel did not take.
    pub dropped_queue: Count,
    /// Datagrams that the kernel dropped because the socket buffer was full, by its own counter.
    pub dropped_socket: Count,
    /// Datagrams that had arrived but were not processed when the stream ended.
    pub unread: Count,
    /// PDUs that were processed later than `delay` after they arrived.
    pub late: Count,
    /// The longest time from arrival to the end of processing, in nanoseconds.
    pub delay_ns_max: Count,
    /// Errors that the socket reported.
    pub errors: Count,
}

/// A counter with one writer, which any thread may read: [`Count::value`].
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The current value. Wait-free.
    pub fn value(&self) -> u64 {
        // Relaxed: a statistic orders nothing else.
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: u64) {
        // Relaxed, as above.
        self.0.store(value, Ordering::Relaxed);
    }

    fn add(&self, more: u64) {
        // There is one writer, so load and store need not be one step.
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
    /// How many datagrams the kernel can hold for the handler, at least. By default 64 of 2048
    /// bytes. Linux grants that to every user in its default configuration.
    pub buffered: u32,
    /// How many datagrams one system call fetches at most: 1 to 1024, 32 by default.
    pub batch_max: u32,
    /// The longest payload in bytes: 1 to 65,507, 2048 by default. A longer datagram is dropped.
    pub datagram_bytes_max: u32,
    /// The time from arrival to [`Receiver::processed`] beyond which a PDU counts as late. By
    /// default there is no limit.
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

/// A datagram that was taken from a [`Receiver`]. It lies where the kernel put it.
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
    /// [`Receiver::ready`], the moment is wrong by as much. It is never later than the fetch of the
    /// batch. A datagram that arrived before any socket of the machine asked for arrival times has
    /// the time of the fetch.
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
    /// How many datagrams are in `batch`, and how many of them were taken.
    held: usize,
    taken: usize,
    /// How far the realtime clock was ahead of the monotonic one at the last fetch, and the time of
    /// that fetch.
    realtime_ahead_ns: u64,
    fetched_at: Instant,
    /// Datagrams that were taken, and neither processed nor discarded yet.
    pending: u64,
    pending_bytes: u64,
    /// The arrival of the last datagram that was taken.
    arrival: Option<Instant>,
    delay_max: Span,
    buffer_shortfall: Option<(usize, usize)>,
    /// The kernel's drop counter when the socket was adopted.
    dropped_before: u64,
    counters: Arc<StreamCounters>,
}

impl Receiver {
    /// Binds a new socket to `address`. With port 0 the kernel chooses the port. If `address` is a
    /// multicast group, the socket joins it on the interface that the routing table names. For
    /// another interface, bind to the unspecified address and call [`Receiver::join_v4`]. Some
    /// system calls. Allocates all memory for receiving.
    ///
    /// # Errors
    /// The error of the system, with the operation: the port is in use, the address is not local,
    /// there is no memory.
    pub fn bind(address: SocketAddr, options: &ReceiverOptions) -> Result<Self, OsError> {
        let socket = UdpSocket::bind(address)?;
        let asked = options.buffer_bytes();
        let granted = socket.set_receive_buffer(asked)?;
        Ok(Receiver::new(socket, (asked, granted), options))
    }

    /// Receives from a socket that the program created, such as a `std::net::UdpSocket`. It may
    /// share its port, or come from another process. Datagrams that wait in it are received first.
    ///
    /// The receiver changes the socket for all its holders. The socket becomes non-blocking. The
    /// kernel no longer joins datagrams (`UDP_GRO`). Arrival times (`SO_TIMESTAMPNS`) and the drop
    /// counter (`SO_RXQ_OVFL`) are on. The receive buffer grows to what `options` ask for, and a
    /// larger one stays as it is. Some system calls. Allocates all memory for receiving.
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
    /// The error of the system, with the operation: `ENOTSOCK`, `EPROTOTYPE` (not a datagram socket
    /// of IPv4 or IPv6).
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

    /// Joins an IPv4 multicast group, until it is left or the receiver is dropped. One system call.
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
    /// `ENODEV`: there is no such interface, or no route to the group. `EINVAL`: `group` is not a
    /// multicast address. `EADDRINUSE`: already joined. `ENOBUFS`: too many groups. `ENOPROTOOPT`:
    /// an IPv6 socket.
    pub fn join_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        self.socket.join_v4(group, interface)
    }

    /// Leaves an IPv4 multicast group. Datagrams that have arrived by then are still received. One
    /// system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there. `ENODEV`: there is no such interface.
    pub fn leave_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        self.socket.leave_v4(group, interface)
    }

    /// Joins an IPv6 multicast group on the interface with this index, until it is left or the
    /// receiver is dropped. Index 0 stands for the interface that the routing table names. One
    /// system call.
    ///
    /// # Errors
    /// As [`Receiver::join_v4`]; `ENOPROTOOPT`: an IPv4 socket.
    pub fn join_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        self.socket.join_v6(group, interface)
    }

    /// Leaves an IPv6 multicast group. Datagrams that have arrived by then are still received. One
    /// system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there.
    pub fn leave_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        self.socket.leave_v6(group, interface)
    }

    /// The local address, with the port that the system chose if none was named.
    ///
    /// # Errors
    /// The error of the system.
    pub fn local_address(&self) -> Result<SocketAddr, OsError> {
        self.socket.local_addr()
    }

    /// The counters, for other threads to read.
    pub fn counters(&self) -> Arc<StreamCounters> {
        self.counters.clone()
    }

    /// The kernel memory that was asked for and granted, in bytes, if less was granted. The kernel
    /// may then drop part of a burst that was planned for.
    pub fn buffer_shortfall(&self) -> Option<(usize, usize)> {
        self.buffer_shortfall
    }

    /// Whether there is a datagram to take. If the receiver holds none, it fetches a batch from the
    /// kernel with one system call that does not block.
    pub fn ready(&mut self) -> bool {
        self.taken < self.held || self.fetch()
    }

    /// How many datagrams were fetched and not taken yet. Makes no system call.
    pub fn waiting(&self) -> u32 {
        u32::try_from(self.held - self.taken).unwrap_or(u32::MAX)
    }

    /// The datagram that [`Receiver::take`] returns next, if it was fetched. Makes no system call.
    pub fn peek(&self) -> Option<Datagram<'_>> {
        if self.taken == self.held {
            return None;
        }
        let datagram = self.batch.datagram(self.taken);
        let arrival = datagram
            .arrival_realtime_ns
            .map(|at_ns| monotonic(at_ns, self.realtime_ahead_ns, self.fetched_at));
        Some(Datagram { payload: datagram.payload, sender: datagram.sender, arrival })
    }

    /// The datagram that was taken last logically arrived at `at`, if that is later than its
    /// arrival: a timestamp of its sender says so, and it came early. The delay of its PDU counts
    /// from then ([`crate::qos::mapping`], "Early PDUs").
    pub fn arrived_logically(&mut self, at: Instant) {
        self.arrival = self.arrival.map(|arrival| arrival.max(at));
    }

    /// The next datagram. `None` if [`Receiver::ready`] did not return `true`, or if the datagram
    /// was longer than declared. The kernel cuts such a datagram, which would look whole, so it
    /// counts as dropped. Makes no system call and does not allocate.
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
        let (ahead_ns, fetched_at) = (self.realtime_ahead_ns, self.fetched_at);
        let arrival =
            datagram.arrival_realtime_ns.map(|at_ns| monotonic(at_ns, ahead_ns, fetched_at));
        self.arrival = arrival.or(self.arrival);
        Some(Datagram { payload: datagram.payload, sender: datagram.sender, arrival })
    }

    /// Counts the datagrams that were taken since the last call as one processed PDU. Its delay
    /// counts from the arrival of its last datagram.
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

    /// Counts the datagrams that were taken since the last call as thrown away.
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

/// A moment of the realtime clock, not after the fetch.
fn monotonic(at_ns: u64, realtime_ahead_ns: u64, fetched_at: Instant) -> Instant {
    Instant::from_nanos(at_ns.wrapping_sub(realtime_ahead_ns)).min(fetched_at)
}

impl ReceiverOptions {
    /// The size of a receive buffer for `buffered` datagrams, as the kernel counts it.
    fn buffer_bytes(&self) -> usize {
        receive_buffer_bytes(self.buffered as usize, self.datagram_bytes_max as usize)
    }
}

impl Drop for Receiver {
    /// Completes the counters. Datagrams that still wait count as unread. The kernel reports its
    /// drops with later datagrams only, so this asks it once more.
    fn drop(&mut self) {
        let mut unread = self.pending + (self.held - self.taken) as u64;
        // Bounded: a sender that goes on sending cannot keep this loop running.
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

/// Sends UDP datagrams from a handler, in batches. [`Sender::send`] adds one to the batch, and
/// [`Sender::flush`] gives the batch to the kernel.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    batch: SendBatch,
    counters: Arc<StreamCounters>,
}

impl Sender {
    /// Sends to `address` from a port that the system chooses. Up to `batch_max` datagrams of up to
    /// `datagram_bytes` wait for one system call.
    ///
    /// # Errors
    /// The error of the system, with the operation.
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

    /// The counters, for other threads to read.
    pub fn counters(&self) -> Arc<StreamCounters> {
        self.counters.clone()
    }

    /// Adds a datagram to the batch. Flushes first if the batch is full. A datagram that does not
    /// fit even then is dropped and counted.
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

    /// Gives the batch to the kernel, with one system call that does not block. Datagrams that the
    /// kernel does not take stay for the next time.
    pub fn flush(&mut self) {
        match self.batch.flush(&self.socket) {
            Ok(sent) => self.counters.received.add(sent as u64),
            Err(_) => self.counters.errors.add(1),
        }
    }
}
