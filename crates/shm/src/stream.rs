//! Memory-mapped streams: a FIFO in shared memory between two domains, or between a domain and a
//! service (split-level-1991 §4; docs/decisions/0010-streams.md).
//!
//! The creator brings the memory. A stream has one [`Writer`] and one [`Reader`], in one process or
//! in two. Each end allocates only when it is made. No call of an end makes a system call or takes
//! a lock, and every call is wait-free. A [`Due`] tells the caller what it must do outside the
//! stream: wake the other end, or start a passive source.
//!
//! ```text
//!   writer                                    reader
//!   (1) reserve, fill, stage ... (privately)
//!   (2) commit: N_write    -- Rel/Acq -->     (3) front: copies the length, checks, lends
//!                                             (4) done ... (privately)
//!   (6) reserve: room      <-- Acq/Rel --     (5) release: N_read
//! ```
//!
//! 1. The writer may stage any number of messages. The reader does not see them yet.
//! 2. One store hands all of them over. The writer then checks whether the reader waits for this
//!    level (`stream/wake.rs` describes the rule).
//! 3. The reader loads the writer's index only after it has read all messages it knows of.
//! 4. A message is read once: only the reader writes `N_read`, and each end is claimed once
//!    ([`Stream::writer`], [`Stream::reader`]).
//! 5. One store gives the room of all of them back. The writer may use it again.
//! 6. The writer loads the reader's index only when it knows of no free room.
//!
//! # Forms
//!
//! | [`StreamForm`] | `N_write` and `N_read` count | place of a message |
//! |---|---|---|
//! | `Bytes` | bytes | plain bytes without a boundary; copied in and out |
//! | `Messages` | bytes | after a word with its length, filled up to a word; continues at the ring's start after its end; copied in and out |
//! | `Slots` | slots | in its slot, after a word with its length; filled and read in place |
//! | `Buffers` | descriptors; `N_read` counts those given back | in a buffer, which a descriptor names (low half: number, high half: length); in place, given back in any order |
//!
//! # Waiting
//!
//! [`Reader::wait`] stores the level `B_wakeup` and the flag `waiting_for_IO` of the paper. The
//! commit that reaches the level returns [`Due::wake`]. A reader that waits for several things
//! watches its wait word instead ([`Reader::watch`]). The writer must then wake it only while it
//! sleeps on the word. A writer waits for room, and watches for it, in the same way
//! ([`Writer::wait`], [`Writer::watch`]). A passive source ([`Writer::rest`]) rests until the level
//! falls below `B_start`, or below the level that the reader waits for. The reader's release or
//! wait then returns [`Due::start`].
//!
//! # Death
//!
//! An end reports that it is gone ([`Writer::end`], [`Reader::end`]). For an end that died, another
//! process that has the stream reports it ([`Stream::mark_dead`]). The liveness monitor of the
//! runtime does so. A reader gets all committed messages, then [`Closed`].
//!
//! # Trust
//!
//! A peer may write any value at any place. Each word of a peer is copied once, checked, then used.
//! An impossible value closes the stream with [`Closed::Fault`]. A peer may change the bytes of a
//! message at any time, even while the reader reads them ([`Payload`]). A peer may wake the other
//! end without reason, or fail to wake it. An end that depends on the peer's wake waits with a
//! deadline.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, generation, form, count, bytes of a unit, `B_start`, 1 reserved | creator, before sharing |
//! | 64..128 | `N_write`, 7 reserved | writer |
//! | 128..192 | `N_read`, 7 reserved | reader |
//! | 192..256 | the line of the reader: claimed, gone (0 open, 1 ended, 2 died), `N_write` wanted, wait word (1: waits, 2: waits and does not sleep), 4 reserved | reader; wait word also writer, gone also any process (`mark_dead`) |
//! | 256..320 | the line of the writer: the same | writer; wait word also reader, gone also any process (`mark_dead`) |
//! | 320..384 | active (0: the source rests), 7 reserved | writer; also the reader, which starts the source |
//! | 384..512 | reserved | |
//! | 512.. | the ring or the slots; with buffers: descriptors, numbers given back, buffers | writer; reader writes the numbers given back |

use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::Relaxed;
use layout::{KIND, Shape, word};
use wake::DIED;

#[cfg_attr(
    all(target_arch = "x86_64", not(loom), not(miri)),
    expect(unsafe_code, reason = "wide copies of words that a peer may write")
)]
mod copy;
mod end;
mod fault;
mod form;
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

pub use end::{Due, End, Leaving, Wait};
pub use fault::{Closed, StreamError, StreamFault};
pub use form::StreamForm;
pub use layout::{HEADER_BYTES, LAYOUT_VERSION};
pub use payload::Payload;
pub use reader::{Kept, Message, Reader};
pub use wake::{WAITING, WATCHED};
pub use writer::{WriteChunk, Writer};

/// A view of the memory of a stream, before it becomes an end or without being one.
///
/// `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Stream<W> {
    words: Words<W>,
    shape: Shape,
}

impl<W: AsRef<[AtomicU64]>> Stream<W> {
    /// Makes `words` a stream. The words must be 0 and not shared yet. `generation` tells the
    /// stream from earlier ones in the same place. A passive source is started again below
    /// `start_level` (`B_start`, in units of the indexes). With 0 the source is always active. The
    /// sizes of `form` are rounded up ([`StreamForm::rounded`]). O(1).
    ///
    /// # Errors
    /// The length is wrong, a size is 0 or too large, `start_level` is above the count, or a word
    /// of the header is not 0.
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

    /// Attaches to the stream that another process created in `words`. The stream may be in use.
    /// O(1).
    ///
    /// # Errors
    /// The memory is no stream, has another version or generation, does not fit the memory, or its
    /// reserved words are used.
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

    /// The memory, to be handed to other processes.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// How the data of the stream moves.
    pub fn form(&self) -> StreamForm {
        self.shape.form
    }

    /// Becomes the writer. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// The stream has or had a writer. An end is claimed only once.
    pub fn writer(self) -> Result<Writer<W>, LayoutError> {
        self.words.claim(word::WRITER, "writers")?;
        Ok(Writer::new(self.words, self.shape))
    }

    /// Becomes the reader. Allocates for [`StreamForm::Buffers`].
    ///
    /// # Errors
    /// The stream has or had a reader. A second one would read the same messages again.
    pub fn reader(self) -> Result<Reader<W>, LayoutError> {
        self.words.claim(word::READER, "readers")?;
        Ok(Reader::new(self.words, self.shape))
    }

    /// Reports that an end died, once its process is known to be gone. Returns `true` if the caller
    /// must wake the other end: always, unless that end is gone too. The wait word of the other end
    /// may be 0 although that end sleeps. The dead end may have been killed after it notified the
    /// other end and before it woke it. The messages that the dead end committed can still be read.
    /// An end that ended in order keeps that state. For any process that watches the ends.
    #[must_use = "the other end must be woken"]
    pub fn mark_dead(&self, end: End) -> bool {
        let other = end.other().line();
        self.words.leave(end.line(), DIED, other) || self.words.gone(other).is_none()
    }

    /// Whether the wait of an end that watches ([`Reader::watch`]) is over. Costs one load.
    #[inline]
    pub fn is_notified(&self, end: End) -> bool {
        // Relaxed: only decides whether to look. `finish_wait` synchronises.
        let state = self.wait_word(end).load(Relaxed);
        state != u64::from(WATCHED) && state != u64::from(WAITING)
    }

    /// Prepares an end that watches to sleep while its wait word is [`WAITING`]. `false` if the end
    /// was notified meanwhile: it must not sleep.
    pub fn prepare_wait(&self, end: End) -> bool {
        self.words.change_state(end.line(), WATCHED, WAITING)
    }

    /// Makes the end watch again after that sleep. `false` if it was notified.
    pub fn cancel_wait(&self, end: End) -> bool {
        self.words.change_state(end.line(), WAITING, WATCHED)
    }

    /// The wait word of an end. Its low half is the futex. The end sleeps while the word is
    /// [`WAITING`].
    pub fn wait_word(&self, end: End) -> &AtomicU64 {
        self.words.at(end.line() + word::WAIT)
    }
}
