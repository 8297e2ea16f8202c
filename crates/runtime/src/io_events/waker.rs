//! How other threads end a poller's wait: they send a byte through a socket pair that the poller
//! watches.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use upcall_sys::OsError;

/// Ends a poller's wait, from any thread. Cheap to clone. Does nothing once the poller is gone.
#[derive(Clone, Debug)]
pub struct Waker(Arc<UnixStream>);

impl Waker {
    /// Makes the wait in progress return without an event, or else the next wait. Several calls
    /// before that wait count as one. A system call; does not block.
    pub fn wake(&self) {
        // If the socket is full, it already holds a byte. If it is closed, there is no poller.
        let _ = (&*self.0).write(&[0]);
    }
}

/// The poller's end.
#[derive(Debug)]
pub(super) struct WakeReceiver {
    near: UnixStream,
    far: Arc<UnixStream>,
}

impl WakeReceiver {
    pub(super) fn new() -> Result<Self, OsError> {
        let os = |operation| {
            move |error: std::io::Error| OsError::new(operation, error.raw_os_error().unwrap_or(0))
        };
        let (near, far) = UnixStream::pair().map_err(os("socketpair"))?;
        for end in [&near, &far] {
            end.set_nonblocking(true).map_err(os("ioctl(FIONBIO)"))?;
        }
        Ok(WakeReceiver { near, far: Arc::new(far) })
    }

    pub(super) fn waker(&self) -> Waker {
        Waker(self.far.clone())
    }

    /// The descriptor's number in the page.
    pub(super) fn number(&self) -> u32 {
        self.near.as_raw_fd().cast_unsigned()
    }

    /// Reads all bytes, so that the next byte is a new event.
    pub(super) fn drain(&mut self) {
        while self.near.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    }
}

impl AsFd for WakeReceiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}
