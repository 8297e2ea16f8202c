//! How a stream's memory gets to another process: a socket at a path, where it is left.
//!
//! Used by programs whose domains do not start each other; those that do may let the child inherit
//! the descriptor. The connection stays as a *line*, as long as the stream does in either process: it hangs
//! up when one ends, however it does, and so tells the other one ([`Stream::guard`]).

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use upcall_core::time::Instant;
use upcall_shm::stream::End;
use upcall_sys::OsError;
use upcall_sys::local::{Access, Connection, Listener, ReceiveError, Received};
use upcall_sys::readiness::{self, Direction};

use super::handle::{Stream, StreamOpenError};

/// What an offer begins with; the end that the other is to take follows.
const MESSAGE_PREFIX: &[u8; 8] = b"upstrm01";
const MESSAGE_BYTES: usize = MESSAGE_PREFIX.len() + 1;

/// A socket at a path where other processes of this user offer streams ([`Stream::send`]).
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::clock;
/// use upcall::stream::{StreamListener, End, Stream, StreamForm};
/// use upcall::time::Span;
///
/// let path = std::env::temp_dir().join(format!("door-{}", std::process::id()));
/// let door = StreamListener::bind(&path)?;
/// // The other process; here a thread stands in for it.
/// let at = path.clone();
/// let camera = std::thread::spawn(move || {
///     let stream = Stream::create(StreamForm::Messages { capacity: 4096 }, 0).unwrap();
///     let mut writer = stream.writer().unwrap();
///     stream.send(&at, End::Reader).unwrap(); // "you read, I write"
///     writer.push(b"hello").unwrap();
///     writer.commit().unwrap();
/// });
/// let received = door.accept(Some(clock::now() + Span::from_secs(10)))?;
/// assert_eq!(received.end, End::Reader);
/// let mut reader = received.stream.reader()?;
/// assert!(reader.wait(1, Some(clock::now() + Span::from_secs(10))));
/// # camera.join().unwrap();
/// std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The file at the path stays when the door is dropped.
#[derive(Debug)]
pub struct StreamListener {
    listener: Listener,
}

/// A stream that another process offered.
#[derive(Debug)]
pub struct ReceivedStream {
    /// The stream; the process that offered it keeps the other end.
    pub stream: Stream,
    /// The end that this process is to take.
    pub end: End,
    /// For who wants to know by itself that the other process is gone.
    pub connection: StreamConnection,
}

/// Becomes readable when the process at its other end is gone, or has no copy or end of the stream any
/// more. Nothing depends on it: the stream is guarded by a descriptor of its own.
#[derive(Debug)]
pub struct StreamConnection(Connection);

/// Why no stream was handed over.
#[non_exhaustive]
pub enum StreamListenerError {
    /// What the system said.
    Os(OsError),
    /// The deadline has come.
    Late,
    /// The other process said what none of this version does, or hung up.
    NoStream,
    /// The memory that came is not a stream's.
    Open(StreamOpenError),
}

impl fmt::Display for StreamListenerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamListenerError::Os(error) => write!(f, "no stream was handed over: {error}"),
            StreamListenerError::Late => f.write_str("no stream was offered in time"),
            StreamListenerError::NoStream => {
                f.write_str("the other process sent what is no received of a stream, or hung up")
            }
            StreamListenerError::Open(error) => {
                write!(f, "the offered stream cannot be opened: {error}")
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
    /// Opens at `path`, for processes of this user. What a dead process left there is removed.
    ///
    /// # Errors
    /// `EADDRINUSE` if somebody answers there, `ENAMETOOLONG`, `ENOENT`, `EACCES`.
    pub fn bind(path: &Path) -> Result<Self, OsError> {
        Ok(StreamListener { listener: Listener::bind(path, Access::Owner)? })
    }

    /// The next stream that is offered. Blocks until `deadline`; allocates.
    ///
    /// # Errors
    /// See [`StreamListenerError`]; the door stays open.
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
    /// Offers it to the process that has its [`StreamListener`] at `path`, which is to take `end`. Does not wait
    /// until it does. When that process goes, taken up or not, its end is found to have died; and to
    /// that process the other end, when this one has neither copy nor end of the stream any more: who brings
    /// two others together keeps it.
    ///
    /// # Errors
    /// `ENOENT` if there is no door, `ECONNREFUSED` if nobody answers; as [`Stream::guard`].
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
