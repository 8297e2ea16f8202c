//! Messages and descriptors between processes of this machine: Unix sockets of
//! kind `SOCK_SEQPACKET`.
//!
//! Called by the daemon, which listens, and by who attaches to it. A message
//! arrives whole or not at all, with the descriptors it was sent with, and the
//! kernel says who is at the other end. But for [`Listener::bind`] nothing here blocks: wait with
//! [`crate::readiness`]. What the messages say is the business of others. See
//! unix(7).
//!
//! A received descriptor is an [`OwnedFd`] from the moment it exists, and closed
//! on exec: whatever goes wrong afterwards, none is left open.

use crate::{OsError, clock};
use core::fmt;
use core::mem::MaybeUninit;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

mod passed;
mod peer;
#[cfg(test)]
mod tests;

pub use peer::Credentials;

/// Descriptors that go with one message at most: the kernel's `SCM_MAX_FD`.
pub const FDS_MAX: usize = 253;

/// Room for the control message that carries [`FDS_MAX`] descriptors.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

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
                Ok(fd) => return Ok(Some(Connection { fd })),
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

/// One end of a connection. Closed when dropped, and on exec.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
}

/// What one call of [`Connection::receive`] brought.
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message. 0: the other end is closed (or broke the rule and sent
    /// an empty message: hang up either way).
    pub len: usize,
    /// The descriptors that came with it, in the order they were sent.
    pub fds: Vec<OwnedFd>,
}

impl Connection {
    /// Connects to who listens at `path`. Does not block.
    ///
    /// # Errors
    /// `ENOENT` if there is no file, `ECONNREFUSED` if nobody listens there, `EACCES`
    /// if the mode forbids it, `EAGAIN` if too many wait to be accepted,
    /// `EPROTOTYPE` if it is a socket of another kind.
    pub fn connect(path: &Path) -> Result<Connection, OsError> {
        let failed = OsError::of("connect");
        let address = SocketAddrUnix::new(path).map_err(&failed)?;
        let fd = socket()?;
        rustix::net::connect(&fd, &address).map_err(failed)?;
        Ok(Connection { fd })
    }

    /// Two ends of one connection, both in this process.
    ///
    /// # Errors
    /// What the kernel said (`EMFILE`, `ENOMEM`).
    pub fn pair() -> Result<(Connection, Connection), OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map(|(one, other)| (Connection { fd: one }, Connection { fd: other }))
            .map_err(OsError::of("socketpair"))
    }

    /// Sends `message` whole, with copies of `fds`. One system call; does not block
    /// or allocate.
    ///
    /// # Errors
    /// `EINVAL` for an empty message or more than [`FDS_MAX`] descriptors; `EAGAIN` if
    /// the other end has too much unread, `EMSGSIZE` if it never could take so much;
    /// `EPIPE` or `ECONNRESET` if it is closed; `ETOOMANYREFS` if too many
    /// descriptors of this user are under way.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), OsError> {
        const OPERATION: &str = "sendmsg";
        // An empty message would look like the end.
        if message.is_empty() || fds.len() > FDS_MAX {
            return Err(OsError::new(OPERATION, libc::EINVAL));
        }
        let mut room = [MaybeUninit::uninit(); CONTROL_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(OsError::new(OPERATION, libc::EINVAL)); // there is room for FDS_MAX
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.fd, &[IoSlice::new(message)], &mut control, flags) {
                // Whole: the kind of socket promises it.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of(OPERATION)(errno)),
            }
        }
    }

    /// Hangs up, whoever else has a copy of the descriptor: the other end finds it closed once it has read what was
    /// sent, and so does this one. One system call.
    pub fn hang_up(&self) {
        // ENOTCONN: the other end has done so, and more.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }

    /// Takes the next message into `buffer`. One system call; does not block;
    /// allocates only if there are descriptors.
    ///
    /// # Errors
    /// [`ReceiveError::Message`] and [`ReceiveError::Descriptors`]: the message is
    /// gone, and what came with it closed. Otherwise what the kernel said: `EAGAIN` if
    /// there is none; `ECONNRESET` if the other end was closed with messages unread.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        if buffer.is_empty() {
            return Err(OsError::new("recvmsg", libc::EINVAL).into());
        }
        let room_bytes = buffer.len();
        let mut room = [MaybeUninit::uninit(); CONTROL_BYTES];
        // Dropping it closes every descriptor not taken from it.
        let mut control = RecvAncillaryBuffer::new(&mut room);
        let mut parts = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = loop {
            match rustix::net::recvmsg(&self.fd, &mut parts, &mut control, flags) {
                Ok(message) => break message,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("recvmsg")(errno).into()),
            }
        };
        if message.flags.contains(ReturnFlags::TRUNC) {
            return Err(ReceiveError::Message { room_bytes });
        }
        if message.flags.contains(ReturnFlags::CTRUNC) {
            return Err(ReceiveError::Descriptors);
        }
        let mut fds = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = part {
                fds.extend(received);
            }
        }
        Ok(Received { len: message.bytes, fds })
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Why nothing was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The message was longer than the buffer.
    Message {
        /// Bytes there was room for.
        room_bytes: usize,
    },
    /// More descriptors came than this process may have open (`RLIMIT_NOFILE`).
    Descriptors,
    /// The kernel refused.
    Os(OsError),
}

impl ReceiveError {
    /// Whether there was only nothing to receive (`EAGAIN`).
    pub const fn is_would_block(&self) -> bool {
        matches!(self, ReceiveError::Os(error) if error.is_would_block())
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Message { room_bytes } => {
                write!(f, "a message is longer than the {room_bytes} bytes expected at most")
            }
            ReceiveError::Descriptors => f.write_str(
                "a message brought more descriptors than this process may open (RLIMIT_NOFILE)",
            ),
            ReceiveError::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReceiveError {}

impl From<OsError> for ReceiveError {
    fn from(error: OsError) -> Self {
        ReceiveError::Os(error)
    }
}

fn socket() -> Result<OwnedFd, OsError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(OsError::of("socket"))
}

/// Locks the directory of `path` until the descriptor is dropped.
fn lock_directory(path: &Path) -> Result<OwnedFd, OsError> {
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
