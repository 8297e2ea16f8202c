//! The folder of a socket: whether it can be trusted, its lock, and the mode of the socket.
//!
//! [`super::Listener::bind`] alone uses it. Another user may put links and files of their own into
//! a folder to which that user may write. So such a folder is refused, and every call here works
//! relative to the folder's descriptor and follows no link.

use crate::{OsError, clock};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// How long [`Folder::lock`] waits. The holders of the lock make only a few system calls.
const LOCK_WITHIN_NS: u64 = 1_000_000_000;
/// The operation of the error about a folder or a file that another user controls.
const TRUST: &str = "bind (another user owns the folder or may write to it)";
const FOREIGN: &str = "bind (a file of another user is in the way)";

/// See the module's head.
#[derive(Debug)]
pub(super) struct Folder {
    fd: OwnedFd,
    /// The name of the socket in the folder.
    name: OsString,
}

/// The lock of a path. Dropping it removes the file and ends the lock.
#[derive(Debug)]
pub(super) struct Lock<'f> {
    folder: &'f Folder,
    _fd: OwnedFd,
}

impl Folder {
    /// Opens the folder of `path` and checks it.
    ///
    /// # Errors
    /// `EPERM` if another user may replace files in it. `ENOENT`, `EACCES`, `ENOTDIR`.
    pub(super) fn open(path: &Path) -> Result<Self, OsError> {
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = path.file_name().ok_or(OsError::new("bind", libc::EISDIR))?.to_owned();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(folder, flags, Mode::empty()).map_err(OsError::of("open"))?;
        let found = rustix::fs::fstat(&fd).map_err(OsError::of("fstat"))?;
        let is_sticky = found.st_mode & 0o1000 != 0;
        let others_write = found.st_mode & 0o022 != 0;
        // In a sticky folder only the owner of a file or of the folder can replace that file.
        let is_trusted = (is_own(&found) || found.st_uid == 0) && (!others_write || is_sticky);
        if !is_trusted {
            return Err(OsError::new(TRUST, libc::EPERM));
        }
        Ok(Folder { fd, name })
    }

    /// Locks the path until the result is dropped.
    ///
    /// # Errors
    /// `EAGAIN` after a second. `EPERM` if the file of the lock belongs to another user.
    pub(super) fn lock(&self) -> Result<Lock<'_>, OsError> {
        let name = self.lock_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let give_up_ns = clock::monotonic_ns() + LOCK_WITHIN_NS;
        loop {
            let fd = match rustix::fs::openat(&self.fd, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(fd) => fd,
                // A link, or a file that only its owner may open.
                Err(Errno::LOOP | Errno::ACCESS) => return Err(OsError::new(FOREIGN, libc::EPERM)),
                Err(errno) => return Err(OsError::of("open")(errno)),
            };
            let opened = rustix::fs::fstat(&fd).map_err(OsError::of("fstat"))?;
            if !is_own(&opened) || FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile
            {
                return Err(OsError::new(FOREIGN, libc::EPERM));
            }
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                // The former holder may have removed the file since.
                Ok(()) if self.stat(&name).is_ok_and(|found| is_same(&found, &opened)) => {
                    return Ok(Lock { folder: self, _fd: fd });
                }
                Ok(()) => {}
                Err(Errno::AGAIN) if clock::monotonic_ns() < give_up_ns => {
                    clock::sleep_until_ns(clock::monotonic_ns() + 1_000_000);
                }
                Err(errno) => return Err(OsError::of("flock")(errno)),
            }
        }
    }

    /// Removes the socket. Follows no link.
    pub(super) fn unlink_socket(&self) -> Result<(), OsError> {
        rustix::fs::unlinkat(&self.fd, &self.name, AtFlags::empty()).map_err(OsError::of("unlink"))
    }

    /// Sets the mode of the socket, which this process has just made.
    ///
    /// # Errors
    /// `EPERM` if there is another file now, such as a link.
    pub(super) fn set_mode_of_socket(&self, mode: Mode) -> Result<(), OsError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.fd, &self.name, flags, Mode::empty())
            .map_err(OsError::of("open"))?;
        let found = rustix::fs::fstat(&fd).map_err(OsError::of("fstat"))?;
        if !is_own(&found) || FileType::from_raw_mode(found.st_mode) != FileType::Socket {
            return Err(OsError::new(FOREIGN, libc::EPERM));
        }
        // fchmod(2) refuses descriptors of O_PATH. This name leads to the file that was checked.
        let checked = format!("/proc/self/fd/{}", fd.as_raw_fd());
        rustix::fs::chmod(checked, mode).map_err(OsError::of("chmod"))
    }

    fn stat(&self, name: &OsStr) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    fn lock_name(&self) -> OsString {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(".lock");
        name
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // The file is still locked here, so no other process holds its lock.
        let _ = rustix::fs::unlinkat(&self.folder.fd, self.folder.lock_name(), AtFlags::empty());
    }
}

fn is_own(found: &Stat) -> bool {
    found.st_uid == rustix::process::geteuid().as_raw()
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}
