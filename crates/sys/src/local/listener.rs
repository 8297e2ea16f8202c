//! A socket at a path, to which other processes connect.

use super::connection::{Connection, refuse_descriptors, socket};
use super::folder::Folder;
use crate::OsError;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Connections that the kernel keeps for [`Listener::accept`]. It refuses one more with `EAGAIN`.
/// The kernel's limit is `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

/// Who may connect: the users to whom the file's mode gives write permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This user and root (mode 0600).
    Owner,
    /// Everyone who can reach the path (mode 0666).
    Everyone,
}

/// A socket at a path, to which other processes connect. Closed when dropped, and on exec. The file
/// stays, and the next [`Listener::bind`] removes it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Wraps a listening descriptor.
    pub(super) fn of(fd: OwnedFd) -> Listener {
        Listener { fd }
    }

    /// Listens at `path`. Removes a stale socket there first, that is, one that no process serves.
    /// It removes no other kind of file.
    ///
    /// Meanwhile a file beside the socket is locked (flock(2)), which only this user can open. So
    /// if two processes find the same stale socket, one of them binds, and neither removes the
    /// other's socket. The mode is set on the socket that was made here, never on the target of a
    /// link. No connection is accepted before that. Waits at most a second for the lock. Allocates.
    ///
    /// # Errors
    /// `EPERM` if the folder belongs neither to this user nor to root, if others may write to it
    /// and it is not sticky, or if a foreign file is in the place of the socket or of the lock.
    /// `EADDRINUSE` if another process serves the socket or the file is no socket. `EAGAIN` if
    /// another process of this user keeps the lock. `ENAMETOOLONG` beyond 107 bytes. `ENOENT`,
    /// `EACCES`.
    pub fn bind(path: &Path, access: Access) -> Result<Listener, OsError> {
        let address = SocketAddrUnix::new(path).map_err(OsError::of("bind"))?;
        let folder = Folder::open(path)?;
        let _lock = folder.lock()?;
        let fd = socket()?;
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_stale(path, &address)? => {
                folder.unlink_socket()?;
                rustix::net::bind(&fd, &address)
            }
            result => result,
        }
        .map_err(OsError::of("bind"))?;
        let mode = match access {
            Access::Owner => Mode::RUSR | Mode::WUSR,
            Access::Everyone => Mode::from_raw_mode(0o666),
        };
        // Until listen(2), the kernel refuses every connection.
        folder.set_mode_of_socket(mode)?;
        rustix::net::listen(&fd, BACKLOG).map_err(OsError::of("listen"))?;
        Ok(Listener { fd })
    }

    /// Makes the kernel refuse descriptors that clients send (`SO_PASSRIGHTS`, Linux 6.16 and
    /// newer): their send fails with `EPERM`. Applies to later connections. Returns whether the
    /// kernel knows the option. One system call.
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn refuse_descriptors(&self) -> Result<bool, OsError> {
        refuse_descriptors(self.fd.as_fd())
    }

    /// The next pending connection; `None` if there is none. One system call.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: the pending connection keeps waiting, and the listener stays
    /// readable.
    pub fn accept(&self) -> Result<Option<Connection>, OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            match rustix::net::accept_with(&self.fd, flags) {
                Ok(fd) => return Ok(Some(Connection::of(fd))),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("accept4")(errno)),
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether `path` is a stale socket: one that no process has open, so that connecting is refused
/// for that reason.
fn is_stale(path: &Path, address: &SocketAddrUnix) -> Result<bool, OsError> {
    let status = rustix::fs::lstat(path).map_err(OsError::of("lstat"))?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::Socket {
        return Ok(false);
    }
    // Not stale: another kind (EPROTOTYPE), busy (EAGAIN) or another user's (EACCES).
    Ok(rustix::net::connect(socket()?, address) == Err(Errno::CONNREFUSED))
}
