//! Programs that nobody changed: their shares of a CPU, and the start of one.
//!
//! The commands `upcall exec`, `share` and `adopt` use it. A daemon puts the processes of a program
//! into a group of the kernel's fair class, and says what the group gets: at least
//! `f (t - B) - 2 q` of any time `t` in which it wants the CPU. See
//! [`admission::program`](crate::admission::program) for the terms.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use upcall_core::admission::Share;
use upcall_core::admission::program::ProgramNeed;
use upcall_core::time::{Instant, Span};
use upcall_shm::wire::{ProgramReply, ProgramRequest, ProgramTerms, ToDaemon, ToDomain};
use upcall_sys::OsError;
use upcall_sys::local::Connection;
use upcall_sys::process::{self, HeldChild, StartedChild};
use upcall_sys::schedule::{DeadlineRefusal, set_deadline_not_inherited_of};

pub use upcall_shm::wire::{AdmittedProgram, RefusalCause, RefusedProgram};
pub use upcall_sys::process::{Exit, Signal};

use crate::clock;
use crate::daemon_fault::DaemonFault;
use crate::status::{StatusError, ask, connect, next_message};

mod lag;
mod usage;

pub use lag::ProgramLag;
pub use usage::{ProgramMeter, ProgramUsage};

/// How long the daemon, an ordinary thread, may take for an answer.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// A connection to a daemon for requests about programs. A program of [`ProgramConnection::start`]
/// has its share until the connection is dropped, or this process ends.
#[derive(Debug)]
pub struct ProgramConnection {
    connection: Connection,
}

/// News of the program of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramNews {
    /// Another request changed its terms.
    Changed(AdmittedProgram),
    /// It has lost its share: another request gave it back.
    Ended,
    /// The daemon has ended, or does not respond as this version does. It keeps no share any more.
    DaemonGone,
}

/// Why a program has no share.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramError {
    /// The daemon refused, for this reason. Nothing was changed.
    Refused(RefusedProgram),
    /// The daemon did not answer as it must.
    Daemon(StatusError),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Refused(refused) => f.write_str(&refused.reason),
            ProgramError::Daemon(error) => error.fmt(f),
        }
    }
}

upcall_core::debug_as_display!(ProgramError);

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ProgramError::Refused(_) => None,
            ProgramError::Daemon(error) => Some(error),
        }
    }
}

impl From<StatusError> for ProgramError {
    fn from(error: StatusError) -> Self {
        ProgramError::Daemon(error)
    }
}

impl ProgramConnection {
    /// Connects to the daemon at `socket`. Blocks while too many connections wait for it, at most
    /// 10 s; allocates.
    ///
    /// # Errors
    /// [`StatusError::Connect`].
    pub fn open(socket: &Path) -> Result<Self, StatusError> {
        let connection = connect(socket, clock::now() + ANSWER_WITHIN)?;
        Ok(ProgramConnection { connection })
    }

    /// Gives process `pid`, and all that it starts, what `need` says, as long as this connection is
    /// open. The process must belong to the caller's user, unless that is root. `name` is for
    /// display. A connection starts at most one program. Blocks until the daemon answers, at most
    /// 10 s; allocates. So do the calls below.
    ///
    /// # Errors
    /// See [`ProgramError`].
    pub fn start(
        &self,
        pid: u32,
        need: &ProgramNeed,
        name: &str,
    ) -> Result<AdmittedProgram, ProgramError> {
        let (terms, name) = (terms(need), name.to_owned());
        self.ask_for_place(ProgramRequest::Start { pid, terms, name })
    }

    /// As [`ProgramConnection::start`], but until the last process of the program has ended.
    ///
    /// # Errors
    /// See [`ProgramError`].
    pub fn adopt(
        &self,
        pid: u32,
        need: &ProgramNeed,
        name: &str,
    ) -> Result<AdmittedProgram, ProgramError> {
        let (terms, name) = (terms(need), name.to_owned());
        self.ask_for_place(ProgramRequest::Adopt { pid, terms, name })
    }

    /// Gives the program of process `pid` another share.
    ///
    /// # Errors
    /// See [`ProgramError`]. The program keeps the share that it had.
    pub fn change(&self, pid: u32, share: Share) -> Result<AdmittedProgram, ProgramError> {
        self.ask_for_place(ProgramRequest::Change { pid, share_ppm: share.ppm() })
    }

    /// Takes the share of the program of process `pid` back. Its processes run on as others.
    ///
    /// # Errors
    /// See [`ProgramError`].
    pub fn release(&self, pid: u32) -> Result<(), ProgramError> {
        match self.ask(ProgramRequest::Release { pid })? {
            ProgramReply::Ended { .. } => Ok(()),
            other => Err(out_of_place(other)),
        }
    }

    /// The next news of the program that [`ProgramConnection::start`] started; `None` if there is
    /// none. Does not block; allocates.
    pub fn news(&self) -> Option<ProgramNews> {
        match next_message(&self.connection, Instant::from_nanos(0)) {
            Ok(ToDomain::Program(ProgramReply::Admitted(admitted))) => {
                Some(ProgramNews::Changed(admitted))
            }
            Ok(ToDomain::Program(ProgramReply::Ended { .. })) => Some(ProgramNews::Ended),
            Err(StatusError::Silent) => None,
            Ok(_) | Err(_) => Some(ProgramNews::DaemonGone),
        }
    }

    fn ask_for_place(&self, request: ProgramRequest) -> Result<AdmittedProgram, ProgramError> {
        match self.ask(request)? {
            ProgramReply::Admitted(admitted) => Ok(admitted),
            other => Err(out_of_place(other)),
        }
    }

    /// Sends a request, and returns the reply. A refusal is an error.
    fn ask(&self, request: ProgramRequest) -> Result<ProgramReply, ProgramError> {
        let until = clock::now() + ANSWER_WITHIN;
        match ask(&self.connection, &ToDaemon::Program(request), until)? {
            ToDomain::Program(ProgramReply::Refused(refused)) => {
                Err(ProgramError::Refused(refused))
            }
            ToDomain::Program(reply) => Ok(reply),
            other => Err(StatusError::from(DaemonFault::out_of_place(other)).into()),
        }
    }
}

fn out_of_place(reply: ProgramReply) -> ProgramError {
    StatusError::from(DaemonFault::out_of_place(ToDomain::Program(reply))).into()
}

/// A need in the numbers of the messages, where 0 stands for what is not stated. The daemon refuses
/// a stated 0 as it refuses what is missing.
fn terms(need: &ProgramNeed) -> ProgramTerms {
    let ns = |span: Option<Span>| span.map_or(0, Span::as_nanos);
    ProgramTerms {
        share_ppm: need.share.map_or(0, Share::ppm),
        weight: need.weight.unwrap_or(0),
        cost_ns: ns(need.cost),
        period_ns: ns(need.period),
        cpu: need.cpu,
        quantum_ns: ns(need.quantum),
    }
}

/// A program that has not executed its first instruction yet. It has a process, which waits.
/// Dropping it ends the process.
#[derive(Debug)]
pub struct HeldProgram(HeldChild);

impl HeldProgram {
    /// Makes a process for `command`: a program, looked up in `PATH`, and its arguments. It has the
    /// terminal, the process group and the streams of this process. Starts a thread; blocks for a
    /// moment; allocates.
    ///
    /// # Errors
    /// `EINVAL` for an empty command. `EMFILE`, `EAGAIN`, `ENOMEM`.
    pub fn new(command: &[OsString]) -> Result<Self, OsError> {
        process::hold(command).map(HeldProgram)
    }

    /// The number of the process. The program keeps it.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Puts the process into the kernel's class `SCHED_DEADLINE`: in each period it gets the cost,
    /// before all other threads of the machine, handlers included. No daemon knows of it. The
    /// program keeps the class, and what it starts is ordinary. Needs `CAP_SYS_NICE`, and a process
    /// that may use all CPUs. One system call.
    ///
    /// # Errors
    /// [`ProgramError::Refused`]: the kernel has less to give, the right is missing, or the times
    /// are out of range.
    pub fn set_deadline(&self, cost: Span, period: Span) -> Result<(), ProgramError> {
        // The child is not reaped, so the number is its own.
        let set = set_deadline_not_inherited_of(self.pid(), cost.as_nanos(), period.as_nanos());
        set.map_err(|refusal| {
            let cause = match refusal {
                DeadlineRefusal::Bandwidth => RefusalCause::NoRoom,
                DeadlineRefusal::Permission => RefusalCause::NoRight,
                DeadlineRefusal::Times { .. } => RefusalCause::Terms,
                _ => RefusalCause::NoProcess,
            };
            let reason = refusal.to_string();
            ProgramError::Refused(RefusedProgram { cause, asked_ppm: 0, fits_ppm: 0, reason })
        })
    }

    /// Lets the process execute the program. Blocks until the program is loaded.
    ///
    /// # Errors
    /// `ENOENT`, `EACCES` or `ENOEXEC` if the program cannot run, and others of execve(2). The
    /// process is gone then.
    pub fn release(self) -> Result<RunningProgram, OsError> {
        self.0.release().map(RunningProgram)
    }
}

/// A program that runs. Dropping it changes nothing: the program runs on.
#[derive(Debug)]
pub struct RunningProgram(StartedChild);

impl RunningProgram {
    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Sends its process a signal. A process that has ended ignores it. One system call.
    ///
    /// # Errors
    /// `EPERM` without the right (kill(2)). `ESRCH` after [`RunningProgram::reap`].
    pub fn send_signal(&self, signal: Signal) -> Result<(), OsError> {
        self.0.send_signal(signal)
    }

    /// Blocks until its process has ended, or until `until`. Returns whether it has ended. Its
    /// figures in `/proc` stay until [`RunningProgram::reap`].
    ///
    /// # Errors
    /// The kernel's error (`ENOMEM`).
    pub fn wait_until(&self, until: Instant) -> Result<bool, OsError> {
        self.0.wait(Some(until.as_nanos()))
    }

    /// Blocks until its process has ended, and returns how.
    ///
    /// # Errors
    /// `ECHILD` if it was reaped before, also by other code of this process.
    pub fn reap(&self) -> Result<Exit, OsError> {
        self.0.reap()
    }
}
