//! The error of sharing memory.

use crate::OsError;
use core::fmt;

/// The reason why memory could not be shared.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// The requested length is not a positive multiple of 8.
    Length {
        /// The requested length in bytes.
        found: usize,
    },
    /// The file lacks the size seals, so its owner could shorten it at any time.
    Unsealed,
    /// The size of the file differs from the expected size.
    Size {
        /// Size of the file in bytes.
        found: i64,
        /// Expected size in bytes.
        expected: usize,
    },
    /// The process that the memory was offered to has not sealed it.
    Untaken,
    /// The process that the memory was offered to has not made all its pages.
    PagesMissing,
    /// A system call failed.
    Os(OsError),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Length { found } => {
                write!(f, "cannot share {found} bytes; a multiple of 8 above 0 is needed")
            }
            MapError::Unsealed => f.write_str(
                "shared memory is not sealed; expected a memfd with F_SEAL_SHRINK and F_SEAL_GROW",
            ),
            MapError::Size { found, expected } => {
                write!(f, "shared memory has {found} bytes, expected {expected}")
            }
            MapError::Untaken => f.write_str(
                "offered memory is not sealed; expected a memfd with F_SEAL_FUTURE_WRITE",
            ),
            MapError::PagesMissing => {
                f.write_str("offered memory lacks pages; expected all of them")
            }
            MapError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for MapError {
    /// Same text as `Display`, because `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for MapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MapError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for MapError {
    fn from(error: OsError) -> Self {
        MapError::Os(error)
    }
}
