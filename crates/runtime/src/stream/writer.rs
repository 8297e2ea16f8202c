//! The end that writes, and wakes who has what it waits for.

use upcall_core::time::Instant;
use upcall_shm::stream::{Closed, Due, Leaving, StreamError, Wait, Writer};

use super::handle::{Stream, StreamOpenError};
use super::memory::{Memory, WriteChunk};
use super::wait::{sleep_on, wake};
use crate::clock;
use crate::work::batch::Batch;

/// The end of a stream that writes. From [`Stream::writer`]; each stream has one.
///
/// A handler uses [`StreamWriter::next`], a thread [`StreamWriter::push`], [`StreamWriter::commit`] and
/// [`StreamWriter::wait`]. For one thread at a time. Dropped, it ends the stream after what was
/// committed; what was pushed and not committed is lost. [`StreamWriter::end`] commits first. Dropped by
/// a panic, its reader finds that it [died](Closed::Died).
#[derive(Debug)]
pub struct StreamWriter {
    writer: Writer<Memory>,
    stream: Stream,
    /// As it was found, or said.
    closed: Option<Closed>,
    wakes: u64,
}

impl Stream {
    /// The end that writes. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// It was taken up before, here or elsewhere.
    pub fn writer(&self) -> Result<StreamWriter, StreamOpenError> {
        Ok(StreamWriter::new(self.attach()?.writer()?, self.clone()))
    }
}

impl StreamWriter {
    fn new(writer: Writer<Memory>, stream: Stream) -> Self {
        StreamWriter { writer, stream, closed: None, wakes: 0 }
    }

    /// Room for a message (or so many bytes) of `len`; `None`: not now. It is given up unless
    /// staged. O(1), for buffers O(those given back); neither blocks nor allocates.
    ///
    /// # Errors
    /// Longer than any may be; or, where there is no room, the stream is closed.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Option<WriteChunk<'_>>, StreamError> {
        // In two steps: what is lent cannot be looked at for errors and handed on.
        match self.writer.has_room(len) {
            Ok(true) => self.writer.reserve(len),
            Ok(false) => Ok(None),
            Err(error) => Err(self.remember_closed(error)),
        }
    }

    /// Room for a message of `len` as the next PDU of an upcall: `None` if there is none now, `batch` says that
    /// the handler must return, the stream is closed ([`StreamWriter::closed`]), or none may be so long.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Batch, stream::StreamWriter};
    /// # fn handler(writer: &mut StreamWriter, batch: &mut Batch<'_>) {
    /// while let Some(room) = writer.next(8, batch) {
    ///     // fill it where it stands
    ///     room.stage(8);
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn next(&mut self, len: usize, batch: &mut Batch<'_>) -> Option<WriteChunk<'_>> {
        let is_there = self.closed.is_none() && matches!(self.reserve(len), Ok(Some(_)));
        if is_there && batch.proceed() { self.writer.reserve(len).ok().flatten() } else { None }
    }

    /// Reserves, fills and stages: `false` if there is no room now. O(bytes).
    ///
    /// # Errors
    /// As [`StreamWriter::reserve`].
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, StreamError> {
        self.writer.push(bytes).map_err(|error| self.remember_closed(error))
    }

    /// Hands over all that was staged. A system call only if this reaches the level that the reader waits
    /// for, and the reader, or the executor of its CPU, sleeps.
    ///
    /// Of a handler that shares its CPU with other domains, it is then that domain which looks next what it
    /// has, and this one goes on, unless it is outranked at its next boundary.
    ///
    /// # Errors
    /// The reader is gone; nobody will read it.
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

    /// Commits, and ends the stream: its reader finds the end behind all that was committed. For a handler, whose
    /// writer is not its own to drop: it is then finished. What is written afterwards nobody reads.
    pub fn end(&mut self) {
        // If the reader is gone by itself, it is not told either.
        let _ = self.commit();
        self.closed.get_or_insert(Closed::Ended);
        self.leave(Leaving::Ended);
    }

    /// Why nothing more is to be written, once that was found by writing on, or said by [`StreamWriter::end`].
    pub fn closed(&self) -> Option<Closed> {
        self.closed
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

    /// Commits, and wishes to be rung for room for `units`, or when a source that rests is started: whether the
    /// stream's bell is to be looked at.
    pub(crate) fn watch(&mut self, units: u64) -> bool {
        let wait = self.writer.watch(units);
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// Looks whether the reader is there.
    pub(crate) fn check_reader(&mut self) {
        if let Err(closed) = self.writer.room() {
            self.closed = Some(closed);
        }
    }

    /// Commits, and wishes to be rung when there is room for `len`: whether its bell is to be slept on.
    pub(super) fn begin_wait(&mut self, len: usize) -> bool {
        let wait = self.writer.wait(len);
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// As [`StreamWriter::begin_wait`], when a source that rests is started.
    pub(super) fn begin_rest(&mut self) -> bool {
        let wait = self.writer.rest_until_started();
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// As [`StreamWriter::begin_wait`], when the reader is gone.
    pub(super) fn begin_wait_for_end(&mut self) -> bool {
        let wait = self.writer.wait_for_end();
        self.wake_peer(wait.due);
        wait.sleep
    }

    /// After one of these.
    pub(super) fn finish_wait(&mut self) {
        self.writer.finish_wait();
    }

    pub(super) fn writer(&mut self) -> &mut Writer<Memory> {
        &mut self.writer
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// That the stream is closed is remembered.
    #[cold]
    fn remember_closed(&mut self, error: StreamError) -> StreamError {
        if let StreamError::Closed(closed) = error {
            self.closed = Some(closed);
        }
        error
    }

    /// It will write no more, though there was more to be written.
    pub(super) fn fail(&mut self) {
        self.leave(Leaving::Died);
    }

    fn leave(&mut self, how: Leaving) {
        let wake = self.writer.leave(how);
        self.wake_peer(Due { wake, start: false });
    }

    /// Does what is due, and sleeps if it is to: whether it need not any more.
    fn is_over(&mut self, due: Due, sleep: bool, deadline: Option<Instant>) -> bool {
        self.wake_peer(due);
        if !sleep {
            return true;
        }
        sleep_on(self.writer.wait_word(), deadline.map(Instant::as_nanos));
        self.writer.finish_wait()
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
