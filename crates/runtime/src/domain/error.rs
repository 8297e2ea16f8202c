//! Why a process is not a domain.

use std::fmt;
use std::path::PathBuf;

use upcall_shm::LayoutError;
use upcall_shm::wire::WireError;
use upcall_sys::OsError;
use upcall_sys::local::ReceiveError;
use upcall_sys::memfd::MapError;

use crate::daemon_fault::DaemonFault;

/// Why a process is not a domain.
#[non_exhaustive]
pub enum AttachError {
    /// No daemon listens at the path, or this user may not use it.
    Connect {
        /// The path.
        path: PathBuf,
        /// What the system said.
        error: OsError,
    },
    /// The daemon refuses this process.
    Rejected(String),
    /// The daemon did not answer in time.
    Silent,
    /// The daemon closed the connection before it answered: it has ended.
    Closed,
    /// The daemon has gone, and there is no other yet.
    Orphaned,
    /// The daemon broke the protocol of this version.
    Daemon(DaemonFault),
    /// The daemon sent a message that no daemon of this version sends.
    Wire(WireError),
    /// The daemon sent a message that cannot be received.
    Receive(ReceiveError),
    /// The daemon's pages have another layout.
    Layout(LayoutError),
    /// The descriptor of a page could not be duplicated.
    Descriptor(std::io::Error),
    /// A page of the daemon could not be mapped.
    Map(MapError),
    /// The thread that listens to the daemon did not start.
    Thread(std::io::Error),
    /// The connection failed.
    Os(OsError),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wrong = |f: &mut fmt::Formatter<'_>, what: &dyn fmt::Display| {
            write!(f, "the daemon is another version or wrong: {what}")
        };
        match self {
            AttachError::Connect { path, error } => {
                write!(f, "no daemon at {}: {error}", path.display())
            }
            AttachError::Rejected(reason) => {
                write!(f, "the daemon does not attach this process: {reason}")
            }
            AttachError::Silent => f.write_str("the daemon did not answer in time"),
            AttachError::Closed => f.write_str("the daemon ended before it had answered"),
            AttachError::Orphaned => {
                f.write_str("the daemon has gone; nothing new is admitted until another one runs")
            }
            AttachError::Daemon(fault) => wrong(f, fault),
            AttachError::Wire(error) => wrong(f, error),
            AttachError::Receive(error) => wrong(f, error),
            AttachError::Layout(error) => wrong(f, error),
            AttachError::Descriptor(error) => {
                write!(f, "the descriptor of a page cannot be duplicated: {error}")
            }
            AttachError::Map(error) => {
                write!(f, "the pages of the daemon cannot be mapped: {error}")
            }
            AttachError::Thread(error) => {
                write!(f, "the thread that listens to the daemon did not start: {error}")
            }
            AttachError::Os(error) => {
                write!(f, "the connection to the daemon failed: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(AttachError);

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AttachError::Connect { error, .. } | AttachError::Os(error) => Some(error),
            AttachError::Daemon(fault) => Some(fault),
            AttachError::Wire(error) => Some(error),
            AttachError::Receive(error) => Some(error),
            AttachError::Layout(error) => Some(error),
            AttachError::Map(error) => Some(error),
            AttachError::Descriptor(error) | AttachError::Thread(error) => Some(error),
            AttachError::Rejected(_)
            | AttachError::Silent
            | AttachError::Closed
            | AttachError::Orphaned => None,
        }
    }
}

impl From<DaemonFault> for AttachError {
    fn from(fault: DaemonFault) -> Self {
        AttachError::Daemon(fault)
    }
}

impl From<OsError> for AttachError {
    fn from(error: OsError) -> Self {
        AttachError::Os(error)
    }
}

impl From<MapError> for AttachError {
    fn from(error: MapError) -> Self {
        AttachError::Map(error)
    }
}

impl From<WireError> for AttachError {
    fn from(error: WireError) -> Self {
        AttachError::Wire(error)
    }
}

impl From<LayoutError> for AttachError {
    fn from(error: LayoutError) -> Self {
        AttachError::Layout(error)
    }
}
