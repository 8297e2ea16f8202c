//! What the processes of a cell do: `upcall __livelock ROLE`.
//!
//! Each prints `ready`, reads a line with two times (ns of `CLOCK_MONOTONIC`), and works from the
//! one to the other. Then it prints what it counted as one JSON object. It ends with its standard
//! input: the experiment has gone.
//!
//! Receiver and background program stand for programs that nobody changed. They use the standard
//! library, a clock, and nothing of Upcall.

use crate::args::LivelockRole;
use crate::exit::Failure;

pub use computing::{ROUNDS_PER_ITERATION, rounds_per_ms};
pub use counts::{Computed, Quotas, Received, Sent};
pub use dialogue::{READY, now_ns};

mod background;
mod computing;
mod counts;
mod dialogue;
mod quotas;
mod receiver;
mod sender;

/// Plays a role to its end.
///
/// # Errors
/// A socket or the quotas cannot be used.
pub fn play(role: LivelockRole) -> Result<(), Failure> {
    match role {
        LivelockRole::Receiver { port, period_ns, rounds } => {
            receiver::receive(port, period_ns, rounds)
        }
        LivelockRole::Background => background::compute(),
        LivelockRole::Sender { to, bytes, rate, bursty, seed } => {
            sender::send(to, bytes, (rate, bursty, seed))
        }
        LivelockRole::Quotas { interface, config } => quotas::keep(&interface, config),
    }
}
