//! Chapter 9: errors, notices, counters, and the end of a program.
//!
//! # Errors
//!
//! Each call has its own error type, whose text says what was found and what was expected. A
//! creation that fails has reserved nothing. The errors of the operating system keep the call and
//! `errno`: [`OsError`](crate::OsError).
//!
//! # Notices
//!
//! A missing right stops nothing. The runtime does without it, and reports it once in
//! [`Runtime::notices`](crate::Runtime::notices): the right, what is not promised, and how to grant
//! the right. Print the notices, as every example does.
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
//! // While it runs: poll the records of jobs a few times a second.
//! while upcall.wait(&[tick], Some(clock::after(Span::from_millis(20)))).is_empty() {
//!     upcall.poll(|_handler, job| {
//!         let _ = job.record.missed(); // each job, once
//!     });
//!     if let Some(statistics) = upcall.statistics(tick) {
//!         println!("{} jobs, worst response {}", statistics.jobs, statistics.response.max());
//!     }
//! }
//! // What a watchdog did because a handler kept its CPU.
//! for offence in upcall.offences() {
//!     eprintln!("{offence}"); // kept CPU 1 for 120 ms: demoted to the ordinary class
//! }
//! // In the end: the whole report.
//! let report = upcall.stop(|_, _| {});
//! for activity in &report.activities {
//!     // `None` only if the handler did not yield: then `report.stuck` names its CPU.
//!     let Some(counters) = activity.counters else { continue };
//!     println!("{}: {} jobs, {} missed", activity.name, counters.completed, counters.misses);
//!     assert!(!activity.faulted); // it did not panic
//!     assert_eq!(counters.pdus, 20);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Runtime::wait`](crate::Runtime::wait) takes `&mut self`: no other call of the runtime runs
//! meanwhile. So give it a deadline, and poll between two calls. [`Runtime::endings`] waits in
//! another thread.
//!
//! [`Runtime::endings`]: crate::Runtime::endings
//!
//! | what | where | exact |
//! |---|---|---|
//! | jobs, misses, overruns, preemptions, PDUs, least slack | `ActivityReport::counters` ([`Counters`](crate::scheduler::Counters)) | yes |
//! | response, wake-up, cost of a PDU | [`Statistics`](crate::Statistics) | if `poll` is called often enough; otherwise [`Report::jobs_lost`](crate::Report::jobs_lost) says how many are missing |
//! | context switches, how late threads woke | [`Report`](crate::Report) | yes |
//! | jobs that were dropped before they began; they count as misses | `Counters::skipped`, [`Statistics::skipped`](crate::Statistics::skipped) | yes; as the second row |
//! | the actions of a watchdog against the process | [`Report::offences`](crate::Report::offences) | under a daemon; without one at most 64 wait for a call of [`Runtime::offences`](crate::Runtime::offences) |
//! | lag, under PS | [`Statistics::lag`](crate::Statistics::lag) | yes; as of the last `poll` |
//! | quanta that took longer than declared | [`Statistics::quantum_overruns`](crate::Statistics::quantum_overruns) | as the second row |
//!
//! A miss is a job that ended after its deadline or was dropped. An overrun is a release that came
//! before the previous job was finished. Slack is the time from the end of a job to its deadline.
//! It is negative for a miss.
//!
//! # The end
//!
//! | | |
//! |---|---|
//! | [`Batch::finish`](crate::Batch::finish) | in a handler: no more upcalls |
//! | [`Runtime::suspend`](crate::Runtime::suspend), [`close`](crate::Runtime::close) | from outside: until the next `run`, or for ever |
//! | [`Runtime::stop`](crate::Runtime::stop) | ends all handlers, and returns the report |
//! | [`Runtime::abort`](crate::Runtime::abort) | as `stop`, after handlers with an [abort phase](crate::Runtime::give_abort_phase) have ended in order |
//! | drop | as `stop`, without a report |
//!
//! A handler that panics is suspended, and `ActivityReport::faulted` is set. The other handlers go
//! on.
//!
//! Next: [promises](super::promises).
