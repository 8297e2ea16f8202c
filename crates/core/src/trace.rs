//! The calls that cross the core's interface, one fixed-size record each.
//!
//! A driver that holds its [`Scheduler`](crate::scheduler::Scheduler) in a [`Traced`] has a
//! [`Sink`] note every call and every answer. [`replay()`] gives the same inputs to a fresh
//! scheduler and compares the answers. The core's answers depend on its inputs only, so a live
//! run can be examined again, step by step, on another machine.
//!
//! This module reads no clock, writes no file and stores no names. The file format is that of the
//! simulator (`upcall_sim::trace`).

mod crossing;
mod replay;
#[cfg(test)]
mod tests;
mod traced;

pub use crossing::{Crossing, Record, Sink};
pub use replay::{Divergence, Found, INSTANT_MAX, Replayed, replay, replay_seen};
pub use traced::Traced;
