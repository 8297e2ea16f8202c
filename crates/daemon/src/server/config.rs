//! How a daemon is set up, and why it does not start.
//!
//! Plain data. The program fills in a [`Config`]; [`super::Daemon::start`] reads it.

use core::fmt;
use std::path::PathBuf;

use upcall_core::admission::Share;
use upcall_core::discipline::Discipline;
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;
use upcall_sys::OsError;
use upcall_sys::local::Access;

use crate::group::DomainGroupError;
use crate::registry::Quota;

/// The default of [`Config::connections_max`]: twice the greatest number of domains.
pub const CONNECTIONS_MAX_DEFAULT: usize = 64;

/// How a daemon is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The path of the socket.
    pub socket: PathBuf,
    /// The users who may connect.
    pub access: Access,
    /// The CPUs that handlers may use.
    pub cpus: Vec<u32>,
    /// The share of a CPU that admission may reserve.
    pub cpu_limit: Share,
    /// The cost of a hand-off in admission; `None` measures it.
    pub switch_cost: Option<Span>,
    /// The longest wake-up latency that admission allows for.
    pub wakeup_latency: Span,
    /// How long a released activity may wait while the domain that has the CPU runs worse ranks.
    /// This saves hand-offs ([`Platform::defer_preemption`]). Only under `rmdp`.
    ///
    /// [`Platform::defer_preemption`]: upcall_core::admission::Platform::defer_preemption
    pub defer_preemption: Span,
    /// The policy. Under PS and DWCS the activities of a CPU belong to one user.
    pub discipline: &'static Discipline,
    /// The limits of one user.
    pub quota: Quota,
    /// Most connections of one user at a time.
    pub connections_max: usize,
    /// How long a connection without domain and program may send nothing before the daemon closes
    /// it.
    pub silent_max: Span,
    /// The users who, beside root and the daemon's own, may run activities that admission refuses.
    pub soft_users: Vec<u32>,
    /// The users who, beside root and the daemon's own, may ask for shares of their programs.
    pub program_users: Vec<u32>,
    /// The interfaces on which the daemon drops packets beyond a quota, while there are quotas. A
    /// name that does not exist is an error of the first quota.
    pub interfaces: Vec<String>,
    /// The shortest time between two packets for destinations without a quota, on each interface
    /// with quotas, and how many may be ahead of it. `None`: no limit.
    pub other_packets: Option<(Span, u32)>,
    /// CPU time beyond its longest quantum that a domain may take to yield.
    pub grace: Span,
    /// Whether a demoted domain is killed.
    pub kill: bool,
    /// How long after its start the daemon takes claims of places that a former daemon granted
    /// ([`Registry::claim`]). New activities are admitted beside the claims made so far.
    ///
    /// [`Registry::claim`]: crate::registry::Registry::claim
    pub claims_within: Span,
    /// The program that removes the control groups of programs if the daemon is killed, usually the
    /// daemon's own; its `main` calls [`supervise_if_asked`]. `None`: the next daemon does.
    ///
    /// [`supervise_if_asked`]: crate::programs::supervise_if_asked
    pub supervisor: Option<PathBuf>,
}

impl Config {
    /// One user's daemon at `socket` for `cpus`, with defaults for the rest.
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
            connections_max: CONNECTIONS_MAX_DEFAULT,
            silent_max: Span::from_secs(10),
            soft_users: Vec::new(),
            program_users: Vec::new(),
            interfaces: Vec::new(),
            other_packets: None,
            grace: Span::from_millis(5),
            kill: false,
            claims_within: Span::from_secs(10),
            supervisor: None,
        }
    }
}

/// Why a daemon does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The daemon cannot listen at the socket.
    Listen {
        /// The socket's path.
        socket: PathBuf,
        /// The kernel's error; `EADDRINUSE` means that a daemon listens there already.
        error: OsError,
    },
    /// The policy has groups. A daemon has those that its domains define.
    Groups(&'static str),
    /// Deferred preemption under a policy whose test does not account for it.
    DeferPreemption(&'static str),
    /// There is no CPU, or this process may not use this one.
    Cpu(Option<u32>),
    /// The kernel refused.
    Os(OsError),
    /// There is no memory for the measurement of a hand-off.
    Pages(DomainGroupError),
    /// A thread did not start.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen { socket, error } => write!(f, "{}: {error}", socket.display()),
            StartError::Groups(policy) => {
                write!(
                    f,
                    "policy `{policy}` with groups, expected one without: domains define them"
                )
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
            StartError::Groups(_) | StartError::DeferPreemption(_) | StartError::Cpu(_) => None,
        }
    }
}

impl From<OsError> for StartError {
    fn from(error: OsError) -> Self {
        StartError::Os(error)
    }
}
