//! Bytes from and to a descriptor that does not block.
//!
//! Called by the runtime, which moves them from and to streams. What is not ready says `EAGAIN`,
//! and is waited for elsewhere ([`crate::readiness`], [`crate::io_uring`]). See read(2), write(2).

use crate::OsError;
use crate::udp::{is_icmp, separate_datagrams};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file, a pipe, a socket or a terminal that does not block as long as this lives. The
/// flag is the open file's, so others who have it find it set too; afterwards it is as it was.
#[derive(Debug)]
pub struct NonBlocking {
    fd: OwnedFd,
    /// As they were.
    flags: OFlags,
    /// `None`: no socket.
    socket: Option<SocketType>,
}

/// How often a call for a datagram is made again after a signal or an ICMP error.
const TRIES_MAX: u32 = 8;

impl NonBlocking {
    /// Of a socket of UDP the kernel does not join datagrams from now on (`UDP_GRO`). Four system
    /// calls at most.
    ///
    /// # Errors
    /// What the kernel said (`EBADF`, `EPERM` for an append-only file of others).
    pub fn new(fd: OwnedFd) -> Result<Self, OsError> {
        let flags = rustix::fs::fcntl_getfl(&fd).map_err(OsError::of("fcntl(F_GETFL)"))?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)
            .map_err(OsError::of("fcntl(F_SETFL)"))?;
        let socket = rustix::net::sockopt::socket_type(&fd).ok();
        if socket == Some(SocketType::DGRAM) {
            separate_datagrams(&fd)?;
        }
        Ok(NonBlocking { fd, flags, socket })
    }

    /// Whether it is a socket for datagrams, which are to be taken by [`Self::receive`].
    pub fn has_datagrams(&self) -> bool {
        self.socket == Some(SocketType::DGRAM)
    }

    /// Takes one datagram, and says how long it was: if longer than `bytes`, its end is lost.
    /// What an ICMP message said about a datagram sent earlier is passed over. One system call, a
    /// few after signals and ICMP errors.
    ///
    /// # Errors
    /// `EAGAIN`: nothing is there now. What else the kernel says.
    pub fn receive(&self, bytes: &mut [u8]) -> Result<usize, OsError> {
        let mut last = OsError::new("recv", libc::EAGAIN);
        for _ in 0..TRIES_MAX {
            match rustix::net::recv(&self.fd, &mut *bytes, RecvFlags::TRUNC) {
                Ok((_, len)) => return Ok(len),
                Err(errno) => last = OsError::of("recv")(errno),
            }
            if last.raw_os_error() != libc::EINTR && !is_icmp(last) {
                break;
            }
        }
        Err(last)
    }

    /// Reads as much as is there and finds room; 0: the end, if there is room. Not for datagrams.
    /// One system call.
    ///
    /// # Errors
    /// `EAGAIN`: nothing is there now. `EIO`, `ECONNRESET` and what else the kernel says.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, OsError> {
        loop {
            match rustix::io::read(&self.fd, &mut *bytes) {
                Ok(len) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("read")(errno)),
            }
        }
    }

    /// Writes as much as finds room, and says how much. A socket that nobody reads raises no
    /// signal; a pipe does (`SIGPIPE`, which Rust programs ignore). What an ICMP message said about
    /// a datagram sent earlier is passed over. One system call, a few after ICMP errors.
    ///
    /// # Errors
    /// `EAGAIN`: there is no room now. `EPIPE`, `ENOSPC` and what else the kernel says.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, OsError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (operation, sent) = match self.socket.is_some() {
                true => ("send", rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL)),
                false => ("write", rustix::io::write(&self.fd, bytes)),
            };
            match sent {
                Ok(len) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(errno) => {
                    let error = OsError::of(operation)(errno);
                    // The caller's own mistake stays, such as a datagram that is too long.
                    if !self.has_datagrams() || !is_icmp(error) || tries >= TRIES_MAX {
                        return Err(error);
                    }
                }
            }
        }
    }
}

impl AsFd for NonBlocking {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for NonBlocking {
    fn drop(&mut self) {
        // It could be set before, and so can be now.
        let _ = rustix::fs::fcntl_setfl(&self.fd, self.flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_not_ready_says_so_and_what_is_gone_too() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (input, output) = (OwnedFd::from(reader), OwnedFd::from(writer));
        let (input, output) = (NonBlocking::new(input).unwrap(), NonBlocking::new(output).unwrap());
        assert!(input.read(&mut [0; 8]).unwrap_err().is_would_block());
        assert_eq!(output.write(b"three"), Ok(5));
        let mut bytes = [0; 8];
        assert_eq!(input.read(&mut bytes), Ok(5));
        while output.write(&[0; 4096]).is_ok() {}
        assert!(output.write(&[0; 4096]).unwrap_err().is_would_block());
        drop(input);
        assert_eq!(output.write(b"x").unwrap_err().to_string(), "write: Broken pipe (EPIPE)");
    }

    #[test]
    fn a_socket_that_nobody_reads_raises_no_signal() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let ours = NonBlocking::new(ours.into()).unwrap();
        assert_eq!(ours.write(b"x").unwrap_err().to_string(), "send: Broken pipe (EPIPE)");
        assert_eq!(ours.read(&mut [0]), Ok(0));
    }

    #[test]
    fn a_datagram_is_one_without_bytes_too() {
        let ours = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = ours.local_addr().unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let receiver = NonBlocking::new(ours.into()).unwrap();
        assert!(receiver.has_datagrams());
        assert!(receiver.receive(&mut [0; 4]).unwrap_err().is_would_block());
        for (sent, found) in [(&b""[..], 0), (b"four", 4), (b"longer", 6)] {
            sender.send_to(sent, address).unwrap();
            let mut bytes = [0; 4];
            let len = loop {
                match receiver.receive(&mut bytes) {
                    Err(error) if error.is_would_block() => std::thread::yield_now(),
                    taken => break taken.unwrap(),
                }
            };
            assert_eq!(len, found);
            let kept = sent.len().min(4);
            assert_eq!(bytes[..kept], sent[..kept]);
        }
    }

    #[test]
    fn a_refusal_of_what_was_sent_is_passed_over() {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = nobody.local_addr().unwrap();
        drop(nobody);
        let ours = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        ours.connect(target).unwrap();
        ours.send(b"x").unwrap();
        // Without a call in between that would hear of it.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let receiver = NonBlocking::new(ours.into()).unwrap();
        assert!(receiver.receive(&mut [0; 4]).unwrap_err().is_would_block());
    }

    #[test]
    fn the_file_blocks_again_afterwards() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let kept = reader.try_clone().unwrap();
        let is_set = || rustix::fs::fcntl_getfl(&kept).unwrap().contains(OFlags::NONBLOCK);
        let input = NonBlocking::new(reader.into()).unwrap();
        assert!(is_set());
        drop(input);
        assert!(!is_set());
    }
}
