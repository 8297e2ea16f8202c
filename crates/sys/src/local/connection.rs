//! One end of a connection: messages and descriptors, sent and received.

use super::error::ReceiveError;
use crate::OsError;
use core::mem::MaybeUninit;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// Descriptors that go with one message at most: the kernel's `SCM_MAX_FD`.
pub const FDS_MAX: usize = 253;

/// Room for the control message that carries [`FDS_MAX`] descriptors.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

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
    /// Wraps a connected socket.
    pub(super) fn of(fd: OwnedFd) -> Connection {
        Connection { fd }
    }

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

pub(super) fn socket() -> Result<OwnedFd, OsError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(OsError::of("socket"))
}
