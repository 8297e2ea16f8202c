//! The end that writes. It wakes the reader when it commits what the reader waits for.

use upcall_core::time::Instant;
use upcall_shm::stream::{Closed, Due, Leaving, StreamError, Wait, Writer};

use super::handle::{Stream, StreamOpenError};
use super::memory::{Memory, WriteChunk};
use super::wait::{sleep_on, wake};
use crate::clock;
use crate::work::batch::Batch;

/// The end of a stream that writes. From [`Stream::writer`]; each stream has one.
///
/// A handler uses [`StreamWriter::next`], a thread [`StreamWriter::push`], [`StreamWriter::commit`]
/// and [`StreamWriter::wait`]. One thread at a time uses a writer. Dropping the writer ends the
/// stream after what was committed. Messages that were pushed and not committed are lost.
/// [`StreamWriter::end`] commits first. If a panic drops the writer, the reader finds that it
/// [died](Closed::Died).
#[derive(Debug)]
pub struct StreamWriter {
    writer: Writer<Memory>,
    stream: Stream,
    /// Why the stream is closed, once a write has found that or [`StreamWriter::end`] was called.
    closed: Option<Closed>,
    wakes: u64,
}

impl Stream {
    /// The end that writes. Allocates for
    /// [`StreamForm::Buffers`](upcall_shm::stream::StreamForm::Buffers).
    ///
    /// # Errors
    /// The end was taken before, in this process or another.
    pub fn writer(&self) -> Result<StreamWriter, StreamOpenError> {
        Ok(StreamWriter::new(self.attach()?.writer()?, self.clone()))
    }
}

impl StreamWriter {
    fn new(writer: Writer<Memory>, stream: Stream) -> Self {
        StreamWriter { writer, stream, closed: None, wakes: 0 }
    }

    /// Space for a message (or plain bytes) of `len`. `None` if there is no room now. Space that is
    /// not staged is given up. O(1), for buffers O(those given back); neither blocks nor allocates.
    ///
    /// # Errors
    /// `len` is longer than a message may be. Or there is no room, and the stream is closed.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Option<WriteChunk<'_>>, StreamError> {
        // Two steps: a borrowed chunk cannot be both checked for errors and returned.
        match self.writer.has_room(len) {
            Ok(true) => self.writer.reserve(len),
            Ok(false) => Ok(None),
            Err(error) => Err(self.remember_closed(error)),
        }
    }

    /// Space for a message of `len` as the next PDU of an upcall. `None` if there is no room now,
    /// `batch` says that the handler must return, the stream is closed ([`StreamWriter::closed`]),
    /// or `len` is longer than a message may be.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Batch, stream::StreamWriter};
    /// # fn handler(writer: &mut StreamWriter, batch: &mut Batch<'_>) {
    /// while let Some(room) = writer.next(8, batch) {
    ///     // fill it in place
    ///     room.stage(8);
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn next(&mut self, len: usize, batch: &mut Batch<'_>) -> Option<WriteChunk<'_>> {
        let is_there = self.closed.is_none() && matches!(self.reserve(len), Ok(Some(_)));
        if is_there && batch.proceed() { self.writer.reserve(len).ok().flatten() } else { None }
    }

    /// Reserves, fills and stages a message. Returns `false` if there is no room now. O(bytes).
    ///
    /// # Errors
    /// As [`StreamWriter::reserve`].
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, StreamError> {
        self.writer.push(bytes).map_err(|error| self.remember_closed(error))
    }

    /// Hands over all that was staged. Makes a system call only if this reaches the level that the
    /// reader waits for, and the reader or its executor sleeps.
    ///
    /// If the writer's handler shares its CPU with the reader's domain, that domain runs for a
    /// moment and checks what has arrived. The handler then goes on, unless it is outranked at its
    /// next boundary.
    ///
    /// # Errors
    /// The reader is gone, and the data will not be read.
    pub fn commit(&mut self) -> Result<(), Closed> {
        match self.writer.commit() {
            Ok(due) => {
                self.wake_peer(due);
                Ok(())
            }
            Err(closed) => {
                self.closed = Some(closed);
                Err(closed)
            }
        }
    }

    /// Commits, and ends the stream. The reader finds the end after all that was committed. A
    /// handler calls this, because it cannot drop its writer; the handler is then finished. The
    /// reader does not get later writes.
    pub fn end(&mut self) {
        // If the reader has left already, the commit fails, and nothing else needs to be done.
        let _ = self.commit();
        self.closed.get_or_insert(Closed::Ended);
        self.leave(Leaving::Ended);
    }

    /// Why the stream is closed, once a write has found that, or [`StreamWriter::end`] was called.
    pub fn closed(&self) -> Option<Closed> {
        self.closed
    }

    /// Commits, and blocks until there is room for `len`, the stream is closed, or `deadline` has
    /// come. Returns `false` only at the deadline. `len` is at most the capacity of the stream.
    /// Only threads of the program call this.
    pub fn wait(&mut self, len: usize, deadline: Option<Instant>) -> bool {
        loop {
            let Wait { due, sleep } = self.writer.wait(len);
            self.wake_peer(due);
            if !sleep {
                return true;
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                self.writer.finish_wait();
                return false;
            }
            sleep_on(self.writer.wait_word(), deadline.map(Instant::as_nanos));
            // A notification may belong to an earlier wait, so the loop looks at the room.
            self.writer.finish_wait();
        }
    }

    /// Commits, rests as a passive source, and blocks until the reader starts the source. The
    /// reader starts it when the level is below `B_start`. Also returns when the stream is closed,
    /// which the next write reports, or when `deadline` has come. Returns `false` only at the
    /// deadline.
    pub fn rest(&mut self, deadline: Option<Instant>) -> bool {
        loop {
            let Wait { due, sleep } = self.writer.rest_until_started();
            self.wake_peer(due);
            if !sleep {
                return true;
            }
            sleep_on(self.writer.wait_word(), deadline.map(Instant::as_nanos));
            if self.writer.finish_wait() {
                return true;
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return false;
            }
        }
    }

    /// How much was written that the reader has not given back. A few loads.
    pub fn level(&self) -> u64 {
        self.writer.level()
    }

    /// How many system calls this end made to wake its reader.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Commits, and asks to be notified of room for `units`, or of the start of a source that
    /// rests. Returns whether the caller must watch the stream's wait word.
    pub(crate) fn watch(&mut self, units: u64) -> bool {
        let wait = self.writer.watch(units);
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// Checks whether the reader is still there.
    pub(crate) fn check_reader(&mut self) {
        if let Err(closed) = self.writer.room() {
            self.closed = Some(closed);
        }
    }

    /// Commits, and asks to be notified of room for `len`. Returns whether the caller must sleep on
    /// the wait word.
    pub(super) fn begin_wait(&mut self, len: usize) -> bool {
        let wait = self.writer.wait(len);
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// As [`StreamWriter::begin_wait`], for the start of a source that rests.
    pub(super) fn begin_rest(&mut self) -> bool {
        let wait = self.writer.rest_until_started();
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// As [`StreamWriter::begin_wait`], for the end of the reader.
    pub(super) fn begin_wait_for_end(&mut self) -> bool {
        let wait = self.writer.wait_for_end();
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// Ends a wait that one of these methods began.
    pub(super) fn finish_wait(&mut self) {
        self.writer.finish_wait();
    }

    pub(super) fn writer(&mut self) -> &mut Writer<Memory> {
        &mut self.writer
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Remembers that the stream is closed.
    #[cold]
    fn remember_closed(&mut self, error: StreamError) -> StreamError {
        if let StreamError::Closed(closed) = error {
            self.closed = Some(closed);
        }
        error
    }

    /// Leaves the stream as an end that died, because the handler or the pump failed.
    pub(super) fn fail(&mut self) {
        self.leave(Leaving::Died);
    }

    fn leave(&mut self, how: Leaving) {
        let wake = self.writer.leave(how);
        self.wake_peer(Due { wake, start: false });
    }

    fn wake_peer(&mut self, due: Due) {
        if due.wake {
            self.wakes += 1;
            wake(self.writer.peer_wait_word());
        }
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        self.leave(if std::thread::panicking() { Leaving::Died } else { Leaving::Ended });
    }
}
