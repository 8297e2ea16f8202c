//! Why a program is not taken, or not changed.

use core::fmt;

use upcall_core::admission::program::{PROGRAM_QUANTUM, ProgramRefusal};
use upcall_core::time::Span;
use upcall_sys::OsError;
use upcall_sys::cgroup::CgroupError;

use super::admitted::ProgramId;

/// Why a program is not taken, or not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProgramError {
    /// Admission refused.
    Refused(ProgramRefusal),
    /// There is no such process, or it has ended.
    Gone {
        /// The process.
        pid: u32,
    },
    /// The process belongs to another user, or may take the rights of one.
    Owner {
        /// The process.
        pid: u32,
        /// The user who asks.
        user: u32,
    },
    /// The process is the daemon, the first process of the machine, or a thread of the kernel.
    System {
        /// The process.
        pid: u32,
    },
    /// The process has real-time threads, and the kernel takes none into a group of programs.
    RealTime {
        /// The process.
        pid: u32,
    },
    /// The process belongs to a program already.
    Taken {
        /// The process.
        pid: u32,
    },
    /// The process belongs to no program.
    Unknown {
        /// The process.
        pid: u32,
    },
    /// The process has too many descendants or threads, or they become more while they are taken.
    Grows {
        /// The process.
        pid: u32,
        /// How many descendants, or threads, were taken. They were given back.
        taken: usize,
    },
    /// The user has as many programs as a user may have.
    TooMany {
        /// The most programs of one user.
        programs_max: usize,
    },
    /// Only root and the daemon's user may have so short a quantum: its ticker costs the whole CPU.
    ShortQuantum {
        /// The quantum.
        quantum: Span,
    },
    /// The ticker would take so much of the CPU that handlers keep it for longer than another
    /// program was promised.
    BreaksProgram {
        /// The other program.
        program: ProgramId,
        /// The quantum.
        quantum: Span,
    },
    /// The CPU is not among those of the daemon.
    Cpu(u32),
    /// Another daemon divides the CPUs already.
    OtherDaemon {
        /// The process of that daemon.
        pid: u32,
    },
    /// The control groups are missing, or the daemon has no right to write them.
    Cgroup(CgroupError),
    /// The kernel refused.
    Os(OsError),
    /// The ticker did not start.
    Ticker(std::io::Error),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::Refused(refusal) => refusal.fmt(f),
            ProgramError::Gone { pid } => write!(f, "process {pid} has ended"),
            ProgramError::Owner { pid, user } => {
                write!(f, "process {pid} belongs to another user than {user}")
            }
            ProgramError::System { pid } => {
                write!(f, "process {pid} is part of the system, expected a program")
            }
            ProgramError::RealTime { pid } => {
                write!(f, "process {pid} has real-time threads, expected ordinary ones")
            }
            ProgramError::Taken { pid } => {
                write!(f, "process {pid} belongs to a program of Upcall already")
            }
            ProgramError::Unknown { pid } => {
                write!(f, "process {pid} belongs to no program of Upcall")
            }
            ProgramError::Grows { pid, taken } => write!(
                f,
                "process {pid} has too many processes or threads, or starts them faster than they \
                 are taken: {taken} were, and there are more; stop it meanwhile (SIGSTOP), or take \
                 a process with fewer"
            ),
            ProgramError::TooMany { programs_max } => {
                write!(f, "the user has {programs_max} programs, the most of one user")
            }
            ProgramError::ShortQuantum { quantum } => {
                write!(f, "a quantum of {quantum} is for root, expected {PROGRAM_QUANTUM} or more")
            }
            ProgramError::BreaksProgram { program, quantum } => write!(
                f,
                "a quantum of {quantum} would break the promise to program {program}, which has a \
                 cost in each period: the ticker would take more of the CPU"
            ),
            ProgramError::Cpu(cpu) => write!(f, "CPU {cpu} is not among those of the daemon"),
            ProgramError::OtherDaemon { pid } => {
                write!(f, "the daemon in process {pid} divides the CPUs already")
            }
            ProgramError::Cgroup(error) => error.fmt(f),
            ProgramError::Os(error) => error.fmt(f),
            ProgramError::Ticker(error) => write!(f, "the ticker did not start: {error}"),
        }
    }
}

impl core::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            ProgramError::Refused(refusal) => Some(refusal),
            ProgramError::Cgroup(error) => Some(error),
            ProgramError::Os(error) => Some(error),
            ProgramError::Ticker(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ProgramRefusal> for ProgramError {
    fn from(refusal: ProgramRefusal) -> Self {
        ProgramError::Refused(refusal)
    }
}

impl From<CgroupError> for ProgramError {
    fn from(error: CgroupError) -> Self {
        ProgramError::Cgroup(error)
    }
}

impl From<OsError> for ProgramError {
    fn from(error: OsError) -> Self {
        ProgramError::Os(error)
    }
}
