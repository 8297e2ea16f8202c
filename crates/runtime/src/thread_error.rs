//! Why a thread of the runtime did not start.

use std::fmt;
use std::sync::Arc;

use upcall_sys::OsError;

use crate::domain::error::AttachError;

/// Why a thread of the runtime did not start.
#[derive(Clone)]
#[non_exhaustive]
pub enum ThreadError {
    /// The system did not start the thread.
    Spawn(Arc<std::io::Error>),
    /// The system did not create the descriptors on which the thread waits.
    Os(OsError),
    /// The thread ended before it was ready.
    Ended,
    /// The thread could not be reported to the daemon.
    Attach(Arc<AttachError>),
}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadError::Spawn(error) => error.fmt(f),
            ThreadError::Os(error) => error.fmt(f),
            ThreadError::Ended => f.write_str("it ended before it was ready"),
            ThreadError::Attach(error) => error.fmt(f),
        }
    }
}

upcall_core::debug_as_display!(ThreadError);

impl std::error::Error for ThreadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ThreadError::Spawn(error) => Some(error.as_ref()),
            ThreadError::Os(error) => Some(error),
            ThreadError::Ended => None,
            ThreadError::Attach(error) => Some(error.as_ref()),
        }
    }
}

impl From<std::io::Error> for ThreadError {
    fn from(error: std::io::Error) -> Self {
        ThreadError::Spawn(Arc::new(error))
    }
}

impl From<OsError> for ThreadError {
    fn from(error: OsError) -> Self {
        ThreadError::Os(error)
    }
}

impl From<AttachError> for ThreadError {
    fn from(error: AttachError) -> Self {
        ThreadError::Attach(Arc::new(error))
    }
}
