//! What crosses the core's interface, one fixed-size record a crossing.
//!
//! A driver that holds its [`Scheduler`] in a [`Traced`] has every call and every
//! answer noted by a [`Sink`]; [`replay`] gives the same inputs to a fresh
//! scheduler and compares the answers. The core knows nothing but its inputs,
//! so they determine all it says: a live run can be looked at
//! again, step by step, on another machine.
//!
//! Nothing here reads a clock, writes a file or knows a name; the file format is
//! the simulator's (`upcall_sim::trace`).

mod crossing;
mod replay;
#[cfg(test)]
mod tests;
mod traced;

pub use crossing::{Crossing, Record, Sink};
pub use replay::{Divergence, Found, INSTANT_MAX, Replayed, replay, replay_seen};
pub use traced::Traced;
