//! The writer of a stream.

use super::end::{Due, Leaving, Wait, claim_start};
use super::fault::{Closed, StreamError, StreamFault};
use super::form::StreamForm;
use super::layout::{Shape, word};
use super::payload::Payload;
use super::wake::{ENDED, WAITING, WATCHED};
use crate::AtomicU64;
use crate::Ordering::{Acquire, Relaxed, SeqCst};
use crate::edge::{Edge, barrier};
use crate::words::Words;

/// See the [module's head](super). For one thread at a time.
#[derive(Debug)]
pub struct Writer<W> {
    words: Words<W>,
    shape: Shape,
    /// The index up to which the writer has written, committed or not.
    staged: u64,
    /// `N_write`.
    committed: u64,
    /// `N_read`, as last loaded.
    read: u64,
    buffers: Free,
    closed: Option<Closed>,
}

impl<W: AsRef<[AtomicU64]>> Writer<W> {
    pub(super) fn new(words: Words<W>, shape: Shape) -> Self {
        let buffers = Free::new(shape.form);
        Writer { words, shape, staged: 0, committed: 0, read: 0, buffers, closed: None }
    }

    /// Reserves room for a message of `len` bytes, or for `len` plain bytes. `None` if there is
    /// none now. A reservation that is dropped without staging has no effect. O(1), with buffers
    /// O(buffers given back).
    ///
    /// # Errors
    /// `len` is greater than any message may be, or there is no room and the stream is closed.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Option<WriteChunk<'_, W>>, StreamError> {
        Ok(if self.has_room(len)? { Some(WriteChunk { writer: self, len }) } else { None })
    }

    /// Whether [`Self::reserve`] would find room. Costs the same.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, StreamError> {
        if len > self.shape.len_max {
            return Err(StreamError::TooLong { found: len, max: self.shape.len_max });
        }
        let units = self.shape.units(len);
        Ok(self.shape.count - (self.staged - self.read) >= units || self.look(units)?)
    }

    /// Reserves, fills and stages. `false` if there is no room now. O(bytes).
    ///
    /// # Errors
    /// As [`Self::reserve`].
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Result<bool, StreamError> {
        let Some(room) = self.reserve(bytes.len())? else { return Ok(false) };
        room.payload().fill(0, bytes);
        room.stage(bytes.len());
        Ok(true)
    }

    /// Hands over all staged messages. Costs a store, a fence and two loads, for any number of
    /// messages.
    ///
    /// # Errors
    /// The reader is gone and will not read them.
    #[inline]
    pub fn commit(&mut self) -> Result<Due, Closed> {
        let due = Due { wake: self.publish(), start: false };
        match self.words.gone(word::READER) {
            None => Ok(due),
            Some(closed) => Err(self.close(closed)),
        }
    }

    /// Commits, and prepares to wait for room for `len` bytes, at most as many as there can be.
    pub fn wait(&mut self, len: usize) -> Wait {
        self.wait_for(self.shape.units(len.min(self.shape.len_max)))
    }

    /// As [`Self::wait`], for `units` (bytes, slots, buffers), at most as many as there can be.
    /// A writer that waits for half of them sleeps less often.
    pub fn wait_for(&mut self, units: u64) -> Wait {
        self.wait_with(units.clamp(1, self.shape.count), WAITING)
    }

    /// As [`Self::wait_for`], for a writer that does not sleep but calls from time to time
    /// [`Stream::is_notified`](super::Stream::is_notified). The reader does not wake it. If the
    /// result says `sleep`, the writer watches, and then calls `finish_wait`. A source that rests
    /// is notified when it is started instead.
    pub fn watch(&mut self, units: u64) -> Wait {
        let units = units.clamp(1, self.shape.count);
        if !self.rests() {
            return self.wait_with(units, WATCHED);
        }
        let due = Due { wake: self.publish(), start: false };
        if !matches!(self.look(units), Ok(false)) {
            return Wait { due, sleep: false };
        }
        // All is committed.
        Wait { due, sleep: self.rest_with(WATCHED).sleep }
    }

    fn wait_with(&mut self, units: u64, state: u32) -> Wait {
        let due = Due { wake: self.publish(), start: false };
        // Saturates at 0: there is room already then.
        let wanted = (self.staged + units).saturating_sub(self.shape.count);
        self.words.begin_wait(word::WRITER, wanted, state);
        let sleep = matches!(self.look(units), Ok(false));
        if !sleep {
            self.words.finish_wait(word::WRITER);
        }
        Wait { due, sleep }
    }

    /// Ends a wait, after a sleep or without one. Returns `true` if the reader notified.
    pub fn finish_wait(&mut self) -> bool {
        self.words.finish_wait(word::WRITER)
    }

    /// The writer's wait word, to sleep on. [`Self::peer_wait_word`] is the reader's.
    pub fn wait_word(&self) -> &AtomicU64 {
        self.words.at(word::WRITER + word::WAIT)
    }

    /// The reader's wait word: the futex to wake after [`Due::wake`].
    pub fn peer_wait_word(&self) -> &AtomicU64 {
        self.words.at(word::READER + word::WAIT)
    }

    /// Commits, and lets a passive source rest until it is started. Returns `true` if the source
    /// must go on at once: the level is below `B_start` or below the level that the reader waits
    /// for, and no reader will start it. If `B_start` is 0, the result is `false`, and no reader
    /// ever starts the source.
    pub fn rest(&mut self) -> (Due, bool) {
        let due = Due { wake: self.publish(), start: false };
        // Relaxed: the fence orders it.
        self.words.store(word::ACTIVE, 0, Relaxed);
        // Pairs with the fence in `publish` of a reader that releases, and with the one in
        // `begin_wait` of a reader that waits.
        barrier(Edge::StreamRestFence, SeqCst);
        let goes_on = self.level() < self.shape.start_level || self.is_waited_for();
        (due, goes_on && claim_start(&self.words))
    }

    /// As [`Self::rest`], and also prepares to wait for the start. If the result says `sleep`, the
    /// source sleeps on its wait word, then calls `finish_wait` and goes on. The release that
    /// starts it returns [`Due::wake`] beside [`Due::start`], and so does the end of the reader.
    /// Otherwise the source goes on at once, or finds the stream closed.
    pub fn rest_until_started(&mut self) -> Wait {
        self.rest_with(WAITING)
    }

    fn rest_with(&mut self, state: u32) -> Wait {
        let wake = self.publish();
        // No index ever reaches this level. The fence in `begin_wait` makes the store in `rest` a
        // release for the Acquire in `claim_start`. The reader that starts the source finds the
        // wait word.
        self.words.begin_wait(word::WRITER, u64::MAX, state);
        let (_, goes_on) = self.rest();
        let sleep = !goes_on && self.words.gone(word::READER).is_none();
        if !sleep {
            self.words.finish_wait(word::WRITER);
        }
        Wait { due: Due { wake, start: false }, sleep }
    }

    /// As [`Self::wait`], but the wait ends only when the reader is gone. For a source that has
    /// nothing to write.
    pub fn wait_for_end(&mut self) -> Wait {
        let wake = self.publish();
        self.words.begin_wait(word::WRITER, u64::MAX, WAITING);
        let sleep = self.words.gone(word::READER).is_none();
        if !sleep {
            self.words.finish_wait(word::WRITER);
        }
        Wait { due: Due { wake, start: false }, sleep }
    }

    /// The free room now, in units of the indexes.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn room(&mut self) -> Result<u64, Closed> {
        self.look(0)?;
        Ok(self.shape.count - (self.staged - self.read))
    }

    /// Whether a source without room must rest ([`Self::rest_until_started`]): `B_start` is not 0.
    pub fn rests(&self) -> bool {
        self.shape.start_level != 0
    }

    /// The greatest number of bytes of a message, or of one write of plain bytes.
    pub fn len_max(&self) -> usize {
        self.shape.len_max
    }

    /// How much the reader has not given back yet. Costs loads. Does not check the index:
    /// [`Self::reserve`] does.
    pub fn level(&self) -> u64 {
        self.committed.saturating_sub(self.words.index(word::READ))
    }

    /// As [`Self::end`], for a caller that keeps the writer. The reader will find `how`.
    #[must_use = "the other end must be woken"]
    pub fn leave(&mut self, how: Leaving) -> bool {
        self.words.leave(word::WRITER, how.state(), word::READER)
    }

    /// Ends the stream after all that was committed. Returns `true` if the reader must be woken.
    /// Messages that were only staged are dropped.
    #[must_use = "the other end must be woken"]
    pub fn end(self) -> bool {
        self.words.leave(word::WRITER, ENDED, word::READER)
    }

    /// Whether the reader waits for more than is committed, and for no more than fits.
    fn is_waited_for(&self) -> bool {
        let state = self.words.at(word::READER + word::WAIT);
        // Acquire pairs with the Release in `begin_wait`: `wanted` belongs to this wait.
        self.shape.start_level != 0 && state.load(Acquire) != 0 && {
            let wanted = self.words.load(word::READER + word::WANTED, Relaxed);
            let most = self.words.index(word::READ).saturating_add(self.shape.count);
            (self.committed + 1..=most).contains(&wanted)
        }
    }

    #[inline]
    fn publish(&mut self) -> bool {
        if self.staged == self.committed {
            return false;
        }
        self.committed = self.staged;
        self.words.publish(word::WRITTEN, self.committed, word::READER)
    }

    /// Whether there is room for `units`, after a look at the reader's index.
    fn look(&mut self, units: u64) -> Result<bool, Closed> {
        if let Some(closed) = self.closed {
            return Err(closed);
        }
        let gone = self.words.gone(word::READER);
        let found = self.words.index(word::READ);
        let (min, max) = (self.read, self.committed);
        if !(min..=max).contains(&found) {
            let fault = StreamFault::Index { name: "N_read", found, min, max };
            return Err(self.close(Closed::Fault(fault)));
        }
        if let Some(closed) = gone {
            return Err(self.close(closed));
        }
        self.take_back(found)?;
        Ok(self.shape.count - (self.staged - self.read) >= units)
    }

    /// Takes the buffers that the reader has given back up to its index `found`.
    fn take_back(&mut self, found: u64) -> Result<(), Closed> {
        if let StreamForm::Buffers { buffers, .. } = self.shape.form {
            for index in self.read..found {
                // Relaxed: the load of the index has acquired it.
                let number = self.words.load(self.shape.back(index), Relaxed);
                if !self.buffers.give_back(number) {
                    let buffers = u64::from(buffers);
                    let fault = StreamFault::Buffer { found: number, buffers };
                    return Err(self.close(Closed::Fault(fault)));
                }
            }
        }
        self.read = found;
        Ok(())
    }

    fn close(&mut self, closed: Closed) -> Closed {
        *self.closed.get_or_insert(closed)
    }
}

/// Reserved room for a message. The reader does not see it yet.
#[derive(Debug)]
#[must_use = "room that is not staged is given up"]
pub struct WriteChunk<'a, W> {
    writer: &'a mut Writer<W>,
    len: usize,
}

impl<W: AsRef<[AtomicU64]>> WriteChunk<'_, W> {
    /// The place of the message.
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        let writer = &self.writer;
        // A reservation succeeds only with a free buffer.
        let buffer = writer.buffers.free.last().copied().unwrap_or(0);
        writer.shape.payload(&writer.words, writer.staged, buffer, self.len)
    }

    /// Stages the message, of `len` bytes, at most as many as were reserved. The next
    /// [`Writer::commit`] hands it over.
    #[inline]
    pub fn stage(self, len: usize) {
        let WriteChunk { writer, len: max } = self;
        let len = len.min(max);
        let descriptor = match writer.shape.form {
            StreamForm::Buffers { .. } => len as u64 * (1 << 32) + u64::from(writer.buffers.lend()),
            _ => len as u64,
        };
        if !matches!(writer.shape.form, StreamForm::Bytes { .. }) {
            // Relaxed: the index hands the word over.
            writer.words.store(writer.shape.head(writer.staged), descriptor, Relaxed);
        }
        writer.staged += writer.shape.units(len);
    }
}

/// The free buffers. Empty in the other forms.
#[derive(Debug)]
struct Free {
    free: Vec<u32>,
    lent: Vec<bool>,
}

impl Free {
    fn new(form: StreamForm) -> Self {
        let StreamForm::Buffers { buffers, .. } = form else {
            return Free { free: Vec::new(), lent: Vec::new() };
        };
        Free { free: (0..buffers).rev().collect(), lent: vec![false; buffers as usize] }
    }

    #[inline]
    fn lend(&mut self) -> u32 {
        let buffer = self.free.pop().unwrap_or(0);
        self.lent[buffer as usize] = true;
        buffer
    }

    /// `false` if the buffer was not lent. Holds at most all buffers, so it never allocates.
    fn give_back(&mut self, number: u64) -> bool {
        let (Ok(buffer), Ok(index)) = (u32::try_from(number), usize::try_from(number)) else {
            return false;
        };
        match self.lent.get_mut(index) {
            Some(lent) if *lent => *lent = false,
            _ => return false,
        }
        self.free.push(buffer);
        true
    }
}
