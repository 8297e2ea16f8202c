//! A handler with an end of a stream, as the executor runs it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use upcall_core::scheduler::Outcome;
use upcall_shm::stream::{self as shm, End};

use super::handle::StreamOpenError;
use super::memory::Memory;
use super::reader::StreamReader;
use super::writer::StreamWriter;
use crate::clock;
use crate::work::batch::{Batch, Use};

/// A handler and its end of a stream. The executor upcalls it when the level is reached, or the
/// stream is closed.
pub(crate) struct StreamWork {
    end: HandlerEnd,
    /// `B_wakeup`: how much there must be to read, or how much room to write.
    level: u64,
    has_ended: bool,
}

enum HandlerEnd {
    Reads(StreamReader, Handler<StreamReader>),
    Writes(StreamWriter, Handler<StreamWriter>),
}

/// A user's handler.
type Handler<E> = Box<dyn FnMut(&mut E, &mut Batch<'_>) + Send>;

impl StreamWork {
    /// A handler that reads. Allocates.
    pub(crate) fn reads(
        reader: StreamReader,
        level: u64,
        handler: impl FnMut(&mut StreamReader, &mut Batch<'_>) + Send + 'static,
    ) -> Self {
        StreamWork { end: HandlerEnd::Reads(reader, Box::new(handler)), level, has_ended: false }
    }

    /// A handler that writes. Allocates.
    pub(crate) fn writes(
        writer: StreamWriter,
        level: u64,
        handler: impl FnMut(&mut StreamWriter, &mut Batch<'_>) + Send + 'static,
    ) -> Self {
        StreamWork { end: HandlerEnd::Writes(writer, Box::new(handler)), level, has_ended: false }
    }

    /// The stream and end whose wait word the executor watches.
    pub(crate) fn watched(&self) -> Result<(shm::Stream<Memory>, End), StreamOpenError> {
        Ok(match &self.end {
            HandlerEnd::Reads(reader, _) => (reader.stream().attach()?, End::Reader),
            HandlerEnd::Writes(writer, _) => (writer.stream().attach()?, End::Writer),
        })
    }

    /// Whether the handler has found the end of the stream, or has panicked. It is not called
    /// again.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Releases what was read, or commits what was written, and begins to wait for the level. The
    /// paper's `MMS_read` and `MMS_write` do this before their `IO_wait` (split-level-1991 §4).
    /// Returns whether the level is still to be waited for.
    pub(crate) fn prepare_wait(&mut self) -> bool {
        match &mut self.end {
            HandlerEnd::Reads(reader, _) => reader.watch(self.level),
            HandlerEnd::Writes(writer, _) => writer.watch(self.level),
        }
    }

    /// Upcalls the handler. Returns what it used, and whether it panicked. The handler is finished
    /// once it has found the end of the stream.
    pub(crate) fn upcall(&mut self, mut batch: Batch<'_>) -> (Use, bool) {
        // Ends the wait first, so that the handler sees what was published before the notification.
        // The indexes stay valid even if the handler panics.
        let called = match &mut self.end {
            HandlerEnd::Reads(reader, handler) => {
                reader.finish_wait();
                catch_unwind(AssertUnwindSafe(|| handler(reader, &mut batch)))
            }
            HandlerEnd::Writes(writer, handler) => {
                writer.finish_wait();
                writer.check_reader();
                catch_unwind(AssertUnwindSafe(|| handler(writer, &mut batch)))
            }
        };
        let mut used = batch.close(clock::now());
        let panicked = called.is_err();
        let is_closed = match &mut self.end {
            HandlerEnd::Reads(reader, _) => {
                reader.release();
                if panicked {
                    reader.fail();
                }
                reader.closed().is_some()
            }
            HandlerEnd::Writes(writer, _) => {
                if panicked {
                    writer.fail();
                } else {
                    // An error is stored in the writer, and read in the next line.
                    let _ = writer.commit();
                }
                writer.closed().is_some()
            }
        };
        if panicked || (is_closed && used.outcome == Outcome::Done) {
            self.has_ended = true;
            used.outcome = Outcome::Finished;
        }
        (used, panicked)
    }
}
