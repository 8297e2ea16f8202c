//! The process at the other end of a connection, as the kernel recorded it.

use super::connection::Connection;
use crate::OsError;
use crate::process::PidFd;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// A process and its user at the moment it connected. For the connecting side: the process that
/// listened, at the moment it listened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process number; 0 for a process that is invisible here (another PID namespace).
    pub pid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

impl Connection {
    /// The process that made the other end (`SO_PEERCRED`, unix(7)). One system call.
    ///
    /// The process may have passed its end on or ended since, and its number may belong to another
    /// process now. [`Connection::peer_pidfd`] avoids the wrong process.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn peer_credentials(&self) -> Result<Credentials, OsError> {
        // SAFETY: a ucred is three integers, for which any bytes are valid.
        let found: libc::ucred =
            unsafe { self.option(libc::SO_PEERCRED, "getsockopt(SO_PEERCRED)") }?;
        Ok(Credentials { pid: found.pid.max(0).unsigned_abs(), uid: found.uid, gid: found.gid })
    }

    /// A handle of the process that made the other end. Uses `SO_PEERPIDFD` from Linux 6.5 on.
    /// Older kernels find the process by its number, which might belong to another process by then.
    ///
    /// # Errors
    /// `ESRCH` (or `EINVAL`) if the process has ended and been reaped. Linux 6.18 returns a handle
    /// of the ended process instead. `ESRCH` too if the process is invisible here, before Linux
    /// 6.5. `EMFILE`.
    pub fn peer_pidfd(&self) -> Result<PidFd, OsError> {
        match self.peer_pidfd_by_socket() {
            Err(error) if error.raw_os_error() == libc::ENOPROTOOPT => {
                PidFd::open(self.peer_credentials()?.pid)
            }
            result => result,
        }
    }

    pub(super) fn peer_pidfd_by_socket(&self) -> Result<PidFd, OsError> {
        // SAFETY: an int, for which any bytes are valid.
        let fd: i32 = unsafe { self.option(libc::SO_PEERPIDFD, "getsockopt(SO_PEERPIDFD)") }?;
        // SAFETY: the kernel has just made this descriptor for this process, closed on exec as
        // every pidfd. No other code knows it.
        Ok(PidFd::from(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The value of an option of level `SOL_SOCKET`.
    ///
    /// # Safety
    /// Any bytes must be a valid `T`, because the kernel writes them.
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
        // SAFETY: zeroed or written by the kernel, and any bytes are a valid `T` (above).
        Ok(unsafe { value.assume_init() })
    }
}
