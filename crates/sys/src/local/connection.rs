//! One end of a connection: messages and descriptors, sent and received.

use super::error::ReceiveError;
use crate::{OsError, clock};
use core::mem::MaybeUninit;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The most descriptors in one message: the kernel's `SCM_MAX_FD`.
pub const FDS_MAX: usize = 253;

/// Size of the control message that carries [`FDS_MAX`] descriptors.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(FDS_MAX));

/// One end of a connection. Closed when dropped, and on exec.
#[derive(Debug)]
pub struct Connection {
    fd: OwnedFd,
}

/// The result of one [`Connection::receive`].
#[derive(Debug)]
pub struct Received {
    /// Bytes of the message. 0 means that the other end is closed, or that it sent an empty
    /// message, which [`Connection::send`] refuses. Close the connection in both cases.
    pub len: usize,
    /// The descriptors that came with the message, in the order they were sent.
    pub fds: Vec<OwnedFd>,
}

impl Connection {
    /// Wraps a connected socket.
    pub(super) fn of(fd: OwnedFd) -> Connection {
        Connection { fd }
    }

    /// Connects to the listener at `path`. Does not block.
    ///
    /// # Errors
    /// `ENOENT` if there is no file. `ECONNREFUSED` if no process listens there. `EACCES` if the
    /// mode forbids it. `EAGAIN` if too many connections wait to be accepted. `EPROTOTYPE` for a
    /// socket of another kind.
    pub fn connect(path: &Path) -> Result<Connection, OsError> {
        let failed = OsError::of("connect");
        let address = SocketAddrUnix::new(path).map_err(&failed)?;
        let fd = socket()?;
        rustix::net::connect(&fd, &address).map_err(failed)?;
        Ok(Connection { fd })
    }

    /// As [`Connection::connect`], but while too many connections wait to be accepted it tries
    /// again, until `deadline_ns` of `CLOCK_MONOTONIC`. Blocks until then at most.
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub fn connect_until(path: &Path, deadline_ns: u64) -> Result<Connection, OsError> {
        loop {
            match Connection::connect(path) {
                Err(error) if error.is_would_block() && clock::monotonic_ns() < deadline_ns => {
                    clock::sleep_until_ns(clock::monotonic_ns() + 1_000_000);
                }
                result => return result,
            }
        }
    }

    /// Both ends of a new connection, in this process.
    ///
    /// # Errors
    /// The kernel's error (`EMFILE`, `ENOMEM`).
    pub fn pair() -> Result<(Connection, Connection), OsError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
            .map(|(one, other)| (Connection { fd: one }, Connection { fd: other }))
            .map_err(OsError::of("socketpair"))
    }

    /// Sends `message` whole, with copies of `fds`. One system call. Does not block or allocate.
    ///
    /// # Errors
    /// `EINVAL` for an empty message or more than [`FDS_MAX`] descriptors. `EAGAIN` if the other
    /// end has too much unread. `EMSGSIZE` if the message is too long for any send buffer. `EPIPE`
    /// or `ECONNRESET` if the other end is closed. `ETOOMANYREFS` if too many descriptors of this
    /// user are in transit.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), OsError> {
        const OPERATION: &str = "sendmsg";
        // The receiver would take an empty message for the end.
        if message.is_empty() || fds.len() > FDS_MAX {
            return Err(OsError::new(OPERATION, libc::EINVAL));
        }
        let mut room = [MaybeUninit::uninit(); CONTROL_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut room);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(OsError::new(OPERATION, libc::EINVAL)); // the buffer fits FDS_MAX
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.fd, &[IoSlice::new(message)], &mut control, flags) {
                // A SOCK_SEQPACKET socket sends the message whole.
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of(OPERATION)(errno)),
            }
        }
    }

    /// Closes both directions, even if other processes have a copy of the descriptor. The other end
    /// reads the messages sent so far, then finds the connection closed, and so does this end. One
    /// system call.
    pub fn hang_up(&self) {
        // ENOTCONN: the other end has already closed the connection.
        let _ = rustix::net::shutdown(&self.fd, rustix::net::Shutdown::Both);
    }

    /// Makes the kernel refuse descriptors that the other end sends, as
    /// [`super::Listener::refuse_descriptors`].
    ///
    /// # Errors
    /// Stock Linux is not known to return one.
    pub fn refuse_descriptors(&self) -> Result<bool, OsError> {
        refuse_descriptors(self.fd.as_fd())
    }

    /// Takes the next message, which may bring no descriptors, and returns its length: 0 as in
    /// [`Received::len`]. Does not block, whatever the other end has sent. At most two system
    /// calls.
    ///
    /// # Errors
    /// [`ReceiveError::Unexpected`]: the message brought descriptors. It stays in the socket,
    /// because to close them can block. [`ReceiveError::Message`]: the message is lost. `EAGAIN` if
    /// there is no message, `ECONNRESET` as [`Connection::receive`].
    pub fn receive_plain(&self, buffer: &mut [u8]) -> Result<usize, ReceiveError> {
        let room_bytes = buffer.len();
        let receive = |parts: &mut [IoSliceMut<'_>], flags| {
            loop {
                let control = &mut RecvAncillaryBuffer::default();
                match rustix::net::recvmsg(&self.fd, parts, control, flags) {
                    Err(Errno::INTR) => {}
                    result => return result.map_err(OsError::of("recvmsg")),
                }
            }
        };
        // Without room for them, the kernel neither opens nor closes the descriptors of a message
        // that stays in the socket.
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let seen = receive(&mut [IoSliceMut::new(&mut [0])], flags | RecvFlags::PEEK)?;
        if seen.flags.contains(ReturnFlags::CTRUNC) {
            return Err(ReceiveError::Unexpected);
        }
        let message = receive(&mut [IoSliceMut::new(buffer)], flags)?;
        match message.flags.contains(ReturnFlags::TRUNC) {
            true => Err(ReceiveError::Message { room_bytes }),
            false => Ok(message.bytes),
        }
    }

    /// Hangs up and takes the unread messages that bring no descriptors. Returns whether none are
    /// left: then closing this end closes no descriptor of the other process, and cannot block.
    /// After the hang-up no message comes, so the number of system calls is bounded by the send
    /// buffer of the other end.
    pub fn drain(&self) -> bool {
        self.hang_up();
        let mut buffer = [0; 1];
        loop {
            match self.receive_plain(&mut buffer) {
                Ok(0) if !self.has_message() => return true,
                Ok(_) | Err(ReceiveError::Message { .. }) => {}
                Err(ReceiveError::Unexpected) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Whether a message is unread, also if it is empty: an empty message looks like the end. The
    /// kernel adds the sender's credentials to a message, and to nothing else. Three system calls.
    fn has_message(&self) -> bool {
        // Room for the credentials and no more: so the kernel opens no descriptor.
        const WORDS: usize = (size_of::<libc::cmsghdr>() + size_of::<libc::ucred>()).div_ceil(8);
        let mut room = [MaybeUninit::<u64>::uninit(); WORDS];
        let mut byte = 0u8;
        let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
        // SAFETY: the struct has only integers and pointers, for which all zero is valid.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        message.msg_control = room.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&room) as _;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // Stock Linux is not known to refuse the option.
        let _ = rustix::net::sockopt::set_socket_passcred(&self.fd, true);
        // SAFETY: `message` describes `byte`, of one byte, and `room` with its size. All
        // three live until the call returns. The kernel writes no more than their sizes.
        let result = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, flags) };
        let _ = rustix::net::sockopt::set_socket_passcred(&self.fd, false);
        result >= 0 && message.msg_controllen > 0
    }

    /// Copies the start of the next message into `buffer`, and leaves the message in the socket
    /// with its descriptors. Returns the bytes copied. One system call. Does not block.
    ///
    /// A caller that must not wait uses it in place of [`Connection::receive`]: to close a
    /// descriptor that came with a message can block, such as a TCP socket with `SO_LINGER`.
    ///
    /// # Errors
    /// `EAGAIN` if there is no message, `ECONNRESET` as [`Connection::receive`].
    pub fn peek(&self, buffer: &mut [u8]) -> Result<usize, OsError> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        loop {
            match rustix::net::recv(&self.fd, &mut *buffer, flags) {
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("recv")(errno)),
            }
        }
    }

    /// Takes the next message into `buffer`. One system call. Does not block. Allocates only for
    /// descriptors.
    ///
    /// # Errors
    /// [`ReceiveError::Message`] and [`ReceiveError::Descriptors`]: the message is lost, and its
    /// descriptors are closed. Otherwise the kernel's error: `EAGAIN` if there is no message,
    /// `ECONNRESET` if the other end was closed with messages unread.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, ReceiveError> {
        if buffer.is_empty() {
            return Err(OsError::new("recvmsg", libc::EINVAL).into());
        }
        let room_bytes = buffer.len();
        let mut room = [MaybeUninit::uninit(); CONTROL_BYTES];
        // Dropping `control` closes every descriptor that was not taken from it.
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

/// Sets `SO_PASSRIGHTS` to 0. Returns `false` if the kernel does not know the option.
pub(super) fn refuse_descriptors(fd: BorrowedFd<'_>) -> Result<bool, OsError> {
    // Of include/uapi/asm-generic/socket.h; libc does not have it yet.
    const SO_PASSRIGHTS: i32 = 83;
    const BYTES: libc::socklen_t = 4;
    let off: i32 = 0;
    // SAFETY: the kernel reads the four bytes of `off`, which lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const off).cast(),
            BYTES,
        )
    };
    match OsError::last("setsockopt(SO_PASSRIGHTS)") {
        _ if result == 0 => Ok(true),
        error if error.raw_os_error() == libc::ENOPROTOOPT => Ok(false),
        error => Err(error),
    }
}
