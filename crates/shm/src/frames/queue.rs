//! A queue of descriptors from one process to another: one writer, one reader (rtu-1996 §7.2.1).
//!
//! The owner of an area makes four for each flow: receive, received, transmit, transmitted. Every
//! call is wait-free, makes no system call and does not allocate.
//!
//! ```text
//!   writer                                    reader
//!   (1) push ... (privately)
//!   (2) publish: N_write   -- Rel/Acq -->     (3) take: copies the word, checks, returns it
//!   (5) push: room         <-- Acq/Rel --     (4) release: N_read
//!
//!   (8) fence                                 (6) arm: wanted = what it has taken, and one more
//!   (9) must_notify: wanted reached?              fence
//!                                             (7) N_write: something there?
//! ```
//!
//! A reader that found nothing may sleep after (6) and (7). One of the two fences comes first:
//! either (7) finds what (2) stored, or (9) finds what (6) stored. `wanted` is a number of
//! descriptors, as `N_write`, so only the publication that reaches it notifies. The reader resets
//! nothing, and the writer writes no line of the reader.
//!
//! The word of a slot is written by the writer alone, and the reader copies it once. A peer may
//! write any index and any word. Then a call returns a [`PeerFault`], and the caller closes the
//! flow.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, generation, slots, frames, bytes of a frame, 2 reserved | creator, before sharing |
//! | 64..128 | `N_write`, 7 reserved | writer |
//! | 128..192 | `N_read`, 7 reserved | reader |
//! | 192..256 | wanted, 7 reserved | reader that arms |
//! | 256.. | slots: frame (4 bytes), offset (2), length (2) | writer |

use super::descriptor::{Descriptor, FrameForm};
use crate::edge::{Edge, barrier, ordering};
use crate::words::{Kind, LINE_BYTES, Words};
use crate::{AtomicU64, LayoutError, Ordering, PeerFault};
use Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::mem::{offset_of, size_of};

#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;

/// Version of this layout.
pub const LAYOUT_VERSION: u32 = 2;

/// The most slots of a queue.
pub const SLOTS_MAX: u32 = 1 << 16;

/// `upcfram` and a zero, in memory on a little-endian machine.
const KIND: Kind =
    Kind { page: "frame queue", magic: u64::from_le_bytes(*b"upcfram\0"), version: LAYOUT_VERSION };

/// The only definition of the layout. A change needs a new version and a new golden table.
#[repr(C, align(64))]
struct Header {
    identity: Identity,
    written: IndexLine,
    read: IndexLine,
    /// Apart from the line of `read`, which changes with each release.
    wanted: IndexLine,
}

#[repr(C, align(64))]
struct Identity {
    magic: u64,
    version: u64,
    generation: u64,
    slots: u64,
    frames: u64,
    frame_bytes: u64,
    reserved: [u64; 2],
}

#[repr(C, align(64))]
struct IndexLine {
    index: u64,
    reserved: [u64; 7],
}

const _: () = {
    assert!(size_of::<Header>() == 4 * LINE_BYTES);
    assert!(offset_of!(Header, identity.reserved) == 48);
    assert!(offset_of!(Header, written) == 64);
    assert!(offset_of!(Header, read) == 128);
    assert!(offset_of!(Header, wanted) == 192);
    assert!(offset_of!(IndexLine, reserved) == 8);
};

const GENERATION: usize = offset_of!(Header, identity.generation) / 8;
const SLOTS: usize = offset_of!(Header, identity.slots) / 8;
const FRAMES: usize = offset_of!(Header, identity.frames) / 8;
const FRAME_BYTES: usize = offset_of!(Header, identity.frame_bytes) / 8;
const WRITTEN: usize = offset_of!(Header, written.index) / 8;
const READ: usize = offset_of!(Header, read.index) / 8;
const WANTED: usize = offset_of!(Header, wanted.index) / 8;
const DATA: usize = size_of::<Header>() / 8;

/// Words of a queue with `slots`.
pub const fn words(slots: u32) -> usize {
    DATA + slots as usize
}

/// A view of a queue, before it becomes an end. `W` is the memory, owned or borrowed.
#[derive(Debug)]
pub struct Queue<W> {
    words: Words<W>,
    slots: u32,
    form: FrameForm,
}

impl<W: AsRef<[AtomicU64]>> Queue<W> {
    /// Makes `words`, all 0 and not shared yet, a queue for frames of `form`. `slots` is a power of
    /// two up to [`SLOTS_MAX`]. `generation` tells the queue from earlier ones in the same place.
    ///
    /// # Errors
    /// The length is wrong, `slots` is no such number, or a word is not 0.
    pub fn create(
        words: W,
        slots: u32,
        form: FrameForm,
        generation: u64,
    ) -> Result<Self, LayoutError> {
        let slots = check_slots(slots.into())?;
        let words = Words::new(KIND, words, self::words(slots))?;
        words.check_unused(KIND, |_| true)?;
        words.mark(KIND);
        // Relaxed: as `mark`, the hand-over of the memory orders the stores.
        words.store(GENERATION, generation, Relaxed);
        words.store(SLOTS, slots.into(), Relaxed);
        words.store(FRAMES, form.frames.into(), Relaxed);
        words.store(FRAME_BYTES, form.size.bytes() as u64, Relaxed);
        Ok(Queue { words, slots, form })
    }

    /// Attaches to the queue that another process created in `words`. `form` is that of the area
    /// that the caller has.
    ///
    /// # Errors
    /// The memory is no queue, or one of another version, generation or area.
    pub fn attach(words: W, form: FrameForm, generation: u64) -> Result<Self, LayoutError> {
        let found = words.as_ref().len();
        if found < DATA {
            return Err(LayoutError::Length { page: KIND.page, found, expected: DATA });
        }
        let words = Words(words);
        words.check_kind(KIND)?;
        let exactly = |value: u64| (value, value);
        words.identity(KIND, "generation", GENERATION, exactly(generation))?;
        words.identity(KIND, "frames", FRAMES, exactly(form.frames.into()))?;
        let bytes = form.size.bytes() as u64;
        words.identity(KIND, "bytes of a frame", FRAME_BYTES, exactly(bytes))?;
        let slots = check_slots(words.load(SLOTS, Relaxed))?;
        let words = Words::new(KIND, words.0, self::words(slots))?;
        words.check_unused(KIND, |word| word < DATA && is_reserved(word))?;
        Ok(Queue { words, slots, form })
    }

    /// Becomes the writer. There is one, from the first descriptor on.
    ///
    /// # Errors
    /// The queue was already written.
    pub fn writer(self) -> Result<Writer<W>, LayoutError> {
        self.words.check_unused(KIND, |word| word == WRITTEN)?;
        Ok(Writer { queue: self, written: 0, read: 0, looked: 0 })
    }

    /// Becomes the reader. There is one, from the first descriptor on.
    ///
    /// # Errors
    /// The queue was already read.
    pub fn reader(self) -> Result<Reader<W>, LayoutError> {
        self.words.check_unused(KIND, |word| word == READ || word == WANTED)?;
        Ok(Reader { queue: self, written: 0, read: 0 })
    }

    /// The word of the slot of an index.
    #[inline]
    fn slot(&self, index: u64) -> &AtomicU64 {
        // `slots` is a power of two. A remainder would be a division for each packet.
        let slot = usize::try_from(index & (u64::from(self.slots) - 1)).unwrap_or(0);
        self.words.at(DATA + slot)
    }

    /// How many descriptors lie between two indexes.
    ///
    /// # Errors
    /// More than there are slots: the peer wrote an impossible index.
    #[inline]
    fn pending(&self, written: u64, read: u64) -> Result<u64, PeerFault> {
        let (found, max) = (written.wrapping_sub(read), u64::from(self.slots));
        if found > max {
            return Err(PeerFault::Value { page: KIND.page, name: "pending", found, max });
        }
        Ok(found)
    }

    #[inline]
    fn publish(&self, word: usize, index: u64) {
        // Release: hands over the slots and frames (`N_write`), or the room (`N_read`), to the load
        // in `load` of the other end.
        self.words.store(word, index, ordering(Edge::FrameIndexStore, Release));
    }

    #[inline]
    fn load(&self, word: usize) -> u64 {
        // Acquire: pairs with the store in `publish` of the other end.
        self.words.load(word, ordering(Edge::FrameIndexLoad, Acquire))
    }
}

/// A number of slots that a queue may have.
fn check_slots(found: u64) -> Result<u32, LayoutError> {
    match u32::try_from(found) {
        Ok(slots) if slots.is_power_of_two() && slots <= SLOTS_MAX => Ok(slots),
        _ => {
            let max = SLOTS_MAX.into();
            Err(LayoutError::Value { page: KIND.page, name: "slots", found, min: 1, max })
        }
    }
}

/// Whether a word of the header is reserved.
const fn is_reserved(word: usize) -> bool {
    word > FRAME_BYTES && word != WRITTEN && word != READ && word != WANTED
}

/// The end that hands frames over.
#[derive(Debug)]
pub struct Writer<W> {
    queue: Queue<W>,
    /// With those that were pushed and not published yet.
    written: u64,
    /// As last loaded.
    read: u64,
    /// What was written at the last [`Writer::must_notify`].
    looked: u64,
}

impl<W: AsRef<[AtomicU64]>> Writer<W> {
    /// Puts `part` behind the others. The reader sees it after [`Writer::publish`]. `false`: the
    /// queue is full, and the caller keeps the frame. Loads the reader's index only if the queue
    /// looks full. O(1).
    ///
    /// # Errors
    /// The reader wrote an impossible index.
    #[inline(always)]
    pub fn push(&mut self, part: Descriptor) -> Result<bool, PeerFault> {
        let slots = u64::from(self.queue.slots);
        if self.written.wrapping_sub(self.read) >= slots {
            let read = self.queue.load(READ);
            if self.queue.pending(self.written, read)? == slots {
                return Ok(false);
            }
            self.read = read;
        }
        // Relaxed: `publish` hands the word over.
        self.queue.slot(self.written).store(part.word(), Relaxed);
        self.written = self.written.wrapping_add(1);
        Ok(true)
    }

    /// Hands all pushed descriptors over, with the frames. One store.
    #[inline]
    pub fn publish(&mut self) {
        self.queue.publish(WRITTEN, self.written);
    }

    /// Whether the reader armed and must be woken, because of what was published since the last
    /// call. Call it after [`Writer::publish`]. A fence and a load; nothing if nothing was pushed.
    #[inline]
    #[must_use = "a reader that sleeps must be woken"]
    pub fn must_notify(&mut self) -> bool {
        let before = core::mem::replace(&mut self.looked, self.written);
        if before == self.written {
            return false;
        }
        // Pairs with the fence in `Reader::arm`. If that one comes first, the load below finds what
        // the reader wants. If this one does, the reader finds what was published.
        barrier(Edge::FrameNotifyFence, SeqCst);
        // Relaxed: hands nothing over. The reader may have written any number.
        let wanted = self.queue.words.load(WANTED, Relaxed);
        // Behind `before`, and not behind `written`.
        self.written.wrapping_sub(wanted) < self.written.wrapping_sub(before)
    }
}

/// The end that takes frames.
#[derive(Debug)]
pub struct Reader<W> {
    queue: Queue<W>,
    /// As last loaded and checked.
    written: u64,
    read: u64,
}

impl<W: AsRef<[AtomicU64]>> Reader<W> {
    /// The oldest descriptor, which is inside of a frame of the area. `None`: there is none. Loads
    /// the writer's index only after all that it knows of. O(1).
    ///
    /// # Errors
    /// The writer wrote an impossible index, or a descriptor outside of every frame.
    #[inline(always)]
    pub fn take(&mut self) -> Result<Option<Descriptor>, PeerFault> {
        if self.read == self.written {
            let written = self.queue.load(WRITTEN);
            if self.queue.pending(written, self.read)? == 0 {
                return Ok(None);
            }
            self.written = written;
        }
        // Relaxed: `load` acquired the word. The only copy of it.
        let word = self.queue.slot(self.read).load(Relaxed);
        let part = Descriptor::of_word(word, self.queue.form, KIND.page)?;
        self.read = self.read.wrapping_add(1);
        Ok(Some(part))
    }

    /// Gives the slots of all taken descriptors back to the writer. One store. The frames stay with
    /// the taker.
    #[inline]
    pub fn release(&mut self) {
        self.queue.publish(READ, self.read);
    }
    /// Asks the writer to say so ([`Writer::must_notify`]) once it publishes something, and looks
    /// again. `true`: there is something to take already, and the writer may say so or not. A
    /// store, a fence and a load.
    ///
    /// # Errors
    /// The writer wrote an impossible index.
    pub fn arm(&mut self) -> Result<bool, PeerFault> {
        // Relaxed: hands nothing over.
        self.queue.words.store(WANTED, self.read.wrapping_add(1), Relaxed);
        // Pairs with the fence in `Writer::must_notify`, which tells why.
        barrier(Edge::FrameArmFence, SeqCst);
        let written = self.queue.load(WRITTEN);
        Ok(self.queue.pending(written, self.read)? > 0)
    }
}
