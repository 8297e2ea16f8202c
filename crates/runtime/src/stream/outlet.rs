//! The end that writes, and wakes who has what it waits for.

use std::cell::Cell;

use upcall_core::time::Instant;
use upcall_shm::stream::{Due, Leaving, Wait, Writer};
use upcall_sys::futex;

use super::{Closed, Memory, Room, Stream, StreamError, sleep_on};
use crate::clock;

thread_local! {
    /// Whether this thread shares its CPU with other domains, which it lets look by itself.
    static AMONG_DOMAINS: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread is an executive among the domains of a daemon.
pub(crate) fn set_among_domains() {
    AMONG_DOMAINS.set(true);
}

/// Writes to a stream. One thread at a time; dropped, it ends the stream after what was committed, and
/// in a thread that panics its reader finds that it died.
#[derive(Debug)]
pub struct Outlet {
    writer: Writer<Memory>,
    stream: Stream,
    wakes: u64,
}

impl Outlet {
    pub(super) fn new(writer: Writer<Memory>, stream: Stream) -> Self {
        Outlet { writer, stream, wakes: 0 }
    }

    /// Room for a message (or so many bytes) of `len`; `None`: not now. It is given up unless
    /// staged. O(1), for buffers O(those given back); neither blocks nor allocates.
    ///
    /// # Errors
    /// Longer than any may be; or, where there is no room, the stream is closed.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Option<Room<'_>>, StreamError> {
        self.writer.reserve(len)
    }

    /// Reserves, fills and stages: `false` if there is no room now. O(bytes).
    ///
    /// # Errors
    /// As [`Outlet::reserve`].
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, StreamError> {
        self.writer.push(bytes)
    }

    /// Hands over all that was staged. A system call only if this reaches the level that the reader waits
    /// for, and the reader, or the executive of its CPU, sleeps.
    ///
    /// Of a handler that shares its CPU with other domains, it is then that domain which looks next what it
    /// has, and this one goes on, unless it is outranked at its next boundary.
    ///
    /// # Errors
    /// The reader is gone; nobody will read it.
    pub fn commit(&mut self) -> Result<(), Closed> {
        let due = self.writer.commit()?;
        self.see_to(due);
        Ok(())
    }

    /// Commits, and blocks until there is room for `len` (at most what there can be), the stream
    /// is closed, or `deadline` has come: `false` only then. For a thread of its own.
    pub fn wait(&mut self, len: usize, deadline: Option<Instant>) -> bool {
        loop {
            let Wait { due, sleep } = self.writer.wait(len);
            if self.is_over(due, sleep, deadline) {
                return true;
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return false;
            }
        }
    }

    /// A passive source has done what it was asked: commits, rests, and blocks until the reader starts
    /// it, because the level is below `B_start`, the stream is closed (a write says so), or `deadline` has
    /// come: `false` only then.
    pub fn rest(&mut self, deadline: Option<Instant>) -> bool {
        loop {
            let Wait { due, sleep } = self.writer.rest_until_started();
            if self.is_over(due, sleep, deadline) {
                return true;
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return false;
            }
        }
    }

    /// How much is there that the reader has not given back. Loads.
    pub fn level(&self) -> u64 {
        self.writer.level()
    }

    /// System calls that it made to wake its reader.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Commits, and wishes to be rung when there is room for `len`: whether its bell is to be slept on.
    pub(super) fn begin_wait(&mut self, len: usize) -> bool {
        let wait = self.writer.wait(len);
        self.see_to(wait.due);
        wait.sleep
    }

    /// As [`Outlet::begin_wait`], when a source that rests is started.
    pub(super) fn begin_rest(&mut self) -> bool {
        let wait = self.writer.rest_until_started();
        self.see_to(wait.due);
        wait.sleep
    }

    /// As [`Outlet::begin_wait`], when the reader is gone.
    pub(super) fn begin_wait_for_end(&mut self) -> bool {
        let wait = self.writer.wait_for_end();
        self.see_to(wait.due);
        wait.sleep
    }

    /// After one of these.
    pub(super) fn rouse(&mut self) {
        self.writer.rouse();
    }

    pub(super) fn writer(&mut self) -> &mut Writer<Memory> {
        &mut self.writer
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// It will write no more, though there was more to be written.
    pub(super) fn fail(&mut self) {
        self.leave(Leaving::Died);
    }

    fn leave(&mut self, how: Leaving) {
        let wake = self.writer.leave(how);
        self.see_to(Due { wake, start: false });
    }

    /// Does what is due, and sleeps if it is to: whether it need not any more.
    fn is_over(&mut self, due: Due, sleep: bool, deadline: Option<Instant>) -> bool {
        self.see_to(due);
        if !sleep {
            return true;
        }
        sleep_on(self.writer.bell(), deadline.map(Instant::as_nanos));
        self.writer.rouse()
    }

    fn see_to(&mut self, due: Due) {
        if due.wake {
            self.wakes += 1;
            futex::wake_shared(self.writer.peer_bell(), 1);
            if AMONG_DOMAINS.get() {
                // The reader's domain may be on this CPU, of the same priority: it shows what it
                // has, and a wish for a look, and sleeps again.
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        self.leave(if std::thread::panicking() { Leaving::Died } else { Leaving::Ended });
    }
}
