//! What the processes of a cell do: `upcall __livelock ROLE`.
//!
//! Each prints `ready`, reads a line with two times (ns of `CLOCK_MONOTONIC`), works from the one to
//! the other, and prints what it counted as one JSON object. It ends with its standard input: the
//! experiment has gone.
//!
//! Receiver and background program stand for programs that nobody changed. They use the standard
//! library, a clock, and nothing of Upcall.

use std::io::BufRead as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::args::LivelockRole;
use crate::exit::Failure;
use crate::standard_output::print;

pub use computing::{ROUNDS_PER_ITERATION, rounds_per_ms};
pub use counts::{Computed, Quotas, Received, Sent};

mod background;
mod computing;
mod counts;
mod quotas;
mod receiver;
mod sender;

/// What a process says when it can begin.
pub const READY: &str = "ready";

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

/// When to work, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
struct Times {
    begin_ns: u64,
    end_ns: u64,
}

/// Says that this process is ready. Returns when to work, or `None` if there is nothing to do.
fn times() -> Result<Option<Times>, Failure> {
    print(&format!("{READY}\n"))?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(Failure::of_error)?;
    let mut numbers = line.split_whitespace().map_while(|word| word.parse::<u64>().ok());
    let (Some(begin_ns), Some(end_ns)) = (numbers.next(), numbers.next()) else { return Ok(None) };
    std::thread::spawn(|| {
        // Blocks until the experiment closes the pipe, or was killed.
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        std::process::exit(1)
    });
    Ok(Some(Times { begin_ns, end_ns }))
}

impl Times {
    fn sleep_until_begin(self) {
        std::thread::sleep(Duration::from_nanos(self.begin_ns.saturating_sub(now_ns())));
    }
}

/// `CLOCK_MONOTONIC`: the same in all processes.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or_default()
}

fn print_counts(counts: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(counts).map_err(Failure::of_error)?;
    print(&format!("{text}\n"))
}
