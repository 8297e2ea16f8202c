//! The ways of reading messages and keeping time that are compared.

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Handlers that read streams, upcalled for each message; periodic handlers.
    Split,
    /// The same, upcalled once this many messages are there.
    SplitAhead,
    /// Tasks; only time is kept, by `timed_sleep`.
    Task,
    /// A thread for each, that blocks in read(2) of a pipe or sleeps.
    ThreadPipe,
    /// The same, and after each message a call to change its priority, as to another deadline.
    ThreadRanked,
    /// As [`Way::ThreadPipe`], of UNIX sockets.
    ThreadSocket,
    /// One thread with non-blocking pipes, timerfds and epoll.
    Epoll,
    /// The same as the paper's pure LWPs: a read in vain before it waits, and a call to change
    /// its priority.
    EpollRanked,
    /// One thread of tokio with pipes and intervals.
    Tokio,
}

/// `B_wakeup` of [`Way::SplitAhead`].
pub const AHEAD: u64 = 8;

impl Way {
    pub const ALL: [Way; 9] = [
        Way::Split,
        Way::SplitAhead,
        Way::Task,
        Way::ThreadPipe,
        Way::ThreadRanked,
        Way::ThreadSocket,
        Way::Epoll,
        Way::EpollRanked,
        Way::Tokio,
    ];

    /// As a child is told.
    pub fn word(self) -> &'static str {
        match self {
            Way::Split => "split",
            Way::SplitAhead => "split-ahead",
            Way::Task => "task",
            Way::ThreadPipe => "thread-pipe",
            Way::ThreadRanked => "thread-ranked",
            Way::ThreadSocket => "thread-socket",
            Way::Epoll => "epoll",
            Way::EpollRanked => "epoll-ranked",
            Way::Tokio => "tokio",
        }
    }

    pub fn of(word: &str) -> Self {
        Way::ALL.into_iter().find(|way| way.word() == word).expect("a way of this bench")
    }

    /// `B_wakeup`, of one that reads streams.
    pub fn level(self) -> Option<u64> {
        match self {
            Way::Split => Some(1),
            Way::SplitAhead => Some(AHEAD),
            _ => None,
        }
    }
}
