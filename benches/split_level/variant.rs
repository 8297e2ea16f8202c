//! The variants that are compared: ways to read messages and to wait for a time.

/// A way to read messages and to wait for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// Handlers that read streams, upcalled for each message, and periodic handlers.
    Split,
    /// The same, upcalled once [`AHEAD`] messages are there.
    SplitAhead,
    /// Tasks that only wait for a time, with `timed_sleep`.
    Task,
    /// A thread for each activity, which blocks in read(2) of a pipe or sleeps.
    ThreadPipe,
    /// The same, with a call to change its priority after each message, as for another deadline.
    ThreadRanked,
    /// As [`Variant::ThreadPipe`], with UNIX sockets.
    ThreadSocket,
    /// One thread with non-blocking pipes, timerfds and epoll.
    Epoll,
    /// The same as the paper's pure LWPs: a read in vain before the thread waits, and a call to
    /// change its priority.
    EpollRanked,
    /// One thread of tokio with pipes and intervals.
    Tokio,
}

/// `B_wakeup` of [`Variant::SplitAhead`].
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

    /// The word for the variant in a reader's specification.
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

    /// `B_wakeup` of a variant that reads streams.
    pub fn level(self) -> Option<u64> {
        match self {
            Variant::Split => Some(1),
            Variant::SplitAhead => Some(AHEAD),
            _ => None,
        }
    }
}
