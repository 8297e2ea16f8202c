//! The memory of a stream, and the types of messages and free space inside it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use upcall_shm::stream as shm;
use upcall_sys::memfd::SharedMapping;

use crate::liveness::WatchEntry;

/// The memory of a stream. The types [`Message`] and [`WriteChunk`] name it. It has no methods for
/// programs.
#[derive(Clone, Debug)]
pub struct Memory(pub(super) Arc<Mapped>);

#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) mapping: SharedMapping,
    /// Watches on the processes of the other ends.
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

/// A message that is lent to its reader, in place in the stream's memory. From
/// [`StreamReader::next`](super::StreamReader::next) or
/// [`StreamReader::front`](super::StreamReader::front).
///
/// | method | |
/// |---|---|
/// | `len()`, `is_empty()` | the length in bytes |
/// | `payload()` | the bytes, a [`Payload`]; [`Payload::copy_to`] copies them out |
/// | `done()` | the reader is done with it: the next message is at the front |
/// | `done_with(len)` | the reader is done with `len` bytes; for [`StreamForm::Bytes`] |
/// | `keep()` | a [`Kept`], to be [given back] later; `None` unless [`StreamForm::Buffers`] |
///
/// The message stays at the front until one of the last three is called. None of the methods blocks
/// or allocates.
///
/// [`Kept`]: super::Kept
/// [`Payload`]: super::Payload
/// [`Payload::copy_to`]: super::Payload::copy_to
/// [`StreamForm::Buffers`]: super::StreamForm::Buffers
/// [`StreamForm::Bytes`]: super::StreamForm::Bytes
/// [given back]: super::StreamReader::give_back
pub type Message<'a> = shm::Message<'a, Memory>;
/// Space for one message, to be filled in place in the stream's memory. From
/// [`StreamWriter::next`](super::StreamWriter::next) or
/// [`StreamWriter::reserve`](super::StreamWriter::reserve).
///
/// | method | |
/// |---|---|
/// | `payload()` | the bytes, a [`Payload`]; [`Payload::fill`] writes them |
/// | `stage(len)` | the first `len` bytes are the message; [`StreamWriter::commit`] hands it over |
///
/// Without `stage`, the space is given up. Neither method blocks or allocates.
///
/// [`Payload`]: super::Payload
/// [`Payload::fill`]: super::Payload::fill
/// [`StreamWriter::commit`]: super::StreamWriter::commit
pub type WriteChunk<'a> = shm::WriteChunk<'a, Memory>;
