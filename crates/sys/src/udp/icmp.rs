//! Socket errors that report an ICMP message, and not a failure of the call that returns them.
//!
//! Any host on the path can send such a message, so none of them may end a stream.

use crate::OsError;

#[cfg(test)]
mod tests;

/// Whether a call returned the error of an ICMP message about a datagram sent earlier. The kernel
/// reports such an error once and forgets it (udp(7)). The list is that of `icmp_err_convert` in
/// net/ipv4/icmp.c, and of `tab_unreach` and `icmpv6_err_convert` in net/ipv6/icmp.c, with `EPROTO`
/// for a parameter problem.
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
