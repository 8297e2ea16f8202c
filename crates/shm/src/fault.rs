//! What can be wrong with a page, and with what a peer wrote to it.

use core::fmt;

/// Gives errors a `Debug` that is their `Display`: `main` prints the `Debug` of the error that it
/// returns, and the user of the program is to read a sentence.
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
    /// Not as many words as the page has.
    Length {
        /// Which kind of page.
        page: &'static str,
        /// Words there are.
        found: usize,
        /// Words there should be.
        expected: usize,
    },
    /// Not created as such a page.
    Magic {
        /// Which kind of page.
        page: &'static str,
        /// Where the magic number should be.
        found: u64,
        /// The magic number.
        expected: u64,
    },
    /// Created by another version of Upcall.
    Version {
        /// Which kind of page.
        page: &'static str,
        /// Its version.
        found: u64,
        /// Ours.
        expected: u32,
    },
    /// What identifies the page is not as it should be.
    Value {
        /// Which kind of page.
        page: &'static str,
        /// What the word means.
        name: &'static str,
        /// As found.
        found: u64,
        /// Least it may be.
        min: u64,
        /// Most it may be.
        max: u64,
    },
    /// Something stands where nothing may have been written yet.
    Used {
        /// Which kind of page.
        page: &'static str,
        /// In bytes from the start.
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
                write!(f, "{page} is not as new: the word at byte {offset} is not 0")
            }
        }
    }
}

debug_as_display!(LayoutError);

impl core::error::Error for LayoutError {}

/// What a peer did that a peer that keeps to the protocol does not do; only
/// [`PeerFault::Torn`] may befall an honest one.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerFault {
    /// It was changing what was read, at every try. An honest peer that was
    /// stopped in the middle looks the same until it goes on.
    Torn {
        /// Which kind of page.
        page: &'static str,
    },
    /// A value out of its range.
    Value {
        /// Which kind of page.
        page: &'static str,
        /// What the word means.
        name: &'static str,
        /// As found.
        found: u64,
        /// Most it may be.
        max: u64,
    },
    /// A reserved word was written.
    Reserved {
        /// Which kind of page.
        page: &'static str,
        /// In bytes from the start.
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
                write!(f, "{page} has its reserved word at byte {offset} written")
            }
        }
    }
}

debug_as_display!(PeerFault);

impl core::error::Error for PeerFault {}
