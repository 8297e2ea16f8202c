//! How the command ends: its exit statuses (docs/contract.md), and errors that lead to exit 2 or 3.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::output::Refusal;

/// Exit statuses.
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

/// An error that keeps the command from its work. It is printed as it is. The exit status is 2, or
/// 3 for a refusal.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// The refusal of a daemon that had no place for an activity of an admitted plan.
    refusal: Option<Box<Refusal>>,
}

impl Failure {
    pub fn new(message: impl fmt::Display) -> Self {
        Failure { message: message.to_string(), refusal: None }
    }

    /// The failure of an activity that a daemon refused.
    pub fn refused(refusal: Refusal) -> Self {
        let Refusal { name, reason, hint, .. } = &refusal;
        let hint = hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
        let message = format!("upcall: the daemon refuses {name}: {reason}{hint}; nothing was run");
        Failure { message, refusal: Some(Box::new(refusal)) }
    }

    /// The refusal, if the failure is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_deref()
    }

    /// A failure about the file at `path`.
    pub fn of_file(path: &Path, error: impl fmt::Display) -> Self {
        Failure::new(format_args!("{}: {error}", path.display()))
    }

    /// A trace at `path` that cannot be read. The text says where traces come from.
    pub fn of_trace(path: &Path, error: &io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "; `upcall run SPEC --trace FILE` writes one, so does `sim`",
            _ => "",
        };
        Failure::of_file(path, format_args!("{error}{hint}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
