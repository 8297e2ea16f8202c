//! The end that reads.

use super::layout::{Shape, word};
use super::wake::{ENDED, WAITING, WATCHED};
use super::{
    Closed, Due, Leaving, Payload, StreamError, StreamFault, StreamForm, Wait, claim_start,
};
use crate::AtomicU64;
use crate::Ordering::Relaxed;
use crate::words::Words;

/// See the module's head. One thread at a time.
#[derive(Debug)]
pub struct Reader<W> {
    words: Words<W>,
    shape: Shape,
    /// Up to here it has read.
    taken: u64,
    /// Up to here it is done with what it read: less than `taken` by the buffers it keeps.
    done: u64,
    /// `N_read`.
    released: u64,
    /// `N_write`, as last seen.
    written: u64,
    /// Which buffers it has.
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

    /// The next message, or all plain bytes there are; `None`: nothing is there now. It stays
    /// there until it is done with. O(1).
    ///
    /// # Errors
    /// Nothing will be there any more.
    #[inline]
    pub fn front(&mut self) -> Result<Option<Message<'_, W>>, Closed> {
        // Of plain bytes there may be more than it knows of.
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

    /// Copies the next message into `bytes` and is done with it; of plain bytes, as many as
    /// there are and find room. `None`: nothing is there now. O(bytes).
    ///
    /// # Errors
    /// It is longer than `bytes`, and still the next; or nothing will be there any more.
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

    /// Gives the room of all that is done with back to the writer: a store, a fence and a load,
    /// whatever the number.
    #[inline]
    pub fn release(&mut self) -> Due {
        let mut wake = false;
        if self.done != self.released {
            self.released = self.done;
            wake = self.words.publish(word::READ, self.released, word::WRITER);
        }
        let start = self.starts();
        // Behind the fence of the last release. It may wait to be started.
        let wake = (start && self.words.notify(word::WRITER)) || wake;
        Due { wake, start }
    }

    /// Releases, and wishes to wait for `units` (bytes, slots, descriptors) more than were read;
    /// at most as many as there can be. A source that rests is started for it.
    pub fn wait(&mut self, units: u64) -> Wait {
        self.wait_with(units, WAITING)
    }

    /// As [`Self::wait`], for who does not sleep but looks now and then at
    /// [`Stream::is_notified`](super::Stream::is_notified): no wake is due to it. With `sleep` it is to
    /// look; then to `finish_wait`.
    pub fn watch(&mut self, units: u64) -> Wait {
        self.wait_with(units, WATCHED)
    }

    fn wait_with(&mut self, units: u64, state: u32) -> Wait {
        let mut due = self.release();
        let most = self.released + self.shape.count;
        let wanted = self.taken.saturating_add(units.max(1)).min(most);
        self.words.begin_wait(word::READER, wanted, state);
        // Closed: the next look says so.
        let gone = self.words.gone(word::WRITER).is_some();
        let sleep = !gone && self.refresh().is_ok() && self.written < wanted;
        if !sleep {
            self.words.finish_wait(word::READER);
        } else if self.rests() && claim_start(&self.words) {
            // What it waits for comes from nobody else, though the level be above `B_start`.
            due.start = true;
            due.wake |= self.words.notify(word::WRITER);
        }
        Wait { due, sleep }
    }

    /// After a wait, whether there was a sleep or not: whether the writer rang.
    pub fn finish_wait(&mut self) -> bool {
        self.words.finish_wait(word::READER)
    }

    /// Its own wait word, to sleep on; the writer's is [`Self::peer_wait_word`].
    pub fn wait_word(&self) -> &AtomicU64 {
        self.words.at(word::READER + word::WAIT)
    }

    /// The writer's wait word: the futex to be woken when that is due.
    pub fn peer_wait_word(&self) -> &AtomicU64 {
        self.words.at(word::WRITER + word::WAIT)
    }

    /// How much is there to be read, as of a look now. Loads.
    ///
    /// # Errors
    /// An index that cannot be.
    pub fn level(&mut self) -> Result<u64, Closed> {
        self.refresh()?;
        Ok(self.written - self.taken)
    }

    /// Where a kept message stands. Of another stream's: any bytes.
    pub fn kept(&self, kept: &Kept) -> Payload<'_> {
        let StreamForm::Buffers { buffers, buffer_bytes } = self.shape.form else {
            return Payload::new(&[], 0, 0);
        };
        let buffer = kept.buffer.min(buffers - 1);
        let len = kept.len.min(buffer_bytes as usize);
        self.shape.payload(&self.words, 0, buffer, len)
    }

    /// Done with a kept message, in any order; the writer has its buffer with the next
    /// [`Self::release`]. One of another stream is not taken.
    pub fn give_back(&mut self, kept: Kept) {
        if self.kept.get(kept.buffer as usize) == Some(&true) {
            self.finish(kept.buffer, 1);
        }
    }

    /// Reads no more: whether the writer must be woken.
    #[must_use = "who waits must be woken"]
    pub fn end(self) -> bool {
        self.words.leave(word::READER, ENDED, word::WRITER)
    }

    /// As [`Self::end`], for who keeps the value: how, is what the writer will find.
    #[must_use = "who waits must be woken"]
    pub fn leave(&mut self, how: Leaving) -> bool {
        self.words.leave(word::READER, how.state(), word::WRITER)
    }

    /// Whether there is more than was known of.
    fn look(&mut self) -> Result<bool, Closed> {
        self.refresh()?;
        if self.taken != self.written {
            return Ok(true);
        }
        let Some(closed) = self.words.gone(word::WRITER) else { return Ok(false) };
        // What it committed last, now for certain.
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
                // Out of range, or had already.
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

    /// Done with `units` that stood in `buffer`, if in one.
    #[inline]
    fn finish(&mut self, buffer: u32, units: u64) {
        if let StreamForm::Buffers { .. } = self.shape.form {
            self.kept[buffer as usize] = false;
            // Relaxed: the index hands it over.
            self.words.store(self.shape.back(self.done), u64::from(buffer), Relaxed);
        }
        self.done += units;
    }

    /// Whether the source rests, is to go on, and nobody else tells it.
    fn starts(&mut self) -> bool {
        self.rests()
            && self.refresh().is_ok()
            && self.written - self.released < self.shape.start_level
            && self.words.gone(word::WRITER).is_none()
            && claim_start(&self.words)
    }

    /// Whether the source rests.
    fn rests(&self) -> bool {
        // The fences in `publish`, behind the last release, and in `begin_wait` pair with that in
        // `Writer::rest`.
        self.shape.start_level != 0 && self.words.load(word::ACTIVE, Relaxed) == 0
    }

    fn close(&mut self, closed: Closed) -> Closed {
        self.written = self.taken; // so that the next look finds it closed
        *self.closed.get_or_insert(closed)
    }
}

/// The next message, lent.
#[derive(Debug)]
pub struct Message<'a, W> {
    reader: &'a mut Reader<W>,
    buffer: u32,
    len: usize,
}

impl<W: AsRef<[AtomicU64]>> Message<'_, W> {
    /// In bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes; it is a message all the same.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it stands.
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        let reader = &self.reader;
        reader.shape.payload(&reader.words, reader.taken, self.buffer, self.len)
    }

    /// Done with it; its room is the writer's with the next [`Reader::release`].
    #[inline]
    pub fn done(self) {
        let len = self.len;
        self.done_with(len);
    }

    /// Done with the first `len` plain bytes. Of a message: with all of it.
    #[inline]
    pub fn done_with(self, len: usize) {
        let Message { reader, buffer, len: all } = self;
        let len = if let StreamForm::Bytes { .. } = reader.shape.form { len.min(all) } else { all };
        let units = reader.shape.units(len);
        reader.taken += units;
        reader.finish(buffer, units);
    }

    /// Keeps it while others are read, until [`Reader::give_back`]. Only what stands in a buffer
    /// can be kept; otherwise `None`, and it stays the next.
    pub fn keep(self) -> Option<Kept> {
        let Message { reader, buffer, len } = self;
        *reader.kept.get_mut(buffer as usize)? = true;
        reader.taken += 1;
        Some(Kept { buffer, len })
    }
}

/// A message that its reader keeps. Dropped, its buffer is lost to the stream.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a buffer that is not given back is lost to the stream"]
pub struct Kept {
    buffer: u32,
    len: usize,
}
