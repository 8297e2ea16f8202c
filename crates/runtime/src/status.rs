//! The state of a running daemon: its CPUs, domains, activities and programs.
//!
//! `upcall top`, `upcall ps` and monitoring programs use it. The process that asks does not become
//! a domain, and costs the domains nothing.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use upcall_core::time::{Instant, Span};
use upcall_shm::wire::{self, MESSAGE_BYTES_MAX, StatusPart, ToDaemon, ToDomain, WireError};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::readiness::{self, Direction};

pub use upcall_shm::kernel_area::State as VirtualProcessorState;
pub use upcall_shm::user_area::{Counters as DomainCounters, SlotState as ActivityState};
pub use upcall_shm::wire::{
    ActivityStatus, CpuStatus, FlowCounts, FlowStatus, InterfaceDrops, OwnedInterfaceStatus,
    PacketCounts, PacketDestination, PacketQuota, PacketQuotaStatus, ProgramStatus,
    VirtualProcessorStatus,
};

use crate::clock;
use crate::daemon_fault::DaemonFault;

/// How long the daemon, an ordinary thread, may take for the whole answer.
const ANSWER_WITHIN: Span = Span::from_secs(10);

/// The state of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The daemon's policy.
    pub policy: String,
    /// Whether handlers get the real-time class.
    pub real_time: bool,
    /// The cost of a hand-off in the daemon's admission.
    pub switch_cost_ns: u64,
    /// The CPUs that the daemon schedules.
    pub cpus: Vec<CpuStatus>,
    /// The domains that the caller may see, by number. Root and the daemon's own user see all
    /// domains, other users their own.
    pub domains: Vec<DomainStatus>,
    /// The programs with a share or a weight that the caller may see, as for domains.
    pub programs: Vec<ProgramStatus>,
    /// The packet quotas on each interface, for root and the daemon's own user.
    pub packet_quotas: Vec<PacketQuotaStatus>,
    /// The interfaces with flows.
    pub owned_interfaces: Vec<OwnedInterfaceStatus>,
    /// The flows that the caller may see, as for domains.
    pub flows: Vec<FlowStatus>,
    /// How many domains are hidden from the caller: those of other users.
    pub hidden_domains: u32,
}

/// A process that is attached. It reports its counters and the states of its activities itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    /// Its number.
    pub domain: u32,
    /// Distinguishes the domain from earlier domains with the same number.
    pub generation: u64,
    /// Its process.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// When the daemon read it (`CLOCK_MONOTONIC`).
    pub at_ns: u64,
    /// Its name, as the process gave it.
    pub name: String,
    /// Its virtual processor on each CPU where it has a thread.
    pub virtual_processors: Vec<VirtualProcessorStatus>,
    /// Its admitted activities, in the order of admission.
    pub activities: Vec<ActivityStatus>,
}

/// Why there is no status.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StatusError {
    /// No daemon listens at the path, or this user may not use it.
    Connect {
        /// The path.
        path: PathBuf,
        /// What the system said.
        error: OsError,
    },
    /// The daemon refused the connection, for this reason.
    Rejected(String),
    /// The daemon did not send the whole answer in time.
    Silent,
    /// The daemon closed the connection before the end of its answer: it has ended.
    Closed,
    /// The daemon broke the protocol of this version.
    Daemon(DaemonFault),
    /// The daemon sent a message that no daemon of this version sends.
    Wire(WireError),
    /// The daemon sent a message that cannot be received.
    Receive(ReceiveError),
    /// The connection failed.
    Os(OsError),
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusError::Connect { path, error } => {
                write!(f, "the daemon's socket {}: {error}", path.display())
            }
            StatusError::Rejected(reason) => write!(f, "the daemon refused: {reason}"),
            StatusError::Silent => f.write_str("the daemon did not answer in time"),
            StatusError::Closed => f.write_str("the daemon ended before it had answered"),
            StatusError::Daemon(fault) => {
                write!(f, "the daemon is another version or wrong: {fault}")
            }
            StatusError::Receive(error) => {
                write!(f, "the daemon is another version or wrong: {error}")
            }
            StatusError::Wire(error) => {
                write!(f, "the daemon is another version or wrong: {error}")
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
            StatusError::Daemon(fault) => Some(fault),
            StatusError::Wire(error) => Some(error),
            StatusError::Receive(error) => Some(error),
            StatusError::Rejected(_) | StatusError::Silent | StatusError::Closed => None,
        }
    }
}

impl From<DaemonFault> for StatusError {
    fn from(fault: DaemonFault) -> Self {
        StatusError::Daemon(fault)
    }
}

impl From<OsError> for StatusError {
    fn from(error: OsError) -> Self {
        StatusError::Os(error)
    }
}

impl From<WireError> for StatusError {
    fn from(error: WireError) -> Self {
        StatusError::Wire(error)
    }
}

/// Asks the daemon at `socket` for its state. Blocks until the whole answer is there, at most 10 s;
/// allocates. Takes about 0.1 ms of the daemon's ordinary thread for each domain and CPU.
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
    let until = clock::now() + ANSWER_WITHIN;
    let connection = connect(socket, until)?;
    let mut message = ask(&connection, &ToDaemon::Inspect, until)?;
    let mut status = Status::default();
    while status.take(part_of(message)?)? {
        message = next_message(&connection, until)?;
    }
    Ok(status)
}

impl Status {
    /// Adds a part; `false` after the last one.
    fn take(&mut self, part: StatusPart) -> Result<bool, StatusError> {
        match part {
            StatusPart::Cpu(cpu) => self.cpus.push(cpu),
            StatusPart::Domain(domain) => self.domains.push(DomainStatus::of(domain)),
            StatusPart::VirtualProcessor(virtual_processor) => {
                self.domains
                    .last_mut()
                    .ok_or(DaemonFault::PartOfNoDomain)?
                    .virtual_processors
                    .push(virtual_processor);
            }
            StatusPart::Activity(activity) => {
                self.domains
                    .last_mut()
                    .ok_or(DaemonFault::PartOfNoDomain)?
                    .activities
                    .push(activity);
            }
            StatusPart::Program(program) => self.programs.push(program),
            StatusPart::PacketQuota(quota) => self.packet_quotas.push(quota),
            StatusPart::OwnedInterface(owned) => self.owned_interfaces.push(owned),
            StatusPart::Flow(flow) => self.flows.push(flow),
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
    /// The worst state of its virtual processors. From worst to best the states are demoted,
    /// stopped, blocked, attached. `None` while none of its threads has attached yet.
    pub fn state(&self) -> Option<VirtualProcessorState> {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.state)
            .max_by_key(|&state| state as u64)
    }

    /// The fault of its pages, on the first CPU with one.
    pub fn fault(&self) -> Option<&str> {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.fault.as_str())
            .find(|fault| !fault.is_empty())
    }

    /// The sum of its counters on all CPUs. The process may have written any value, so sums
    /// saturate.
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

    /// How often the watchdog acted against the domain, on all CPUs.
    pub fn offences(&self) -> u64 {
        self.virtual_processors
            .iter()
            .map(|virtual_processor| virtual_processor.offences)
            .fold(0, u64::saturating_add)
    }

    /// The CPU time reserved for the domain on all CPUs, in millionths of one CPU.
    pub fn reserved_ppm(&self) -> u64 {
        self.activities.iter().map(|activity| activity.reserved_ppm).fold(0, u64::saturating_add)
    }

    /// PS: the lag on the CPU where the domain is most behind its part, in ns of CPU time, as its
    /// user's domains state it; negative if ahead. `None`: it has no part.
    pub fn lag_ns(&self) -> Option<i64> {
        self.virtual_processors
            .iter()
            .filter_map(|virtual_processor| virtual_processor.lag_ns)
            .max()
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

/// Connects to a daemon. Blocks while too many connections wait for it.
pub(crate) fn connect(socket: &Path, until: Instant) -> Result<Connection, StatusError> {
    Connection::connect_until(socket, until.as_nanos())
        .map_err(|error| StatusError::Connect { path: socket.to_owned(), error })
}

fn part_of(message: ToDomain) -> Result<StatusPart, StatusError> {
    match message {
        ToDomain::Status(part) => Ok(part),
        other => Err(DaemonFault::out_of_place(other).into()),
    }
}

/// Sends a request of a process that is not a domain, and returns the first message of the answer.
/// Blocks until it is there.
pub(crate) fn ask(
    connection: &Connection,
    request: &ToDaemon,
    until: Instant,
) -> Result<ToDomain, StatusError> {
    ask_for_fds(connection, request, until).map(|(message, _)| message)
}

/// As [`ask`], with the descriptors of the answer.
pub(crate) fn ask_for_fds(
    connection: &Connection,
    request: &ToDaemon,
    until: Instant,
) -> Result<(ToDomain, Vec<OwnedFd>), StatusError> {
    let sent = connection.send(&request.encode(), &[]);
    let reply = next_message_with_fds(connection, until);
    if reply.is_err() {
        // A daemon that refuses the connection may have answered and closed it before.
        sent?;
    }
    reply
}

/// The next message to a process that is not a domain. Blocks until it is there. A rejection is an
/// error.
pub(crate) fn next_message(
    connection: &Connection,
    until: Instant,
) -> Result<ToDomain, StatusError> {
    next_message_with_fds(connection, until).map(|(message, _)| message)
}

fn next_message_with_fds(
    connection: &Connection,
    until: Instant,
) -> Result<(ToDomain, Vec<OwnedFd>), StatusError> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    if !readiness::wait_until(connection.as_fd(), Direction::Readable, Some(until.as_nanos()))? {
        return Err(StatusError::Silent);
    }
    match connection.receive(&mut buffer) {
        Ok(Received { len: 0, .. }) => Err(StatusError::Closed),
        Ok(Received { len, fds }) => match ToDomain::decode(&buffer[..len])? {
            ToDomain::Rejected { reason } => Err(StatusError::Rejected(reason)),
            message => Ok((message, fds)),
        },
        Err(ReceiveError::Os(error)) => Err(error.into()),
        Err(error) => Err(StatusError::Receive(error)),
    }
}
