//! What the system let us have, and in one line each what it did not.
//!
//! Asked for once, at start, by the runtime. A missing right never stops a run:
//! it is said what was missing, what is done instead, and how to grant it
//! (contract, "Commands").

use std::fmt;

use upcall_sys::OsError;

/// Something the system did not grant: what, and what is not promised therefore. Its text is one
/// line for people, and says how to grant it. From [`Runtime::notices`](crate::Runtime::notices).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Notice {
    /// No real-time class for the scheduling threads.
    NoRealTimeClass(OsError),
    /// As before, of the daemon.
    NoRealTimeDaemon,
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
            Notice::NoRealTimeClass(error) => write!(
                f,
                "no right to the real-time class ({error}): handlers run in an ordinary thread, and \
                 wake-up times are NOT promised; grant it with `sudo setcap cap_sys_nice,cap_ipc_lock+ep \
                 $(command -v upcall)` or an rtprio line in /etc/security/limits.conf"
            ),
            Notice::NoRealTimeDaemon => f.write_str(
                "the daemon has no right to the real-time class: handlers run in ordinary threads, \
                 and wake-up times are NOT promised; start it with that right (`upcalld` says how)",
            ),
            Notice::NoMemoryLock(error) => write!(
                f,
                "memory is not locked ({error}): a page fault may delay a handler; grant it with \
                 `ulimit -l unlimited` or the capability cap_ipc_lock"
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
