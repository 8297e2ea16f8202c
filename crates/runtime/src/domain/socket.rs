//! Finds the daemon's socket, and checks whether a daemon listens there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use upcall_sys::OsError;
use upcall_sys::local::Connection;

use crate::folder::{self, FolderError};

/// The variable that names the socket, before any other rule.
const VARIABLE: &str = "UPCALL_SOCKET";
/// The socket of the daemon that serves all users of the machine; only root can put it there.
const SYSTEM: &str = "/run/upcall.sock";

/// The socket of the daemon that programs of this user use:
///
/// 1. `$UPCALL_SOCKET`, whether or not a daemon answers there;
/// 2. the user's own ([`own_daemon_socket`]), if a daemon answers there;
/// 3. the system's at `/run/upcall.sock`, if a daemon answers there that this user may
///    attach to (`upcalld --access everyone`);
/// 4. otherwise the user's own, where no daemon listens yet.
///
/// Connects to at most two sockets; does not wait for a reply. Allocates.
///
/// # Errors
/// There is no daemon, and the folder for the socket of the user's own daemon cannot be trusted:
/// another user made it, or may write to it.
pub fn daemon_socket() -> Result<PathBuf, FolderError> {
    if let Some(named) = folder::variable(VARIABLE) {
        return Ok(named);
    }
    let own = own_path();
    let trusted = folder::check(folder_of(&own));
    let system = Path::new(SYSTEM);
    let first = if trusted.is_ok() { own.as_path() } else { system };
    for socket in [first, system] {
        // An error: a socket that this user may not use.
        if daemon_answers(socket) == Ok(true) {
            return Ok(socket.to_owned());
        }
    }
    match trusted {
        // The start of a daemon makes the folder.
        Err(FolderError::Os { error, .. }) if error.kind() == ErrorKind::NotFound => Ok(own),
        trusted => trusted.map(|()| own),
    }
}

/// The socket of a daemon that this user starts:
///
/// 1. `$UPCALL_SOCKET`;
/// 2. `upcall.sock` in `$XDG_RUNTIME_DIR`, if that folder belongs to the user;
/// 3. `/run/upcall.sock` for root; for other users `upcall.sock` in the folder `upcall-UID` beside
///    temporary files. The call makes that folder, for this user alone.
///
/// Allocates.
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

/// The folder of [`own_daemon_socket`] without `$UPCALL_SOCKET`, for other files of this user that
/// no other user may change. The call makes the folder. Allocates.
///
/// # Errors
/// The folder cannot be made, or cannot be trusted.
pub fn private_folder() -> Result<PathBuf, FolderError> {
    let folder = folder::user_folder();
    folder::make(&folder).map(|()| folder)
}

/// The socket of a daemon that serves every user: `$UPCALL_SOCKET`, otherwise `/run/upcall.sock`,
/// where programs of all users look. A folder of root's own would not do, because other users
/// cannot enter it.
pub fn system_daemon_socket() -> PathBuf {
    folder::variable(VARIABLE).unwrap_or_else(|| SYSTEM.into())
}

/// Whether a daemon listens at `path`. Does not wait for a message of the daemon. A daemon that has
/// not accepted all connections yet listens, too.
///
/// # Errors
/// The answer is unknown: no right to connect (`EACCES`), a socket of another kind (`EPROTOTYPE`),
/// or a path that is too long.
pub fn daemon_answers(path: &Path) -> Result<bool, OsError> {
    match Connection::connect(path) {
        Ok(_) => Ok(true),
        // Too many connections wait for it.
        Err(error) if error.is_would_block() => Ok(true),
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
