//! Limits of the readers.

/// Most arrivals that are taken from one file.
pub const ARRIVALS_MAX: usize = 10_000_000;

/// Longest accepted packet or block. The reader skips pcapng blocks of any length if they hold no
/// packet and describe no interface.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// Most interfaces in one section of a capture.
pub(super) const INTERFACES_MAX: usize = 1 << 16;

/// Longest accepted line, its line feed included.
pub const LINE_BYTES_MAX: usize = 4096;

/// Longest accepted trace. The reader holds a whole trace in memory.
pub const TRACE_BYTES_MAX: u64 = 64 << 20;
