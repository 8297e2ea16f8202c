//! Upcall's simulator: the policies of the real runtime, in virtual time.
//!
//! The simulator drives one [`upcall_core::scheduler::Scheduler`] per CPU, as the runtime does, or
//! one for each domain on each CPU, as the processes of a daemon do ([`SimSpec::split_level`]). It
//! has its own clock, models of arrivals and costs, and seeded faults. One spec gives one stream of
//! events, byte for byte the same on every machine. The events depend on no real clock, on no order
//! of a hash map and on no floating-point number.
//!
//! Costs are exact. Hand-offs are free unless the spec gives them a cost. Releases at one instant
//! come before the choice of what runs next. Ties go to the activity that is first in the spec.
//!
//! ```
//! use upcall_core::activity::ActivityParams;
//! use upcall_core::discipline::RMDP;
//! use upcall_core::time::Span;
//! use upcall_sim::{SimActivity, SimSpec, Simulation};
//!
//! let params = ActivityParams::new(Span::from_millis(40), Span::from_millis(2)).batch(4);
//! let spec = SimSpec::new(&RMDP, vec![SimActivity::new("audio", params)]);
//! let outcome = Simulation::new(spec)?.run(Span::from_secs(1), &mut |_event| {});
//! assert_eq!(outcome.activities[0].counters.completed, 25);
//! assert_eq!(outcome.activities[0].responses.max(), Some(Span::from_millis(8)));
//! # Ok::<(), upcall_sim::SpecError>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`spec`] | the simulated machine and its activities, and their placement by admission |
//! | [`arrivals`], [`posting`], [`execution`], [`fault`] | the models |
//! | [`event`] | the events of a run, for checkers and trace writers |
//! | [`chance`] | random numbers, the same on every machine |
//! | [`outcome`] | the results of a run |
//! | [`checkers`] | checks of the promises, one file each |
//! | [`livelock`] | the experiment of proportional-share-1998 §5: what a flood of packets does |
//! | [`trace`] | the trace file of a live or simulated run, and its replay |
//! | [`vopr`] | random machines, sets and faults from a seed, under all checkers |

#![forbid(unsafe_code)]

mod actor;
pub mod arrivals;
pub mod chance;
pub mod checkers;
mod clock;
mod cpu;
pub mod event;
pub mod execution;
pub mod fault;
pub mod livelock;
pub mod outcome;
pub mod posting;
mod simulation;
pub mod spec;
pub mod trace;
pub mod vopr;

pub use arrivals::Arrivals;
pub use event::{EventKind, SimEvent};
pub use execution::Execution;
pub use fault::{Fault, Window};
pub use outcome::Outcome;
pub use posting::{PostRank, Posting};
pub use simulation::Simulation;
pub use spec::{SimActivity, SimSpec, SpecError, SplitLevel, place};
