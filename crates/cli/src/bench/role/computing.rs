//! Computing for a known time: a fixed number of rounds, not until a clock says so.
//!
//! The kernel charges its work for packets to the thread that it interrupts. A thread that computes
//! until its CPU time has passed would do less work then. A real program does not.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// The rounds of one iteration of the background program.
pub const ROUNDS_PER_ITERATION: u64 = 2_000;

/// Computes so many rounds, by xorshift64.
pub fn compute(rounds: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Rounds in a millisecond of CPU time: the most of several tries. Takes some 30 ms of CPU time.
pub fn rounds_per_ms() -> u64 {
    const ROUNDS: u64 = 100_000;
    let least_ns = (0..100).map(|_| {
        let begun_ns = cpu_ns();
        compute(ROUNDS);
        cpu_ns().saturating_sub(begun_ns)
    });
    ROUNDS * 1_000_000 / least_ns.min().unwrap_or(1).max(1)
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or_default()
}
