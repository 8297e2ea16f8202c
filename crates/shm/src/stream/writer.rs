//! The end that writes.

use super::layout::{Shape, word};
use super::wake::{ENDED, WAITING, WATCHED};
use super::{
    Closed, Due, Leaving, Payload, StreamError, StreamFault, StreamForm, Wait, claim_start,
};
use crate::AtomicU64;
use crate::Ordering::{Acquire, Relaxed, SeqCst};
use crate::edge::{Edge, barrier};
use crate::words::Words;

/// See the module's head. One thread at a time.
#[derive(Debug)]
pub struct Writer<W> {
    words: Words<W>,
    shape: Shape,
    /// Up to here it is written, but not told.
    staged: u64,
    /// `N_write`.
    committed: u64,
    /// `N_read`, as last seen.
    read: u64,
    buffers: Free,
    closed: Option<Closed>,
}

impl<W: AsRef<[AtomicU64]>> Writer<W> {
    pub(super) fn new(words: Words<W>, shape: Shape) -> Self {
        let buffers = Free::new(shape.form);
        Writer { words, shape, staged: 0, committed: 0, read: 0, buffers, closed: None }
    }

    /// Room for a message (or so many bytes) of `len`; `None`: not now. It is given up
    /// unless staged. O(1), for buffers O(those given back).
    ///
    /// # Errors
    /// Longer than any may be; or, where there is no room, the stream is closed.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Option<WriteChunk<'_, W>>, StreamError> {
        Ok(if self.has_room(len)? { Some(WriteChunk { writer: self, len }) } else { None })
    }

    /// Whether [`Self::reserve`] finds room. As it.
    ///
    /// # Errors
    /// As it.
    #[inline]
    pub fn has_room(&mut self, len: usize) -> Result<bool, StreamError> {
        if len > self.shape.len_max {
            return Err(StreamError::TooLong { found: len, max: self.shape.len_max });
        }
        let units = self.shape.units(len);
        Ok(self.shape.count - (self.staged - self.read) >= units || self.look(units)?)
    }

    /// Reserves, fills and stages: `false` if there is no room now. O(bytes).
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

    /// Hands over all that was staged: a store, a fence and two loads, whatever the number.
    ///
    /// # Errors
    /// The reader is gone; nobody will read it.
    #[inline]
    pub fn commit(&mut self) -> Result<Due, Closed> {
        let due = Due { wake: self.publish(), start: false };
        match self.words.gone(word::READER) {
            None => Ok(due),
            Some(closed) => Err(self.close(closed)),
        }
    }

    /// Commits, and wishes to wait until there is room for `len` (at most what there can be).
    pub fn wait(&mut self, len: usize) -> Wait {
        self.wait_for(self.shape.units(len.min(self.shape.len_max)))
    }

    /// As [`Self::wait`], for `units` (bytes, slots, descriptors; at most as many as there can be): for
    /// half of them a writer sleeps less often.
    pub fn wait_for(&mut self, units: u64) -> Wait {
        self.wait_with(units.clamp(1, self.shape.count), WAITING)
    }

    /// As [`Self::wait_for`], for who does not sleep but looks now and then at
    /// [`Stream::is_notified`](super::Stream::is_notified): no wake is due to it. With `sleep` it is to look;
    /// then to `finish_wait`. A source that rests is rung when it is started instead.
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
        // Not before 0: then there is room already.
        let wanted = (self.staged + units).saturating_sub(self.shape.count);
        self.words.begin_wait(word::WRITER, wanted, state);
        let sleep = matches!(self.look(units), Ok(false));
        if !sleep {
            self.words.finish_wait(word::WRITER);
        }
        Wait { due, sleep }
    }

    /// After a wait, whether there was a sleep or not: whether the reader rang.
    pub fn finish_wait(&mut self) -> bool {
        self.words.finish_wait(word::WRITER)
    }

    /// Its own wait word, to sleep on; the reader's is [`Self::peer_wait_word`].
    pub fn wait_word(&self) -> &AtomicU64 {
        self.words.at(word::WRITER + word::WAIT)
    }

    /// The reader's wait word: the futex to be woken when that is due.
    pub fn peer_wait_word(&self) -> &AtomicU64 {
        self.words.at(word::READER + word::WAIT)
    }

    /// A passive source has done what it was asked, commits and rests until it is started:
    /// with `true` it is to go on at once, as the level is below `B_start`, or what the reader waits
    /// for, and nobody will start it. With `B_start` 0 nobody ever does.
    pub fn rest(&mut self) -> (Due, bool) {
        let due = Due { wake: self.publish(), start: false };
        // Relaxed: the fence orders it.
        self.words.store(word::ACTIVE, 0, Relaxed);
        // Pairs with the fence in `publish`, of a reader that releases.
        barrier(Edge::StreamRestFence, SeqCst);
        let goes_on = self.level() < self.shape.start_level || self.is_waited_for();
        (due, goes_on && claim_start(&self.words))
    }

    /// As [`Self::rest`], and waits to be started: with `sleep` it is to sleep on its wait word, then to
    /// `finish_wait` and go on. The release that starts it says [`Due::wake`] beside
    /// [`Due::start`]; so does the reader's end. Without, it is to go on at once, or finds the stream
    /// closed.
    pub fn rest_until_started(&mut self) -> Wait {
        self.rest_with(WAITING)
    }

    fn rest_with(&mut self, state: u32) -> Wait {
        let wake = self.publish();
        // No index is ever there. The fence in it makes the store in `rest` a release, for the
        // Acquire in `claim_start`: who starts it finds the wait word.
        self.words.begin_wait(word::WRITER, u64::MAX, state);
        let (_, goes_on) = self.rest();
        let sleep = !goes_on && self.words.gone(word::READER).is_none();
        if !sleep {
            self.words.finish_wait(word::WRITER);
        }
        Wait { due: Due { wake, start: false }, sleep }
    }

    /// As [`Self::wait`], for nothing but the reader's end: a source that has nothing to write is
    /// told that nobody reads any more.
    pub fn wait_for_end(&mut self) -> Wait {
        let wake = self.publish();
        self.words.begin_wait(word::WRITER, u64::MAX, WAITING);
        let sleep = self.words.gone(word::READER).is_none();
        if !sleep {
            self.words.finish_wait(word::WRITER);
        }
        Wait { due: Due { wake, start: false }, sleep }
    }

    /// How much room there is, in units of the indexes, as of a look now.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn room(&mut self) -> Result<u64, Closed> {
        self.look(0)?;
        Ok(self.shape.count - (self.staged - self.read))
    }

    /// Whether a source that finds no room is to rest ([`Self::rest_until_started`]): `B_start` is
    /// not 0.
    pub fn rests(&self) -> bool {
        self.shape.start_level != 0
    }

    /// Most bytes of a message; of plain bytes, of one write.
    pub fn len_max(&self) -> usize {
        self.shape.len_max
    }

    /// How much is there that the reader has not given back, as of a look now. Loads. What cannot be
    /// is found when room is looked for.
    pub fn level(&self) -> u64 {
        self.committed.saturating_sub(self.words.index(word::READ))
    }

    /// As [`Self::end`], for who keeps the value: how, is what the reader will find.
    #[must_use = "who waits must be woken"]
    pub fn leave(&mut self, how: Leaving) -> bool {
        self.words.leave(word::WRITER, how.state(), word::READER)
    }

    /// Ends the stream after all that was committed: whether the reader must be woken. What was
    /// only staged is dropped.
    #[must_use = "who waits must be woken"]
    pub fn end(self) -> bool {
        self.words.leave(word::WRITER, ENDED, word::READER)
    }

    /// Whether the reader waits for more than is there, of what there can be.
    fn is_waited_for(&self) -> bool {
        let state = self.words.at(word::READER + word::WAIT);
        // Acquire pairs with the Release in `begin_wait`: `wanted` is of this wait.
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

    /// Whether there is room for `units`, after a look at how far the reader is.
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

    /// The reader is at `found`: what it has given back is free.
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

/// Room for a message, not seen by the reader yet.
#[derive(Debug)]
#[must_use = "room that is not staged is given up"]
pub struct WriteChunk<'a, W> {
    writer: &'a mut Writer<W>,
    len: usize,
}

impl<W: AsRef<[AtomicU64]>> WriteChunk<'_, W> {
    /// Where the message goes.
    #[inline]
    pub fn payload(&self) -> Payload<'_> {
        let writer = &self.writer;
        // Room is there only with a free buffer.
        let buffer = writer.buffers.free.last().copied().unwrap_or(0);
        writer.shape.payload(&writer.words, writer.staged, buffer, self.len)
    }

    /// The message is there, of `len` bytes: at most what was reserved counts. It is committed
    /// with the next [`Writer::commit`].
    #[inline]
    pub fn stage(self, len: usize) {
        let WriteChunk { writer, len: max } = self;
        let len = len.min(max);
        let descriptor = match writer.shape.form {
            StreamForm::Buffers { .. } => len as u64 * (1 << 32) + u64::from(writer.buffers.lend()),
            _ => len as u64,
        };
        if !matches!(writer.shape.form, StreamForm::Bytes { .. }) {
            // Relaxed: the index hands it over.
            writer.words.store(writer.shape.head(writer.staged), descriptor, Relaxed);
        }
        writer.staged += writer.shape.units(len);
    }
}

/// Which buffers are free. Of other ways: none.
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

    /// `false`: it was not lent. Never grows beyond the buffers there are: no allocation.
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
