//! The error code of a C call, and its description.
//!
//! Codes are negative errno values. Each thread keeps the description of its last failure.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use upcall::{CreateError, StartError};

/// Kinds of failure. Each kind has one code and one line for `rts_strerror`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Null,
    Invalid,
    Unknown,
    Descriptor,
    Refused,
    NameTaken,
    Full,
    NothingToMeasure,
    Started,
    NoThread,
    InHandler,
    Stuck,
    Forked,
    Daemon,
    Broken,
}

const ALL: [Failed; 15] = [
    Failed::Null,
    Failed::Invalid,
    Failed::Unknown,
    Failed::Descriptor,
    Failed::Refused,
    Failed::NameTaken,
    Failed::Full,
    Failed::NothingToMeasure,
    Failed::Started,
    Failed::NoThread,
    Failed::InHandler,
    Failed::Stuck,
    Failed::Forked,
    Failed::Daemon,
    Failed::Broken,
];

impl Failed {
    /// The errno value, positive.
    fn errno(self) -> c_int {
        match self {
            Failed::Null => libc::EFAULT,
            Failed::Invalid => libc::EINVAL,
            Failed::Unknown => libc::E2BIG,
            Failed::Descriptor => libc::EBADF,
            // As sched_setattr(2) when its admission test refuses.
            Failed::Refused => libc::EBUSY,
            Failed::NameTaken => libc::EEXIST,
            Failed::Full => libc::EMFILE,
            Failed::NothingToMeasure => libc::ENODATA,
            Failed::Started => libc::EALREADY,
            Failed::NoThread => libc::EAGAIN,
            Failed::InHandler => libc::EDEADLK,
            Failed::Stuck => libc::ETIMEDOUT,
            Failed::Forked => libc::ESRCH,
            Failed::Daemon => libc::ECONNREFUSED,
            Failed::Broken => libc::ENOTRECOVERABLE,
        }
    }

    fn line(self) -> &'static CStr {
        match self {
            Failed::Null => c"a pointer is NULL or not aligned",
            Failed::Invalid => c"a value is out of range",
            Failed::Unknown => c"a struct says what this library does not know",
            Failed::Descriptor => c"no such descriptor",
            Failed::Refused => c"admission refused",
            Failed::NameTaken => c"the name is taken",
            Failed::Full => c"no descriptor or no place on the CPU is left",
            Failed::NothingToMeasure => c"no cost was declared and none could be measured",
            Failed::Started => c"the library is set up already",
            Failed::NoThread => c"a scheduling thread did not start",
            Failed::InHandler => c"not allowed inside a handler",
            Failed::Stuck => c"a handler did not return in time",
            Failed::Forked => c"handlers stayed in the process that forked",
            Failed::Daemon => c"no daemon, or it does not take this process",
            Failed::Broken => c"a bug in the library; it can only be set up anew, after rts_exit",
        }
    }
}

/// A failed call.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Failed,
    reason: String,
    hint: String,
}

impl Failure {
    pub(crate) fn new(kind: Failed, reason: impl Into<String>) -> Self {
        Failure { kind, reason: reason.into(), hint: String::new() }
    }

    /// A failure whose reason is the line of its kind.
    pub(crate) fn plain(kind: Failed) -> Self {
        Failure::new(kind, kind.line().to_string_lossy())
    }

    /// The return value of the call.
    pub(crate) fn code(&self) -> c_int {
        -self.kind.errno()
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        let kind = match &error {
            CreateError::Refused(_) | CreateError::RefusedByDaemon { .. } => Failed::Refused,
            CreateError::NameTaken(_) => Failed::NameTaken,
            CreateError::NothingToMeasure => Failed::NothingToMeasure,
            CreateError::TooMany { .. } => Failed::Full,
            CreateError::Thread(_) => Failed::NoThread,
            CreateError::Daemon(_) => Failed::Daemon,
            _ => Failed::Invalid,
        };
        match &error {
            CreateError::Refused(refusal) => Failure {
                kind,
                reason: format!("`{}` is refused: {}", refusal.name, refusal.reason),
                hint: refusal.hint.as_ref().map_or_else(String::new, ToString::to_string),
            },
            CreateError::RefusedByDaemon { reason, hint } => Failure {
                kind,
                reason: format!("the daemon's admission refuses: {reason}"),
                hint: hint.clone(),
            },
            _ => Failure::new(kind, error.to_string()),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let kind = match &error {
            StartError::Thread(_) => Failed::NoThread,
            StartError::Attach(_) => Failed::Daemon,
            _ => Failed::Invalid,
        };
        Failure::new(kind, error.to_string())
    }
}

thread_local! {
    /// Reason and hint of the last failure in this thread.
    static LAST: RefCell<(CString, CString)> = RefCell::default();
}

/// Runs the body of a call. A failure or a panic becomes a code, and the thread keeps its
/// description.
pub(crate) fn answer(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    // State that a panic leaves half done is behind the library's lock, which is then
    // poisoned, or it is the caller's memory, which is only written by whole values.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::plain(Failed::Broken),
    };
    remember(&failure);
    failure.code()
}

fn remember(failure: &Failure) {
    // No text of the library holds a 0 byte, but a name from C++ may.
    let text = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let both = (text(&failure.reason), text(&failure.hint));
    // This fails while the thread ends, or in a destructor of the thread. Then nobody asks for
    // the description.
    let _ = LAST.try_with(|last| last.replace(both));
}

/// The reason of the last failure in this thread; empty if no call failed.
pub(crate) fn last_reason() -> *const c_char {
    LAST.try_with(|last| last.borrow().0.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The hint of a refusal by admission; empty for other failures.
pub(crate) fn last_hint() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The line that describes a code.
pub(crate) fn line(code: c_int) -> &'static CStr {
    match code {
        0.. => c"success",
        _ => ALL
            .into_iter()
            .find(|kind| -kind.errno() == code)
            .map_or(c"no code of this library", Failed::line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_code_and_line() {
        for (index, kind) in ALL.into_iter().enumerate() {
            assert_eq!(line(-kind.errno()), kind.line());
            assert!(ALL[..index].iter().all(|other| other.errno() != kind.errno()), "{kind:?}");
        }
        assert_eq!(line(5), c"success");
        assert_eq!(line(c_int::MIN), c"no code of this library");
    }

    #[test]
    fn a_panic_becomes_a_code_with_words() {
        assert_eq!(answer(|| panic!("on purpose")), -libc::ENOTRECOVERABLE);
        // SAFETY: the text is valid until the next failure in this thread, and none follows.
        let reason = unsafe { CStr::from_ptr(last_reason()) };
        assert_eq!(reason, Failed::Broken.line());
    }
}
