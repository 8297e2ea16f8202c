//! The faults of a load page, and of a child that breaks the protocol.

use super::layout::{LAYOUT_VERSION, MAGIC, PAGE_WORDS, STREAMS_MAX};
use super::report::State;
use core::fmt;

/// Why memory cannot serve as a load page.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The memory does not have [`PAGE_WORDS`] words.
    Length {
        /// Words of the memory.
        found: usize,
    },
    /// The page was not created by a parent.
    Magic {
        /// The word in the place of the magic number.
        found: u64,
    },
    /// The page was created by another version of Upcall.
    Version {
        /// The version of the page.
        found: u64,
    },
    /// No streams, or more than [`STREAMS_MAX`].
    Streams {
        /// The number found.
        found: u64,
    },
    /// A word that must be 0 is not.
    Used {
        /// Its place, in bytes from the start of the page.
        offset: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayoutError::Length { found } => {
                write!(f, "load page has {found} words, expected {PAGE_WORDS}")
            }
            LayoutError::Magic { found } => {
                write!(f, "load page has magic {found:#018x}, expected {MAGIC:#018x}")
            }
            LayoutError::Version { found } => {
                write!(f, "load page has version {found}, expected {LAYOUT_VERSION}")
            }
            LayoutError::Streams { found } => {
                write!(f, "load page has {found} streams, expected 1 to {STREAMS_MAX}")
            }
            LayoutError::Used { offset } => {
                write!(f, "load page is not new: the word at byte {offset} is not 0")
            }
        }
    }
}

crate::fault::debug_as_display!(LayoutError);

impl core::error::Error for LayoutError {}

/// How the child broke the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFault {
    /// A state that does not exist.
    State {
        /// The value found.
        found: u64,
    },
    /// The state went back.
    StateBack {
        /// The last state.
        from: State,
        /// The state found.
        to: State,
    },
    /// A total fell.
    CounterBack {
        /// The number of the stream.
        stream: usize,
        /// The counter: a field of [`StreamCounters`](super::StreamCounters).
        counter: &'static str,
        /// The last total.
        from: u64,
        /// The total found.
        to: u64,
    },
    /// Final counters changed.
    AfterDone {
        /// The number of the stream.
        stream: usize,
    },
    /// A reserved word was written.
    Reserved {
        /// Its place, in bytes from the start of the page.
        offset: usize,
    },
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PeerFault::State { found } => {
                write!(f, "load child is in state {found}, expected 0 to {}", State::Done as u64)
            }
            PeerFault::StateBack { from, to } => {
                write!(f, "load child went back from {from:?} to {to:?}")
            }
            PeerFault::CounterBack { stream, counter, from, to } => {
                write!(f, "load child's {counter} of stream {stream} fell from {from} to {to}")
            }
            PeerFault::AfterDone { stream } => {
                write!(f, "load child's counters of stream {stream} changed after it was done")
            }
            PeerFault::Reserved { offset } => {
                write!(f, "load child wrote the reserved word at byte {offset}")
            }
        }
    }
}

crate::fault::debug_as_display!(PeerFault);

impl core::error::Error for PeerFault {}
