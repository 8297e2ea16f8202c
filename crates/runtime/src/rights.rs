//! What the system let us have, and in one line each what it did not.
//!
//! Asked for once, at start, by the runtime. A missing right never stops a run:
//! it is said what was missing, what is done instead, and how to grant it.

use std::fmt;
use std::path::{Path, PathBuf};

use upcall_sys::OsError;
use upcall_sys::grant::{how_to_grant, how_to_grant_to};
use upcall_sys::schedule::FifoRefusal;

/// Something the system did not grant: what, and what is not promised therefore. Its text is one
/// line for people, and says how to grant it. From [`Runtime::notices`](crate::Runtime::notices).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// No real-time class for the scheduling threads.
    NoRealTimeClass(FifoRefusal),
    /// As before, of the daemon.
    NoRealTimeDaemon {
        /// The file that the daemon runs, where this user may know it.
        program: Option<PathBuf>,
    },
    /// Memory could not be locked: a page fault may delay a handler.
    NoMemoryLock(OsError),
    /// A thread could not be pinned to its CPU.
    NoPinning {
        /// The CPU it was meant for.
        cpu: u32,
        /// Why not.
        error: OsError,
    },
    /// A daemon that was started again did not take an activity over: it goes on, but
    /// nothing is promised to it any more.
    NotTakenOver {
        /// Its name.
        activity: String,
        /// What the daemon said.
        reason: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::NoRealTimeClass(refusal) => write!(
                f,
                "no right to the real-time class ({refusal}): handlers run in an ordinary thread, \
                 and wake-up times are NOT promised; {}",
                how_to_grant()
            ),
            Notice::NoRealTimeDaemon { program } => {
                let how = program.as_deref().map(|program: &Path| how_to_grant_to(program));
                write!(
                    f,
                    "the daemon has no right to the real-time class: handlers run in ordinary \
                     threads, and wake-up times are NOT promised; {}",
                    how.unwrap_or_else(|| "the daemon says how to grant it when it starts".into())
                )
            }
            Notice::NoMemoryLock(error) => write!(
                f,
                "memory is not locked ({error}): a page fault may delay a handler; {}",
                how_to_grant()
            ),
            Notice::NotTakenOver { activity, reason } => write!(
                f,
                "the daemon was started again and did not take over `{activity}` ({reason}): it goes \
                 on, and nothing is promised to it; close it and create it again"
            ),
            Notice::NoPinning { cpu, error } => write!(
                f,
                "a scheduling thread is not pinned to CPU {cpu} ({error}): it may be moved, and \
                 wake-up times are NOT promised; allow the CPU in the process's cpuset"
            ),
        }
    }
}
