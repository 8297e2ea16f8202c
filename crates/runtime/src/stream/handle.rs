//! A stream: its creation, its descriptor, and what marks its ends as dead.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use upcall_shm::LayoutError;
use upcall_shm::stream as shm;
use upcall_shm::stream::{End, StreamForm};
use upcall_sys::memfd::{MapError, SharedMapping};
use upcall_sys::{OsError, futex};

use super::memory::Memory;
use crate::liveness;

/// The generation of a stream's memory. It never changes, because no memory is used for a second
/// stream.
const GENERATION: u64 = 1;

/// A stream as a whole. Its two ends are taken from it, and its descriptor can go to another
/// process.
///
/// Cheap to clone. The memory is freed with the last clone and end. [The module](super) has an
/// example.
#[derive(Clone, Debug)]
pub struct Stream {
    memory: Memory,
}

/// Why a stream, or an end of it, could not be opened.
#[non_exhaustive]
pub enum StreamOpenError {
    /// The memory could not be mapped, or the descriptor is not that of a stream.
    Memory(MapError),
    /// The memory is not a stream, a size is out of range, or the end was taken before.
    Layout(LayoutError),
    /// The size of the descriptor's file could not be read.
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
    /// Creates a stream. A passive source that rests is started again once the reader has brought
    /// the level below `start_level` (the paper's `B_start`: bytes, slots or buffers, by the
    /// form). With 0 no source rests. The sizes of `form` are rounded up to the next allowed ones,
    /// and [`Stream::form`] returns the result. Some system calls. Allocates the memory, which is
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

    /// Opens a stream that another process created, by its descriptor. This process inherited the
    /// descriptor, or received it through a socket (unix(7), `SCM_RIGHTS`). The stream may be in
    /// use.
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

    /// The descriptor, for another process, which may then write to the stream's memory. It is
    /// closed on exec.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.0.mapping.fd()
    }

    /// The form in which its data moves.
    ///
    /// # Errors
    /// The memory was corrupted meanwhile.
    pub fn form(&self) -> Result<StreamForm, StreamOpenError> {
        Ok(self.attach()?.form())
    }

    /// Watches the process that has `end`. The process is gone once `fd` is readable or hangs up.
    /// `fd` is a pidfd, or a pipe or socket whose other side that process alone has. The thread
    /// `upcall-liveness` then calls [`Stream::mark_dead`]. The watch lasts as long as this process
    /// has a clone or an end of the stream. The program may close `fd` itself. For a stream that
    /// went through a [`StreamListener`](super::StreamListener), both processes call this.
    /// Allocates.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN` (no thread), `EPERM` (a file that is always readable).
    pub fn guard(&self, fd: &impl AsFd, end: End) -> Result<(), OsError> {
        let memory = Arc::downgrade(&self.memory.0);
        let guard = liveness::watch(fd.as_fd(), move || {
            if let Some(memory) = memory.upgrade() {
                // If the memory is corrupt, the other end does not find out.
                let _ = Stream { memory: Memory(memory) }.mark_dead(end);
            }
        })?;
        self.memory.0.guards.lock().unwrap_or_else(PoisonError::into_inner).push(guard);
        Ok(())
    }

    /// Marks an end as dead, because its process is gone, and wakes the other end. Programs that do
    /// not use [`Stream::guard`] call this. An end that ended in order is unchanged. The other end
    /// first reads what the dead one committed.
    ///
    /// # Errors
    /// The memory was corrupted meanwhile.
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
