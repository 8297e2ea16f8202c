//! Ends of a stream for asynchronous code: the traits of `futures-core` and `futures-io`.
//!
//! Tasks use them, and code that awaits in another executor. Taking data that has arrived makes no
//! system call. An end that waits is woken by the thread of an [`IoPump`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream as FuturesStream;
use futures_io::{AsyncRead, AsyncWrite};
use upcall_shm::stream::{self as shm, Closed, End, StreamError, StreamForm};

use super::handle::{Stream, StreamOpenError};
use super::io_pump::{IoPump, IoPumpError, PumpRequests};
use super::memory::Memory;
use super::reader::StreamReader;
use super::writer::StreamWriter;

/// A reader for code that awaits the messages or bytes of a stream, under tokio or any other
/// executor. From [`IoPump::reader`].
///
/// It is a `futures_core::Stream` of messages (`Vec<u8>` each) and a `futures_io::AsyncRead` of
/// their bytes. Use the methods of `futures-util`: `StreamExt::next`, `AsyncReadExt::read`. It ends
/// when the writer has ended the stream. If the writer died or is at fault, the reader first gives
/// all that was committed, and then an error. Taking a message that has arrived makes no system
/// call.
#[derive(Debug)]
pub struct AsyncStreamReader {
    reader: StreamReader,
    waiter: Waiter,
    /// How many bytes of the message at the front were read.
    read: usize,
}

/// A writer for tokio or any other executor. From [`IoPump::writer`].
///
/// It is a `futures_io::AsyncWrite`. Use the methods of `futures-util`: `AsyncWriteExt::write_all`.
/// It waits while the stream is full. Each write is committed at once, as one message. A write that
/// is longer than a message may be becomes several messages. Closing or dropping the writer ends
/// the stream.
#[derive(Debug)]
pub struct AsyncStreamWriter {
    writer: Option<StreamWriter>,
    waiter: Waiter,
}

/// Registers wakers with the I/O pump, which wakes them when the other end notifies this end.
#[derive(Debug)]
struct Waiter {
    requests: Arc<PumpRequests>,
    stream: Stream,
    end: End,
    /// Whether the stream has plain bytes.
    is_bytes: bool,
}

impl Waiter {
    fn new(pump: &IoPump, stream: &Stream, end: End) -> Result<Self, IoPumpError> {
        let is_bytes =
            matches!(stream.form().map_err(IoPumpError::Open)?, StreamForm::Bytes { .. });
        pump.requests().reserve_stream()?;
        Ok(Waiter { requests: pump.requests().clone(), stream: stream.clone(), end, is_bytes })
    }

    /// Registers the waker. The end must have begun to wait.
    fn register(&self, context: &Context<'_>) -> Result<(), StreamOpenError> {
        let stream: shm::Stream<Memory> = self.stream.attach()?;
        self.requests.wake_when_ready(stream, self.end, context.waker().clone());
        Ok(())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.requests.release_stream();
    }
}

impl IoPump {
    /// A reader that can be awaited. The I/O pump must live as long as the reader is used. When the
    /// pump is dropped, it wakes all waiting ends. An end that waits later is never woken.
    ///
    /// # Errors
    /// [`IoPumpError::Full`].
    pub fn reader(&self, reader: StreamReader) -> Result<AsyncStreamReader, IoPumpError> {
        let waiter = Waiter::new(self, reader.stream(), End::Reader)?;
        Ok(AsyncStreamReader { reader, waiter, read: 0 })
    }

    /// A writer that can be awaited. As [`IoPump::reader`].
    ///
    /// # Errors
    /// [`IoPumpError::Full`].
    pub fn writer(&self, writer: StreamWriter) -> Result<AsyncStreamWriter, IoPumpError> {
        let waiter = Waiter::new(self, writer.stream(), End::Writer)?;
        Ok(AsyncStreamWriter { writer: Some(writer), waiter })
    }
}

impl AsyncStreamReader {
    /// Ready once a message has arrived, or the stream is closed.
    fn poll_readable(&mut self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        loop {
            self.reader.finish_wait();
            match self.reader.front().map(|message| message.is_some()) {
                Ok(true) => return Poll::Ready(Ok(())),
                Ok(false) if self.reader.begin_wait(1) => {
                    // If the peer has corrupted the header, it would never wake this end.
                    let registered = self.waiter.register(context);
                    return if registered.is_ok() {
                        Poll::Pending
                    } else {
                        Poll::Ready(Err(Closed::Died))
                    };
                }
                Ok(false) => {}
                Err(closed) => return Poll::Ready(Err(closed)),
            }
        }
    }
}

/// Yields each message in memory of its own. For plain bytes, yields all that have arrived.
impl FuturesStream for AsyncStreamReader {
    type Item = Result<Vec<u8>, Closed>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        match this.poll_readable(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(Closed::Ended)) => return Poll::Ready(None),
            Poll::Ready(Err(closed)) => return Poll::Ready(Some(Err(closed))),
            Poll::Ready(Ok(())) => {}
        }
        match this.reader.front() {
            Ok(Some(message)) => {
                let mut bytes = vec![0; message.len() - this.read.min(message.len())];
                message.payload().copy_to(this.read, &mut bytes);
                message.done();
                this.read = 0;
                this.reader.release();
                Poll::Ready(Some(Ok(bytes)))
            }
            // `poll_readable` found a message, so a faulty peer took it back.
            Ok(None) => Poll::Ready(Some(Err(Closed::Died))),
            Err(closed) => Poll::Ready(Some(Err(closed))),
        }
    }
}

/// Reads the bytes of all messages one after the other.
impl AsyncRead for AsyncStreamReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            match this.poll_readable(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(Closed::Ended)) => return Poll::Ready(Ok(0)),
                Poll::Ready(Err(closed)) => return Poll::Ready(Err(failed(closed))),
                Poll::Ready(Ok(())) => {}
            }
            let Ok(Some(message)) = this.reader.front() else { continue };
            let len = message.payload().copy_to(this.read, bytes);
            if this.waiter.is_bytes {
                message.done_with(len);
                this.reader.release();
                return Poll::Ready(Ok(len));
            }
            this.read += len;
            if this.read >= message.len() {
                message.done();
                this.read = 0;
                this.reader.release();
            }
            // An empty message must not look like the end of the stream.
            if len > 0 {
                return Poll::Ready(Ok(len));
            }
        }
    }
}

/// Each write is one message, at most as long as a message may be. A write of plain bytes takes as
/// many as there is room for.
impl AsyncWrite for AsyncStreamWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Some(writer) = &mut this.writer else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        loop {
            writer.finish_wait();
            let room = match writer.writer().room() {
                Ok(room) => usize::try_from(room).unwrap_or(usize::MAX),
                Err(closed) => return Poll::Ready(Err(failed(closed))),
            };
            let most = writer.writer().len_max();
            let most = if this.waiter.is_bytes { most.min(room.max(1)) } else { most };
            let bytes = &bytes[..bytes.len().min(most)];
            match writer.push(bytes).and_then(|pushed| Ok((pushed, writer.commit()?).0)) {
                Ok(true) => return Poll::Ready(Ok(bytes.len())),
                Ok(false) if writer.begin_wait(bytes.len()) => {
                    let registered = this.waiter.register(context);
                    return if registered.is_ok() {
                        Poll::Pending
                    } else {
                        Poll::Ready(Err(failed(Closed::Died)))
                    };
                }
                Ok(false) => {}
                Err(StreamError::Closed(closed)) => return Poll::Ready(Err(failed(closed))),
                Err(error) => return Poll::Ready(Err(io::Error::other(error))),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().writer = None;
        Poll::Ready(Ok(()))
    }
}

/// The I/O error for a closed stream.
fn failed(closed: Closed) -> io::Error {
    let kind = match closed {
        Closed::Ended => io::ErrorKind::BrokenPipe,
        Closed::Died => io::ErrorKind::ConnectionReset,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, closed)
}
