//! Streams: bytes or messages through shared memory, within a process or between two.
//!
//! A stream has one [`StreamWriter`], which writes, and one [`StreamReader`], which reads. A handler may have
//! either end. With [`Runtime::stream_reader_handler`](crate::Runtime::stream_reader_handler) it is upcalled when
//! enough can be read, with [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) when there
//! is enough room to write.
//!
//! ```
//! # extern crate upcall_runtime as upcall;
//! use upcall::stream::{Closed, Stream, StreamForm};
//!
//! let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
//! let (mut writer, mut reader) = (stream.writer()?, stream.reader()?);
//! assert!(writer.push(b"frame 1")?); // `false`: no room now
//! writer.commit()?; // from here on the reader sees it
//!
//! let mut bytes = [0; 1024];
//! assert_eq!(reader.pop(&mut bytes)?, Some(7));
//! drop(writer); // ends the stream
//! assert_eq!(reader.front().err(), Some(Closed::Ended));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To write and to read takes no lock and no allocation. It takes a system call only if the other
//! end sleeps until just this write or read.
//!
//! # How it works
//!
//! (split-level-1991 §4, decision 0010.) A program makes a [`Stream`] and hands its descriptor to
//! another process, or keeps both ends: an [`StreamWriter`] writes, an [`StreamReader`] reads.
//! [`Runtime::stream_reader_handler`](crate::Runtime::stream_reader_handler) ties a reader to a scheduler,
//! [`Runtime::stream_writer_handler`](crate::Runtime::stream_writer_handler) a writer; any thread may have
//! either end and block on it. What moves the data is `stream` of the crate `upcall-shm`; here is
//! what must be done outside of it: who is woken, and by what.
//!
//! ```text
//!   StreamWriter                     the stream's memory                executor of the reader's CPU
//!   commit: N_write (1) ---->  level reached? bell 0 (2)  ----->  hears, at a boundary or turn (3)
//!        futex, only if the bell says that it sleeps ---------->  wakes: it slept on all bells (4)
//!                                                                 eligible: Input::Message (5)
//! ```
//!
//! 1. A store and a fence. If nobody waits for this level, that is all.
//! 2. One exchange, by the write that reaches the level, and by no other.
//! 3. No system call: the executor is awake, and looks at each bell it watches between two upcalls,
//!    and at each boundary of the handler that runs. That one must yield only if it is
//!    outranked, and only then is [`Interrupt::IoReady`](crate::Interrupt::IoReady) requested.
//! 4. One system call on either side. The executor sleeps on its doorbell and the bells of all its streams
//!    together; a peer can write to its own stream's alone.
//! 5. The message logically arrives now; the declared rate and `Terms::workahead_max` hold as
//!    for a task.
//!
//! The other way round it is the same: the release that makes the room a writer's handler waits for, or that
//! starts it if it rests, clears the writer's bell, and its executor hears it.
//!
//! # Death
//!
//! An end that is dropped ends the stream; dropped by a panic, it died. That a process was killed is heard by
//! a thread of the other one: by itself if the stream was handed over at a [`StreamListener`], otherwise by what
//! [`Stream::guard`] is given. What was committed is read first in any case, then [`Closed`] is found;
//! who sleeps is woken, and a handler upcalled.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use upcall_shm::LayoutError;
use upcall_shm::stream as shm;
use upcall_sys::memfd::{MapError, SharedMapping};
use upcall_sys::{OsError, futex};

pub use shm::{Closed, End, Kept, Payload, StreamError, StreamFault, StreamForm};

mod adapters;
mod io_pump;
mod listener;
mod reader;
mod sentry;
mod watches;
mod work;
mod writer;

pub use adapters::{AsyncStreamReader, AsyncStreamWriter};
pub use io_pump::{Carried, CarryEnd, IoPump, IoPumpError, Wait};
pub use listener::{ReceivedStream, StreamConnection, StreamListener, StreamListenerError};
pub use reader::StreamReader;
use sentry::Guard;
pub(crate) use watches::{WATCHES_MAX, Watches};
pub(crate) use work::StreamWork;
pub use writer::StreamWriter;

/// Each stream has memory of its own, which is not used again.
const GENERATION: u64 = 1;

/// The memory of a stream. Named by [`Message`] and [`WriteChunk`]; there is nothing to call.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Mapped>);

#[derive(Debug)]
struct Mapped {
    mapping: SharedMapping,
    /// What tells that the process at the other end is gone.
    guards: Mutex<Vec<Guard>>,
}

impl Memory {
    fn new(mapping: SharedMapping) -> Self {
        Memory(Arc::new(Mapped { mapping, guards: Mutex::default() }))
    }
}

impl AsRef<[AtomicU64]> for Memory {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.mapping.words()
    }
}

/// A message that is lent to its reader, where it stands in the stream's memory. From
/// [`StreamReader::next`] or [`StreamReader::front`].
///
/// | method | |
/// |---|---|
/// | `len()`, `is_empty()` | its length in bytes |
/// | `payload()` | its bytes, a [`Payload`]; [`Payload::copy_to`] copies them out |
/// | `done()` | done with it: the next is at the front |
/// | `done_with(len)` | done with `len` bytes of it; for [`StreamForm::Bytes`] |
/// | `keep()` | a [`Kept`], to be [given back](StreamReader::give_back) later; `None` unless [`StreamForm::Buffers`] |
///
/// Dropped without one of the last three, it stays at the front. None of them blocks or allocates.
pub type Message<'a> = shm::Message<'a, Memory>;
/// Room for a message, to be filled where it stands in the stream's memory. From [`StreamWriter::next`]
/// or [`StreamWriter::reserve`].
///
/// | method | |
/// |---|---|
/// | `payload()` | its bytes, a [`Payload`]; [`Payload::fill`] writes them |
/// | `stage(len)` | its first `len` bytes are the message; [`StreamWriter::commit`] hands it over |
///
/// Dropped without `stage`, it is given up. Neither blocks or allocates.
pub type WriteChunk<'a> = shm::WriteChunk<'a, Memory>;

/// A stream as a whole: what its two ends are taken from, and what is handed to another process.
///
/// Cheap to clone; its memory goes with the last clone and end. Example: [the module's](self).
#[derive(Clone, Debug)]
pub struct Stream {
    memory: Memory,
}

/// Why there is no stream, or no end of it.
#[non_exhaustive]
pub enum StreamOpenError {
    /// No memory, or a descriptor that cannot be one of a stream.
    Memory(MapError),
    /// The memory is no stream, a size is out of range, or the end was taken up before.
    Layout(LayoutError),
    /// The descriptor's size could not be found out.
    Size(std::io::Error),
}

impl fmt::Display for StreamOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamOpenError::Memory(error) => write!(f, "a stream has no memory: {error}"),
            StreamOpenError::Layout(error) => write!(f, "a stream cannot be opened: {error}"),
            StreamOpenError::Size(error) => {
                write!(f, "the size of a stream's memory is unknown: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(StreamOpenError);

impl std::error::Error for StreamOpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StreamOpenError::Memory(error) => Some(error),
            StreamOpenError::Layout(error) => Some(error),
            StreamOpenError::Size(error) => Some(error),
        }
    }
}

impl From<MapError> for StreamOpenError {
    fn from(error: MapError) -> Self {
        StreamOpenError::Memory(error)
    }
}

impl From<LayoutError> for StreamOpenError {
    fn from(error: LayoutError) -> Self {
        StreamOpenError::Layout(error)
    }
}

impl Stream {
    /// A new one. A passive source that rests is started again once the reader has brought
    /// the level below `start_level` (`B_start`, in units of the indexes); 0: no source
    /// rests. The sizes of `way` are rounded up to the next that are allowed, and
    /// [`Stream::way`] tells the result. Some system calls; allocates the memory, which is
    /// faulted in as it is used.
    ///
    /// # Errors
    /// See [`StreamOpenError`]; [`StreamOpenError::Layout`] for a size that is 0 or above the
    /// greatest, see [`StreamForm`].
    ///
    /// ```
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::stream::{Stream, StreamForm};
    ///
    /// let stream = Stream::create(StreamForm::Slots { slots: 48, slot_bytes: 1500 }, 0)?;
    /// assert_eq!(stream.form()?, StreamForm::Slots { slots: 64, slot_bytes: 1504 });
    /// # Ok::<(), upcall::stream::StreamOpenError>(())
    /// ```
    pub fn create(form: StreamForm, start_level: u64) -> Result<Self, StreamOpenError> {
        let bytes = form.words()? * 8;
        let memory = Memory::new(SharedMapping::create("upcall-stream", bytes)?);
        shm::Stream::create(memory.clone(), form, GENERATION, start_level)?;
        Ok(Stream { memory })
    }

    /// The stream that another process created, by the descriptor that it handed over: inherited, or
    /// through a socket (unix(7), `SCM_RIGHTS`). It may be in use.
    ///
    /// # Errors
    /// See [`StreamOpenError`].
    pub fn from_fd(fd: OwnedFd) -> Result<Self, StreamOpenError> {
        let file = File::from(fd);
        let bytes = file.metadata().map_err(StreamOpenError::Size)?.len();
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let memory = Memory::new(SharedMapping::from_fd(file.into(), bytes)?);
        shm::Stream::attach(memory.clone(), GENERATION)?;
        Ok(Stream { memory })
    }

    /// The descriptor, to hand to another process, which may then write to the stream's memory. Closed
    /// on exec.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.0.mapping.fd()
    }

    /// How its data moves.
    ///
    /// # Errors
    /// The memory was spoilt meanwhile.
    pub fn form(&self) -> Result<StreamForm, StreamOpenError> {
        Ok(self.attach()?.form())
    }

    /// The end that writes. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// It was taken up before, here or elsewhere.
    pub fn writer(&self) -> Result<StreamWriter, StreamOpenError> {
        Ok(StreamWriter::new(self.attach()?.writer()?, self.clone()))
    }

    /// The end that reads. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// It was taken up before, here or elsewhere.
    pub fn reader(&self) -> Result<StreamReader, StreamOpenError> {
        Ok(StreamReader::new(self.attach()?.reader()?, self.clone()))
    }

    /// `end` is in another process, which is gone once `fd` is readable or hangs up: a pidfd, or a
    /// pipe or socket whose other side it alone has. Then [`Stream::mark_dead`] is called, by the thread
    /// `upcall-sentry`. As long as a copy or an end of this stream is here; `fd` itself may be closed. A
    /// stream that went through a [`StreamListener`] is guarded so by both processes. Allocates.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN` (no thread), `EPERM` (a file that is always readable).
    pub fn guard(&self, fd: &impl AsFd, end: End) -> Result<(), OsError> {
        let guard = Guard::new(fd.as_fd(), &self.memory.0, end)?;
        self.memory.0.guards.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
        Ok(())
    }

    /// Says that an end's process is gone, and wakes the other end: for whoever knows by other means than
    /// [`Stream::guard`]. One that ended in order stays so. What it committed is read first.
    ///
    /// # Errors
    /// The memory was spoilt meanwhile.
    pub fn mark_dead(&self, end: End) -> Result<(), StreamOpenError> {
        let stream = self.attach()?;
        if stream.mark_dead(end) {
            futex::wake_shared(stream.wait_word(end.other()), 1);
        }
        Ok(())
    }

    pub(crate) fn attach(&self) -> Result<shm::Stream<Memory>, LayoutError> {
        shm::Stream::attach(self.memory.clone(), GENERATION)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

thread_local! {
    /// Whether this thread shares its CPU with other domains, which it lets look by itself.
    static AMONG_DOMAINS: Cell<bool> = const { Cell::new(false) };
}

/// Says that this thread is an executor among the domains of a daemon.
pub(crate) fn set_among_domains() {
    AMONG_DOMAINS.set(true);
}

/// Wakes the other end, which sleeps on `word`. A system call or two.
fn wake(word: &AtomicU64) {
    futex::wake_shared(word, 1);
    if AMONG_DOMAINS.get() {
        // Its domain may be on this CPU, of the same priority: it shows what it has, and a
        // wish for a look, and sleeps again.
        std::thread::yield_now();
    }
}

/// Sleeps on `word` while its end waits, or until `deadline_ns`.
fn sleep_on(word: &AtomicU64, deadline_ns: Option<u64>) {
    // Whatever ends the wait, the caller looks again.
    let _ = futex::wait_shared_until(word, shm::WAITING, deadline_ns);
}

/// Whether the kernel lets an executor sleep on several bells.
pub(crate) fn check_kernel() -> Result<(), OsError> {
    futex::WaitSet::is_known()
}
