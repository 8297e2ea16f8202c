//! Reads and writes bytes on a non-blocking descriptor.
//!
//! The runtime moves bytes between descriptors and streams with it. A descriptor that is not ready
//! returns `EAGAIN`. The caller then waits with [`crate::readiness`] or [`crate::io_uring`]. See
//! read(2), write(2).

use crate::OsError;
use crate::udp::{is_icmp, separate_datagrams};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file, a pipe, a socket or a terminal, made non-blocking until this value is dropped. The flag
/// belongs to the open file. So other holders of the file see it set meanwhile. Dropping restores
/// the old flags.
#[derive(Debug)]
pub struct NonBlocking {
    fd: OwnedFd,
    /// The flags before.
    flags: OFlags,
    /// The socket's type; `None` if it is no socket.
    socket: Option<SocketType>,
}

/// How often a datagram call is retried after a signal or an ICMP error.
const TRIES_MAX: u32 = 8;

impl NonBlocking {
    /// Makes `fd` non-blocking. For a UDP socket the kernel no longer joins datagrams (`UDP_GRO`).
    /// At most four system calls.
    ///
    /// # Errors
    /// The kernel's error (`EBADF`, `EPERM` for another user's append-only file).
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

    /// Whether it is a datagram socket. Take datagrams with [`Self::receive`].
    pub fn has_datagrams(&self) -> bool {
        self.socket == Some(SocketType::DGRAM)
    }

    /// Takes one datagram and returns its length. If it is longer than `bytes`, its end is lost.
    /// Skips errors that ICMP messages report about datagrams sent earlier. One system call, or a
    /// few after signals and ICMP errors.
    ///
    /// # Errors
    /// `EAGAIN`: there is no datagram now. Any other error of the kernel.
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

    /// Reads the available bytes that fit; 0 means the end, if `bytes` is not empty. Not for
    /// datagrams. One system call.
    ///
    /// # Errors
    /// `EAGAIN`: there is nothing to read now. `EIO`, `ECONNRESET` and other errors of the kernel.
    pub fn read(&self, bytes: &mut [u8]) -> Result<usize, OsError> {
        loop {
            match rustix::io::read(&self.fd, &mut *bytes) {
                Ok(len) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(OsError::of("read")(errno)),
            }
        }
    }

    /// Writes as many bytes as fit and returns their number. A socket without a reader raises no
    /// signal. A pipe does (`SIGPIPE`, which Rust programs ignore). Skips errors that ICMP messages
    /// report about datagrams sent earlier. One system call, or a few after ICMP errors.
    ///
    /// # Errors
    /// `EAGAIN`: there is no free space now. `EPIPE`, `ENOSPC` and other errors of the kernel.
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
                    // After the retries the error may be the caller's own, such as a datagram that
                    // is too long.
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
        // Setting the flags worked before, so it works now.
        let _ = rustix::fs::fcntl_setfl(&self.fd, self.flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_pipe_reports_when_it_is_not_ready_and_when_its_reader_is_gone() {
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
    fn a_socket_without_a_reader_raises_no_signal() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        let ours = NonBlocking::new(ours.into()).unwrap();
        assert_eq!(ours.write(b"x").unwrap_err().to_string(), "send: Broken pipe (EPIPE)");
        assert_eq!(ours.read(&mut [0]), Ok(0));
    }

    #[test]
    fn a_datagram_may_be_empty() {
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
    fn an_icmp_refusal_of_a_sent_datagram_is_skipped() {
        let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = closed.local_addr().unwrap();
        drop(closed);
        let ours = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        ours.connect(target).unwrap();
        ours.send(b"x").unwrap();
        // No call in between could take the ICMP error.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let receiver = NonBlocking::new(ours.into()).unwrap();
        assert!(receiver.receive(&mut [0; 4]).unwrap_err().is_would_block());
    }

    #[test]
    fn a_dropped_transfer_makes_the_file_blocking_again() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let kept = reader.try_clone().unwrap();
        let is_set = || rustix::fs::fcntl_getfl(&kept).unwrap().contains(OFlags::NONBLOCK);
        let input = NonBlocking::new(reader.into()).unwrap();
        assert!(is_set());
        drop(input);
        assert!(!is_set());
    }
}
