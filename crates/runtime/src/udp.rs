//! UDP streams in batches, for use inside handlers: on kernel sockets, or on flows in user space
//! ([`crate::net::UdpFlow`]).
//!
//! A receiver or sender belongs to one handler and moves into its closure. Other threads may read
//! its counters. Neither ever blocks: a datagram that has not arrived yet comes with the next
//! period. Both allocate all their memory when they are created. On a flow neither makes a system
//! call.

mod sender;
mod source;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use upcall_core::time::{Instant, Span};
use upcall_sys::OsError;
use upcall_sys::udp::{UdpSocket, receive_buffer_bytes};

use crate::clock;
use crate::net::UdpFlow;
use source::{Fetched, FlowSource, Held, SocketSource, Source};

pub use sender::Sender;
pub use source::Datagram;
pub use upcall_sys::udp::Interface;

/// The counters of one stream. Only its handler writes them, so plain loads and stores suffice. Any
/// thread may read them. Each value is exact, but the values are not of one moment.
#[derive(Debug, Default)]
pub struct StreamCounters {
    /// Datagrams that a receiver took from the socket or flow, or a sender gave to the kernel or to
    /// the owner of its flow.
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
    /// Datagrams that the kernel dropped because the socket buffer was full, by its own counter. 0
    /// for a flow: the owner of the interface counts what it drops
    /// ([`FlowCounts`](crate::net::FlowCounts), and `flows` of [`status`](crate::status)).
    pub dropped_socket: Count,
    /// Datagrams that had arrived but were not processed when the stream ended.
    pub unread: Count,
    /// PDUs that were processed later than `delay` after they arrived.
    pub late: Count,
    /// The longest time from arrival to the end of processing, in nanoseconds.
    pub delay_ns_max: Count,
    /// Errors that the socket reported, or the owner of the flow.
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
    source: Source,
    /// How many datagrams the last fetch found, and how many of them were taken.
    held: usize,
    taken: usize,
    /// Datagrams that were taken, and neither processed nor discarded yet.
    pending: u64,
    pending_bytes: u64,
    /// The arrival of the last datagram that was taken.
    arrival: Option<Instant>,
    delay_max: Span,
    buffer_shortfall: Option<(usize, usize)>,
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
        let source = Source::Socket(SocketSource::new(socket, 0, options.sizes()));
        Ok(Receiver::new(source, (asked, granted), options))
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
        let source = Source::Socket(SocketSource::new(socket, dropped_before, options.sizes()));
        Ok(Receiver::new(source, (asked, granted), options))
    }

    /// Receives from a flow. Each datagram is copied once, out of the frame that the owner of the
    /// interface can write. [`ReceiverOptions::buffered`] does not count: the flow has as many
    /// datagrams as its slots ([`FlowForm`](crate::net::FlowForm)). Nothing that the receiver does
    /// afterwards makes a system call, but for [`Receiver::join_v4`] and its like, which a flow
    /// refuses. Allocates all memory for receiving.
    ///
    /// The receiver takes the whole flow. A program that also sends from its port uses the flow
    /// itself ([`UdpFlow::take`], [`UdpFlow::send`]).
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// # use upcall::udp::{Receiver, ReceiverOptions};
    /// # fn bind() -> upcall::net::UdpFlow { unimplemented!() }
    /// let mut receiver = Receiver::from_flow(bind(), &ReceiverOptions::default());
    /// let is_there = receiver.ready();
    /// ```
    pub fn from_flow(flow: UdpFlow, options: &ReceiverOptions) -> Self {
        let source = Source::Flow(Box::new(FlowSource::new(flow, options.sizes())));
        Receiver::new(source, (0, 0), options)
    }

    fn new(source: Source, buffer: (usize, usize), options: &ReceiverOptions) -> Self {
        Receiver {
            source,
            held: 0,
            taken: 0,
            pending: 0,
            pending_bytes: 0,
            arrival: None,
            delay_max: options.delay_max,
            buffer_shortfall: (buffer.1 < buffer.0).then_some(buffer),
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
    /// an IPv6 socket. `EOPNOTSUPP`: a flow, which is in the group of its address from the start.
    pub fn join_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        self.source.socket("join")?.join_v4(group, interface)
    }

    /// Leaves an IPv4 multicast group. Datagrams that have arrived by then are still received. One
    /// system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there. `ENODEV`: there is no such interface. `EOPNOTSUPP`: a
    /// flow.
    pub fn leave_v4(&self, group: Ipv4Addr, interface: Interface) -> Result<(), OsError> {
        self.source.socket("leave")?.leave_v4(group, interface)
    }

    /// Joins an IPv6 multicast group on the interface with this index, until it is left or the
    /// receiver is dropped. Index 0 stands for the interface that the routing table names. One
    /// system call.
    ///
    /// # Errors
    /// As [`Receiver::join_v4`]; `ENOPROTOOPT`: an IPv4 socket.
    pub fn join_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        self.source.socket("join")?.join_v6(group, interface)
    }

    /// Leaves an IPv6 multicast group. Datagrams that have arrived by then are still received. One
    /// system call.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`: not joined there. `EOPNOTSUPP`: a flow.
    pub fn leave_v6(&self, group: Ipv6Addr, interface: u32) -> Result<(), OsError> {
        self.source.socket("leave")?.leave_v6(group, interface)
    }

    /// The local address, with the port that the system chose if none was named.
    ///
    /// # Errors
    /// The error of the system.
    pub fn local_address(&self) -> Result<SocketAddr, OsError> {
        self.source.local_address()
    }

    /// The counters, for other threads to read.
    pub fn counters(&self) -> Arc<StreamCounters> {
        self.counters.clone()
    }

    /// The kernel memory that was asked for and granted, in bytes, if less was granted. The kernel
    /// may then drop part of a burst that was planned for. `None` for a flow.
    pub fn buffer_shortfall(&self) -> Option<(usize, usize)> {
        self.buffer_shortfall
    }

    /// Whether there is a datagram to take. If the receiver holds none, it fetches a batch: from
    /// the kernel with one system call that does not block, from a flow without one.
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
        Some(self.source.held(self.taken).datagram)
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
        let Held { datagram, truncated } = self.source.held(self.taken);
        self.taken += 1;
        if truncated {
            self.counters.dropped_queue.add(1);
            return None;
        }
        self.pending += 1;
        self.pending_bytes += datagram.payload.len() as u64;
        self.arrival = datagram.arrival.or(self.arrival);
        Some(datagram)
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
        let Fetched { held, errors } = self.source.fetch();
        self.held = held;
        let payload_bytes = |at| self.source.held(at).datagram.payload.len();
        let bytes: usize = (0..held).map(payload_bytes).sum();
        self.counters.errors.add(errors);
        self.counters.received.add(held as u64);
        self.counters.received_bytes.add(bytes as u64);
        self.counters.dropped_socket.raise_to(self.source.drops());
        held > 0
    }
}

impl ReceiverOptions {
    /// The size of a receive buffer for `buffered` datagrams, as the kernel counts it.
    fn buffer_bytes(&self) -> usize {
        receive_buffer_bytes(self.buffered as usize, self.datagram_bytes_max as usize)
    }

    /// The most datagrams of a fetch, and the most bytes of each.
    fn sizes(&self) -> (usize, usize) {
        (self.batch_max as usize, self.datagram_bytes_max as usize)
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
        self.counters.dropped_socket.raise_to(self.source.drops_now());
    }
}
