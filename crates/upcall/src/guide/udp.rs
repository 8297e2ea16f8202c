//! Chapter 3: UDP.
//!
//! There are two ways to receive datagrams. Both lose none as long as the buffer of the socket
//! holds the datagrams that come between two upcalls.
//!
//! | | a receiver in a periodic handler | I/O pump, stream, handler |
//! |---|---|---|
//! | upcalled | each period, with or without datagrams | when enough datagrams are in the stream |
//! | system calls of the handler | one for each batch | none |
//! | good for | a steady flow: audio, video, sensors | bursts, or flows that pause |
//! | sender's address, arrival time | yes | no |
//! | policy | any | `rmdp`, `rm` or `dws` |
//!
//! # A receiver in a periodic handler
//!
//! A [`Receiver`](crate::udp::Receiver) fetches a batch of datagrams with one system call that does
//! not block. The receiver moves into the handler. Its [counters](crate::udp::StreamCounters) can
//! still be read from outside.
//!
//! ```
//! use std::net::UdpSocket;
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::udp::{Receiver, ReceiverOptions};
//! use upcall::{Config, Runtime};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! // A datagram that is processed more than 20 ms after its arrival counts as late.
//! let options = ReceiverOptions { delay_max: Span::from_millis(20), ..Default::default() };
//! let mut receiver = Receiver::bind("127.0.0.1:0".parse()?, &options)?;
//! let (address, counters) = (receiver.local_address()?, receiver.counters());
//!
//! // Every 5 ms at most 32 datagrams of at most 20 us each.
//! let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(20)).batch(32);
//! let (mut received, mut bytes) = (0, 0);
//! let camera = upcall.handler("camera", need, move |batch| {
//!     // In this order: `proceed` counts a PDU, so call it only when there is a datagram.
//!     while batch.remaining() > 0 && receiver.ready() && batch.proceed() {
//!         if let Some(datagram) = receiver.take() {
//!             // Process it: `payload`, `sender`, and `arrival` by the kernel's clock.
//!             bytes += datagram.payload.len();
//!             receiver.processed();
//!             received += 1;
//!         }
//!     }
//!     if received == 100 {
//!         batch.finish();
//!     }
//! })?;
//! upcall.run(camera)?;
//!
//! let sender = UdpSocket::bind("127.0.0.1:0")?;
//! for number in 0..100u32 {
//!     sender.send_to(&number.to_le_bytes(), address)?;
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! }
//! upcall.wait(&[camera], None);
//! assert_eq!(counters.processed.value(), 100);
//! assert_eq!(counters.dropped_socket.value(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Receiver::from_socket`](crate::udp::Receiver::from_socket) receives from an existing socket,
//!   such as a `std::net::UdpSocket`.
//! - [`Receiver::from_flow`](crate::udp::Receiver::from_flow) receives from a
//!   [flow](crate::net::UdpFlow) in user space, without a system call. Programs that do not look in
//!   each period use the flow itself: [`UdpFlow::arm`](crate::net::UdpFlow::arm) makes its
//!   descriptor readable once something comes. [UDP in user space](super::flows) says when to take
//!   a flow.
//! - [`Receiver::join_v4`](crate::udp::Receiver::join_v4) and
//!   [`join_v6`](crate::udp::Receiver::join_v6) join a multicast group.
//! - [`ReceiverOptions`](crate::udp::ReceiverOptions) say how many datagrams the kernel holds, how
//!   many one system call fetches, and how long a datagram may be.
//!
//! # Event-driven: I/O pump, stream, handler
//!
//! An [`IoPump`](crate::stream::IoPump) reads the socket in a thread of its own and writes each
//! datagram as a message into a [stream](super::streams). The handler is upcalled when the stream
//! has as many messages as the handler's level, here 1. So the handler makes no system call, and no
//! upcall finds an empty stream. The declared period still holds: admission assumes that two
//! upcalls are at least one period apart.
//!
//! ```
//! use std::net::UdpSocket;
//! use upcall::activity::ActivityParams;
//! use upcall::stream::{IoPump, Stream, StreamForm};
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! let address = socket.local_addr()?;
//! // 64 datagrams of up to 2048 bytes.
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 2048 }, 0)?;
//! // Keep the I/O pump: it stops when it is dropped. The value of `source` may be dropped.
//! let pump = IoPump::start()?;
//! let _source = pump.source(socket, stream.writer()?)?;
//!
//! let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20)).batch(16);
//! let mut seen = 0;
//! let reader = stream.reader()?;
//! let camera = upcall.stream_reader_handler("camera", need, reader, 1, move |reader, batch| {
//!     while let Some(datagram) = reader.next(batch) {
//!         seen += 1; // process `datagram.payload()`, in place
//!         datagram.done();
//!     }
//!     if seen == 100 {
//!         batch.finish();
//!     }
//! })?;
//! upcall.run(camera)?;
//!
//! let sender = UdpSocket::bind("127.0.0.1:0")?;
//! for number in 0..100u32 {
//!     sender.send_to(&number.to_le_bytes(), address)?;
//!     std::thread::sleep(std::time::Duration::from_millis(1));
//! }
//! upcall.wait(&[camera], None);
//! let counters = upcall.stop(|_, _| {}).activities[0].counters.ok_or("stuck")?;
//! assert_eq!(counters.pdus, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `udp_receiver` is this as a whole program: `cargo run --release -p upcall --example
//! udp_receiver`.
//!
//! # Packets that come early
//!
//! Under DWS a handler with [`Terms::workahead_max`](crate::activity::Terms::workahead_max) may
//! process packets before their releases. It fetches more than a batch at a time, and says at the
//! end of its job how many whole batches [wait](crate::udp::Receiver::waiting):
//! [`Batch::messages_waiting`](crate::Batch::messages_waiting). If the packets have timestamps,
//! [`Batch::next_logical_arrival`](crate::Batch::next_logical_arrival) says when the next one is
//! due.
//!
//! # Sending
//!
//! A handler sends with a [`Sender`](crate::udp::Sender): `send` puts a datagram into a batch, and
//! `flush` gives the batch to the kernel. The batch leaves at once. With the parameters of
//! [`Mapping::paced`](crate::qos::Mapping::paced) a handler has the PDUs of at most a millisecond
//! to send, so that they leave at the stream's bandwidth.
//!
//! Next: [streams](super::streams).
