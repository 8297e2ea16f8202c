//! A socket at a path, to which other processes connect.

use super::connection::{Connection, socket};
use crate::{OsError, clock};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How long [`Listener::bind`] waits for the directory's lock. Its usual holders make only a few
/// system calls. But every process that may read the directory can lock it.
const LOCK_WITHIN_NS: u64 = 1_000_000_000;

/// Connections that the kernel keeps for [`Listener::accept`]. It refuses one more with `EAGAIN`.
/// The kernel's limit is `net.core.somaxconn`.
const BACKLOG: i32 = 128;

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
    /// Meanwhile the directory is locked (flock(2)). So if two processes find the same stale
    /// socket, one of them binds, and neither removes the other's socket. No connection is accepted
    /// before the mode is set. Waits at most a second for the lock. Allocates.
    ///
    /// # Errors
    /// `EADDRINUSE` if another process serves the socket or the file is no socket. `EAGAIN` if
    /// another process keeps the directory's lock. `ENAMETOOLONG` beyond 107 bytes. `ENOENT`,
    /// `EACCES`.
    pub fn bind(path: &Path, access: Access) -> Result<Listener, OsError> {
        let address = SocketAddrUnix::new(path).map_err(OsError::of("bind"))?;
        let _lock = lock_directory(path)?;
        let fd = socket()?;
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_stale(path, &address)? => {
                rustix::fs::unlink(path).map_err(OsError::of("unlink"))?;
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
        rustix::fs::chmod(path, mode).map_err(OsError::of("chmod"))?;
        rustix::net::listen(&fd, BACKLOG).map_err(OsError::of("listen"))?;
        Ok(Listener { fd })
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

/// Locks the directory of `path` until the descriptor is dropped.
pub(super) fn lock_directory(path: &Path) -> Result<OwnedFd, OsError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(directory, flags, Mode::empty()).map_err(OsError::of("open"))?;
    let give_up_ns = clock::monotonic_ns() + LOCK_WITHIN_NS;
    loop {
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(fd),
            Err(Errno::AGAIN) if clock::monotonic_ns() < give_up_ns => {
                clock::sleep_until_ns(clock::monotonic_ns() + 1_000_000);
            }
            Err(errno) => return Err(OsError::of("flock")(errno)),
        }
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
