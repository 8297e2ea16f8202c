//! Upcall: a user-space real-time endsystem for stock Linux.
//!
//! Say what a piece of periodic work needs; Upcall admits it or refuses it with
//! a reason, and then upcalls it on time, between other work, without locks.
//! This is the facade: what programs import. Start with [`Runtime::start`],
//! create handlers with [`Runtime::handler`] from a [`qos::StreamSpec`] or from
//! [`activity::ActivityParams`], and run them. Under [`policy::dws::DWS`] there are
//! also tasks, `async` code that is scheduled by deadline: [`Runtime::task`]. Services tell and
//! are told of events by [`channel`].
//!
//! ```
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(50));
//! let tick = upcall.handler("tick", need, |batch| {
//!     while batch.proceed() {
//!         // process one PDU
//!     }
//!     batch.finish(); // once is enough here
//! })?;
//! upcall.run(tick)?;
//! assert_eq!(upcall.wait(&[tick], None), [tick]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod work;

pub use upcall_runtime::{
    ACTIVITIES_MAX, ActivityReport, Attach, AttachError, Band, Batch, Checkpoint, Config,
    CreateError, EVENTS_MAX, Endings, Event, EventError, FIFO_PRIORITY, FifoRefusal, FolderError,
    HandlerId, Interrupt, InterruptError, IoInterrupt, IoWait, Job, Latency, Machine, MaskedBatch,
    Measure, Mode, Need, Notice, Offence, OsError, Poster, PreemptionMask, RealTime, Record,
    Report, Right, Runtime, StartError, Statistics, Task, TimeAdvance, TimedSleep, VirtualReport,
    VirtualStatistics, activity, admission, allowed_cpus, channel, clock, cost, daemon_answers,
    daemon_socket, default_cpus, io_events, load, own_daemon_socket, policy, qos, record,
    scheduler, status, stream, switch_cost, thread_cpu_ns, time, udp,
};

/// The example in the repository's README, kept true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
