//! The clock by which work is measured.

/// Reads the CPU time that the calling thread has used, in nanoseconds. The clock must advance
/// while the thread runs. It must stand still while the thread does not run.
pub type CpuClock = fn() -> u64;
