//! Interest in descriptors, and the events of a poller.

use upcall_shm::io_events::{READABLE, WRITABLE};

/// The readiness for which a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is data to read, or the end of the input.
    Readable,
    /// There is room to write, or the other side no longer reads.
    Writable,
    /// Either of them.
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

/// A descriptor may have become ready since its last event. Read, accept or write until the call
/// would block. Only then another event is promised. [The module](super) says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEvent {
    /// The key from [`Poller::add`](super::Poller::add) or
    /// [`Poller::modify`](super::Poller::modify).
    pub key: usize,
    /// The descriptor may be ready to read.
    pub readable: bool,
    /// The descriptor may be ready to write.
    pub writable: bool,
}

/// The thread and the kernel interface that feed a poller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The loop's own thread reads completions from the memory of io_uring. This is the cheapest
    /// feed.
    Ring,
    /// A thread sleeps in io_uring. This feed is for a loop that must make no system call at all.
    RingThread,
    /// A thread sleeps in epoll. This feed is for systems that refuse io_uring.
    EpollThread,
}
