//! The ways of reading messages and keeping time that are compared.

/// See the module's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
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

impl Variant {
    pub const ALL: [Variant; 9] = [
        Variant::Split,
        Variant::SplitAhead,
        Variant::Task,
        Variant::ThreadPipe,
        Variant::ThreadRanked,
        Variant::ThreadSocket,
        Variant::Epoll,
        Variant::EpollRanked,
        Variant::Tokio,
    ];

    /// As a child is told.
    pub fn word(self) -> &'static str {
        match self {
            Variant::Split => "split",
            Variant::SplitAhead => "split-ahead",
            Variant::Task => "task",
            Variant::ThreadPipe => "thread-pipe",
            Variant::ThreadRanked => "thread-ranked",
            Variant::ThreadSocket => "thread-socket",
            Variant::Epoll => "epoll",
            Variant::EpollRanked => "epoll-ranked",
            Variant::Tokio => "tokio",
        }
    }

    pub fn of(word: &str) -> Self {
        Variant::ALL
            .into_iter()
            .find(|variant| variant.word() == word)
            .expect("a variant of this bench")
    }

    /// `B_wakeup`, of one that reads streams.
    pub fn level(self) -> Option<u64> {
        match self {
            Variant::Split => Some(1),
            Variant::SplitAhead => Some(AHEAD),
            _ => None,
        }
    }
}
