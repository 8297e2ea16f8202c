//! The errors of memory that is no valid page, and the faults of a peer that wrote to a page.

use core::fmt;

/// Gives an error a `Debug` that equals its `Display`. `main` prints the `Debug` of the error it
/// returns, and the user of the program should read a sentence.
macro_rules! debug_as_display {
    ($error:ty) => {
        impl core::fmt::Debug for $error {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use debug_as_display;

/// Why memory cannot serve as a page.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutError {
    /// The memory has another number of words than the page.
    Length {
        /// The kind of page.
        page: &'static str,
        /// Words of the memory.
        found: usize,
        /// Words of the page.
        expected: usize,
    },
    /// The memory was not created as such a page.
    Magic {
        /// The kind of page.
        page: &'static str,
        /// The word in the place of the magic number.
        found: u64,
        /// The magic number.
        expected: u64,
    },
    /// The page was created by another version of Upcall.
    Version {
        /// The kind of page.
        page: &'static str,
        /// The version of the page.
        found: u64,
        /// The version of this program.
        expected: u32,
    },
    /// A word that identifies the page is out of its range.
    Value {
        /// The kind of page.
        page: &'static str,
        /// What the word means.
        name: &'static str,
        /// The value found.
        found: u64,
        /// The smallest value allowed.
        min: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// A word that must be 0 is not.
    Used {
        /// The kind of page.
        page: &'static str,
        /// Its place, in bytes from the start.
        offset: usize,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LayoutError::Length { page, found, expected } => {
                write!(f, "{page} has {found} words, expected {expected}")
            }
            LayoutError::Magic { page, found, expected } => {
                write!(f, "{page} has magic {found:#018x}, expected {expected:#018x}")
            }
            LayoutError::Version { page, found, expected } => {
                write!(f, "{page} has version {found}, expected {expected}")
            }
            LayoutError::Value { page, name, found, min, max } if min == max => {
                write!(f, "{page} has {name} {found}, expected {min}")
            }
            LayoutError::Value { page, name, found, min, max } => {
                write!(f, "{page} has {name} {found}, expected {min} to {max}")
            }
            LayoutError::Used { page, offset } => {
                write!(f, "{page} is not new: the word at byte {offset} is not 0")
            }
        }
    }
}

debug_as_display!(LayoutError);

impl core::error::Error for LayoutError {}

/// How a peer broke the protocol. Only [`PeerFault::Torn`] may happen with an honest peer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFault {
    /// The peer was changing the data at every try to read it. An honest peer that was stopped in
    /// the middle of a change looks the same until it runs again.
    Torn {
        /// The kind of page.
        page: &'static str,
    },
    /// A value is out of its range.
    Value {
        /// The kind of page.
        page: &'static str,
        /// What the word means.
        name: &'static str,
        /// The value found.
        found: u64,
        /// The greatest value allowed.
        max: u64,
    },
    /// A reserved word was written.
    Reserved {
        /// The kind of page.
        page: &'static str,
        /// Its place, in bytes from the start.
        offset: usize,
    },
}

impl fmt::Display for PeerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PeerFault::Torn { page } => write!(f, "{page} was being changed at every try"),
            PeerFault::Value { page, name, found, max } => {
                write!(f, "{page} has {name} {found}, expected 0 to {max}")
            }
            PeerFault::Reserved { page, offset } => {
                write!(f, "{page} has a changed reserved word at byte {offset}")
            }
        }
    }
}

debug_as_display!(PeerFault);

impl core::error::Error for PeerFault {}
