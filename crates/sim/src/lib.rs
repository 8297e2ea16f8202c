//! Upcall's simulator: the very policies that run for real, in virtual time.
//!
//! It drives [`upcall_core::scheduler::Scheduler`], one a CPU, as the runtime
//! does, with a clock of its own, arrivals and costs by models, and faults from
//! a seed. One spec gives one stream of events, byte for byte, on every
//! machine: no clock, no hash map's order, no floating point decides anything.
//!
//! Costs are exact; hand-offs are free unless the spec says otherwise; releases
//! at one instant are taken before the choice of what runs next, and ties go to
//! the activity that stands first.
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
//! | [`spec`] | what is simulated, and placing it by admission |
//! | [`arrivals`], [`posting`], [`execution`], [`fault`] | the models |
//! | [`event`] | what happened, for checkers and trace writers |
//! | [`chance`] | what is drawn, the same on every machine |
//! | [`outcome`] | what it came to |
//! | [`checkers`] | whether what was promised was kept, one file a promise |
//! | [`trace`] | the file of a run, live or simulated, and its replay |
//! | [`vopr`] | random machines, sets and faults, all checkers, from a seed |

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
pub mod outcome;
pub mod posting;
mod simulation;
pub mod spec;
pub mod trace;
pub mod vopr;

pub use arrivals::Arrivals;
pub use event::{Event, EventKind};
pub use execution::Execution;
pub use fault::{Fault, Window};
pub use outcome::Outcome;
pub use posting::{PostRank, Posting};
pub use simulation::Simulation;
pub use spec::{SimActivity, SimSpec, SpecError, place};
