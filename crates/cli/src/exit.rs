//! How the command ends: the exit statuses of the contract, and the errors
//! that lead to the one for bad input.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

/// Exit statuses (contract, "Commands").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Admitted, or every promise kept.
    Kept,
    /// Bad usage or a bad spec; nothing was run.
    BadInput,
    /// Admission refused.
    Refused,
    /// A promise was broken.
    Broken,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Kept => 0,
            Exit::BadInput => 2,
            Exit::Refused => 3,
            Exit::Broken => 4,
        })
    }
}

/// Something that keeps the command from doing what it was asked to; printed as
/// it is, exit 2.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub fn new(message: impl fmt::Display) -> Self {
        Failure(message.to_string())
    }

    /// What is wrong with the file at `path`.
    pub fn of_file(path: &Path, error: impl fmt::Display) -> Self {
        Failure(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
