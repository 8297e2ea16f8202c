//! Upcall: a user-space real-time endsystem for stock Linux.
//!
//! Say what a piece of periodic work needs: its period, how much comes at a time, what that costs.
//! Upcall admits it or refuses it with a reason. What was admitted is upcalled on time, between
//! other work, without locks and almost without system calls.
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
//! Read the first two chapters, then what you need. Each is a page with examples that are compiled.
//!
//! | | to | chapter | starts at |
//! |---|---|---|---|
//! | 1 | do periodic work | [handlers](guide::handlers) | [`Runtime::handler`] |
//! | 2 | know before what will not fit | [refusals](guide::refusals) | [`CreateError::Refused`] |
//! | 3 | receive packets | [UDP](guide::udp) | [`udp::Receiver`], [`stream::IoPump`] |
//! | 4 | move data between threads, handlers, processes | [streams](guide::streams) | [`stream::Stream`] |
//! | 5 | write `async` code with deadlines | [tasks](guide::tasks) | [`Runtime::task`] |
//! | 6 | tell others of events | [channels](guide::channels) | [`channel::Service`], [`Runtime::poster`] |
//! | 7 | run several processes | [processes](guide::processes) | [`Config::daemon`] |
//! | 8 | go along with tokio or hyper | [beside tokio](guide::beside_tokio) | [`stream::AsyncStreamWriter`] |
//! | 9 | see how it went | [reports](guide::reports) | [`Runtime::stop`], [`Statistics`] |
//! | 10 | know what is promised | [promises](guide::promises) | [`Notice`] |
//! | 11 | write C or C++ | [C](guide::c) | |
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
//! **UDP**, fetched in batches by a periodic handler ([more](guide::udp)):
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
//! **A stream**, whose handler is upcalled when 8 messages are there ([more](guide::streams)):
//!
//! ```
//! # use upcall::{Config, Runtime, activity::ActivityParams, time::Span};
//! # use upcall::stream::{Stream, StreamForm};
//! # let mut upcall = Runtime::start(Config::default())?;
//! # let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50)).batch(32);
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
//! let frames = upcall.stream_reader_handler("frames", need, stream.reader()?, 8, |reader, batch| {
//!     while let Some(message) = reader.next(batch) {
//!         message.done(); // after a look at `message.payload()`, where it stands
//!     }
//! })?;
//! let writer = stream.writer()?; // of any thread or process, a file or a socket
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **A task** ([more](guide::tasks)):
//!
//! ```
//! # use upcall::{Config, Runtime, activity::ActivityParams, clock, time::Span};
//! use upcall::policy::dws::DWS;
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
//! Programs need [`activity`] and [`time`], and [`udp`], [`stream`], [`channel`], [`io_events`],
//! [`clock`], [`qos`], [`status`] as they like. [`policy`] has the policies by name. [`admission`],
//! [`scheduler`], [`record`] and [`cost`] are the core that runtime and simulator share: their
//! types stand in errors and reports. [`load`] and `work` are what the command `upcall run` measures
//! with; `work` needs the feature `codecs`.
//!
//! # Papers
//!
//! The pages cite the papers behind Upcall by name and section, such as (rtu-1995 §6):
//!
//! - **rtu-1995**: R. Gopalakrishnan, G. M. Parulkar: *Real-time Upcalls: A Mechanism to Provide
//!   Real-time Processing Guarantees*. Washington University, WUCS-95-06.
//! - **rtu-1996**: the same: *Efficient User Space Protocol Implementations with QoS Guarantees
//!   using Real-time Upcalls*. WUCS-96-11.
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
    ACTIVITIES_MAX, ActivityReport, Attach, AttachError, Band, Batch, Checkpoint, Config,
    CreateError, EVENTS_MAX, Endings, FIFO_PRIORITY, FifoRefusal, FolderError, HandlerId,
    Interrupt, InterruptError, IoInterrupt, IoWait, Job, Latency, Machine, MaskedBatch, Measure,
    MemoryLock, Mode, Need, Notice, NoticeKind, Offence, OsError, PostError, PostedEvent, Poster,
    PreemptionMask, RealTime, Record, Report, Right, Runtime, StartError, Statistics, Task,
    ThreadError, TimeAdvance, TimedSleep, VirtualReport, VirtualStatistics, activity, admission,
    allowed_cpus, channel, clock, cost, daemon_answers, daemon_socket, default_cpus, io_events,
    load, own_daemon_socket, policy, qos, record, scheduler, status, stream, switch_cost,
    system_daemon_socket, thread_cpu_ns, time, udp,
};

/// The example in the repository's README, kept true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
