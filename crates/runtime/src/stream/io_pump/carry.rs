//! One carry between a descriptor and a stream, step by step.
//!
//! ```text
//!            step: some data is moved
//!             /\    (1) stream: no room, or no data; notified -> step
//!   ---> step ---> (2) descriptor: would block; event -> step, also if the reader goes
//!             \--> (3) over: end of input, stream closed, failure
//! ```
//!
//! Only the I/O pump's thread uses it. No step blocks, except for the read of a file.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU64;

use upcall_shm::stream::{self as shm, Closed, End, StreamError, StreamForm};
use upcall_sys::OsError;
use upcall_sys::transfer::NonBlocking;

use super::outcome::{Carried, CarryEnd, IoPumpError};
use crate::io_events::Interest;
use crate::stream::memory::Memory;
use crate::stream::reader::StreamReader;
use crate::stream::wait::is_waiting;
use crate::stream::writer::StreamWriter;

/// The most bytes of one read or write.
const BLOCK_BYTES: usize = 64 * 1024;
/// How many reads or writes a carry does before the other carries get a step.
const BLOCKS_MAX: u32 = 8;

/// What a carry waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Nothing: the carry can do another step.
    Again,
    /// The wait word of its end.
    WaitWord,
    Descriptor,
    /// The descriptor, or the moment when the reader leaves.
    DescriptorOrEnd,
    Over(Carried),
}

impl Step {
    pub(super) fn is_on_wait_word(self) -> bool {
        matches!(self, Step::WaitWord | Step::DescriptorOrEnd)
    }
}

/// See the module's head.
pub(super) struct Carry {
    fd: NonBlocking,
    form: Moves,
    /// Gives access to the wait word.
    stream: shm::Stream<Memory>,
    buffer: Vec<u8>,
    bytes: u64,
    /// Datagrams that were dropped because they were longer than `buffer`.
    too_long: u64,
}

enum Moves {
    In(StreamWriter),
    Out {
        reader: StreamReader,
        /// How many bytes of the message at the front were written.
        written: usize,
    },
}

impl Carry {
    /// A carry from `fd` into a stream. Allocates.
    pub(super) fn source(fd: NonBlocking, mut writer: StreamWriter) -> Result<Self, IoPumpError> {
        let stream = writer.stream().attach().map_err(|error| IoPumpError::Open(error.into()))?;
        let most = match stream.form() {
            // A quarter, so that the writer can go on before the reader has read everything.
            StreamForm::Bytes { capacity } | StreamForm::Messages { capacity } => {
                capacity as usize / 4
            }
            _ => writer.writer().len_max(),
        };
        let buffer = vec![0; most.min(BLOCK_BYTES).min(writer.writer().len_max())];
        Ok(Carry { fd, form: Moves::In(writer), stream, buffer, bytes: 0, too_long: 0 })
    }

    /// A carry from a stream to `fd`. Allocates.
    pub(super) fn sink(reader: StreamReader, fd: NonBlocking) -> Result<Self, IoPumpError> {
        let stream = reader.stream().attach().map_err(|error| IoPumpError::Open(error.into()))?;
        let buffer = vec![0; BLOCK_BYTES];
        let form = Moves::Out { reader, written: 0 };
        Ok(Carry { fd, form, stream, buffer, bytes: 0, too_long: 0 })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(super) fn interest(&self) -> Interest {
        match self.form {
            Moves::In(_) => Interest::Readable,
            Moves::Out { .. } => Interest::Writable,
        }
    }

    fn end(&self) -> End {
        match self.form {
            Moves::In(_) => End::Writer,
            Moves::Out { .. } => End::Reader,
        }
    }

    pub(super) fn wait_word(&self) -> &AtomicU64 {
        self.stream.wait_word(self.end())
    }

    /// Whether the carry's end still waits.
    pub(super) fn waits(&self) -> bool {
        is_waiting(&self.stream, self.end())
    }

    /// Moves data, at most [`BLOCKS_MAX`] blocks.
    pub(super) fn step(&mut self) -> Step {
        for _ in 0..BLOCKS_MAX {
            let step = match &self.form {
                Moves::In(_) => self.read_one(),
                Moves::Out { .. } => self.write_one(),
            };
            if !matches!(step, Step::Again) {
                return step;
            }
        }
        Step::Again
    }

    fn read_one(&mut self) -> Step {
        match self.read_len_max() {
            Err(closed) => self.over(CarryEnd::Closed(closed)),
            Ok(0) => self.wait_for_room(),
            Ok(len_max) => self.read_and_commit(len_max),
        }
    }

    /// How much may be read now, so that the stream has room for it.
    fn read_len_max(&mut self) -> Result<usize, Closed> {
        let Moves::In(writer) = &mut self.form else { return Ok(0) };
        writer.finish_wait();
        // Checked even if there is room: if the reader is gone, no more input is read.
        let room = usize::try_from(writer.writer().room()?).unwrap_or(usize::MAX);
        let len_max = match self.stream.form() {
            // A datagram that does not fit would be lost.
            _ if self.fd.has_datagrams() => match writer.writer().has_room(self.buffer.len()) {
                Ok(true) => self.buffer.len(),
                _ => 0,
            },
            StreamForm::Bytes { .. } => room,
            // The length stands before the message.
            StreamForm::Messages { .. } => room.saturating_sub(8),
            _ if room == 0 => 0,
            _ => writer.writer().len_max(),
        };
        Ok(len_max.min(self.buffer.len()))
    }

    fn wait_for_room(&mut self) -> Step {
        let Moves::In(writer) = &mut self.form else { return Step::Again };
        // Plain bytes wait only if there is no room at all. Otherwise a reader could wait for
        // bytes that never come.
        let len = if self.fd.has_datagrams() { self.buffer.len() } else { 1 };
        let rests = writer.writer().rests();
        let waits = if rests { writer.begin_rest() } else { writer.begin_wait(len) };
        if waits { Step::WaitWord } else { Step::Again }
    }

    fn read_and_commit(&mut self, len_max: usize) -> Step {
        let Moves::In(writer) = &mut self.form else { return Step::Again };
        match read(&self.fd, &mut self.buffer[..len_max]) {
            Ok(None) => self.over(CarryEnd::EndOfInput),
            Ok(Some(len)) if len > len_max => {
                self.too_long += 1;
                Step::Again
            }
            Ok(Some(len)) => {
                // There is room for all of it: `read_len_max` checked that.
                let pushed = writer.push(&self.buffer[..len]);
                match pushed.and_then(|_| Ok(writer.commit()?)) {
                    Ok(()) => {
                        self.bytes += len as u64;
                        Step::Again
                    }
                    Err(error) => self.over_by(error),
                }
            }
            Err(error) if error.is_would_block() => {
                // If the reader has left meanwhile, the next step finds that.
                if writer.begin_wait_for_end() { Step::DescriptorOrEnd } else { Step::Again }
            }
            Err(error) => self.fail(error),
        }
    }

    fn write_one(&mut self) -> Step {
        let Moves::Out { reader, written } = &mut self.form else { return Step::Again };
        reader.finish_wait();
        let copied = match reader.front() {
            Ok(Some(message)) => message.payload().copy_to(*written, &mut self.buffer),
            Ok(None) => {
                return if reader.begin_wait(1) { Step::WaitWord } else { Step::Again };
            }
            Err(closed) => return self.over(CarryEnd::Closed(closed)),
        };
        // An empty message counts as one message, but there is nothing to write.
        let wrote = if copied == 0 { Ok(0) } else { self.fd.write(&self.buffer[..copied]) };
        match wrote {
            Ok(len) => {
                self.bytes += len as u64;
                *written += len;
                let is_bytes = matches!(self.stream.form(), StreamForm::Bytes { .. });
                if let Ok(Some(message)) = reader.front() {
                    if is_bytes {
                        message.done_with(*written);
                        *written = 0;
                    } else if *written >= message.len() {
                        message.done();
                        *written = 0;
                    }
                }
                reader.release();
                Step::Again
            }
            Err(error) if error.is_would_block() => Step::Descriptor,
            Err(error) => self.fail(error),
        }
    }

    /// The descriptor failed. The other end of the stream finds that this end died.
    pub(super) fn fail(&mut self, error: OsError) -> Step {
        self.die();
        self.over(CarryEnd::Failed(error))
    }

    /// Ends the carry, because the pump stops.
    pub(super) fn stop(&mut self) -> Carried {
        self.die();
        self.carried(CarryEnd::Stopped)
    }

    fn die(&mut self) {
        match &mut self.form {
            Moves::In(writer) => writer.fail(),
            Moves::Out { reader, .. } => reader.fail(),
        }
    }

    fn over_by(&mut self, error: StreamError) -> Step {
        let closed = match error {
            StreamError::Closed(closed) => closed,
            // Not possible: no carry asks for more than a message may hold.
            _ => Closed::Died,
        };
        self.over(CarryEnd::Closed(closed))
    }

    fn over(&self, end: CarryEnd) -> Step {
        Step::Over(self.carried(end))
    }

    fn carried(&self, end: CarryEnd) -> Carried {
        Carried { bytes: self.bytes, too_long: self.too_long, end }
    }
}

/// Reads bytes, or a datagram. Returns the length, which for a datagram includes the part that did
/// not fit. `None` at the end of the input.
fn read(fd: &NonBlocking, bytes: &mut [u8]) -> Result<Option<usize>, OsError> {
    match fd.has_datagrams() {
        true => Ok(Some(fd.receive(bytes)?)),
        false => Ok(Some(fd.read(bytes)?).filter(|&len| len > 0)),
    }
}
