//! How a daemon is set up, and why it does not start.
//!
//! Plain data. The program fills in a [`Config`]; [`super::Daemon::start`] reads it.

use core::fmt;
use std::path::PathBuf;

use upcall_core::admission::Share;
use upcall_core::policy::Discipline;
use upcall_core::policy::rmdp::RMDP;
use upcall_core::time::Span;
use upcall_sys::OsError;
use upcall_sys::local::Access;

use crate::group::DomainGroupError;
use crate::registry::Quota;

/// How a daemon is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub socket: PathBuf,
    /// Who may connect.
    pub access: Access,
    /// CPUs that handlers may use.
    pub cpus: Vec<u32>,
    /// Most of a CPU that admission gives away.
    pub cpu_limit: Share,
    /// What admission counts for a hand-off; `None` measures it.
    pub switch_cost: Option<Span>,
    /// Longest wake-up latency that admission allows for.
    pub wakeup_latency: Span,
    /// For so long from its release an activity may be kept waiting by worse ranks of the
    /// domain that has the CPU, which spares hand-offs ([`Platform::defer_preemption`]). Under
    /// `rmdp` only.
    pub defer_preemption: Span,
    /// By which policy: `rmdp`, `rm` or `dws`.
    pub discipline: &'static Discipline,
    /// What one user may have.
    pub quota: Quota,
    /// CPU time beyond its longest quantum that a domain may take to yield.
    pub grace: Span,
    /// Whether one that was demoted is killed.
    pub kill: bool,
    /// For so long from its start on, it takes domains at their word that say what a
    /// former daemon at the socket had admitted ([`Registry::claim`]). Who is new
    /// meanwhile is admitted beside what has been claimed by then.
    pub claims_within: Span,
}

impl Config {
    /// One user's daemon at `socket`, for `cpus`, with what else is usual.
    pub fn new(socket: PathBuf, cpus: Vec<u32>) -> Self {
        Config {
            socket,
            access: Access::Owner,
            cpus,
            cpu_limit: Share::CPU_LIMIT_DEFAULT,
            switch_cost: None,
            wakeup_latency: Span::ZERO,
            defer_preemption: Span::ZERO,
            discipline: &RMDP,
            quota: Quota { domains_max: upcall_shm::DOMAINS_MAX as usize, share_max_ppm: u64::MAX },
            grace: Span::from_millis(5),
            kill: false,
            claims_within: Span::from_secs(10),
        }
    }
}

/// Why a daemon does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The socket cannot be listened at.
    Listen {
        /// That one.
        socket: PathBuf,
        /// What the kernel said; `EADDRINUSE`: a daemon is there.
        error: OsError,
    },
    /// A policy whose ranks do not compare across processes.
    Policy(&'static str),
    /// Deferred preemption under a policy whose test does not know it.
    DeferPreemption(&'static str),
    /// No CPU, or one that this process may not use.
    Cpu(Option<u32>),
    /// The kernel refused.
    Os(OsError),
    /// No memory to measure with.
    Pages(DomainGroupError),
    /// A thread did not start.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen { socket, error } => write!(f, "{}: {error}", socket.display()),
            StartError::Policy(policy) => {
                write!(f, "policy `{policy}` across processes, expected rmdp, rm or dws")
            }
            StartError::DeferPreemption(policy) => {
                write!(f, "deferred preemption under policy `{policy}`, expected 0 or policy rmdp")
            }
            StartError::Cpu(Some(cpu)) => write!(f, "CPU {cpu} may not be used by this process"),
            StartError::Cpu(None) => f.write_str("no CPU to schedule"),
            StartError::Os(error) => error.fmt(f),
            StartError::Pages(error) => error.fmt(f),
            StartError::Thread(error) => write!(f, "a thread did not start: {error}"),
        }
    }
}

impl core::error::Error for StartError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            StartError::Listen { error, .. } | StartError::Os(error) => Some(error),
            StartError::Pages(error) => Some(error),
            StartError::Thread(error) => Some(error),
            StartError::Policy(_) | StartError::DeferPreemption(_) | StartError::Cpu(_) => None,
        }
    }
}

impl From<OsError> for StartError {
    fn from(error: OsError) -> Self {
        StartError::Os(error)
    }
}
