//! Chapter 1: the smallest program, and what its numbers mean.
//!
//! # Cargo.toml
//!
//! Upcall is not on crates.io yet: depend on a checkout of the repository by its path.
//!
//! ```toml
//! [dependencies]
//! upcall = { path = "../upcall/crates/upcall" }
//!
//! [profile.release]
//! debug = "line-tables-only" # backtraces name lines
//! ```
//!
//! Upcall needs Linux and Rust 1.91. Streams with handlers, and event channels, need Linux 5.16.
//! Measure release builds only: a debug build costs several times as much CPU time.
//!
//! # The program
//!
//! ```
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Config, Runtime};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let mut upcall = Runtime::start(Config::default())?;
//!     for notice in upcall.notices() {
//!         eprintln!("{notice}"); // a missing right, and how to grant it
//!     }
//!     // Every 5 ms at most 4 PDUs of at most 100 us each.
//!     let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(100)).batch(4);
//!     let (mut left, mut sum) = (40u32, 0);
//!     let camera = upcall.handler("camera", need, move |batch| {
//!         while left > 0 && batch.proceed() {
//!             sum += left; // process one PDU
//!             left -= 1;
//!         }
//!         if left == 0 {
//!             batch.finish(); // ends the upcalls
//!         }
//!     })?; // refused? the error says why, and what would fit
//!     upcall.run(camera)?;
//!     upcall.wait(&[camera], None); // this thread could do other things instead
//!     let report = upcall.stop(|_, _| {});
//!     let counters = report.activities[0].counters.ok_or("the handler did not yield")?;
//!     assert_eq!(counters.pdus, 40);
//!     println!("{} jobs, {} missed", counters.completed, counters.misses);
//!     Ok(())
//! }
//! ```
//!
//! # What happens
//!
//! - [`Runtime::start`](crate::Runtime::start) starts one thread for each CPU of
//!   [`Config::cpus`](crate::Config::cpus). By default these are all CPUs that the process may use
//!   except the first, CPU 0. The thread is called `upcall-cpuN`. It is of the class `SCHED_FIFO`
//!   if the process has that right.
//! - [`Runtime::handler`](crate::Runtime::handler) asks admission for a place, on the first CPU
//!   where all deadlines hold. The handler is suspended until
//!   [`Runtime::run`](crate::Runtime::run).
//! - From then on a *job* is released each period, and the thread calls the handler: the *upcall*.
//! - The handler calls [`Batch::proceed`](crate::Batch::proceed) before each PDU. It returns when
//!   `proceed` returns `false`, or when there is nothing to process.
//! - When a more urgent handler is due, `proceed` returns `false` at the end of a quantum. The rest
//!   of the batch comes with the next upcall. So handlers of one CPU never interrupt each other
//!   inside a quantum, and share data without locks.
//!   [`Need::same_cpu_as`](crate::Need::same_cpu_as) puts a handler on the CPU of another one.
//!   [`Runtime::place`](crate::Runtime::place) tells the CPU of a handler.
//! - [`Batch::finish`](crate::Batch::finish) ends delivery, and
//!   [`Runtime::wait`](crate::Runtime::wait) in another thread returns.
//!
//! # The numbers
//!
//! | word | field of [`ActivityParams`](crate::activity::ActivityParams) | meaning |
//! |---|---|---|
//! | PDU | | the unit of work, chosen by the program: a packet, a block of samples, a frame |
//! | period | `period` | from one release to the next |
//! | batch | `batch` | most PDUs in a period; 1 by default |
//! | cost | `pdu_cost` | most CPU time of a PDU |
//! | quantum | `quantum` | PDUs without preemption; 1 by default |
//! | deadline | `deadline` | from release to the end of the job; the period by default |
//!
//! A job may wait too long, because the process was stopped or a handler took longer than it
//! declared. [`Terms::backlog`](crate::activity::Terms::backlog) says what becomes of such jobs:
//! all of them run, in order (the default), or late ones are dropped
//! ([`Backlog::Skip`](crate::activity::Backlog::Skip),
//! [`Backlog::Latest`](crate::activity::Backlog::Latest)). What runs late runs below all handlers
//! that keep their reservations. [`Batch::jobs_skipped`](crate::Batch::jobs_skipped) tells the
//! handler how many jobs were dropped. A stream has the rule of its class: continuous media skip,
//! all others catch up.
//!
//! A cost of [`Span::ZERO`](crate::time::Span::ZERO) is measured: the runtime first runs the
//! handler on trial, for half a second at most. What the handler processes in the trial is
//! consumed.
//!
//! A program that knows its stream and not these numbers gives a
//! [`StreamSpec`](crate::qos::StreamSpec) instead: class, rate, size of a PDU, and the allowed
//! delay. The runtime derives the rest.
//!
//! ```
//! use upcall::qos::{Class, Flow, Rate, StreamSpec, map};
//! use upcall::time::Span;
//!
//! // Audio: 120 packets a second, each processed within 20 ms of its arrival.
//! let audio = StreamSpec {
//!     class: Class::ContinuousMedia(Flow::PduRate(Rate::from_hertz(120))),
//!     pdu_bytes: 1472,
//!     delay: Some(Span::from_millis(20)),
//!     pdu_cost: Span::from_micros(50),
//!     quantum: None,
//! };
//! let mapping = map(&audio, Span::ZERO)?; // `Runtime::handler` takes `audio` as it is
//! assert!(mapping.params.period <= Span::from_millis(20));
//! # Ok::<(), upcall::qos::MapError>(())
//! ```
//!
//! Next: [what is refused](super::refusals).
