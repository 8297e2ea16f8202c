//! Memory-mapped streams: a FIFO in shared memory between two domains, or between a domain
//! and a service (split-level-1991 §4). Decision 0010.
//!
//! Created by whoever brings the memory; one [`Writer`] and one [`Reader`], each in whatever
//! process. Neither end makes a system call, takes a lock or allocates after it was made;
//! every call is wait-free. What is to be done outside (wake the other end, start a passive
//! source) is said by a [`Due`], and is for the caller to do.
//!
//! ```text
//!   writer                                    reader
//!   (1) reserve, fill, stage ... (privately)
//!   (2) commit: N_write    -- Rel/Acq -->     (3) front: copies the length, checks, lends
//!                                             (4) done ... (privately)
//!   (6) reserve: room      <-- Acq/Rel --     (5) release: N_read
//! ```
//!
//! 1. Any number of messages; nobody sees them yet.
//! 2. One store for all of them, then a look whether the reader waits for so many
//!    (the wake rule stands in `stream/wake.rs`).
//! 3. Looks at the writer's index only when it has read all that it knows of.
//! 4. What was done is not read again: `N_read` is of the reader alone, and each end is
//!    claimed once ([`Stream::writer`], [`Stream::reader`]).
//! 5. One store for all of them: their room is the writer's again.
//! 6. Looks at the reader's index only when it knows of no room.
//!
//! # Ways of moving data
//!
//! | [`StreamForm`] | `N_write` and `N_read` count | a message stands |
//! |---|---|---|
//! | `Bytes` | bytes | nowhere: plain bytes; copied in and out |
//! | `Messages` | bytes | behind a word with its length, filled up to a word; goes on at the ring's start after its end; copied in and out |
//! | `Slots` | slots | in its slot, behind a word with its length; filled and looked at in place |
//! | `Buffers` | descriptors; `N_read` those given back | in a buffer, which a descriptor names (low half: number, high half: length); in place, given back in any order |
//!
//! # Waiting
//!
//! [`Reader::wait`] is `B_wakeup` and `waiting_for_IO` of the paper: the write that reaches
//! the level says [`Due::wake`]. A reader with more than one thing to wait for watches its wait word
//! ([`Reader::watch`]), and is owed a wake only while it sleeps on it. A writer waits for room, and
//! watches for it, in the same way ([`Writer::wait`], [`Writer::watch`]). A passive source
//! ([`Writer::rest`]) is started again by the reader once the level is below `B_start`, or below what
//! it waits for: its release or wait says [`Due::start`].
//!
//! # Death
//!
//! An end says that it is gone ([`Writer::end`], [`Reader::end`]), or the daemon says it for one
//! that died ([`Stream::mark_dead`]). A reader gets all that was committed, then [`Closed`].
//!
//! # Trust
//!
//! A peer may write anything anywhere. Every word of it is copied once, checked, then used; what
//! cannot be is [`Closed::Fault`], and nothing of this stream is used afterwards. A message's bytes
//! are whatever the peer wants, also while they are looked at ([`Payload`]). A peer can wake its
//! other end for nothing, and not wake it: who depends on a peer's wake waits with a deadline.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, generation, form, count, bytes of a unit, `B_start`, 1 reserved | who creates, before sharing |
//! | 64..128 | `N_write`, 7 reserved | writer |
//! | 128..192 | `N_read`, 7 reserved | reader |
//! | 192..256 | of the reader: claimed, gone (0 open, 1 ended, 2 died), `N_write` wanted, wait word (1: waits, 2: waits and does not sleep), 4 reserved | reader; wait word also writer, gone also daemon |
//! | 256..320 | of the writer: the same | writer; wait word also reader, gone also daemon |
//! | 320..384 | active (0: passive), 7 reserved | writer; reader, which starts it |
//! | 384..512 | reserved | |
//! | 512.. | the ring; of buffers: descriptors, numbers given back, buffers | writer; numbers given back reader |

use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::{Acquire, Relaxed};
use layout::{KIND, Shape, word};
use wake::{DIED, ENDED};

#[cfg_attr(
    all(target_arch = "x86_64", not(loom), not(miri)),
    expect(unsafe_code, reason = "wide copies of words that a peer may write")
)]
mod copy;
mod fault;
mod layout;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
mod payload;
mod reader;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
mod wake;
mod writer;

pub use fault::{Closed, StreamError, StreamFault};
pub use layout::{HEADER_BYTES, LAYOUT_VERSION};
pub use payload::Payload;
pub use reader::{Kept, Message, Reader};
pub use wake::{WAITING, WATCHED};
pub use writer::{WriteChunk, Writer};

/// How data gets from one end to the other.
///
/// A stream is created with at least the sizes that are asked for: a count or a capacity is rounded
/// up to a power of two, a ring to 64 bytes at least, and the bytes of a slot or buffer to a
/// multiple of 8. [`StreamForm::rounded`] and the stream's own `way` tell the result. Zero and a size
/// above the greatest are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamForm {
    /// Plain bytes, copied through a ring.
    Bytes {
        /// Bytes of the ring, 1 to 2^30.
        capacity: u32,
    },
    /// Messages of any size, copied through a ring.
    Messages {
        /// Bytes of the ring, 1 to 2^30. A message takes 8 more than its own, up to a
        /// multiple of 8.
        capacity: u32,
    },
    /// Slots of a fixed size, used in place and in order.
    Slots {
        /// How many, 1 to 65,536.
        slots: u32,
        /// Most bytes of a message, 1 to 2^24.
        slot_bytes: u32,
    },
    /// Buffers of a fixed size, used in place and given back in any order.
    Buffers {
        /// How many, 1 to 65,536.
        buffers: u32,
        /// Most bytes of a message, 1 to 2^24.
        buffer_bytes: u32,
    },
}

impl StreamForm {
    /// Its sizes as a stream has them: the next that are allowed. O(1).
    ///
    /// # Errors
    /// A size of 0, or above the greatest.
    pub fn rounded(self) -> Result<StreamForm, LayoutError> {
        layout::rounded(self)
    }

    /// Words of memory that a stream of this way needs, after rounding.
    ///
    /// # Errors
    /// As [`StreamForm::rounded`].
    pub fn words(self) -> Result<usize, LayoutError> {
        Shape::new(self.rounded()?, 0).map(|shape| shape.words())
    }
}

/// One end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Which writes.
    Writer,
    /// Which reads.
    Reader,
}

impl End {
    const fn line(self) -> usize {
        match self {
            End::Writer => word::WRITER,
            End::Reader => word::READER,
        }
    }

    /// The one at the other side.
    pub const fn other(self) -> End {
        match self {
            End::Writer => End::Reader,
            End::Reader => End::Writer,
        }
    }
}

/// How an end goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaving {
    /// In order: [`Closed::Ended`].
    Ended,
    /// It failed, and what it was to do is not all done: [`Closed::Died`].
    Died,
}

impl Leaving {
    const fn state(self) -> u64 {
        match self {
            Leaving::Ended => ENDED,
            Leaving::Died => DIED,
        }
    }
}

/// What the caller is to do now, outside the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "who waits must be woken, and a source at rest started"]
pub struct Due {
    /// The other end waits and has what it waits for: make it eligible, or wake its futex.
    pub wake: bool,
    /// The source rests and is to go on: tell it. Of a reader only.
    pub start: bool,
}

/// What became of a wish to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What is due first.
    pub due: Due,
    /// Whether to sleep while the end's wait word is [`WAITING`]; then `finish_wait`. Otherwise what was
    /// waited for is there, or the stream is closed: look.
    pub sleep: bool,
}

/// The memory of a stream, as seen by neither end.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Stream<W> {
    words: Words<W>,
    shape: Shape,
}

impl<W: AsRef<[AtomicU64]>> Stream<W> {
    /// Makes `words`, all zero and shared with nobody yet, a stream; `generation` tells it from
    /// others that were in its place. A passive source is to be started again below
    /// `start_level` (`B_start`, in units of the indexes); 0: the source is always active. The
    /// sizes of `way` are rounded up ([`StreamForm::rounded`]). O(1).
    ///
    /// # Errors
    /// Wrong length, a size that is 0 or above the greatest, `start_level` above the count, or a word of the header that is not 0.
    pub fn create(
        words: W,
        form: StreamForm,
        generation: u64,
        start_level: u64,
    ) -> Result<Self, LayoutError> {
        let shape = Shape::new(form.rounded()?, start_level)?;
        let words = Words::new(KIND, words, shape.words())?;
        words.check_unused(KIND, |word| word < word::DATA)?;
        words.mark(KIND);
        words.store(word::GENERATION, generation, Relaxed); // as `mark`
        shape.mark(&words);
        words.store(word::ACTIVE, 1, Relaxed);
        Ok(Stream { words, shape })
    }

    /// Takes up the stream that another created in `words`; it may be in use. O(1).
    ///
    /// # Errors
    /// It is no stream, of another version or generation, of a size that is not that of the
    /// memory, or its reserved words are used.
    pub fn attach(words: W, generation: u64) -> Result<Self, LayoutError> {
        let found = words.as_ref().len();
        if found < word::DATA {
            return Err(LayoutError::Length { page: KIND.page, found, expected: word::DATA });
        }
        let words = Words(words);
        words.check_kind(KIND)?;
        let expected = (generation, generation);
        words.identity(KIND, "generation", word::GENERATION, expected)?;
        let shape = Shape::of_words(&words)?;
        let words = Words::new(KIND, words.0, shape.words())?;
        words.check_unused(KIND, word::is_reserved)?;
        Ok(Stream { words, shape })
    }

    /// The memory, to be handed to others.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// How its data moves.
    pub fn form(&self) -> StreamForm {
        self.shape.form
    }

    /// Becomes the writer. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// There is or was one already: an end is not taken up again.
    pub fn writer(self) -> Result<Writer<W>, LayoutError> {
        self.words.claim(word::WRITER, "writers")?;
        Ok(Writer::new(self.words, self.shape))
    }

    /// Becomes the reader. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// There is or was one already: what it had read would be read twice.
    pub fn reader(self) -> Result<Reader<W>, LayoutError> {
        self.words.claim(word::READER, "readers")?;
        Ok(Reader::new(self.words, self.shape))
    }

    /// Says that an end died, once its process is known to be gone: whether the other end must be
    /// woken, which is so unless it is gone too. That end may sleep with wait word 0: it was
    /// rung by one that was killed before it woke it. What the dead end had committed can still be
    /// read. By whoever watches over the ends; one that ended in order stays so.
    #[must_use = "who waits must be woken"]
    pub fn mark_dead(&self, end: End) -> bool {
        let other = end.other().line();
        self.words.leave(end.line(), DIED, other) || self.words.gone(other).is_none()
    }

    /// Whether the wait of an end that watches ([`Reader::watch`]) is over. A load.
    #[inline]
    pub fn is_notified(&self, end: End) -> bool {
        // Relaxed: only decides whether to look; `finish_wait` synchronises.
        let state = self.wait_word(end).load(Relaxed);
        state != u64::from(WATCHED) && state != u64::from(WAITING)
    }

    /// An end that watches is going to sleep on its wait word, while it is [`WAITING`]: `false` if it
    /// was rung by now.
    pub fn prepare_wait(&self, end: End) -> bool {
        self.words.change_state(end.line(), WATCHED, WAITING)
    }

    /// It sleeps no more, and watches again: `false` if it was rung.
    pub fn cancel_wait(&self, end: End) -> bool {
        self.words.change_state(end.line(), WAITING, WATCHED)
    }

    /// The wait word of an end: its low half is the futex, waited on while it is [`WAITING`].
    pub fn wait_word(&self, end: End) -> &AtomicU64 {
        self.words.at(end.line() + word::WAIT)
    }
}

/// Takes the resting source for its start: `true` for one caller only.
fn claim_start<W: AsRef<[AtomicU64]>>(words: &Words<W>) -> bool {
    // Acquire pairs with the fence in `Writer::rest_until_started`: its wait word is found. Apart from
    // that nothing is handed over; the fences decide who sees what.
    words.at(word::ACTIVE).compare_exchange(0, 1, Acquire, Relaxed).is_ok()
}
