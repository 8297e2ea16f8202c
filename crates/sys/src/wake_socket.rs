//! Wakes a program through a descriptor that its event loop can watch. The program may be hostile.
//!
//! The owner of a network interface has the sender, and the program of a flow the receiver, often
//! in another process. No call blocks.
//!
//! An eventfd would be cheaper, and would not do. Both processes share its flags, so the program
//! could make it blocking, fill its counter, and so stop the owner for good. The ends of a pair of
//! sockets have flags of their own. The pair carries bytes in one direction only: so the program
//! cannot send descriptors that the owner would have to close.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use crate::OsError;

/// Wakes the program.
#[derive(Debug)]
pub struct WakeSender(OwnedFd);

/// Readable once the sender woke, and from the end of the sender on.
#[derive(Debug)]
pub struct WakeReceiver(OwnedFd);

/// What [`WakeReceiver::clear`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// The sender is there.
    Open,
    /// The sender is gone.
    Gone,
}

/// A sender and its receiver. Both are closed on exec.
///
/// # Errors
/// The kernel's (`EMFILE`, `ENFILE`, `ENOMEM`).
pub fn pair() -> Result<(WakeSender, WakeReceiver), OsError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (sender, receiver) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(OsError::of("socketpair"))?;
    rustix::net::shutdown(&sender, Shutdown::Read).map_err(OsError::of("shutdown"))?;
    // The least that the kernel allows: bytes that nobody reads take memory of the kernel.
    rustix::net::sockopt::set_socket_send_buffer_size(&sender, 0)
        .map_err(OsError::of("setsockopt(SO_SNDBUF)"))?;
    Ok((WakeSender(sender), WakeReceiver(receiver)))
}

impl WakeSender {
    /// Makes the receiver readable. One system call, which never blocks.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOBUFS`: it was not woken. A receiver that is gone is no error.
    pub fn wake(&self) -> Result<(), OsError> {
        loop {
            match rustix::net::send(&self.0, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                // Full: it is readable.
                Ok(_) | Err(Errno::AGAIN | Errno::PIPE) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("send")(errno)),
            }
        }
    }
}

impl WakeReceiver {
    /// Makes it unreadable until the sender wakes again. One system call, which never blocks.
    ///
    /// # Errors
    /// `ENOTSOCK`, `EOPNOTSUPP`: the descriptor is no such socket.
    pub fn clear(&self) -> Result<Cleared, OsError> {
        // The buffer of the sender holds fewer wake-ups.
        let mut bytes = [0; 64];
        loop {
            match rustix::net::recv(&self.0, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(Cleared::Gone),
                Ok(_) | Err(Errno::AGAIN) => return Ok(Cleared::Open),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("recv")(errno)),
            }
        }
    }
}

impl From<OwnedFd> for WakeReceiver {
    /// The receiver that another process passed on. [`WakeReceiver::clear`] finds if it is none.
    fn from(fd: OwnedFd) -> Self {
        WakeReceiver(fd)
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::{Direction, is_ready};
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

    fn is_readable(receiver: &WakeReceiver) -> bool {
        is_ready(receiver.as_fd(), Direction::Readable).unwrap()
    }

    #[test]
    fn it_is_readable_from_a_wake_up_until_it_is_cleared() {
        let (sender, receiver) = pair().unwrap();
        assert!(!is_readable(&receiver));
        assert_eq!(receiver.clear(), Ok(Cleared::Open));
        (0..3).for_each(|_| sender.wake().unwrap());
        assert!(is_readable(&receiver));
        // One call takes all of them.
        assert_eq!(receiver.clear(), Ok(Cleared::Open));
        assert!(!is_readable(&receiver));
        sender.wake().unwrap();
        drop(sender);
        assert_eq!(receiver.clear(), Ok(Cleared::Open));
        assert!(is_readable(&receiver), "the end of the sender");
        assert_eq!(receiver.clear(), Ok(Cleared::Gone));
    }

    #[test]
    fn a_hostile_receiver_neither_blocks_the_sender_nor_sends() {
        let (sender, receiver) = pair().unwrap();
        // Both ends of an eventfd have one set of flags.
        let flags = fcntl_getfl(&receiver.0).unwrap();
        fcntl_setfl(&receiver.0, flags - OFlags::NONBLOCK).unwrap();
        (0..10_000).for_each(|_| sender.wake().unwrap());
        let sent = rustix::net::send(&receiver.0, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        assert_eq!(sent, Err(Errno::PIPE));
        assert_eq!(receiver.clear(), Ok(Cleared::Open));
        assert!(!is_readable(&receiver), "more wake-ups than one call takes");
        drop(receiver);
        sender.wake().unwrap();
    }

    #[test]
    fn a_descriptor_of_another_kind_is_an_error() {
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        let receiver = WakeReceiver::from(OwnedFd::from(file));
        assert_eq!(receiver.clear().unwrap_err().raw_os_error(), libc::ENOTSOCK);
    }
}
