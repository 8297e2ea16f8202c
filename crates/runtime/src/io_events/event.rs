//! What is watched for, and what is said.

use upcall_shm::io_events::{READABLE, WRITABLE};

/// What a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read, or the end has come.
    Readable,
    /// There is room to write, or nobody reads any more.
    Writable,
    /// Either.
    Both,
}

impl Interest {
    pub(super) const fn bits(self) -> u8 {
        match self {
            Interest::Readable => READABLE,
            Interest::Writable => WRITABLE,
            Interest::Both => READABLE | WRITABLE,
        }
    }
}

/// One descriptor may be ready: something came since the event before. Read, accept or write until
/// the call would block; only then is another event promised. [The module](self) says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEvent {
    /// As given to [`Poller::add`] or [`Poller::modify`].
    pub key: usize,
    /// To be read from.
    pub readable: bool,
    /// To be written to.
    pub writable: bool,
}

/// Who hears from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The loop's own thread, from the memory of io_uring: cheapest.
    Ring,
    /// A thread that sleeps in io_uring: for a loop that must make no system call at all.
    RingThread,
    /// A thread that sleeps in epoll: where io_uring is refused.
    EpollThread,
}
