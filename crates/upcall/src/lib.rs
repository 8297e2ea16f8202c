//! Upcall: a user-space real-time endsystem for stock Linux.
//!
//! Upcall runs pieces of code on time. A program says what a piece of periodic work needs: its
//! period, how much comes at a time, and the CPU time of that. Upcall computes whether the work
//! fits beside all other work. If it does not fit, Upcall refuses it with a reason. If it fits,
//! Upcall calls the program's handler on time, almost without system calls. Handlers of one CPU
//! share data without locks. Upcall needs no kernel patch and no kernel module.
//!
//! Upcall is for programs that process media, audio or packets by a deadline: media servers, VoIP,
//! pro audio, robotics, protocol stacks. `SCHED_FIFO` threads alone run on time only while all of
//! them fit together, and nothing checks that they do.
//!
//! # See it
//!
//! In a checkout of the repository this command runs four streams of UDP packets three ways: with
//! Upcall, as ordinary threads, and as FIFO threads. It prints the three results side by side:
//!
//! ```sh
//! cargo run --release -- run examples/conference.toml --compare
//! ```
//!
//! The README shows what it prints.
//!
//! # The smallest program
//!
//! ```toml
//! [dependencies]
//! upcall = { path = "../upcall/crates/upcall" } # a checkout; not on crates.io yet
//! ```
//!
//! ```
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut upcall = Runtime::start(Config::default())?;
//!     // Every 10 ms one PDU (packet, block, frame) of at most 50 us.
//!     let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(50));
//!     let tick = upcall.handler("tick", need, |batch| {
//!         while batch.proceed() {
//!             // process one PDU
//!         }
//!         batch.finish(); // once is enough here
//!     })?; // refused? the error says why, and what would fit
//!     upcall.run(tick)?;
//!     assert_eq!(upcall.wait(&[tick], None), [tick]);
//!     Ok(())
//! }
//! ```
//!
//! # The handbook
//!
//! Read the first two chapters, then those that you need. Each is a page with compiled examples.
//!
//! | | to | chapter | starts at |
//! |---|---|---|---|
//! | 1 | do periodic work | [handlers](guide::handlers) | [`Runtime::handler`] |
//! | 2 | know in advance what will not fit | [refusals](guide::refusals) | [`CreateError::Refused`] |
//! | 3 | receive packets | [UDP](guide::udp) | [`udp::Receiver`], [`stream::IoPump`] |
//! | 4 | move data between threads, handlers, processes | [streams](guide::streams) | [`stream::Stream`] |
//! | 5 | write `async` code with deadlines | [tasks](guide::tasks) | [`Runtime::task`] |
//! | 6 | send events to others | [channels](guide::channels) | [`channel::Service`], [`Runtime::poster`] |
//! | 7 | run several processes | [processes](guide::processes) | [`Config::daemon`] |
//! | 8 | combine it with tokio or hyper | [beside tokio](guide::beside_tokio) | [`stream::AsyncStreamWriter`] |
//! | 9 | read counters and reports | [reports](guide::reports) | [`Runtime::stop`], [`Statistics`] |
//! | 10 | know what is promised | [promises](guide::promises) | [`Notice`] |
//! | 11 | process packets without the kernel's protocols | [UDP in user space](guide::flows) | [`net::UdpFlow`], [`net::Owner`] |
//! | 12 | write C or C++ | [C](guide::c) | |
//!
//! More pages are in the folder `docs` of the repository:
//!
//! | page | for |
//! |---|---|
//! | `media-and-audio.md` | programs that process media, audio or packets |
//! | `c.md` | C and C++ |
//! | `operators.md` | people who run machines and the daemon |
//! | `researchers.md` | the simulator, the benches and the papers |
//! | `GLOSSARY.md`, `bibliography.md` | every term, every source |
//!
//! # One of each
//!
//! **A refusal** is an error with a [reason](admission::Refusal::reason) and a
//! [hint](admission::Refusal::hint) ([more](guide::refusals)):
//!
//! ```
//! # use upcall::{Config, CreateError, Runtime, activity::ActivityParams, time::Span};
//! # let mut upcall = Runtime::start(Config::default())?;
//! // 10 ms of work, due 5 ms after it is released.
//! let need = ActivityParams::new(Span::from_millis(20), Span::from_millis(10))
//!     .deadline(Span::from_millis(5));
//! match upcall.handler("video", need, |batch| while batch.proceed() {}) {
//!     Err(CreateError::Refused(refusal)) => eprintln!("{refusal}"),
//!     other => panic!("expected a refusal, found {other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **UDP**: a periodic handler fetches datagrams in batches ([more](guide::udp)):
//!
//! ```
//! # use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
//! # use upcall::udp::{Receiver, ReceiverOptions};
//! # let mut upcall = Runtime::start(Config::default())?;
//! # let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50)).batch(32);
//! # let mut receiver = Receiver::bind("127.0.0.1:0".parse()?, &ReceiverOptions::default())?;
//! let camera = upcall.handler("camera", need, move |batch| {
//!     while batch.remaining() > 0 && receiver.ready() && batch.proceed() {
//!         if let Some(_datagram) = receiver.take() {
//!             receiver.processed();
//!         }
//!     }
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **A stream**: its handler is upcalled when the stream has 8 messages ([more](guide::streams)):
//!
//! ```
//! # use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
//! # use upcall::stream::{Stream, StreamForm};
//! # let mut upcall = Runtime::start(Config::default())?;
//! # let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50)).batch(32);
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
//! let frames = upcall.stream_reader_handler("frames", need, stream.reader()?, 8, |reader, batch| {
//!     while let Some(message) = reader.next(batch) {
//!         message.done(); // after a look at `message.payload()`, in place
//!     }
//! })?;
//! let writer = stream.writer()?; // for any thread or process, a file or a socket
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **A task** ([more](guide::tasks)):
//!
//! ```
//! # use upcall::{Config, Runtime, activity::ActivityParams, clock, time::Span};
//! use upcall::discipline::DWS;
//! let mut upcall = Runtime::start(Config { discipline: &DWS, ..Config::default() })?;
//! # let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50));
//! let blink = upcall.task("blink", need, async move |task| {
//!     for _ in 0..10 {
//!         task.timed_sleep(clock::after(Span::from_millis(5))).await;
//!     }
//! })?;
//! # upcall.run(blink)?;
//! # upcall.wait(&[blink], None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! Most programs need [`activity`] and [`time`]. [`udp`], [`stream`], [`channel`] and [`io_events`]
//! move data and events. [`clock`], [`qos`], [`status`] and [`policy`] have the clock, the needs of
//! streams, the state of a daemon, and the policies by name. [`program`] gives shares to programs
//! that nobody changed, and [`packet_quota`] limits the packets that come for them. [`net`] has UDP
//! in user space. The types of [`admission`], [`scheduler`], [`record`] and [`cost`] appear in
//! errors and reports; runtime and simulator share these modules. The command `upcall run` measures
//! with [`load`] and `work`; `work` needs the feature `codecs`.
//!
//! # Papers
//!
//! The pages cite five papers by name and section, such as (rtu-1995 §6). The other sources are
//! in `docs/bibliography.md`.
//!
//! - **rtu-1995**: R. Gopalakrishnan, G. M. Parulkar: *Real-time Upcalls: A Mechanism to Provide
//!   Real-time Processing Guarantees*. Washington University, WUCS-95-06.
//! - **rtu-1996**: R. Gopalakrishnan, G. M. Parulkar: *Efficient User Space Protocol
//!   Implementations with QoS Guarantees using Real-time Upcalls*. WUCS-96-11.
//! - **split-level-1991**: R. Govindan, D. P. Anderson: *Scheduling and IPC Mechanisms for
//!   Continuous Media*. University of California, Berkeley, UCB/CSD 91/622.
//! - **ecalls-2001**: C. Poellabauer, K. Schwan, R. West: *Lightweight Kernel/User Communication
//!   for Real-Time and Multimedia Applications*. NOSSDAV 2001.
//! - **proportional-share-1998**: K. Jeffay, F. D. Smith, A. Moorthy, J. Anderson: *Proportional
//!   Share Scheduling of Operating System Services for Real-Time Applications*.

#![forbid(unsafe_code)]

pub mod guide;
#[cfg(feature = "codecs")]
pub mod work;

#[doc(inline)]
pub use upcall_runtime::{
    ACTIVITIES_MAX, ActivityReport, Attach, AttachError, Band, Batch, BusyLimit, Checkpoint,
    Config, CreateError, DaemonFault, EVENTS_MAX, Endings, FIFO_PRIORITY, FifoRefusal, FolderError,
    HandlerId, Interrupt, InterruptError, IoInterrupt, IoWait, Job, Lag, Latency, Machine,
    MaskedBatch, Measure, MemoryLock, Mode, Need, Notice, NoticeKind, Offence, OsError, PostError,
    PostedEvent, Poster, PreemptionMask, RealTime, Record, Remedy, Report, Right, Runtime,
    StartError, Statistics, Task, ThreadError, TimeAdvance, TimedSleep, VirtualReport,
    VirtualStatistics, activity, admission, allowed_cpus, channel, clock, cost, daemon_answers,
    daemon_socket, default_cpus, discipline, io_events, load, net, own_daemon_socket, packet_quota,
    policy, private_folder, program, qos, record, scheduler, status, stream, switch_cost,
    system_daemon_socket, thread_cpu_ns, time, udp,
};

/// Compiles and runs the example in the README. A reader who copies it gets no warnings.
#[cfg(doctest)]
#[doc(test(attr(deny(warnings))))]
#[doc = include_str!("../README.md")]
pub struct Readme;
