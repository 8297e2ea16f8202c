//! How a carry ended, and the pump's errors.

use std::fmt;

use upcall_shm::stream::Closed;
use upcall_sys::OsError;

use crate::io_events::{InterestError, PollerError};
use crate::stream::handle::StreamOpenError;

/// How much was carried, and why the carry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that were handed over: committed by a source, or written by a sink.
    pub bytes: u64,
    /// Datagrams that a source dropped because they were longer than a message may be.
    pub too_long: u64,
    /// Why the carry ended.
    pub end: CarryEnd,
}

/// Why a carry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CarryEnd {
    /// The input of a source has ended, and all of it was committed.
    EndOfInput,
    /// The stream is closed. For a sink, [`Closed::Ended`] means that all was carried.
    Closed(Closed),
    /// The descriptor failed.
    Failed(OsError),
    /// The I/O pump was stopped.
    Stopped,
}

/// Why an I/O pump does not start, or refuses a request.
#[non_exhaustive]
pub enum IoPumpError {
    /// The thread did not start.
    Thread(std::io::Error),
    /// The pump has no poller for descriptors.
    Poller(PollerError),
    /// The kernel cannot wait on several futexes, or the descriptor cannot be used.
    Os(OsError),
    /// A descriptor cannot be watched.
    Interest(InterestError),
    /// The stream's memory was corrupted.
    Open(StreamOpenError),
    /// The pump has as many streams as it may have.
    Full {
        /// The greatest number of streams.
        streams_max: usize,
    },
}

impl fmt::Display for IoPumpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoPumpError::Thread(error) => write!(f, "the I/O pump's thread did not start: {error}"),
            IoPumpError::Poller(error) => error.fmt(f),
            IoPumpError::Os(error) => write!(f, "the I/O pump could not use a descriptor: {error}"),
            IoPumpError::Interest(error) => error.fmt(f),
            IoPumpError::Open(error) => error.fmt(f),
            IoPumpError::Full { streams_max } => {
                write!(f, "an I/O pump has at most {streams_max} streams")
            }
        }
    }
}

upcall_core::debug_as_display!(IoPumpError);

impl std::error::Error for IoPumpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            IoPumpError::Thread(error) => Some(error),
            IoPumpError::Poller(error) => Some(error),
            IoPumpError::Os(error) => Some(error),
            IoPumpError::Interest(error) => Some(error),
            IoPumpError::Open(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for IoPumpError {
    fn from(error: OsError) -> Self {
        IoPumpError::Os(error)
    }
}
