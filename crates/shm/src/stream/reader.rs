//! The reader of a stream.

use super::end::{Due, Leaving, Wait, claim_start};
use super::fault::{Closed, StreamError, StreamFault};
use super::form::StreamForm;
use super::layout::{Shape, word};
use super::payload::Payload;
use super::wake::{ENDED, WAITING, WATCHED};
use crate::AtomicU64;
use crate::Ordering::Relaxed;
use crate::words::Words;

/// See the [module's head](super). For one thread at a time.
#[derive(Debug)]
pub struct Reader<W> {
    words: Words<W>,
    shape: Shape,
    /// The index up to which the reader has read.
    taken: u64,
    /// The index up to which the reader is done. It is smaller than `taken` by the buffers that the
    /// reader keeps.
    done: u64,
    /// `N_read`.
    released: u64,
    /// `N_write`, as last loaded.
    written: u64,
    /// For each buffer, whether the reader keeps it.
    kept: Vec<bool>,
    closed: Option<Closed>,
}

impl<W: AsRef<[AtomicU64]>> Reader<W> {
    pub(super) fn new(words: Words<W>, shape: Shape) -> Self {
        let buffers =
            if let StreamForm::Buffers { buffers, .. } = shape.form { buffers as usize } else { 0 };
        let kept = vec![false; buffers];
        Reader { words, shape, taken: 0, done: 0, released: 0, written: 0, kept, closed: None }
    }

    /// The next message, or all plain bytes that have been committed. `None` if there are none now.
    /// The message stays the next one until the reader is done with it. O(1).
    ///
    /// # Errors
    /// The stream is closed, and nothing more will come.
    #[inline]
    pub fn front(&mut self) -> Result<Option<Message<'_, W>>, Closed> {
        // More plain bytes than the reader knows of may have come.
        let bytes = matches!(self.shape.form, StreamForm::Bytes { .. });
        if (bytes || self.taken == self.written) && !self.look()? {
            return Ok(None);
        }
        let (buffer, len) = match self.head() {
            Ok(head) => head,
            Err(fault) => return Err(self.close(Closed::Fault(fault))),
        };
        Ok(Some(Message { reader: self, buffer, len }))
    }

    /// Copies the next message into `bytes` and is done with it. Of plain bytes it copies as many
    /// as are committed and fit. `None` if there are none now. O(bytes).
    ///
    /// # Errors
    /// The message is longer than `bytes` and stays the next one, or the stream is closed.
    #[inline]
    pub fn pop(&mut self, bytes: &mut [u8]) -> Result<Option<usize>, StreamError> {
        let Some(message) = self.front()? else { return Ok(None) };
        let len = message.len();
        if matches!(message.reader.shape.form, StreamForm::Bytes { .. }) {
            let len = message.payload().copy_to(0, bytes);
            message.done_with(len);
            return Ok(Some(len));
        }
        if len > bytes.len() {
            return Err(StreamError::TooLong { found: len, max: bytes.len() });
        }
        message.payload().copy_to(0, bytes);
        message.done();
        Ok(Some(len))
    }

    /// Gives the room of all finished messages back to the writer. Costs a store, a fence and a
    /// load, for any number of messages.
    #[inline]
    pub fn release(&mut self) -> Due {
        let mut wake = false;
        if self.done != self.released {
            self.released = self.done;
            wake = self.words.publish(word::READ, self.released, word::WRITER);
        }
        let start = self.starts();
        // `starts` runs after the fence of the last release. The writer may wait to be started.
        let wake = (start && self.words.notify(word::WRITER)) || wake;
        Due { wake, start }
    }

    /// Releases, and prepares to wait for `units` (bytes, slots, buffers) more than were read,
    /// at most as many as there can be. Starts a source that rests.
    pub fn wait(&mut self, units: u64) -> Wait {
        self.wait_with(units, WAITING)
    }

    /// As [`Self::wait`], for a reader that does not sleep but calls from time to time
    /// [`Stream::is_notified`](super::Stream::is_notified). The writer does not wake it. If the
    /// result says `sleep`, the reader watches, and then calls `finish_wait`.
    pub fn watch(&mut self, units: u64) -> Wait {
        self.wait_with(units, WATCHED)
    }

    fn wait_with(&mut self, units: u64, state: u32) -> Wait {
        let mut due = self.release();
        let most = self.released + self.shape.count;
        let wanted = self.taken.saturating_add(units.max(1)).min(most);
        self.words.begin_wait(word::READER, wanted, state);
        // If the stream is closed, the next look says so.
        let gone = self.words.gone(word::WRITER).is_some();
        let sleep = !gone && self.refresh().is_ok() && self.written < wanted;
        if !sleep {
            self.words.finish_wait(word::READER);
        } else if self.rests() && claim_start(&self.words) {
            // Only this source can deliver the data that the reader waits for. So the reader starts
            // it even if the level is above `B_start`.
            due.start = true;
            due.wake |= self.words.notify(word::WRITER);
        }
        Wait { due, sleep }
    }

    /// Ends a wait, after a sleep or without one. Returns `true` if the writer notified.
    pub fn finish_wait(&mut self) -> bool {
        self.words.finish_wait(word::READER)
    }

    /// The reader's wait word, to sleep on. [`Self::peer_wait_word`] is the writer's.
    pub fn wait_word(&self) -> &AtomicU64 {
        self.words.at(word::READER + word::WAIT)
    }

    /// The writer's wait word: the futex to wake after [`Due::wake`].
    pub fn peer_wait_word(&self) -> &AtomicU64 {
        self.words.at(word::WRITER + word::WAIT)
    }

    /// How much can be read now. Costs loads.
    ///
    /// # Errors
    /// An impossible index.
    pub fn level(&mut self) -> Result<u64, Closed> {
        self.refresh()?;
        Ok(self.written - self.taken)
    }

    /// The place of a kept message. For a message of another stream, any bytes.
    pub fn kept(&self, kept: &Kept) -> Payload<'_> {
        let StreamForm::Buffers { buffers, buffer_bytes } = self.shape.form else {
            return Payload::new(&[], 0, 0);
        };
        let buffer = kept.buffer.min(buffers - 1);
        let len = kept.len.min(buffer_bytes as usize);
        self.shape.payload(&self.words, 0, buffer, len)
    }

    /// Ends the use of a kept message, in any order. The writer gets its buffer with the next
    /// [`Self::release`]. A message of another stream is ignored.
    pub fn give_back(&mut self, kept: Kept) {
        if self.kept.get(kept.buffer as usize) == Some(&true) {
            self.finish(kept.buffer, 1);
        }
    }

    /// Ends the stream as its reader. Returns `true` if the writer must be woken.
    #[must_use = "the other end must be woken"]
    pub fn end(self) -> bool {
        self.words.leave(word::READER, ENDED, word::WRITER)
    }

    /// As [`Self::end`], for a caller that keeps the reader. The writer will find `how`.
    #[must_use = "the other end must be woken"]
    pub fn leave(&mut self, how: Leaving) -> bool {
        self.words.leave(word::READER, how.state(), word::WRITER)
    }

    /// Whether there is anything to read, after a look at the writer's index.
    fn look(&mut self) -> Result<bool, Closed> {
        self.refresh()?;
        if self.taken != self.written {
            return Ok(true);
        }
        let Some(closed) = self.words.gone(word::WRITER) else { return Ok(false) };
        // The load of `gone` makes the last commit of the writer visible.
        self.refresh()?;
        if self.taken != self.written { Ok(true) } else { Err(self.close(closed)) }
    }

    #[inline]
    fn refresh(&mut self) -> Result<(), Closed> {
        if let Some(closed) = self.closed {
            return Err(closed);
        }
        let found = self.words.index(word::WRITTEN);
        let (min, max) = (self.written, self.released + self.shape.count);
        if !(min..=max).contains(&found) {
            let fault = StreamFault::Index { name: "N_write", found, min, max };
            return Err(self.close(Closed::Fault(fault)));
        }
        self.written = found;
        Ok(())
    }

    /// Buffer and length of the next message. Copied once, then checked.
    #[inline]
    fn head(&self) -> Result<(u32, usize), StreamFault> {
        let there = self.written - self.taken;
        if let StreamForm::Bytes { .. } = self.shape.form {
            return Ok((0, usize::try_from(there).unwrap_or(usize::MAX)));
        }
        // Relaxed: the load of the index has acquired it.
        let found = self.words.load(self.shape.head(self.taken), Relaxed);
        let (buffer, found) = match self.shape.form {
            StreamForm::Buffers { buffers, .. } => {
                let (len, buffer) = (found >> 32, found & u64::from(u32::MAX));
                // A fault if the buffer does not exist or the reader has it already.
                let index = usize::try_from(buffer).unwrap_or(usize::MAX);
                if self.kept.get(index) != Some(&false) {
                    let buffers = u64::from(buffers);
                    return Err(StreamFault::Buffer { found: buffer, buffers });
                }
                (u32::try_from(buffer).unwrap_or(0), len)
            }
            _ => (0, found),
        };
        let most = self.shape.len_max as u64;
        let max = match self.shape.form {
            StreamForm::Messages { .. } => most.min(there.saturating_sub(8)),
            _ => most,
        };
        match usize::try_from(found) {
            Ok(len) if found <= max && self.shape.units(len) <= there => Ok((buffer, len)),
            _ => Err(StreamFault::Length { found, max }),
        }
    }

    /// Ends the use of `units`, which were in `buffer` if the form has buffers.
    #[inline]
    fn finish(&mut self, buffer: u32, units: u64) {
        if let StreamForm::Buffers { .. } = self.shape.form {
            self.kept[buffer as usize] = false;
            // Relaxed: the index hands the word over.
            self.words.store(self.shape.back(self.done), u64::from(buffer), Relaxed);
        }
        self.done += units;
    }

    /// Whether the source rests, must be started, and this call claimed the start.
    fn starts(&mut self) -> bool {
        self.rests()
            && self.refresh().is_ok()
            && self.written - self.released < self.shape.start_level
            && self.words.gone(word::WRITER).is_none()
            && claim_start(&self.words)
    }

    /// Whether the source rests.
    fn rests(&self) -> bool {
        // Two fences pair with the fence in `Writer::rest`: the one in `publish`, after the last
        // release, and the one in `begin_wait`.
        self.shape.start_level != 0 && self.words.load(word::ACTIVE, Relaxed) == 0
    }

    fn close(&mut self, closed: Closed) -> Closed {
        self.written = self.taken; // so that the next look finds it closed
        *self.closed.get_or_insert(closed)
    }
}

/// The next message, lent by the reader.
#[derive(Debug)]
pub struct Message<'a, W> {
    reader: &'a mut Reader<W>,
    buffer: u32,
    len: usize,
}

impl<W: AsRef<[AtomicU64]>> Message<'_, W> {
    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes. An empty message is a message too.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its place in the memory.
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        let reader = &self.reader;
        reader.shape.payload(&reader.words, reader.taken, self.buffer, self.len)
    }

    /// Ends the use of the message. The writer gets its room with the next [`Reader::release`].
    #[inline]
    pub fn done(self) {
        let len = self.len;
        self.done_with(len);
    }

    /// Ends the use of the first `len` plain bytes, or of the whole message in the other forms.
    #[inline]
    pub fn done_with(self, len: usize) {
        let Message { reader, buffer, len: all } = self;
        let len = if let StreamForm::Bytes { .. } = reader.shape.form { len.min(all) } else { all };
        let units = reader.shape.units(len);
        reader.taken += units;
        reader.finish(buffer, units);
    }

    /// Keeps the message until [`Reader::give_back`]. The reader may read others meanwhile. Only a
    /// message in a buffer can be kept. Otherwise the result is `None`, and the message stays the
    /// next one.
    pub fn keep(self) -> Option<Kept> {
        let Message { reader, buffer, len } = self;
        *reader.kept.get_mut(buffer as usize)? = true;
        reader.taken += 1;
        Some(Kept { buffer, len })
    }
}

/// A message that its reader keeps. If it is dropped, the stream loses its buffer.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a buffer that is not given back is lost to the stream"]
pub struct Kept {
    buffer: u32,
    len: usize,
}
