//! Chapter 11: UDP in user space.
//!
//! A handler can process packets without the kernel's protocols. The interface hands over frames,
//! code of Upcall reads and writes their headers, and the handler finds payloads in queues. So a
//! datagram costs less CPU time and no system call, and a flood to a port is dropped in the driver.
//! [`crate::net`] has the parts. This chapter helps to choose.
//!
//! # Which way to take
//!
//! | way | who needs which rights | a datagram waits for |
//! |---|---|---|
//! | socket of the kernel: [`Receiver`], [`Sender`] | nobody | the next upcall |
//! | flow of the daemon: [`UdpFlow::open`] | the daemon `CAP_NET_RAW`, `CAP_BPF`, `CAP_NET_ADMIN`, `CAP_PERFMON`; the program none | the daemon, up to 1 ms in each direction, and the next upcall |
//! | interface of your process: [`UdpInterface`], feature `xdp` | your program those four | the next upcall |
//! | an address of your own: [`Owner::with_host`] | TAP `CAP_NET_ADMIN`, packet rings `CAP_NET_RAW` | the next upcall; packet rings up to 1 ms before |
//!
//! | way | CPU time of a datagram of 64 and of 1472 bytes | what is missing |
//! |---|---|---|
//! | socket of the kernel | 968 ns, 1195 ns | protection from floods: the kernel works on all that comes |
//! | flow of the daemon | 253 ns, 516 ns | the firewall; this machine itself as a peer |
//! | interface of your process | 172 ns, 384 ns | the same; one process has the interface |
//! | an address of your own | not measured | the kernel of this machine as a peer, but for TAP; duplicates of the address are only counted |
//!
//! The times are a first hint: medians of three runs in which the sender ran on the same CPU.
//! `docs/results/README.md` says why no claim rests on them. They are `recvmmsg`, `apart` and
//! `flow` of `docs/results/udp.txt` (2 x AMD EPYC, Linux 6.18, veth pair). The kernel's work before
//! the socket or ring does not count. `apart` has daemon and program in one thread; between
//! processes a switch is added. Decision 0024 (section 6) says what becomes of fragments in user
//! space.
//!
//! - **Begin with a socket.** It needs no right, and the [firewall](#what-the-kernel-does-not-see)
//!   sees it. [Chapter 3](super::udp) has it.
//! - **Take a flow of the daemon** if packets cost too much, or if others can flood the port. Every
//!   user may have one, and the kernel keeps the address, ARP and ping.
//! - **Take an interface of your own process** if the millisecond of the daemon is too long, and
//!   the program may have the rights.
//! - **Take an address of your own** for a host that the kernel knows nothing of: a gateway, a
//!   protocol stack, a test.
//!
//! # A flow of the daemon
//!
//! Root starts the daemon with the interface: `upcalld --interfaces eth1 --access everyone`. A
//! daemon of your own does not have it.
//!
//! ```no_run
//! use upcall::activity::ActivityParams;
//! use upcall::net::{FlowRequest, Quota, UdpFlow};
//! use upcall::time::Span;
//! use upcall::udp::{Receiver, ReceiverOptions};
//! use upcall::{Attach, Config, Runtime, system_daemon_socket};
//!
//! let socket = system_daemon_socket();
//! // A datagram each 5 ms, and a tenth more: 220 a second on average. At most 4 come ahead of
//! // that: the 2 of 10 ms, and 2 more. What is beyond is dropped before it costs anything.
//! let (period, together) = (Span::from_millis(5), Span::from_millis(10));
//! let receive = Some(Quota::of_receiver(period, 100_000, 2, together));
//! let request = FlowRequest { receive, ..FlowRequest::new("eth1", "10.0.0.2:5004".parse()?) };
//! let flow = UdpFlow::open(&socket, &request)?;
//! // From here on as with a socket.
//! let mut receiver = Receiver::from_flow(flow, &ReceiverOptions::default());
//!
//! let daemon = Some(Attach { socket, name: "voice".into() });
//! let mut upcall = Runtime::start(Config { daemon, ..Config::default() })?;
//! let need = ActivityParams::new(period, Span::from_micros(50)).batch(4);
//! let mut heard_bytes = 0;
//! let voice = upcall.handler("voice", need, move |batch| {
//!     while batch.remaining() > 0 && receiver.ready() && batch.proceed() {
//!         if let Some(datagram) = receiver.take() {
//!             heard_bytes += datagram.payload.len();
//!             receiver.processed();
//!         }
//!     }
//! })?;
//! upcall.run(voice)?;
//! upcall.wait(&[voice], None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **One flow, one end.** A [`Receiver`] or a [`Sender`] takes a whole flow, and a flow is not
//!   split. Two flows have two ports. A program that receives on the port that it sends from (RTP
//!   with RTCP on one port, an echo) uses [`UdpFlow`] itself: [`UdpFlow::take`] and
//!   [`UdpFlow::send`] of one handler.
//!
//! With [`UdpFlow`] itself (a [`Receiver`] or a [`Sender`] tells none of this):
//!
//! - **Sending** ends with [`UdpFlow::flush`](crate::net::UdpFlow::flush): datagrams leave after
//!   it.
//! - **Errors of peers** come as [`Received::Error`](crate::net::Received::Error): a port is
//!   closed, or a packet is too long for the path.
//! - **Wake-ups.** A program that does not look in each period waits for its flow:
//!   [`UdpFlow::arm`](crate::net::UdpFlow::arm), [`UdpFlow::wait`](crate::net::UdpFlow::wait).
//! - **The end.** [`UdpFlow::is_open`] says whether the daemon still has the flow.
//!
//! The whole program is `crates/upcall/examples/udp_echo_flow.rs`.
//!
//! # An address of your own
//!
//! The kernel must not have the address: two hosts would answer. [`Owner::with_host`] has an
//! example, and `crates/upcall/examples/own_address.rs` is the whole program. Its owner answers ARP
//! and ping, and neighbor discovery for addresses of IPv6; give it a link-local address beside one
//! of IPv6. [`crate::net`] has a table of devices.
//!
//! # What the kernel does not see
//!
//! Packets in user space pass no netfilter rule, no traffic control and no counter of sockets. Who
//! may open flows can send from their port whatever the firewall says (`docs/operators.md`).
//!
//! [`Receiver`]: crate::udp::Receiver
//! [`Sender`]: crate::udp::Sender
//! [`UdpFlow`]: crate::net::UdpFlow
//! [`UdpFlow::open`]: crate::net::UdpFlow::open
//! [`UdpFlow::take`]: crate::net::UdpFlow::take
//! [`UdpFlow::send`]: crate::net::UdpFlow::send
//! [`UdpFlow::is_open`]: crate::net::UdpFlow::is_open
//! [`Owner::with_host`]: crate::net::Owner::with_host
#![cfg_attr(feature = "xdp", doc = "[`UdpInterface`]: crate::net::UdpInterface")]
#![cfg_attr(not(feature = "xdp"), doc = "[`UdpInterface`]: crate::net")]
//!
//! Next: [C](super::c).
