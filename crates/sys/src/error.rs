//! The error of a failed system call: the operation and its errno.
//!
//! Every module of this crate returns it. One type is enough: callers ask whether a right was
//! missing or whether the call would have blocked, whatever the system call.

use rustix::io::Errno;
use std::fmt;
use std::io;

/// A system call that failed, with its `errno`. Converts to [`std::io::Error`].
///
/// Three words, cheap to copy. Creating one does not allocate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OsError {
    /// The system call, with its option where that helps: `"setsockopt(SO_RCVBUF)"`.
    pub operation: &'static str,
    errno: i32,
}

impl OsError {
    /// The error `errno` (a number of `errno.h`) of `operation`.
    pub const fn new(operation: &'static str, errno: i32) -> Self {
        OsError { operation, errno }
    }

    /// The error of `operation`, which has just failed on this thread and set `errno`.
    pub(crate) fn last(operation: &'static str) -> Self {
        OsError::new(operation, io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Converts an error of rustix to an error of `operation`.
    pub(crate) fn of(operation: &'static str) -> impl Fn(Errno) -> OsError {
        move |errno| OsError::new(operation, errno.raw_os_error())
    }

    /// Converts an error of the standard library to an error of `operation`. An error that did not
    /// come from the kernel becomes `EINVAL`.
    pub(crate) fn of_io(operation: &'static str) -> impl Fn(io::Error) -> OsError {
        move |error| OsError::new(operation, error.raw_os_error().unwrap_or(libc::EINVAL))
    }

    /// Whether a right was missing (`EPERM`, `EACCES`).
    pub const fn is_permission(&self) -> bool {
        matches!(self.errno, libc::EPERM | libc::EACCES)
    }

    /// Whether the call would have blocked (`EAGAIN`).
    pub const fn is_would_block(&self) -> bool {
        self.errno == libc::EAGAIN
    }

    /// Whether the file, process or thread does not exist (`ENOENT`, `ESRCH`).
    pub const fn is_not_found(&self) -> bool {
        matches!(self.errno, libc::ENOENT | libc::ESRCH)
    }

    /// The number of `errno.h`.
    pub const fn raw_os_error(&self) -> i32 {
        self.errno
    }
}

impl fmt::Display for OsError {
    /// `sched_setscheduler: Operation not permitted (EPERM)`. Allocates.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.errno).to_string();
        // The standard library appends " (os error 1)". The name of the errno is clearer.
        let text = text.split(" (os error").next().unwrap_or_default();
        match name(self.errno) {
            Some(name) => write!(f, "{}: {text} ({name})", self.operation),
            None => write!(f, "{}: {text} (errno {})", self.operation, self.errno),
        }
    }
}

impl fmt::Debug for OsError {
    /// Same text as `Display`, because `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for OsError {}

impl From<OsError> for io::Error {
    /// Keeps the number and thus the kind. The operation is lost.
    fn from(error: OsError) -> Self {
        io::Error::from_raw_os_error(error.errno)
    }
}

/// The name of an error number that this crate's calls can return.
fn name(errno: i32) -> Option<&'static str> {
    macro_rules! names {
        ($($name:ident)*) => {
            match errno {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        };
    }
    names!(
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
        EBUSY EEXIST ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ETXTBSY EFBIG ENOSPC EPIPE EDOM
        ERANGE EDEADLK ENAMETOOLONG ENOSYS ELOOP EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE
        ENOPROTOOPT EPROTONOSUPPORT EPROTOTYPE EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
        ENETDOWN ENETUNREACH EBADFD ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTUNREACH
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_operation_reason_and_name() {
        let error = OsError::new("sched_setscheduler", libc::EPERM);
        assert_eq!(error.to_string(), "sched_setscheduler: Operation not permitted (EPERM)");
        assert!(error.is_permission() && !error.is_would_block());
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn an_errno_without_a_known_name_shows_its_number() {
        let text = OsError::new("openat", libc::EKEYREVOKED).to_string();
        assert!(text.ends_with(&format!("(errno {})", libc::EKEYREVOKED)), "{text}");
    }

    #[test]
    fn the_error_of_a_failed_call_has_its_errno() {
        // SAFETY: the descriptor cannot exist, so the call touches no memory.
        unsafe { libc::close(-1) };
        assert_eq!(OsError::last("close").raw_os_error(), libc::EBADF);
    }
}
