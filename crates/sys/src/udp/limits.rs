//! Limits of the kernel and of UDP.

/// The most datagrams that one system call moves: the kernel's `UIO_MAXIOV`.
pub const BATCH_MAX: usize = 1024;

/// Longest UDP payload over IPv4: 65,535 minus the headers of IP and UDP.
pub const PAYLOAD_BYTES_MAX: usize = 65_507;

/// How often a call is retried after a signal or an ICMP error. The limit keeps them from holding a
/// thread in a loop.
pub(super) const TRIES_MAX: u32 = 8;

/// The most datagrams that the kernel makes of one payload: `UDP_MAX_SEGMENTS` of Linux 4.18. Later
/// kernels make more.
pub(super) const SEGMENTS_MAX: usize = 64;
