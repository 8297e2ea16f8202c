//! Turns the kernel's joining of datagrams on and off (generic receive offload).

use crate::OsError;
use std::os::fd::{AsRawFd, OwnedFd};

/// Makes the kernel deliver each datagram separately. With `UDP_GRO` it joins datagrams of one
/// sender into one, without a mark in the payload.
///
/// # Errors
/// The kernel's error. A socket that is not UDP and does not know the option is no error.
pub(crate) fn separate_datagrams(fd: &OwnedFd) -> Result<(), OsError> {
    let error = match set_joining(fd, 0) {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    let unknown = [libc::ENOPROTOOPT, libc::EOPNOTSUPP].contains(&error.raw_os_error());
    if unknown { Ok(()) } else { Err(error) }
}

/// Sets `UDP_GRO`.
pub(super) fn set_joining(fd: &OwnedFd, value: i32) -> Result<(), OsError> {
    // SAFETY: the kernel reads one int from `value`.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_UDP, libc::UDP_GRO, value, 4)
    };
    if result == 0 { Ok(()) } else { Err(OsError::last("setsockopt(UDP_GRO)")) }
}
