//! Errors of a socket that tell of an ICMP message, and not of the call that returns them.
//!
//! Anybody on the way can send such a message, so none of them may end a stream.

use crate::OsError;

#[cfg(test)]
mod tests;

/// Whether a call failed because of what an ICMP message said about a datagram sent earlier:
/// the kernel reports it once and forgets it (udp(7)). The list is that of `icmp_err_convert`
/// in net/ipv4/icmp.c, of `tab_unreach` and `icmpv6_err_convert` in net/ipv6/icmp.c, and
/// `EPROTO` for a parameter problem.
pub(crate) fn is_icmp(error: OsError) -> bool {
    matches!(
        error.raw_os_error(),
        libc::ECONNREFUSED
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::ENOPROTOOPT
            | libc::EMSGSIZE
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EACCES
    )
}
