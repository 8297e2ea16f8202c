//! The handle of an I/O pump.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use upcall_core::time::Instant;
use upcall_sys::futex::WaitSet;
use upcall_sys::transfer::NonBlocking;

use super::carry::Carry;
use super::outcome::{Carried, IoPumpError};
use super::requests::{PumpRequests, Request};
use super::worker::PumpLoop;
use crate::clock;
use crate::io_events::{Feed, Poller};
use crate::stream::reader::StreamReader;
use crate::stream::writer::StreamWriter;

/// A thread that carries bytes between streams and files, pipes, sockets or terminals. It also
/// wakes the code that awaits a stream.
///
/// Start one per program. The thread, `upcall-io-pump`, is of the ordinary class. A second thread
/// watches the descriptors. One pump serves up to 126 streams.
///
/// - A *source* ([`IoPump::source`]) reads a descriptor and writes a stream. So a socket can feed a
///   handler that is upcalled when enough has arrived, and the handler makes no system call.
/// - A *sink* ([`IoPump::sink`]) reads a stream and writes a descriptor.
/// - [`IoPump::reader`] and [`IoPump::writer`] make an end of a stream that `async` code of another
///   executor, such as tokio, can await.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use std::io::Write;
/// use upcall::clock;
/// use upcall::stream::{Closed, IoPump, Stream, StreamForm};
/// use upcall::time::Span;
///
/// let stream = Stream::create(StreamForm::Messages { capacity: 4096 }, 0)?;
/// let mut reader = stream.reader()?;
/// let pump = IoPump::start()?;
/// let (input, mut output) = std::io::pipe()?;
/// let _source = pump.source(input, stream.writer()?)?;
/// output.write_all(b"hello")?;
/// drop(output); // the end of the input ends the stream
///
/// let mut bytes = [0; 16];
/// assert!(reader.wait(1, Some(clock::now() + Span::from_secs(10))));
/// assert_eq!(reader.pop(&mut bytes)?, Some(5));
/// assert!(reader.wait(1, Some(clock::now() + Span::from_secs(10))));
/// assert_eq!(reader.front().err(), Some(Closed::Ended));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Dropping the pump stops it. A stream that it has not carried to its end has then
/// [died](crate::stream::Closed::Died).
#[derive(Debug)]
pub struct IoPump {
    requests: Arc<PumpRequests>,
    thread: Option<JoinHandle<()>>,
}

/// Waits for the end of a carry that [`IoPump::source`] or [`IoPump::sink`] started. If it is
/// dropped, the pump goes on carrying.
#[derive(Debug)]
pub struct Wait(mpsc::Receiver<Carried>);

impl Wait {
    /// Blocks until the carry has ended, or until `deadline`. A `deadline` of `None` is no limit.
    /// Returns `None` at the deadline, and if the I/O pump was dropped. Does not allocate.
    pub fn wait(&self, deadline: Option<Instant>) -> Option<Carried> {
        match deadline {
            None => self.0.recv().ok(),
            Some(deadline) => self.0.recv_timeout(deadline.since(clock::now()).into()).ok(),
        }
    }
}

impl IoPump {
    /// Starts the pump's thread, and the thread that watches its descriptors. Allocates.
    ///
    /// # Errors
    /// See [`IoPumpError`].
    pub fn start() -> Result<Self, IoPumpError> {
        WaitSet::is_known()?;
        let requests = Arc::new(PumpRequests::default());
        let (started, starts) = mpsc::channel();
        let at = requests.clone();
        let thread = std::thread::Builder::new()
            .name("upcall-io-pump".to_owned())
            .spawn(move || {
                let poller = Poller::fed_by(Feed::RingThread);
                match poller.or_else(|_| Poller::fed_by(Feed::EpollThread)) {
                    Ok(poller) => {
                        let _ = started.send(Ok(()));
                        PumpLoop::new(at, poller).run();
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            })
            .map_err(IoPumpError::Thread)?;
        match starts.recv() {
            Ok(Ok(())) => Ok(IoPump { requests, thread: Some(thread) }),
            Ok(Err(error)) => Err(IoPumpError::Poller(error)),
            Err(_) => Err(IoPumpError::Thread(std::io::ErrorKind::Other.into())),
        }
    }

    /// Carries the input of `fd` into a stream, until the input ends. A stream of plain bytes gets
    /// plain bytes. Other streams get what one read returns as one message, at most as long as a
    /// message may be. `fd` is non-blocking meanwhile, also for other holders of the same open
    /// file. A file is read by the pump's thread, and the other carries wait for its disk.
    ///
    /// Each datagram of a datagram socket, such as a `std::net::UdpSocket`, is one message, even an
    /// empty one. The message holds the payload alone, not the sender's address. A handler that
    /// needs the address uses a [`Receiver`](crate::udp::Receiver). A datagram longer than a
    /// message may be is dropped and counted in [`Carried::too_long`]. The limit is a slot, a
    /// buffer, or a quarter of the capacity of
    /// [`StreamForm::Messages`](crate::stream::StreamForm::Messages) and
    /// [`StreamForm::Bytes`](crate::stream::StreamForm::Bytes), and never more than 64 KiB. While
    /// the stream has no room for the longest datagram, datagrams wait in the socket. The kernel
    /// drops those that do not fit there. So a reader of messages or bytes must not wait for more
    /// than three quarters of the capacity.
    ///
    /// # Errors
    /// See [`IoPumpError`].
    pub fn source(
        &self,
        fd: impl Into<OwnedFd>,
        writer: StreamWriter,
    ) -> Result<Wait, IoPumpError> {
        self.carry(Carry::source(NonBlocking::new(fd.into())?, writer)?)
    }

    /// Carries the data of a stream to `fd`, until the stream ends. Messages follow each other: on
    /// a stream socket or a pipe their bounds are lost. Otherwise as [`IoPump::source`].
    ///
    /// # Errors
    /// See [`IoPumpError`].
    pub fn sink(&self, reader: StreamReader, fd: impl Into<OwnedFd>) -> Result<Wait, IoPumpError> {
        self.carry(Carry::sink(reader, NonBlocking::new(fd.into())?)?)
    }

    fn carry(&self, carry: Carry) -> Result<Wait, IoPumpError> {
        self.requests.reserve_stream()?;
        let (ended, ends) = mpsc::channel();
        self.requests.push(Request::Carry(Box::new(carry), ended));
        Ok(Wait(ends))
    }

    /// The requests to the pump's thread.
    pub(in crate::stream) fn requests(&self) -> &Arc<PumpRequests> {
        &self.requests
    }
}

impl Drop for IoPump {
    fn drop(&mut self) {
        self.requests.stop();
        if let Some(thread) = self.thread.take() {
            // The thread stops without waiting for anything.
            let _ = thread.join();
        }
    }
}
