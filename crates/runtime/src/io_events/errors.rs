//! The errors of a poller.

use std::fmt;

use upcall_shm::LayoutError;
use upcall_shm::io_events::DESCRIPTORS_MAX;
use upcall_sys::OsError;
use upcall_sys::memfd::MapError;

/// Why a poller could not be created.
#[non_exhaustive]
pub enum PollerError {
    /// The memory of its page could not be allocated.
    Memory(MapError),
    /// The memory does not fit the layout of a page.
    Layout(LayoutError),
    /// The kernel refused io_uring, epoll, a descriptor or a thread.
    Os(OsError),
}

impl fmt::Display for PollerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PollerError::Memory(error) => write!(f, "a poller has no page: {error}"),
            PollerError::Layout(error) => write!(f, "a poller has no page: {error}"),
            PollerError::Os(error) => write!(f, "a poller could not be made: {error}"),
        }
    }
}

upcall_core::debug_as_display!(PollerError);

impl std::error::Error for PollerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PollerError::Memory(error) => Some(error),
            PollerError::Layout(error) => Some(error),
            PollerError::Os(error) => Some(error),
        }
    }
}

/// Why the interest in a descriptor cannot change.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterestError {
    /// The descriptor's number is too large for the page.
    TooLarge {
        /// The descriptor.
        found: i32,
    },
    /// The descriptor was not added.
    NotAdded {
        /// The descriptor.
        found: i32,
    },
}

impl fmt::Display for InterestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterestError::TooLarge { found } => {
                write!(
                    f,
                    "descriptor {found} cannot be watched, expected 0 to {}",
                    DESCRIPTORS_MAX - 1
                )
            }
            InterestError::NotAdded { found } => {
                write!(f, "descriptor {found} is not watched, expected one that was added")
            }
        }
    }
}

upcall_core::debug_as_display!(InterestError);

impl std::error::Error for InterestError {}
