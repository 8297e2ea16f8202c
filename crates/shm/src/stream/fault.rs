//! How a stream ends, and why a call fails.

use core::fmt;

/// Why a stream is closed. A reader gets this error after all committed messages.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// The other end ended the stream in order.
    Ended,
    /// The other end is gone and did not end the stream: its process ended, or its thread panicked.
    Died,
    /// The other end broke the protocol.
    Fault(StreamFault),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::Ended => f.write_str("stream was ended by its other end"),
            Closed::Died => f.write_str("stream's other end died"),
            Closed::Fault(fault) => fault.fmt(f),
        }
    }
}

crate::fault::debug_as_display!(Closed);

impl core::error::Error for Closed {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Closed::Fault(fault) => Some(fault),
            _ => None,
        }
    }
}

/// An impossible value that a peer wrote.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFault {
    /// An index went back, or too far forward.
    Index {
        /// `N_write` or `N_read`.
        name: &'static str,
        /// The value found.
        found: u64,
        /// The smallest value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// A message is longer than its committed part, or than any message may be.
    Length {
        /// The bytes found.
        found: u64,
        /// The greatest number allowed.
        max: u64,
    },
    /// A buffer does not exist, or this end has it already.
    Buffer {
        /// The number found.
        found: u64,
        /// The number of buffers.
        buffers: u64,
    },
    /// A state of an end that does not exist.
    State {
        /// The value found.
        found: u64,
    },
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StreamFault::Index { name, found, min, max } => {
                write!(f, "stream has {name} {found}, expected {min} to {max}")
            }
            StreamFault::Length { found, max } => {
                write!(f, "stream has a message of {found} bytes, expected 0 to {max}")
            }
            StreamFault::Buffer { found, buffers } => {
                write!(
                    f,
                    "stream hands over buffer {found}, expected one of {buffers} that this end does not have"
                )
            }
            StreamFault::State { found } => {
                write!(f, "stream has an end in state {found}, expected 0 to 2")
            }
        }
    }
}

crate::fault::debug_as_display!(StreamFault);

impl core::error::Error for StreamFault {}

/// Why a message cannot be written or read.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream is closed: no other message can be written or read either.
    Closed(Closed),
    /// The message is longer than its destination.
    TooLong {
        /// Bytes of the message.
        found: usize,
        /// Bytes that fit.
        max: usize,
    },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Closed(closed) => closed.fmt(f),
            StreamError::TooLong { found, max } => {
                write!(f, "message has {found} bytes, expected 0 to {max}")
            }
        }
    }
}

crate::fault::debug_as_display!(StreamError);

impl core::error::Error for StreamError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            StreamError::Closed(closed) => Some(closed),
            _ => None,
        }
    }
}

impl From<Closed> for StreamError {
    fn from(closed: Closed) -> Self {
        StreamError::Closed(closed)
    }
}
