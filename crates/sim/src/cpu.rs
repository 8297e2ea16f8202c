//! One simulated CPU. It drives the core's scheduler as a runtime would, in virtual time. If
//! domains are processes, it drives a scheduler for each.
//!
//! [`crate::Simulation`] steps the CPUs one step at a time, so that the events of several CPUs have
//! one order. This module makes no decision of policy.
//!
//! ```text
//!             (1) due, a message, a death       (3) next upcall
//!            +---------------------+           +---------------+
//!            |                     v           |               v
//!         Asleep  <----------- deciding ------------------> Running
//!                  (2) nothing   ^  |                        |  ^
//!                      is ready  |  +-----> HandOff -----------+ (3)
//!                                |     (5)                   |
//!                                +---------------------------+
//!                       (4) returned, yielded, died, blocked, stopped
//! ```
//!
//! 1. The CPU wakes when something is due (later under a fault), or when a message notifies it.
//! 2. Nothing is ready. The CPU sleeps until the scheduler wants a tick.
//! 3. The CPU spends the hand-off, then runs the handler to the first preemption point. Under a
//!    preemptive policy that is the instant `check_at`, also within a PDU. Otherwise it is the end
//!    of the first quantum at or after `check_at`. If the scheduler says to proceed, the handler
//!    continues from there.
//! 4. The job is done, or the scheduler told the handler to yield, or the domain died. The
//!    simulator keeps the work in an unfinished PDU ([`crate::execution::Position`]). The core
//!    counts whole PDUs only, so its states are the same for both kinds of policy.
//! 5. The turn passes to another domain. That takes the cost of a hand-off, and then the scheduler
//!    of that domain upcalls its best activity. `turns.rs` has the rules, and what happens to a
//!    domain that blocks or is stopped.
//!
//! The core's inputs and outputs are in readings of the clock. Everything in this module is in true
//! time. The two differ only under a fault of the clock ([`crate::clock::Clock`]).
//!
//! At one instant the order is: clock steps, releases, messages and faults, events, arrivals for
//! which an activity waits, handlers that come back from the kernel, and last the choice of what
//! runs next.

mod control;
mod delivery;
mod domain;
mod machine;
mod messages;
mod outside;
mod running;
mod service;
mod state;
mod step;
mod turns;

pub(crate) use machine::Machine;
pub(crate) use state::Cpu;
