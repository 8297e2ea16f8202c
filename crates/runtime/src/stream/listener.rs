//! How a stream's memory gets to another process: through a socket at a path.
//!
//! The socket is for processes that do not start each other. A process that starts another one may
//! let the child inherit the descriptor instead. The connection stays open as long as either
//! process has the stream. It hangs up when one process ends for any reason. So the other process
//! notices ([`Stream::guard`]).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use upcall_core::time::Instant;
use upcall_shm::stream::End;
use upcall_sys::OsError;
use upcall_sys::local::{Access, Connection, Listener, ReceiveError, Received};
use upcall_sys::readiness::{self, Direction};

use super::handle::{Stream, StreamOpenError};

/// The first bytes of a message. One byte for the end that the receiver takes follows.
const MESSAGE_PREFIX: &[u8; 8] = b"upstrm01";
const MESSAGE_BYTES: usize = MESSAGE_PREFIX.len() + 1;

/// A socket at a path. Other processes of this user send streams there ([`Stream::send`]).
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::clock;
/// use upcall::stream::{StreamListener, End, Stream, StreamForm};
/// use upcall::time::Span;
///
/// let path = std::env::temp_dir().join(format!("streams-{}", std::process::id()));
/// let listener = StreamListener::bind(&path)?;
/// // The other process; here a thread stands in for it.
/// let at = path.clone();
/// let camera = std::thread::spawn(move || {
///     let stream = Stream::create(StreamForm::Messages { capacity: 4096 }, 0).unwrap();
///     let mut writer = stream.writer().unwrap();
///     stream.send(&at, End::Reader).unwrap(); // "you read, I write"
///     writer.push(b"hello").unwrap();
///     writer.commit().unwrap();
/// });
/// let received = listener.accept(Some(clock::now() + Span::from_secs(10)))?;
/// assert_eq!(received.end, End::Reader);
/// let mut reader = received.stream.reader()?;
/// assert!(reader.wait(1, Some(clock::now() + Span::from_secs(10))));
/// # camera.join().unwrap();
/// std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The file at the path stays when the listener is dropped.
#[derive(Debug)]
pub struct StreamListener {
    listener: Listener,
}

/// A stream that another process sent.
#[derive(Debug)]
pub struct ReceivedStream {
    /// The stream. The process that sent it keeps the other end.
    pub stream: Stream,
    /// The end for this process.
    pub end: End,
    /// The connection, for a program that wants to notice itself that the other process is gone.
    pub connection: StreamConnection,
}

/// Becomes readable when the process at its other end is gone, or has no clone or end of the stream
/// left. A program may drop it: the stream is guarded by a descriptor of its own.
#[derive(Debug)]
pub struct StreamConnection(Connection);

/// Why no stream was received.
#[non_exhaustive]
pub enum StreamListenerError {
    /// The system refused something.
    Os(OsError),
    /// The deadline has come.
    Late,
    /// The other process sent a message that this version does not know, or hung up.
    NoStream,
    /// The received memory is not that of a stream.
    Open(StreamOpenError),
}

impl fmt::Display for StreamListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamListenerError::Os(error) => write!(f, "no stream was handed over: {error}"),
            StreamListenerError::Late => f.write_str("no stream was received in time"),
            StreamListenerError::NoStream => {
                f.write_str("the other process sent no stream that this version knows, or hung up")
            }
            StreamListenerError::Open(error) => {
                write!(f, "the received stream cannot be opened: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(StreamListenerError);

impl std::error::Error for StreamListenerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StreamListenerError::Os(error) => Some(error),
            StreamListenerError::Open(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for StreamListenerError {
    fn from(error: OsError) -> Self {
        StreamListenerError::Os(error)
    }
}

impl StreamListener {
    /// Listens at `path`, for processes of this user. Removes a socket that a dead process left
    /// there.
    ///
    /// # Errors
    /// `EADDRINUSE` if another process listens there; `ENAMETOOLONG`, `ENOENT`, `EACCES`.
    pub fn bind(path: &Path) -> Result<Self, OsError> {
        Ok(StreamListener { listener: Listener::bind(path, Access::Owner)? })
    }

    /// The next stream that another process sends. Blocks until `deadline`. Allocates.
    ///
    /// # Errors
    /// See [`StreamListenerError`]. The listener stays open.
    pub fn accept(&self, deadline: Option<Instant>) -> Result<ReceivedStream, StreamListenerError> {
        let connection = loop {
            wait(self.listener.as_fd(), deadline)?;
            if let Some(connection) = self.listener.accept()? {
                break connection;
            }
        };
        wait(connection.as_fd(), deadline)?;
        let mut bytes = [0; MESSAGE_BYTES];
        let received = connection.receive(&mut bytes);
        let Received { len, fds } = match received {
            Ok(received) => received,
            Err(ReceiveError::Os(error)) => return Err(error.into()),
            Err(_) => return Err(StreamListenerError::NoStream),
        };
        let end = match bytes {
            _ if len != MESSAGE_BYTES || !bytes.starts_with(MESSAGE_PREFIX) => {
                return Err(StreamListenerError::NoStream);
            }
            [.., b'r'] => End::Reader,
            [.., b'w'] => End::Writer,
            _ => return Err(StreamListenerError::NoStream),
        };
        let [fd] = <[_; 1]>::try_from(fds).map_err(|_| StreamListenerError::NoStream)?;
        let stream = Stream::from_fd(fd).map_err(StreamListenerError::Open)?;
        stream.guard(&connection, end.other())?;
        Ok(ReceivedStream { stream, end, connection: StreamConnection(connection) })
    }
}

impl Stream {
    /// Sends the stream to the receiver: the process that has its [`StreamListener`] at `path`. The
    /// receiver takes `end`. Does not wait for that. When the receiver is gone, `end` counts as
    /// dead, even if the receiver never took it. When this process has no clone and no end of the
    /// stream left, the receiver finds the other end dead. So a process that connects two others
    /// must keep the stream.
    ///
    /// # Errors
    /// `ENOENT` if there is no socket, `ECONNREFUSED` if no process listens; as [`Stream::guard`].
    pub fn send(&self, path: &Path, end: End) -> Result<StreamConnection, OsError> {
        let connection = Connection::connect(path)?;
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[..MESSAGE_PREFIX.len()].copy_from_slice(MESSAGE_PREFIX);
        bytes[MESSAGE_PREFIX.len()] = if end == End::Reader { b'r' } else { b'w' };
        connection.send(&bytes, &[self.fd()])?;
        self.guard(&connection, end)?;
        Ok(StreamConnection(connection))
    }
}

impl AsFd for StreamConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn wait(fd: BorrowedFd<'_>, deadline: Option<Instant>) -> Result<(), StreamListenerError> {
    let is_ready = readiness::wait_until(fd, Direction::Readable, deadline.map(Instant::as_nanos))?;
    if is_ready { Ok(()) } else { Err(StreamListenerError::Late) }
}
