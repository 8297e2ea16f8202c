//! What the daemon tells its program, and `tracing`.
//!
//! The server's thread, of ordinary class, makes and tells each event. No KLS thread and no
//! watchdog does: an offence reaches the server as a message first.

use core::fmt;

use upcall_core::time::Span;

use crate::registry::Owner;
use crate::watchdog::Measure;

/// Something that whoever runs the daemon may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DaemonEvent {
    /// A process became a domain.
    Attached {
        /// Its number.
        domain: u32,
        /// As it said.
        name: String,
        /// Process and user.
        owner: Owner,
    },
    /// A process is not a domain any more.
    Detached {
        /// Its number.
        domain: u32,
        /// As it said.
        name: String,
        /// Why, in a few words.
        reason: String,
    },
    /// A process was not attached, or an activity got no place.
    Refused {
        /// Who asked.
        owner: Owner,
        /// Why.
        reason: String,
    },
    /// The watchdog acted.
    Offence {
        /// Against this domain.
        domain: u32,
        /// As it said.
        name: String,
        /// On this CPU.
        cpu: u32,
        /// What it did.
        measure: Measure,
        /// CPU time for which it had kept the CPU.
        held: Span,
    },
    /// A right is missing or something failed; the daemon goes on.
    Trouble(String),
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
            DaemonEvent::Offence { domain, name, cpu, measure, held } => {
                write!(f, "domain {domain} `{name}` kept CPU {cpu} for {held}: {measure}")
            }
            DaemonEvent::Trouble(what) => f.write_str(what),
        }
    }
}

impl DaemonEvent {
    /// Tells `tracing`: offences and troubles as warnings, the rest as information. Cheap
    /// without a subscriber; with one, the subscriber decides whether the call blocks.
    pub(super) fn trace(&self) {
        match self {
            DaemonEvent::Attached { domain, name, owner: Owner { pid, uid } } => {
                tracing::info!(event = "attached", domain, name, pid, uid, "{self}");
            }
            DaemonEvent::Detached { domain, name, reason } => {
                tracing::info!(event = "detached", domain, name, reason, "{self}");
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
