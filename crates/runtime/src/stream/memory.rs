//! The memory of a stream, and what is lent in place from it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use upcall_shm::stream as shm;
use upcall_sys::memfd::SharedMapping;

use crate::liveness::WatchEntry;

/// The memory of a stream. Named by [`Message`] and [`WriteChunk`]; there is nothing to call.
#[derive(Clone, Debug)]
pub struct Memory(pub(super) Arc<Mapped>);

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) mapping: SharedMapping,
    /// What tells that the process at the other end is gone.
    pub(super) guards: Mutex<Vec<WatchEntry>>,
}

impl Memory {
    pub(super) fn new(mapping: SharedMapping) -> Self {
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
