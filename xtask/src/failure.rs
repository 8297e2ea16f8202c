//! The error of every gate, and of the code that gates call.

use std::fmt;

/// Why a gate failed, in one line. The gate has printed the details before.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
