//! The events that the daemon reports to its program and to `tracing`.
//!
//! The server's thread, of ordinary class, makes and reports each event. The KLS threads and the
//! watchdog report none: an offence reaches the server as a message first.

use core::fmt;
use std::net::SocketAddr;

use upcall_core::admission::Share;
use upcall_core::time::Span;
use upcall_sys::OsError;
use upcall_sys::cgroup::CgroupError;
use upcall_sys::grant::how_to_grant;
use upcall_sys::schedule::FifoRefusal;

use crate::registry::Owner;
use crate::watchdog::Measure;

/// An event that the operator of the daemon may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DaemonEvent {
    /// A process became a domain.
    Attached {
        /// Its number.
        domain: u32,
        /// Its name, as the process gave it.
        name: String,
        /// Its process and user.
        owner: Owner,
    },
    /// A process is no longer a domain.
    Detached {
        /// Its number.
        domain: u32,
        /// Its name, as the process gave it.
        name: String,
        /// The reason, in a few words.
        reason: String,
    },
    /// A process was not attached, or an activity or a program got no place. At most 20 of a user
    /// in 10 s.
    Refused {
        /// The process and user that asked.
        owner: Owner,
        /// The reason.
        reason: String,
    },
    /// A program has a share or a weight.
    ProgramAdmitted {
        /// Its number.
        program: u64,
        /// Its name, as its user gave it.
        name: String,
        /// Its first process, and the user that asked.
        owner: Owner,
        /// Its CPU.
        cpu: u32,
        /// Its share; `None`: it has a weight.
        share: Option<Share>,
    },
    /// A program has no share and no weight any more. Its processes may run on.
    ProgramEnded {
        /// Its number.
        program: u64,
        /// Its name, as its user gave it.
        name: String,
        /// The reason, in a few words.
        reason: String,
    },
    /// A destination has a packet quota.
    PacketQuotaSet {
        /// The process that asked for it.
        pid: u32,
        /// The name of its program, as its user gave it.
        name: String,
        /// The destination, for people.
        destination: String,
        /// Where packets are dropped, a line for each interface.
        places: String,
    },
    /// A packet quota has ended with its connection.
    PacketQuotaEnded {
        /// The name of its program, as its user gave it.
        name: String,
        /// The destination, for people.
        destination: String,
        /// The packets that passed.
        passed: u64,
        /// The packets that were dropped.
        dropped: u64,
    },
    /// A process has a flow.
    FlowOpened {
        /// Its user.
        uid: u32,
        /// The process.
        pid: u32,
        /// The address of the flow.
        local: SocketAddr,
        /// The path of its packets, in one sentence.
        path: String,
    },
    /// A flow has ended with its connection.
    FlowEnded {
        /// The process.
        pid: u32,
        /// The interface.
        interface: String,
        /// The address of the flow.
        local: SocketAddr,
        /// The datagrams that it got.
        received: u64,
        /// The datagrams that it sent.
        sent: u64,
        /// The reason, in a few words.
        reason: String,
    },
    /// An interface has no flows any more, and is the kernel's again.
    InterfaceClosed {
        /// The interface.
        interface: String,
        /// The frames of its area.
        frames: u32,
        /// How many of them were accounted for. A smaller number is a fault of the daemon.
        free: u32,
    },
    /// The watchdog acted against a domain.
    Offence {
        /// The domain's number.
        domain: u32,
        /// The domain's name.
        name: String,
        /// The CPU.
        cpu: u32,
        /// The measure that it took.
        measure: Measure,
        /// The CPU time that the domain had used without yielding.
        held: Span,
    },
    /// A right is missing, or a call failed; the daemon goes on.
    Trouble(Trouble),
}

/// What [`DaemonEvent::Trouble`] reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// The daemon has no right to the real-time class: it promises no wake-up times.
    NoRealTimeClass(FifoRefusal),
    /// Few descriptors are left. The daemon ends silent connections, or accepts none for a moment.
    FewDescriptors {
        /// The limit of open descriptors (`RLIMIT_NOFILE`).
        descriptors_max: u64,
    },
    /// The watchdog cannot read the CPU time of a domain's thread. It accuses nobody for what it
    /// cannot see. Reported once a CPU.
    Unseen {
        /// The CPU.
        cpu: u32,
        /// The kernel's error.
        error: OsError,
    },
    /// The watchdog cannot see which domains wait for priority-inheritance locks. It finds them
    /// only while work waits and no domain runs. Reported at the start of a daemon of several
    /// users.
    UnseenLocks(OsError),
    /// Reports of the watchdog were lost, because the server was far behind. The counts of offences
    /// in the status are right. A domain that should have been killed was only demoted.
    LostReports {
        /// How many.
        count: u64,
    },
    /// Groups of programs that a killed daemon left cannot be removed.
    LeftGroups(CgroupError),
    /// A system call failed.
    Os(OsError),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::NoRealTimeClass(refusal) => write!(
                f,
                "{refusal}: handlers run in the ordinary class, without guarantees; {}",
                how_to_grant()
            ),
            Trouble::FewDescriptors { descriptors_max } => write!(
                f,
                "few of {descriptors_max} descriptors are left: the daemon ends silent connections; \
                 a higher limit (LimitNOFILE, ulimit -n) leaves more room"
            ),
            Trouble::Unseen { cpu, error } => write!(
                f,
                "the watchdog cannot read the CPU time of a domain on CPU {cpu}, and accuses \
                 nobody for it: {error}"
            ),
            Trouble::UnseenLocks(error) => write!(
                f,
                "the watchdog cannot see waits for priority-inheritance locks, so a user may cost \
                 others deadlines by them (docs/threat-model.md): {error}; it needs CAP_PERFMON \
                 and tracefs"
            ),
            Trouble::LostReports { count } => {
                write!(f, "{count} reports of the watchdog were lost: the server is far behind")
            }
            Trouble::LeftGroups(error) => {
                write!(f, "the groups of a killed daemon are not removed: {error}")
            }
            Trouble::Os(error) => write!(f, "{error}"),
        }
    }
}

impl core::error::Error for Trouble {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Trouble::NoRealTimeClass(refusal) => Some(refusal),
            Trouble::FewDescriptors { .. } | Trouble::LostReports { .. } => None,
            Trouble::LeftGroups(error) => Some(error),
            Trouble::Unseen { error, .. } | Trouble::UnseenLocks(error) | Trouble::Os(error) => {
                Some(error)
            }
        }
    }
}

impl fmt::Display for DaemonEvent {
    /// One line for people, without a line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DaemonEvent::Attached { domain, name, owner } => {
                let Owner { pid, uid } = owner;
                write!(f, "domain {domain} `{name}`: process {pid} of user {uid}")
            }
            DaemonEvent::Detached { domain, name, reason } => {
                write!(f, "domain {domain} `{name}`: {reason}")
            }
            DaemonEvent::Refused { owner: Owner { pid, uid }, reason } => {
                write!(f, "process {pid} of user {uid} refused: {reason}")
            }
            DaemonEvent::ProgramAdmitted { program, name, owner, cpu, share } => {
                let Owner { pid, uid } = owner;
                write!(f, "program {program} `{name}`: process {pid} of user {uid}, ")?;
                match share {
                    Some(share) => write!(f, "{share} of CPU {cpu}"),
                    None => write!(f, "a weight on CPU {cpu}"),
                }
            }
            DaemonEvent::ProgramEnded { program, name, reason } => {
                write!(f, "program {program} `{name}`: {reason}")
            }
            DaemonEvent::PacketQuotaSet { pid, name, destination, places } => {
                let places = places.replace('\n', "; ");
                write!(f, "packet quota of {destination} for `{name}` (process {pid}): {places}")
            }
            DaemonEvent::PacketQuotaEnded { name, destination, passed, dropped } => {
                let packets = format_args!("{passed} passed, {dropped} were dropped");
                write!(f, "packet quota of {destination} for `{name}` ended: {packets}")
            }
            DaemonEvent::FlowOpened { uid, pid, local, path } => {
                write!(f, "flow at {local} for process {pid} of user {uid}: {path}")
            }
            DaemonEvent::FlowEnded { pid, interface, local, received, sent, reason } => {
                let datagrams = format_args!("{received} received, {sent} sent");
                write!(
                    f,
                    "flow at {local} on {interface} of process {pid} ended: {reason}; {datagrams}"
                )
            }
            DaemonEvent::InterfaceClosed { interface, frames, free } => {
                write!(f, "{interface} has no flows any more: {free} of {frames} frames are free")
            }
            DaemonEvent::Offence { domain, name, cpu, measure, held } => {
                write!(f, "domain {domain} `{name}` kept CPU {cpu} for {held}: {measure}")
            }
            DaemonEvent::Trouble(trouble) => write!(f, "{trouble}"),
        }
    }
}

impl DaemonEvent {
    /// Reports to `tracing`: offences and troubles as warnings, the rest as information. Cheap
    /// without a subscriber. With one, the subscriber decides whether the call blocks.
    pub(super) fn trace(&self) {
        match self {
            DaemonEvent::Attached { domain, name, owner: Owner { pid, uid } } => {
                tracing::info!(event = "attached", domain, name, pid, uid, "{self}");
            }
            DaemonEvent::Detached { domain, name, reason } => {
                tracing::info!(event = "detached", domain, name, reason, "{self}");
            }
            DaemonEvent::ProgramAdmitted { program, name, owner, cpu, share } => {
                let (Owner { pid, uid }, share_ppm) = (owner, share.map_or(0, Share::ppm));
                let event = "program admitted";
                tracing::info!(event, program, name, pid, uid, cpu, share_ppm, "{self}");
            }
            DaemonEvent::ProgramEnded { program, name, reason } => {
                tracing::info!(event = "program ended", program, name, reason, "{self}");
            }
            DaemonEvent::PacketQuotaSet { pid, name, destination, .. } => {
                tracing::info!(event = "packet quota set", pid, name, destination, "{self}");
            }
            DaemonEvent::PacketQuotaEnded { name, destination, passed, dropped } => {
                let event = "packet quota ended";
                tracing::info!(event, name, destination, passed, dropped, "{self}");
            }
            DaemonEvent::FlowOpened { uid, pid, local, .. } => {
                tracing::info!(event = "flow opened", uid, pid, %local, "{self}");
            }
            DaemonEvent::FlowEnded { pid, local, received, sent, .. } => {
                tracing::info!(event = "flow ended", pid, %local, received, sent, "{self}");
            }
            DaemonEvent::InterfaceClosed { interface, frames, free } if free == frames => {
                tracing::info!(event = "interface closed", interface, frames, free, "{self}");
            }
            DaemonEvent::InterfaceClosed { interface, frames, free } => {
                tracing::warn!(event = "interface closed", interface, frames, free, "{self}");
            }
            DaemonEvent::Refused { owner: Owner { pid, uid }, reason } => {
                tracing::info!(event = "refused", pid, uid, reason, "{self}");
            }
            DaemonEvent::Offence { domain, name, cpu, measure, held } => {
                let held_ns = held.as_nanos();
                tracing::warn!(event = "offence", domain, name, cpu, %measure, held_ns, "{self}");
            }
            DaemonEvent::Trouble(_) => tracing::warn!(event = "trouble", "{self}"),
        }
    }
}
