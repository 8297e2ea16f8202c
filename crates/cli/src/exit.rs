//! How the command ends: its exit statuses (docs/contract.md), and errors that lead to exit 2 or 3.

use std::error::Error;
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
    /// The status of a program that the command ran.
    Program(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Kept => 0,
            Exit::BadInput => 2,
            Exit::Refused => 3,
            Exit::Broken => 4,
            Exit::Program(status) => status,
        })
    }
}

/// An error that keeps the command from its work. It is printed as it is. The exit status is 2, or
/// 3 for a refusal. The text repeats the text of the source.
#[derive(Debug)]
pub struct Failure {
    message: String,
    /// The error that led to the failure, if there is one.
    source: Option<Box<dyn Error + Send + Sync>>,
    /// The refusal of an activity of an admitted plan: a daemon had no place for it, or another
    /// process has its CPU.
    refusal: Option<Box<Refusal>>,
}

impl Failure {
    /// A failure without an error as its source.
    pub fn new(message: impl fmt::Display) -> Self {
        Failure { message: message.to_string(), source: None, refusal: None }
    }

    /// A failure with the text of its source.
    pub fn of_error(error: impl Error + Send + Sync + 'static) -> Self {
        Failure::new(&error).because(error)
    }

    /// Keeps the error that led to the failure. The text stays.
    pub fn because(self, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Failure { source: Some(error.into()), ..self }
    }

    /// The failure of an activity that a daemon refused.
    pub fn refused_by_daemon(refusal: Refusal) -> Self {
        Failure::refusing("the daemon refuses", refusal)
    }

    /// The failure of a run beside another run or a daemon.
    pub fn refused(refusal: Refusal) -> Self {
        Failure::refusing("refused", refusal)
    }

    fn refusing(how: &str, refusal: Refusal) -> Self {
        let Refusal { name, reason, hint, .. } = &refusal;
        let hint = hint.as_ref().map_or(String::new(), |hint| format!("; {hint}"));
        let message = format!("upcall: {how} {name}: {reason}{hint}; nothing was run");
        Failure { message, source: None, refusal: Some(Box::new(refusal)) }
    }

    /// The refusal, if the failure is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_deref()
    }

    /// A failure about the file at `path`, without an error as its source.
    pub fn about_file(path: &Path, message: impl fmt::Display) -> Self {
        Failure::new(format_args!("{}: {message}", path.display()))
    }

    /// A failure about the file at `path`.
    pub fn of_file(path: &Path, error: impl Error + Send + Sync + 'static) -> Self {
        Failure::about_file(path, &error).because(error)
    }

    /// A trace at `path` that cannot be read. The text says where traces come from.
    pub fn of_trace(path: &Path, error: io::Error) -> Self {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "; `upcall run SPEC --trace FILE` writes one, so does `sim`",
            _ => "",
        };
        Failure::about_file(path, format_args!("{error}{hint}")).because(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Failure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_keeps_its_source_and_prints_it_once() {
        let absent = || io::Error::from(io::ErrorKind::NotFound);
        let text = absent().to_string();
        let of_file = Failure::of_file(Path::new("/a"), absent());
        assert_eq!(of_file.to_string(), format!("/a: {text}"));
        let of_trace = Failure::of_trace(Path::new("/a"), absent());
        assert!(of_trace.to_string().starts_with(&format!("/a: {text}; `upcall run")));
        for failure in [Failure::of_error(absent()), of_file, of_trace] {
            let source = failure.source().and_then(|source| source.downcast_ref::<io::Error>());
            assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
        }
        assert!(Failure::new("no spec").source().is_none());
    }
}
