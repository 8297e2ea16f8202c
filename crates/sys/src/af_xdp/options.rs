//! Reads and sets options of AF_XDP sockets.

use crate::OsError;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of a `T`, as the kernel wants them.
pub(super) fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

/// Sets an option.
///
/// # Safety
/// `option` takes a `T`, and what the kernel does with it is sound.
pub(super) unsafe fn set<T>(
    fd: &OwnedFd,
    option: libc::c_int,
    value: &T,
    operation: &'static str,
) -> Result<(), OsError> {
    let value = (&raw const *value).cast();
    // SAFETY: the kernel reads one `T`. The caller knows the option.
    let set =
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, length_of::<T>()) };
    if set < 0 { Err(OsError::last(operation)) } else { Ok(()) }
}

/// Reads an option.
///
/// # Safety
/// Every value of `T` is valid.
pub(super) unsafe fn read<T>(
    fd: BorrowedFd<'_>,
    option: libc::c_int,
    value: &mut T,
    operation: &'static str,
) -> Result<(), OsError> {
    let mut length = length_of::<T>();
    let value = (&raw mut *value).cast();
    // SAFETY: the kernel writes at most one `T`, for which the caller allows every value.
    let found =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut length) };
    match found {
        0.. if length == length_of::<T>() => Ok(()),
        // An older kernel has a shorter struct.
        0.. => Err(OsError::new(operation, libc::EINVAL)),
        _ => Err(OsError::last(operation)),
    }
}
