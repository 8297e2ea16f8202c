//! Turns off the kernel's joining of datagrams (generic receive offload).

use crate::OsError;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes the kernel deliver each datagram separately. With `UDP_GRO` it joins datagrams of one
/// sender into one, without a mark in the payload.
///
/// # Errors
/// The kernel's error. A socket that is not UDP and does not know the option is no error.
pub(crate) fn separate_datagrams(fd: &OwnedFd) -> Result<(), OsError> {
    let off: i32 = 0;
    // SAFETY: the kernel reads one int from `off`.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, (&raw const off).cast(), 4)
    };
    let error = OsError::last("setsockopt(UDP_GRO)");
    let unknown = [libc::ENOPROTOOPT, libc::EOPNOTSUPP].contains(&error.raw_os_error());
    if result == 0 || unknown { Ok(()) } else { Err(error) }
}
