//! How other threads end a poller's wait: a byte through a pair of sockets that the poller watches.

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use upcall_sys::OsError;

/// Ends a poller's wait, from any thread. Cheap to copy; of a poller that is gone it does nothing.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<UnixStream>);

impl Notifier {
    /// The wait that is under way returns without an event, or else the next one does. Several before
    /// it are as one. A system call; does not block.
    pub fn notify(&self) {
        // Full: then there is a byte to be heard. Closed: there is nobody to hear it.
        let _ = (&*self.0).write(&[0]);
    }
}

/// The poller's end.
#[derive(Debug)]
pub(super) struct Ear {
    near: UnixStream,
    far: Arc<UnixStream>,
}

impl Ear {
    pub(super) fn new() -> Result<Self, OsError> {
        let os = |operation| {
            move |error: std::io::Error| OsError::new(operation, error.raw_os_error().unwrap_or(0))
        };
        let (near, far) = UnixStream::pair().map_err(os("socketpair"))?;
        for end in [&near, &far] {
            end.set_nonblocking(true).map_err(os("ioctl(FIONBIO)"))?;
        }
        Ok(Ear { near, far: Arc::new(far) })
    }

    pub(super) fn notifier(&self) -> Notifier {
        Notifier(self.far.clone())
    }

    /// Its descriptor, as the page numbers it.
    pub(super) fn number(&self) -> u32 {
        self.near.as_raw_fd().cast_unsigned()
    }

    /// Takes what was said, so that the next byte is an event.
    pub(super) fn listen(&mut self) {
        while self.near.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }
}
