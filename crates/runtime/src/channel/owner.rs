//! The process that serves a name already, so that an error can say whose the name is.

use std::fmt;
use std::path::Path;

use upcall_sys::local::{Connection, Credentials};

/// A process that listens at the socket of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceOwner {
    /// Its number; 0 where this process cannot see it (another PID namespace).
    pub pid: u32,
    /// The user it had when it began to listen.
    pub uid: u32,
    /// The name of its program, where it can be read: at most 15 bytes, chosen by the process.
    pub command: Option<String>,
}

impl ServiceOwner {
    /// The process that listens at `socket` now; `None` if none does, or it has no room for
    /// one more connection. Connects for a moment, reads a file of `/proc`; allocates.
    pub(super) fn of(socket: &Path) -> Option<Self> {
        let connection = Connection::connect(socket).ok()?;
        let Credentials { pid, uid, .. } = connection.peer_credentials().ok()?;
        // With the connection open: the number is that of a process which was there just now.
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
