//! How much the readers accept.

/// Most arrivals that are taken from one file.
pub const ARRIVALS_MAX: usize = 10_000_000;

/// Longest packet or block that is accepted. Those of pcapng that hold no packet and
/// describe no interface are passed over, whatever their length.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// Most interfaces of one section of a capture.
pub(super) const INTERFACES_MAX: usize = 1 << 16;

/// Longest line that is accepted, its end included.
pub const LINE_BYTES_MAX: usize = 4096;

/// Longest trace that is read: all of it is held while it is.
pub const TRACE_BYTES_MAX: u64 = 64 << 20;
