//! Notices: what the system did not grant, one line each.
//!
//! The runtime asks for its rights once, at start. A missing right never stops a run: a notice says
//! what is missing, what the runtime does instead, and how to grant the right.

use std::fmt;
use std::path::PathBuf;

use upcall_sys::OsError;
use upcall_sys::grant::{Remedy, how_to_grant, how_to_grant_to};
use upcall_sys::schedule::FifoRefusal;

/// Something that the system or the daemon did not grant. From
/// [`Runtime::notices`](crate::Runtime::notices).
///
/// The text is one line for people. It says what is missing, what is not promised as a result, and
/// how to grant the right. Programs ask [`Notice::kind`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// The scheduling threads do not get the real-time class.
    NoRealTimeClass(FifoRefusal),
    /// The daemon cannot give the scheduling threads the real-time class.
    NoRealTimeDaemon {
        /// The file that the daemon runs, if this user may know it.
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
    /// A daemon that was started again did not take over an activity. The activity goes on, but
    /// nothing is promised to it any more.
    NotTakenOver {
        /// The activity's name.
        activity: String,
        /// What the daemon said.
        reason: String,
    },
    /// A daemon that was started again did not take over the share of an event server. Events wait
    /// for the jobs of their handlers from then on.
    NoEventServer {
        /// The CPU of the event server.
        cpu: u32,
        /// What the daemon said.
        reason: String,
    },
}

/// What a [`Notice`] says is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoticeKind {
    /// The real-time class: wake-up times are not promised.
    RealTimeClass,
    /// Locked memory: a page fault may delay a handler.
    MemoryLock,
    /// A thread's place on its CPU: wake-up times are not promised.
    Pinning,
    /// The reservation of an activity after the daemon was started again.
    Reservation,
}

impl Notice {
    /// What is missing.
    pub const fn kind(&self) -> NoticeKind {
        match self {
            Notice::NoRealTimeClass(_) | Notice::NoRealTimeDaemon { .. } => {
                NoticeKind::RealTimeClass
            }
            Notice::NoMemoryLock(_) => NoticeKind::MemoryLock,
            Notice::NoPinning { .. } => NoticeKind::Pinning,
            Notice::NotTakenOver { .. } | Notice::NoEventServer { .. } => NoticeKind::Reservation,
        }
    }

    /// How to grant the right, if the notice says so. Several notices may have the same remedy.
    /// Reads files, and allocates.
    pub fn remedy(&self) -> Option<Remedy> {
        match self {
            Notice::NoRealTimeClass(_) | Notice::NoMemoryLock(_) => Some(how_to_grant()),
            Notice::NoRealTimeDaemon { program } => program.as_deref().map(how_to_grant_to),
            Notice::NotTakenOver { .. }
            | Notice::NoEventServer { .. }
            | Notice::NoPinning { .. } => None,
        }
    }

    /// The text of the notice without its [remedy](Notice::remedy). Allocates.
    pub fn problem(&self) -> String {
        match self {
            Notice::NoRealTimeClass(refusal) => format!(
                "no right to the real-time class ({refusal}): handlers run in an ordinary thread, \
                 and wake-up times are NOT promised"
            ),
            Notice::NoRealTimeDaemon { program } => {
                let who_knows = match program {
                    Some(_) => "",
                    None => "; the daemon says how to grant it when it starts",
                };
                format!(
                    "the daemon has no right to the real-time class: handlers run in ordinary \
                     threads, and wake-up times are NOT promised{who_knows}"
                )
            }
            Notice::NoMemoryLock(error) => {
                format!("memory is not locked ({error}): a page fault may delay a handler")
            }
            Notice::NotTakenOver { activity, reason } => format!(
                "the daemon was started again and did not take over `{activity}` ({reason}): it \
                 goes on, and nothing is promised to it; close it and create it again"
            ),
            Notice::NoEventServer { cpu, reason } => format!(
                "the daemon was started again and did not take over the event server on CPU {cpu} \
                 ({reason}): events wait for the jobs of their handlers; reserve a share again"
            ),
            Notice::NoPinning { cpu, error } => format!(
                "a scheduling thread is not pinned to CPU {cpu} ({error}): it may be moved, and \
                 wake-up times are NOT promised; allow the CPU in the process's cpuset"
            ),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem())?;
        self.remedy().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}
