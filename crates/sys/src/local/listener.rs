//! A socket at a path, to which other processes connect.

use super::connection::{Connection, socket};
use crate::{OsError, clock};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How long another may keep a directory's lock: its holders need some system calls, but
/// anyone who may read the directory can lock it.
const LOCK_WITHIN_NS: u64 = 1_000_000_000;

/// Connections the kernel keeps for [`Listener::accept`]; one more is refused
/// with `EAGAIN`. It allows at most `net.core.somaxconn`.
const BACKLOG: i32 = 128;

/// Who may connect: whom the file's mode lets write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// This user and root (mode 0600).
    Owner,
    /// Everyone who can reach the path (mode 0666).
    Everyone,
}

/// A socket at a path, to which others connect. Closed when dropped, and on exec;
/// the file stays, and the next [`Listener::bind`] removes it.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

impl Listener {
    /// Wraps a descriptor that listens.
    pub(super) fn of(fd: OwnedFd) -> Listener {
        Listener { fd }
    }

    /// Listens at `path`. A socket that was left there and that nobody answers is
    /// removed first; any other file is not.
    ///
    /// The directory is locked meanwhile (flock(2)), so that of two processes that
    /// find the same left-over socket one wins and neither removes the other's.
    /// Nobody gets in before the mode is set. Waits a second at most for whoever has
    /// the lock; allocates.
    ///
    /// # Errors
    /// `EADDRINUSE` if somebody answers there or the file is no socket; `EAGAIN` if
    /// somebody else keeps the directory's lock; `ENAMETOOLONG` beyond
    /// 107 bytes; `ENOENT`, `EACCES`.
    pub fn bind(path: &Path, access: Access) -> Result<Listener, OsError> {
        let address = SocketAddrUnix::new(path).map_err(OsError::of("bind"))?;
        let _lock = lock_directory(path)?;
        let fd = socket()?;
        match rustix::net::bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_left_over(path, &address)? => {
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
        // Until listen(2), whoever connects is refused.
        rustix::fs::chmod(path, mode).map_err(OsError::of("chmod"))?;
        rustix::net::listen(&fd, BACKLOG).map_err(OsError::of("listen"))?;
        Ok(Listener { fd })
    }

    /// The next who has connected; `None` if nobody has. One system call.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`: who waits goes on waiting, and the listener
    /// stays readable.
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

/// Whether `path` is a socket that nobody has open: connecting is refused, and not
/// for another reason.
fn is_left_over(path: &Path, address: &SocketAddrUnix) -> Result<bool, OsError> {
    let status = rustix::fs::lstat(path).map_err(OsError::of("lstat"))?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::Socket {
        return Ok(false);
    }
    // Of another kind (EPROTOTYPE), busy (EAGAIN), not ours (EACCES): not left over.
    Ok(rustix::net::connect(socket()?, address) == Err(Errno::CONNREFUSED))
}
