//! Where a daemon listens, and whether one does.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use upcall_sys::OsError;
use upcall_sys::local::Connection;

use crate::folder::{self, FolderError};

/// Names the socket, before any other rule.
const VARIABLE: &str = "UPCALL_SOCKET";
/// Of the daemon that serves all users of the machine; root alone can put it there.
const SYSTEM: &str = "/run/upcall.sock";

/// The daemon that programs of this user speak with:
///
/// 1. `$UPCALL_SOCKET`, whether or not a daemon answers there;
/// 2. the user's own ([`own_daemon_socket`]), if a daemon answers there;
/// 3. the system's at `/run/upcall.sock`, if a daemon answers there that this user may
///    attach to (`upcalld --access everyone`);
/// 4. else the user's own, where no daemon is yet.
///
/// Connects to at most two sockets; does not wait for an answer. Allocates.
///
/// # Errors
/// There is no daemon, and the folder for the user's own cannot be trusted: somebody else
/// made it, or may write to it.
pub fn daemon_socket() -> Result<PathBuf, FolderError> {
    if let Some(named) = folder::variable(VARIABLE) {
        return Ok(named);
    }
    let own = own_path();
    let trusted = folder::check(folder_of(&own));
    let system = Path::new(SYSTEM);
    let first = if trusted.is_ok() { own.as_path() } else { system };
    for socket in [first, system] {
        // An error: one that this user may not use.
        if daemon_answers(socket) == Ok(true) {
            return Ok(socket.to_owned());
        }
    }
    match trusted {
        // The folder is made when a daemon is started.
        Err(FolderError::Os { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(own),
        trusted => trusted.map(|()| own),
    }
}

/// Where a daemon listens that this user starts: `$UPCALL_SOCKET`; else `upcall.sock` in
/// `$XDG_RUNTIME_DIR` if that folder is the user's; else `/run/upcall.sock` for root, and
/// for others `upcall.sock` in the folder `upcall-UID` where temporary files are. That
/// folder is made, for this user alone. Allocates.
///
/// # Errors
/// The folder cannot be made, or cannot be trusted.
pub fn own_daemon_socket() -> Result<PathBuf, FolderError> {
    if let Some(named) = folder::variable(VARIABLE) {
        return Ok(named);
    }
    let own = own_path();
    folder::make(folder_of(&own)).map(|()| own)
}

/// Where a daemon listens that serves every user: `$UPCALL_SOCKET`; else `/run/upcall.sock`, where
/// programs of all users look. Root's own folder is no place for it: others cannot enter that.
pub fn system_daemon_socket() -> PathBuf {
    folder::variable(VARIABLE).unwrap_or_else(|| SYSTEM.into())
}

/// Whether a daemon listens at `path`. Does not wait for it to say anything.
///
/// # Errors
/// It cannot be told: no right to connect (`EACCES`), a socket of another kind
/// (`EPROTOTYPE`), too many wait (`EAGAIN`), a path that is too long.
pub fn daemon_answers(path: &Path) -> Result<bool, OsError> {
    match Connection::connect(path) {
        Ok(_) => Ok(true),
        Err(error) => match std::io::Error::from(error).kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => Ok(false),
            _ => Err(error),
        },
    }
}

fn own_path() -> PathBuf {
    folder::user_folder().join("upcall.sock")
}

fn folder_of(socket: &Path) -> &Path {
    socket.parent().unwrap_or(Path::new("/"))
}
