//! The end that reads, and wakes who it makes room for.

use upcall_core::time::Instant;
use upcall_shm::stream::{Closed, Due, Kept, Leaving, Payload, Reader, StreamError, Wait};

use super::handle::{Stream, StreamOpenError};
use super::memory::{Memory, Message};
use super::wait::{sleep_on, wake};
use crate::clock;
use crate::work::batch::Batch;

/// The end of a stream that reads. From [`Stream::reader`]; each stream has one.
///
/// A handler uses [`StreamReader::next`], a thread [`StreamReader::wait`] and [`StreamReader::pop`]. For one thread at a
/// time. Dropped, it ends the stream; dropped by a panic, its writer finds that it
/// [died](Closed::Died).
#[derive(Debug)]
pub struct StreamReader {
    reader: Reader<Memory>,
    stream: Stream,
    /// As it was found.
    closed: Option<Closed>,
    wakes: u64,
    starts: u64,
}

impl Stream {
    /// The end that reads. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// It was taken up before, here or elsewhere.
    pub fn reader(&self) -> Result<StreamReader, StreamOpenError> {
        Ok(StreamReader::new(self.attach()?.reader()?, self.clone()))
    }
}

impl StreamReader {
    fn new(reader: Reader<Memory>, stream: Stream) -> Self {
        StreamReader { reader, stream, closed: None, wakes: 0, starts: 0 }
    }

    /// The next message, or all plain bytes there are; `None`: nothing is there now. It stays the next
    /// until it is done with. O(1); neither blocks nor allocates.
    ///
    /// # Errors
    /// Nothing will be there any more.
    #[inline]
    pub fn front(&mut self) -> Result<Option<Message<'_>>, Closed> {
        match self.reader.front() {
            Ok(message) => Ok(message),
            Err(closed) => {
                self.closed = Some(closed);
                Err(closed)
            }
        }
    }

    /// The next message as the next PDU of an upcall: `None` if nothing is there, or `batch` says that the
    /// handler must return. Of the two [`StreamReader::closed`] tells the end.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Batch, stream::StreamReader};
    /// # fn handler(reader: &mut StreamReader, batch: &mut Batch<'_>) {
    /// while let Some(message) = reader.next(batch) {
    ///     // look at it where it stands
    ///     message.done();
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn next(&mut self, batch: &mut Batch<'_>) -> Option<Message<'_>> {
        let is_there = matches!(self.front(), Ok(Some(_)));
        if is_there && batch.proceed() { self.reader.front().ok().flatten() } else { None }
    }

    /// Copies the next message into `bytes` and is done with it; of plain bytes, as many as there are
    /// and find room. `None`: nothing is there now. O(bytes).
    ///
    /// # Errors
    /// It is longer than `bytes`, and still the next; or nothing will be there any more.
    pub fn pop(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, StreamError> {
        let popped = self.reader.pop(bytes);
        if let Err(StreamError::Closed(closed)) = popped {
            self.closed = Some(closed);
        }
        popped
    }

    /// Why nothing will be there any more, once that was found by reading on.
    pub fn closed(&self) -> Option<Closed> {
        self.closed
    }

    /// How much is there to be read, in units of the indexes. Loads.
    ///
    /// # Errors
    /// An index that cannot be.
    pub fn level(&mut self) -> Result<u64, Closed> {
        self.reader.level()
    }

    /// Gives the room of all that is done with back to the writer, wakes it if it sleeps
    /// for so much, and starts a source that rests if the level is below `B_start`. A handler's reader
    /// does so by itself when the handler returns. A system call if somebody sleeps.
    pub fn release(&mut self) {
        let due = self.reader.release();
        self.wake_peer(due);
    }

    /// The bytes of a message that was kept (`keep()` of [`Message`]).
    pub fn kept(&self, kept: &Kept) -> Payload<'_> {
        self.reader.kept(kept)
    }

    /// Done with a kept message, in any order.
    pub fn give_back(&mut self, kept: Kept) {
        self.reader.give_back(kept);
    }

    /// Releases, and blocks until `units` (bytes, slots, descriptors; at most as many as there can
    /// be) are there, the stream is closed, or `deadline` has come: `false` only then. For a thread
    /// of its own; a handler is upcalled when they are there.
    pub fn wait(&mut self, units: u64, deadline: Option<Instant>) -> bool {
        loop {
            let Wait { due, sleep } = self.reader.wait(units);
            self.wake_peer(due);
            if !sleep {
                return true;
            }
            sleep_on(self.reader.wait_word(), deadline.map(Instant::as_nanos));
            if self.reader.finish_wait() {
                return true;
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                return false;
            }
        }
    }

    /// System calls that it made to wake its writer.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// How often it started a source that rested.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Releases, and wishes to be rung for `units`: whether the stream's bell is to be looked at.
    pub(crate) fn watch(&mut self, units: u64) -> bool {
        let Wait { due, sleep } = self.reader.watch(units);
        self.wake_peer(due);
        sleep
    }

    /// As [`StreamReader::watch`], whether its bell is to be slept on.
    pub(super) fn begin_wait(&mut self, units: u64) -> bool {
        let Wait { due, sleep } = self.reader.wait(units);
        self.wake_peer(due);
        sleep
    }

    /// After [`StreamReader::watch`]; what it was rung for is seen.
    pub(crate) fn finish_wait(&mut self) {
        self.reader.finish_wait();
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// It will read no more, and not because it wants to.
    pub(crate) fn fail(&mut self) {
        self.leave(Leaving::Died);
    }

    fn leave(&mut self, how: Leaving) {
        let wake = self.reader.leave(how);
        self.wake_peer(Due { wake, start: false });
    }

    fn wake_peer(&mut self, due: Due) {
        self.starts += u64::from(due.start);
        if due.wake {
            self.wakes += 1;
            wake(self.reader.peer_wait_word());
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.leave(if std::thread::panicking() { Leaving::Died } else { Leaving::Ended });
    }
}
