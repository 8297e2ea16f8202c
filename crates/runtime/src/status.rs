//! How things stand at a daemon: its CPUs, domains and activities.
//!
//! Used by `upcall top` and `upcall ps`, and by programs that watch. Takes no part: who
//! asks is no domain, and costs the domains nothing.

use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use upcall_core::time::{Instant, Span};
use upcall_shm::wire::{self, MESSAGE_BYTES_MAX, StatusPart, ToDaemon, ToDomain, WireError};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::readiness::{self, Direction};

pub use upcall_shm::kernel_area::State as VirtualProcessorState;
pub use upcall_shm::user_area::{Counters as DomainCounters, SlotState as ActivityState};
pub use upcall_shm::wire::{ActivityStatus, CpuStatus, VirtualProcessorStatus};

use crate::clock;

/// How long the daemon may take for the whole answer: it is an ordinary thread.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// How things stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// By which policy the daemon schedules.
    pub policy: String,
    /// Whether handlers get the real-time class.
    pub real_time: bool,
    /// What its admission charges for a hand-off.
    pub switch_cost_ns: u64,
    /// The CPUs it schedules.
    pub cpus: Vec<CpuStatus>,
    /// The domains the caller may see, by number: all, if it is root or the daemon's
    /// own user, else those of its user.
    pub domains: Vec<DomainStatus>,
    /// How many domains of other users the caller may not see.
    pub hidden_domains: u32,
}

/// A process that is attached. Counters and states of activities are what it says of
/// itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its number.
    pub domain: u32,
    /// Tells it from the one that had the number before.
    pub generation: u64,
    /// Its process.
    pub pid: u32,
    /// Whose it is.
    pub uid: u32,
    /// When it was looked at (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// As it said.
    pub name: String,
    /// It, on each CPU where it has its thread.
    pub virtual_processors: Vec<VirtualProcessorStatus>,
    /// What it has places for, in the order of admission.
    pub activities: Vec<ActivityStatus>,
}

/// Why there is no status.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusError {
    /// Nobody listens at the path, or it may not be used.
    Connect {
        /// That path.
        path: PathBuf,
        /// What the system said.
        error: OsError,
    },
    /// The daemon did not say all in time.
    Silent,
    /// The daemon closed the connection before it had said all: it has ended.
    Closed,
    /// The daemon said what no daemon of this version does.
    Daemon(String),
    /// The connection failed.
    Os(OsError),
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusError::Connect { path, error } => {
                write!(f, "the daemon's socket {}: {error}", path.display())
            }
            StatusError::Silent => f.write_str("the daemon did not answer in time"),
            StatusError::Closed => f.write_str("the daemon ended before it had answered"),
            StatusError::Daemon(what) => {
                write!(f, "the daemon is another version or wrong: {what}")
            }
            StatusError::Os(error) => {
                write!(f, "the connection to the daemon failed: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(StatusError);

impl std::error::Error for StatusError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StatusError::Connect { error, .. } | StatusError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for StatusError {
    fn from(error: OsError) -> Self {
        StatusError::Os(error)
    }
}

impl From<WireError> for StatusError {
    fn from(error: WireError) -> Self {
        StatusError::Daemon(error.to_string())
    }
}

/// Asks the daemon at `socket` how things stand. Blocks until it has said all, at most
/// 10 s; allocates. About 0.1 ms a domain and CPU of the daemon's time, in its
/// ordinary thread.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// use upcall::daemon_socket;
/// use upcall::status::status;
///
/// for domain in status(&daemon_socket()?)?.domains {
///     println!("{} (pid {}): {} activities", domain.name, domain.pid, domain.activities.len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`StatusError`].
pub fn status(socket: &Path) -> Result<Status, StatusError> {
    let connection = Connection::connect(socket)
        .map_err(|error| StatusError::Connect { path: socket.to_owned(), error })?;
    connection.send(&ToDaemon::Inspect.encode(), &[])?;
    let until = clock::now() + ANSWER_WITHIN;
    let mut status = Status::default();
    while status.take(next_part(&connection, until)?)? {}
    Ok(status)
}

impl Status {
    /// `false`: that was the end.
    fn take(&mut self, part: StatusPart) -> Result<bool, StatusError> {
        let place = || StatusError::Daemon("a part of no domain".to_owned());
        match part {
            StatusPart::Cpu(cpu) => self.cpus.push(cpu),
            StatusPart::Domain(domain) => self.domains.push(DomainStatus::of(domain)),
            StatusPart::VirtualProcessor(virtual_processor) => {
                self.domains
                    .last_mut()
                    .ok_or_else(place)?
                    .virtual_processors
                    .push(virtual_processor);
            }
            StatusPart::Activity(activity) => {
                self.domains.last_mut().ok_or_else(place)?.activities.push(activity);
            }
            StatusPart::End { policy, real_time, switch_cost_ns, hidden_domains } => {
                (self.policy, self.real_time) = (policy, real_time);
                self.switch_cost_ns = switch_cost_ns;
                self.hidden_domains = hidden_domains;
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl DomainStatus {
    /// The worst state of its virtual_processors: demoted, stopped, blocked, attached. `None`: it
    /// is attaching, none of its threads is there yet.
    pub fn state(&self) -> Option<VirtualProcessorState> {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.state)
            .max_by_key(|&state| state as u64)
    }

    /// What is wrong with its pages, on the first CPU where something is.
    pub fn fault(&self) -> Option<&str> {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.fault.as_str())
            .find(|fault| !fault.is_empty())
    }

    /// What it counted on all CPUs. It may have counted anything: sums saturate.
    pub fn counters(&self) -> DomainCounters {
        let mut sum = DomainCounters::default();
        for DomainCounters { upcalls, switches, jobs, misses, pdus, handoffs, slack_ns_min } in
            self.virtual_processors.iter().map(|virtual_processor| virtual_processor.counters)
        {
            sum.upcalls = sum.upcalls.saturating_add(upcalls);
            sum.switches = sum.switches.saturating_add(switches);
            sum.jobs = sum.jobs.saturating_add(jobs);
            sum.misses = sum.misses.saturating_add(misses);
            sum.pdus = sum.pdus.saturating_add(pdus);
            sum.handoffs = sum.handoffs.saturating_add(handoffs);
            sum.slack_ns_min = sum.slack_ns_min.min(slack_ns_min);
        }
        sum
    }

    /// How often the watchdog had to act against it, on all CPUs.
    pub fn offences(&self) -> u64 {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.offences)
            .fold(0, u64::saturating_add)
    }

    /// Reserved for it on all CPUs, in millionths of one.
    pub fn reserved_ppm(&self) -> u64 {
        self.activities.iter().map(|activity| activity.reserved_ppm).fold(0, u64::saturating_add)
    }

    /// CPU time of its threads so far.
    pub fn used_ns(&self) -> u64 {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.used_ns)
            .fold(0, u64::saturating_add)
    }

    fn of(said: wire::DomainStatus) -> Self {
        let wire::DomainStatus { domain, generation, pid, uid, at_ns, name } = said;
        let (virtual_processors, activities) = (Vec::new(), Vec::new());
        DomainStatus { domain, generation, pid, uid, at_ns, name, virtual_processors, activities }
    }
}

/// The next part of the answer, waited for.
fn next_part(connection: &Connection, until: Instant) -> Result<StatusPart, StatusError> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    if !readiness::wait_until(connection.as_fd(), Direction::Readable, Some(until.as_nanos()))? {
        return Err(StatusError::Silent);
    }
    match connection.receive(&mut buffer) {
        Ok(Received { len: 0, .. }) => Err(StatusError::Closed),
        Ok(Received { len, .. }) => match ToDomain::decode(&buffer[..len])? {
            ToDomain::Status(part) => Ok(part),
            other => Err(StatusError::Daemon(format!("{other:?} out of place"))),
        },
        Err(ReceiveError::Os(error)) => Err(error.into()),
        Err(error) => Err(StatusError::Daemon(error.to_string())),
    }
}
