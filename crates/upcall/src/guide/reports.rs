//! Chapter 9: errors, notices, counters, and the end of a program.
//!
//! # Errors
//!
//! Each call has an error type of its own, whose text says what was found and what was expected.
//! A creation that fails has reserved nothing. The errors of the operating system keep the call and
//! `errno`: [`OsError`](crate::OsError).
//!
//! # Notices
//!
//! A missing right stops nothing. The runtime does without, and says so once in
//! [`Runtime::notices`](crate::Runtime::notices): which right, what is not promised, and how to
//! grant it. Print them, as every example does.
//!
//! # Counters and statistics
//!
//! ```
//! use upcall::activity::ActivityParams;
//! use upcall::time::Span;
//! use upcall::{Config, Runtime, clock};
//!
//! let mut upcall = Runtime::start(Config::default())?;
//! let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50));
//! let mut left = 20;
//! let tick = upcall.handler("tick", need, move |batch| {
//!     while batch.proceed() {
//!         left -= 1;
//!     }
//!     if left == 0 {
//!         batch.finish();
//!     }
//! })?;
//! upcall.run(tick)?;
//! // While it runs: take in the records of jobs a few times a second, and look.
//! while upcall.wait(&[tick], Some(clock::after(Span::from_millis(20)))).is_empty() {
//!     upcall.poll(|_handler, job| {
//!         let _ = job.record.missed(); // each job, once
//!     });
//!     if let Some(statistics) = upcall.statistics(tick) {
//!         println!("{} jobs, worst response {}", statistics.jobs, statistics.response.max());
//!     }
//! }
//! // In the end: everything.
//! let report = upcall.stop(|_, _| {});
//! for activity in &report.activities {
//!     // `None` only for a handler that did not yield: then `report.stuck` names its CPU.
//!     let Some(counters) = activity.counters else { continue };
//!     println!("{}: {} jobs, {} missed", activity.name, counters.completed, counters.misses);
//!     assert!(!activity.faulted); // it did not panic
//!     assert_eq!(counters.pdus, 20);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | what | where | exact |
//! |---|---|---|
//! | jobs, misses, overruns, preemptions, PDUs, least slack | `ActivityReport::counters` ([`Counters`](crate::scheduler::Counters)) | yes |
//! | response, wake-up, cost of a PDU | [`Statistics`](crate::Statistics) | if `poll` comes often enough; else [`Report::jobs_lost`](crate::Report::jobs_lost) says how many are missing |
//! | context switches, how late threads woke | [`Report`](crate::Report) | yes |
//! | quanta that took longer than declared | [`Statistics::quantum_overruns`](crate::Statistics::quantum_overruns) | as above |
//!
//! A miss is a job that ended after its deadline. An overrun is a release that found the job before
//! it unfinished. Slack is what was left until the deadline; negative for a miss.
//!
//! # The end
//!
//! | | |
//! |---|---|
//! | [`Batch::finish`](crate::Batch::finish) | in a handler: no more upcalls |
//! | [`Runtime::suspend`](crate::Runtime::suspend), [`close`](crate::Runtime::close) | from outside: for now, or for good |
//! | [`Runtime::stop`](crate::Runtime::stop) | all at once, with the report |
//! | [`Runtime::abort`](crate::Runtime::abort) | as `stop`, but first handlers with an [abort phase](crate::Runtime::give_abort_phase) end in order |
//! | drop | as `stop`, without a report |
//!
//! A handler that panics is suspended, and `ActivityReport::faulted` says so. The others go on.
//!
//! Next: [promises](super::promises).
