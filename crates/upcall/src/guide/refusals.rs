//! Chapter 2: what admission refuses, and why.
//!
//! A handler that is created was admitted. All deadlines of its CPU hold, those of the handler and
//! those of the handlers before it, under the conditions of the chapter
//! [promises](super::promises). A handler that would break a deadline is refused. Nothing is
//! reserved for it, and the running handlers go on. The error says which deadline would be missed,
//! and one change that was tried and fits.
//!
//! ```
//! use upcall::activity::ActivityParams;
//! use upcall::admission::Reason;
//! use upcall::time::Span;
//! use upcall::{Config, CreateError, Runtime, default_cpus};
//!
//! // One CPU, so that the second handler cannot go to another.
//! let cpus = default_cpus()?.into_iter().take(1).collect();
//! let mut upcall = Runtime::start(Config { cpus, ..Config::default() })?;
//! let half = ActivityParams::new(Span::from_millis(10), Span::from_millis(5));
//! let video = upcall.handler("video", half, |batch| while batch.proceed() {})?;
//!
//! let more = ActivityParams::new(Span::from_millis(10), Span::from_millis(8));
//! let refusal = match upcall.handler("audio", more, |batch| while batch.proceed() {}) {
//!     Err(CreateError::Refused(refusal)) => refusal,
//!     other => panic!("expected a refusal, found {other:?}"),
//! };
//! // `audio` is refused: with it, 130.1 % of CPU 1 would be asked for, and `audio` would fall
//! // further behind with every period; a cost of 3.997 ms per PDU instead of 8 ms would fit
//! eprintln!("{refusal}");
//! // For programs. The 0.1 % above 130 % of a CPU is the price of hand-offs.
//! assert!(matches!(refusal.reason, Reason::FallsBehind { .. }));
//! assert!(refusal.hint.is_some());
//! // A handler that needs less fits beside the first.
//! let less = ActivityParams::new(Span::from_millis(10), Span::from_millis(1));
//! upcall.handler("audio", less, |batch| while batch.proceed() {})?;
//! upcall.run(video)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Refusal::reason`](crate::admission::Refusal::reason) is one of the
//!   [reasons](crate::admission::Reason).
//! - [`Refusal::hint`](crate::admission::Refusal::hint) is a [change](crate::admission::Hint) that
//!   fits: a smaller quantum, a later deadline, a cheaper PDU, a longer period. There is one hint.
//!   A higher `cpu_limit` comes first, if a safe one is enough. Under DWS the shortest delay bound
//!   that would be admitted comes next.
//! - Reason and hint are enums for programs. Printed with `{}`, each is a sentence by itself.
//! - [`CreateError`](crate::CreateError) has the other causes: parameters out of range, a name that
//!   is taken. Under a daemon the daemon refuses, in words:
//!   `CreateError::RefusedByDaemon`.
//! - By default 90 % of a CPU may be reserved ([`Config::cpu_limit`](crate::Config::cpu_limit)).
//!   The rest is for the kernel and for ordinary threads.
//! - [`Config::unscreened`](crate::Config::unscreened) runs handlers that admission would refuse,
//!   without a promise. It is for experiments.
//! - [`Runtime::reservations`](crate::Runtime::reservations) tells whether a handler would fit,
//!   without creating it.
//!
//! - Under PS, [`Runtime::reweigh`](crate::Runtime::reweigh) gives a handler another share or
//!   weight while it runs. Admission checks the change, and a refusal names the share that would
//!   fit.
//!
//! Next: [packets](super::udp).
