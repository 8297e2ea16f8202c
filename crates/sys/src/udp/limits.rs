//! Limits of the kernel and of the format.

/// Datagrams one system call moves at most: the kernel's `UIO_MAXIOV`.
pub const BATCH_MAX: usize = 1024;

/// Longest UDP payload over IPv4: 65,535 less the headers of IP and UDP.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;

/// How often a call is tried again after a signal or an ICMP error, so that
/// neither can keep a thread in a loop.
pub(super) const TRIES_MAX: u32 = 8;
