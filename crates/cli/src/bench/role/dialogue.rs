//! What a process of a cell says to the experiment, and what the experiment says to it.

use std::io::BufRead as _;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::exit::Failure;
use crate::standard_output::print;

/// What a process says when it can begin.
pub const READY: &str = "ready";

/// When to work, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Says that this process is ready. Returns when to work, or `None` if there is nothing to do.
///
/// # Errors
/// Standard input or output cannot be used.
pub fn times() -> Result<Option<Times>, Failure> {
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
    /// Blocks.
    pub fn sleep_until_begin(self) {
        std::thread::sleep(Duration::from_nanos(self.begin_ns.saturating_sub(now_ns())));
    }
}

/// `CLOCK_MONOTONIC`: the same in all processes.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or_default()
}

/// Prints what a process counted.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_counts(counts: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(counts).map_err(Failure::of_error)?;
    print(&format!("{text}\n"))
}
