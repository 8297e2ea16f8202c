//! One simulated CPU: drives the scheduler of the core as a runtime would, in
//! virtual time.
//!
//! Called by [`crate::Simulation`], one step at a time, so that several CPUs
//! keep one order of events. It decides nothing of policy.
//!
//! ```text
//!             (1) due, a message, a death       (3) next upcall
//!            +---------------------+           +---------------+
//!            |                     v           |               v
//!         Asleep  <----------- deciding ------------------> Running
//!                  (2) nothing     ^                           |
//!                      is ready    +---------------------------+
//!                                    (4) returned, yielded, died
//! ```
//!
//! 1. It wakes when something is due (or late, by a fault), or a message rings.
//! 2. Nothing is ready: it sleeps until the scheduler wants a tick.
//! 3. The hand-off is spent, then the handler runs to the first point where it
//!    must ask: under a preemptive policy the instant `check_at`, in the midst
//!    of a PDU if need be; else the end of the first quantum at or after it.
//!    Told to proceed, it goes on from there.
//! 4. The job is done, or it was told to yield. Work in a PDU that was not
//!    finished is kept here ([`crate::execution::Position`]); the core counts whole PDUs only, so
//!    its states do not differ between the two kinds of policy.
//!
//! What the core accepts and says is in readings of the clock, everything here
//! in true time; they differ where a fault says so ([`crate::clock::Clock`]).
//!
//! At one instant the clock is set first; then releases come, then messages and faults, then
//! events, then the choice of what runs next.

mod control;
mod delivery;
mod machine;
mod outside;
mod service;
mod state;
mod step;

pub(crate) use machine::Machine;
pub(crate) use state::Cpu;
