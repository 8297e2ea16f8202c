//! The error of [`super::Connection::receive`].

use crate::OsError;
use core::fmt;

/// The reason why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The message was longer than the buffer.
    Message {
        /// Size of the buffer in bytes.
        room_bytes: usize,
    },
    /// The message brought more descriptors than this process may have open (`RLIMIT_NOFILE`).
    Descriptors,
    /// The message brought descriptors to a receiver that takes none.
    Unexpected,
    /// The system call failed.
    Os(OsError),
}

impl ReceiveError {
    /// Whether there is no message yet (`EAGAIN`).
    pub const fn is_would_block(&self) -> bool {
        matches!(self, ReceiveError::Os(error) if error.is_would_block())
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Message { room_bytes } => {
                write!(f, "a message is longer than the {room_bytes} bytes expected at most")
            }
            ReceiveError::Descriptors => f.write_str(
                "a message brought more descriptors than this process may open (RLIMIT_NOFILE)",
            ),
            ReceiveError::Unexpected => {
                f.write_str("a message brought descriptors, expected a message without")
            }
            ReceiveError::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ReceiveError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for ReceiveError {
    fn from(error: OsError) -> Self {
        ReceiveError::Os(error)
    }
}
