//! The end that reads. It wakes the writer when it makes room.

use upcall_core::time::Instant;
use upcall_shm::stream::{Closed, Due, Kept, Leaving, Payload, Reader, StreamError, Wait};

use super::handle::{Stream, StreamOpenError};
use super::memory::{Memory, Message};
use super::wait::{sleep_on, wake};
use crate::clock;
use crate::work::batch::Batch;

/// The end of a stream that reads. From [`Stream::reader`]; each stream has one.
///
/// A handler uses [`StreamReader::next`], a thread [`StreamReader::wait`] and
/// [`StreamReader::pop`]. One thread at a time uses a reader. Dropping the reader ends the stream.
/// If a panic drops it, the writer finds that the reader [died](Closed::Died).
#[derive(Debug)]
pub struct StreamReader {
    reader: Reader<Memory>,
    stream: Stream,
    /// Why the stream is closed, once a read has found that.
    closed: Option<Closed>,
    wakes: u64,
    starts: u64,
}

impl Stream {
    /// The end that reads. Allocates for
    /// [`StreamForm::Buffers`](upcall_shm::stream::StreamForm::Buffers).
    ///
    /// # Errors
    /// The end was taken before, in this process or another.
    pub fn reader(&self) -> Result<StreamReader, StreamOpenError> {
        Ok(StreamReader::new(self.attach()?.reader()?, self.clone()))
    }
}

impl StreamReader {
    fn new(reader: Reader<Memory>, stream: Stream) -> Self {
        StreamReader { reader, stream, closed: None, wakes: 0, starts: 0 }
    }

    /// The next message, or all plain bytes that have arrived. `None` if there is nothing now. The
    /// message stays at the front until the reader is done with it. O(1); neither blocks nor
    /// allocates.
    ///
    /// # Errors
    /// The stream is closed, and everything is read.
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

    /// The next message as the next PDU of an upcall. `None` if there is none, or if `batch` says
    /// that the handler must return. [`StreamReader::closed`] tells whether the stream has ended.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Batch, stream::StreamReader};
    /// # fn handler(reader: &mut StreamReader, batch: &mut Batch<'_>) {
    /// while let Some(message) = reader.next(batch) {
    ///     // read it in place
    ///     message.done();
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn next(&mut self, batch: &mut Batch<'_>) -> Option<Message<'_>> {
        let is_there = matches!(self.front(), Ok(Some(_)));
        if is_there && batch.proceed() { self.reader.front().ok().flatten() } else { None }
    }

    /// Copies the next message into `bytes` and is done with it. Copies as many plain bytes as have
    /// arrived and fit. `None` if there is nothing now. O(bytes).
    ///
    /// # Errors
    /// The message is longer than `bytes`, and stays at the front. Or the stream is closed, and
    /// everything is read.
    pub fn pop(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, StreamError> {
        let popped = self.reader.pop(bytes);
        if let Err(StreamError::Closed(closed)) = popped {
            self.closed = Some(closed);
        }
        popped
    }

    /// Why the stream is closed, once a read has found that.
    pub fn closed(&self) -> Option<Closed> {
        self.closed
    }

    /// How much can be read: bytes (`Bytes`, `Messages`), slots (`Slots`) or buffers (`Buffers`).
    /// The bytes of `Messages` include what each message takes beside its own bytes. A few loads.
    ///
    /// # Errors
    /// An index is out of range.
    pub fn level(&mut self) -> Result<u64, Closed> {
        self.reader.level()
    }

    /// Gives the room of all finished messages back to the writer. Wakes the writer if it sleeps
    /// for that much. Starts a source that rests if the level is below `B_start`. For a handler,
    /// this happens when the handler returns. A system call if the writer sleeps.
    pub fn release(&mut self) {
        let due = self.reader.release();
        self.wake_peer(due);
    }

    /// The bytes of a message that was kept (`keep()` of [`Message`]).
    pub fn kept(&self, kept: &Kept) -> Payload<'_> {
        self.reader.kept(kept)
    }

    /// Gives a kept message back, in any order.
    pub fn give_back(&mut self, kept: Kept) {
        self.reader.give_back(kept);
    }

    /// Releases, and blocks until `units` have arrived, the stream is closed, or `deadline` has
    /// come. `units` are bytes (`Bytes`, `Messages`), slots (`Slots`) or buffers (`Buffers`), at
    /// most the capacity of the stream. Returns `false` only at the deadline. Only threads of the
    /// program call this: a handler is upcalled instead.
    pub fn wait(&mut self, units: u64, deadline: Option<Instant>) -> bool {
        loop {
            let Wait { due, sleep } = self.reader.wait(units);
            self.wake_peer(due);
            if !sleep {
                return true;
            }
            if deadline.is_some_and(|deadline| clock::now() >= deadline) {
                self.reader.finish_wait();
                return false;
            }
            sleep_on(self.reader.wait_word(), deadline.map(Instant::as_nanos));
            // A notification may belong to an earlier wait, so the loop looks at the level.
            self.reader.finish_wait();
        }
    }

    /// How many system calls this end made to wake its writer.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// How often this end started a source that rested.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// Releases, and asks to be notified of `units`. Returns whether the caller must watch the
    /// stream's wait word.
    pub(crate) fn watch(&mut self, units: u64) -> bool {
        let Wait { due, sleep } = self.reader.watch(units);
        self.wake_peer(due);
        sleep
    }

    /// As [`StreamReader::watch`], for a caller that sleeps. Returns whether the caller must sleep
    /// on the wait word.
    pub(super) fn begin_wait(&mut self, units: u64) -> bool {
        let Wait { due, sleep } = self.reader.wait(units);
        self.wake_peer(due);
        sleep
    }

    /// Ends a wait that [`StreamReader::watch`] began. The reader then sees all that the writer
    /// published before it notified.
    pub(crate) fn finish_wait(&mut self) {
        self.reader.finish_wait();
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Leaves the stream as an end that died, because the handler or the pump failed.
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
