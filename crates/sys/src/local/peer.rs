//! Who is at the other end of a connection, as the kernel noted it.

use super::connection::Connection;
use crate::OsError;
use crate::process::PidFd;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A process and its user, at the moment it connected (or, seen from who
/// connected, at the moment the other listened).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process number; 0 for a process this one cannot see (another PID namespace).
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl Connection {
    /// Who made the other end (`SO_PEERCRED`, unix(7)). One system call.
    ///
    /// The process may have passed its end on since, or have ended; the number may
    /// be someone else's by now. [`Connection::peer_pidfd`] does not have the last fault.
    ///
    /// # Errors
    /// None that stock Linux is known to return.
    pub fn peer_credentials(&self) -> Result<Credentials, OsError> {
        // SAFETY: a ucred is three integers, for which all bytes do.
        let found: libc::ucred =
            unsafe { self.option(libc::SO_PEERCRED, "getsockopt(SO_PEERCRED)") }?;
        Ok(Credentials { pid: found.pid.max(0).unsigned_abs(), uid: found.uid, gid: found.gid })
    }

    /// A handle of the process that made the other end: `SO_PEERPIDFD` from Linux 6.5,
    /// before that by its number, which might have gone to another process.
    ///
    /// # Errors
    /// `ESRCH` (or `EINVAL`) if it has ended and been waited for already: Linux 6.18
    /// gives a handle that says so, older kernels none. `ESRCH` too if it cannot be
    /// seen from here before Linux 6.5; `EMFILE`.
    pub fn peer_pidfd(&self) -> Result<PidFd, OsError> {
        match self.peer_pidfd_by_socket() {
            Err(error) if error.raw_os_error() == libc::ENOPROTOOPT => {
                PidFd::open(self.peer_credentials()?.pid)
            }
            result => result,
        }
    }

    pub(super) fn peer_pidfd_by_socket(&self) -> Result<PidFd, OsError> {
        // SAFETY: an int, for which all bytes do.
        let fd: i32 = unsafe { self.option(libc::SO_PEERPIDFD, "getsockopt(SO_PEERPIDFD)") }?;
        // SAFETY: the kernel has just made this descriptor for us, closed on exec
        // as every pidfd is, and nobody else knows it.
        Ok(PidFd::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The value of an option of level `SOL_SOCKET`.
    ///
    /// # Safety
    /// Any bytes make a valid `T`, for they come from the kernel.
    unsafe fn option<T>(&self, option: i32, operation: &'static str) -> Result<T, OsError> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut length = libc::socklen_t::try_from(size_of::<T>())
            .map_err(|_| OsError::new(operation, libc::EINVAL))?;
        // SAFETY: the kernel writes at most `length` bytes to `value`, and the
        // number of bytes to `length`.
        let result = unsafe {
            libc::getsockopt(
                self.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                value.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(OsError::last(operation));
        }
        // SAFETY: zeroed or written by the kernel, and any bytes will do (above).
        Ok(unsafe { value.assume_init() })
    }
}
