//! Why memory could not be shared.

use crate::OsError;
use core::fmt;

/// Why memory could not be shared.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapError {
    /// The caller asked for a length that is no whole number of words.
    Length {
        /// As asked for, in bytes.
        found: usize,
    },
    /// The file is not sealed, so its owner could shorten it at any time.
    Unsealed,
    /// The file has another size.
    Size {
        /// Bytes of the file.
        found: i64,
        /// Bytes it should have.
        expected: usize,
    },
    /// The kernel refused.
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
            MapError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for MapError {
    /// The sentence: `main` prints the `Debug` of the error that it returns.
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
