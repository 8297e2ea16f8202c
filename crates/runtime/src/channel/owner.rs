//! The process that serves a name already, for the error that a name is taken.

use std::fmt;
use std::path::Path;

use upcall_sys::local::{Connection, Credentials};

/// A process that listens at the socket of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceOwner {
    /// The process's number. 0 if this process cannot see it (another PID namespace).
    pub pid: u32,
    /// The user of the process when it began to listen.
    pub uid: u32,
    /// The name of its program, if it can be read: at most 15 bytes, chosen by the process.
    pub command: Option<String>,
}

impl ServiceOwner {
    /// The process that listens at `socket` now. `None` if no process listens, or its queue of
    /// connections is full. Connects for a moment and reads a file of `/proc`. Allocates.
    pub(super) fn of(socket: &Path) -> Option<Self> {
        let connection = Connection::connect(socket).ok()?;
        let Credentials { pid, uid, .. } = connection.peer_credentials().ok()?;
        // Read while the connection is open: the process with this number existed just now.
        let command = std::fs::read(format!("/proc/{pid}/comm")).ok();
        let command = command.map(|name| {
            let name = String::from_utf8_lossy(&name);
            let visible = name.trim_end().chars();
            visible.map(|c| if c.is_control() { '?' } else { c }).collect()
        });
        Some(ServiceOwner { pid, uid, command })
    }
}

impl fmt::Display for ServiceOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.command) {
            (0, _) => f.write_str("a process of another PID namespace")?,
            (pid, _) if pid == std::process::id() => f.write_str("this process")?,
            (pid, Some(command)) => write!(f, "process {pid} (`{command}`)")?,
            (pid, None) => write!(f, "process {pid}")?,
        }
        write!(f, " of user {}", self.uid)
    }
}
