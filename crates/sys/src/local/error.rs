//! Why nothing was received.

use crate::OsError;
use core::fmt;

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The message was longer than the buffer.
    Message {
        /// Bytes there was room for.
        room_bytes: usize,
    },
    /// More descriptors came than this process may have open (`RLIMIT_NOFILE`).
    Descriptors,
    /// The kernel refused.
    Os(OsError),
}

impl ReceiveError {
    /// Whether there was only nothing to receive (`EAGAIN`).
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
            ReceiveError::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveError {}

impl From<OsError> for ReceiveError {
    fn from(error: OsError) -> Self {
        ReceiveError::Os(error)
    }
}
