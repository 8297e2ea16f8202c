//! The page of I/O events, between an event loop and the thread that watches descriptors for it
//! (ecalls-2001 §3.2).
//!
//! The loop states which descriptors it is interested in. The watcher reports which of them are
//! ready. The loop is the [`IoClient`] (the runtime's poller), and the watcher is the [`IoService`]
//! (its I/O service). Each end belongs to one thread. No function here waits, allocates or makes a
//! system call. Descriptors are numbers below [`DESCRIPTORS_MAX`].
//!
//! ```text
//!   IoClient                                        IoService
//!   (1) interest word; updated bit --AcqRel-->      (2) takes updated; reads interest; arms
//!   (4) takes active bits         <--AcqRel--       (3) raises active bits, ready or not read yet
//!   (6) finish_wait, take; nothing:                 (5) notify: asleep? futex wake
//!       prepare_wait, futex wait while ASLEEP
//! ```
//!
//! | the paper | here |
//! |---|---|
//! | `fd_list` | a word for each descriptor: interest (2 bits), and the registration's generation |
//! | `updated_fd_list` and its `flag` | a [`tree`](#trees) of bits; its top word is 0 while nothing changed |
//! | `fd_active` | a tree of 2 bits for each descriptor: readable, writable |
//! | the `flag` of `fd_active` | `raised` minus `taken`, each written by one end alone |
//!
//! A generation distinguishes a descriptor from a later one of the same number. Readiness carries
//! no generation, so an event may be *spurious*. The loop finds that out by a call on the
//! descriptor that does not block.
//!
//! # Trees
//!
//! A leaf word holds the bits of 32 descriptors. A summary word has a bit for each of 64 leaves,
//! and the top word a bit for each summary word. So a look costs one load if no bit is set.
//! Otherwise it costs one exchange for each word with a bit, whatever the number of descriptors.
//!
//! ```text
//!   raise: (a) leaf |= bits     was 0? (b) summary |= leaf     was 0? (c) top |= summary
//!   take:  (d) top <- 0   then each (e) summary <- 0   then each (f) leaf <- 0
//! ```
//!
//! Raising goes up and taking goes down. So no bit stays set below a word that is 0:
//!
//! - If (a) finds the leaf at 0, it comes after (f) and so after (e). The next take finds the bit
//!   that (b) sets.
//! - If (a) finds the leaf not 0, it comes before (f) and is taken with the leaf.
//!
//! The same holds between (b), (c), (d) and (e). Both sides acquire and release at each level. So a
//! raise that comes after (f) also comes after (e).
//!
//! # Trust
//!
//! A faulty or hostile service can raise descriptors that are not ready, so events are spurious. It
//! can also raise none. A client can state an interest in any descriptor, so the service must check
//! each one. Bits beyond the page are ignored.
//!
//! # Layout
//!
//! | bytes | words of 8 bytes, native order | written by |
//! |---|---|---|
//! | 0..64 | magic, version, most descriptors, 5 reserved | creator, before sharing |
//! | 64..128 | raised, 7 reserved | service |
//! | 128..192 | taken, 7 reserved | client |
//! | 192..256 | wake word (0 idle, 1 notified, 2 asleep), 7 reserved | both |
//! | 256..16960 | active: top, 7 reserved, 32 summaries, 2048 leaves | both |
//! | 16960..33664 | updated: the same | both |
//! | 33664..557952 | interest: low half 0 to 3, high half generation | client |
//! | 557952..561152 | reserved | |

use crate::wake_word::WakeWord;
use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::Relaxed;
use layout::{KIND, word};
use tree::{Taker, Tree};

mod layout;
#[cfg(loom)]
#[cfg(test)]
mod loom_tests;
#[cfg(not(loom))]
#[cfg(test)]
mod tests;
mod tree;

pub use layout::{DESCRIPTORS_MAX, LAYOUT_VERSION, PAGE_BYTES};

/// Words of a page.
pub const PAGE_WORDS: usize = PAGE_BYTES / 8;

/// The descriptor has data to read, or its end was reached.
pub const READABLE: u8 = 1;
/// The descriptor has room to write, or has no reader any more.
pub const WRITABLE: u8 = 2;

/// The interest of the loop in a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// [`READABLE`], [`WRITABLE`] or both. 0: the descriptor is no longer watched.
    pub bits: u8,
    /// The registration of this number. 0: there was none yet.
    pub generation: u32,
}

impl Interest {
    fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.bits)
    }

    fn of_word(found: u64) -> Self {
        // Only the two directions count as interest.
        Interest { bits: (found & 3) as u8, generation: (found >> 32) as u32 }
    }
}

/// Whether `descriptor` has a place in the page.
fn in_range(descriptor: u32) -> bool {
    descriptor < DESCRIPTORS_MAX
}

fn create<W: AsRef<[AtomicU64]>>(words: W) -> Result<Words<W>, LayoutError> {
    let words = Words::new(KIND, words, PAGE_WORDS)?;
    words.check_unused(KIND, |_| true)?;
    words.mark(KIND);
    words.store(word::DESCRIPTORS, u64::from(DESCRIPTORS_MAX), Relaxed);
    Ok(words)
}

fn attach<W: AsRef<[AtomicU64]>>(words: W) -> Result<Words<W>, LayoutError> {
    let words = Words::new(KIND, words, PAGE_WORDS)?;
    words.check_kind(KIND)?;
    let most = u64::from(DESCRIPTORS_MAX);
    words.identity(KIND, "descriptors", word::DESCRIPTORS, (most, most))?;
    words.check_unused(KIND, word::is_reserved)?;
    Ok(words)
}

#[inline]
fn tree<W: AsRef<[AtomicU64]>>(words: &Words<W>, at: usize) -> Tree<'_> {
    Tree::new(&words.0.as_ref()[at..at + word::TREE_WORDS])
}

/// The loop's end: states interest, takes readiness.
#[derive(Debug)]
pub struct IoClient<W> {
    words: Words<W>,
    taken: u64,
    taker: Taker,
}

impl<W: AsRef<[AtomicU64]>> IoClient<W> {
    /// Makes `words` a page of I/O events. The words must be 0 and not shared yet.
    /// O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// The length is wrong, or a word is not 0.
    pub fn create(words: W) -> Result<Self, LayoutError> {
        Ok(IoClient { words: create(words)?, taken: 0, taker: Taker::default() })
    }

    /// The memory, to be handed to the service.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// States the interest in `descriptor`, in place of an earlier one. Forgets readiness that was
    /// not taken yet, because arming checks again. `false` if the page has no place for the
    /// descriptor. A store and up to 4 exchanges.
    #[must_use = "a descriptor without a place is not watched"]
    pub fn state(&mut self, descriptor: u32, interest: Interest) -> bool {
        if !in_range(descriptor) {
            return false;
        }
        // The old readiness is cleared before the service can see the new generation. So readiness
        // of the new generation stays.
        let gone = tree(&self.words, word::ACTIVE).clear(descriptor);
        let dropped = self.taker.forget(descriptor);
        self.count_taken(u64::from(dropped) + u64::from(gone != 0));
        // Relaxed: the bit in the tree hands the interest over, from (1) to (2).
        self.words.store(word::interest(descriptor), interest.to_word(), Relaxed);
        tree(&self.words, word::UPDATED).raise(descriptor, 1);
        true
    }

    /// The next ready descriptor and its directions. `None` if none is ready now. Costs one load if
    /// nothing happened, otherwise O(touched words) over all calls. Round robin: a descriptor that
    /// is raised again comes after all others raised before.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, u8)> {
        let found = self.taker.next(&tree(&self.words, word::ACTIVE))?;
        self.count_taken(1);
        Some(found)
    }

    /// How many descriptors are ready. A hint if the service is another thread. Costs two loads.
    pub fn active(&self) -> u64 {
        // Relaxed: the result is only a hint. One end may be ahead of the other.
        let raised = self.words.load(word::RAISED, Relaxed);
        raised.wrapping_sub(self.taken).min(u64::from(DESCRIPTORS_MAX))
    }

    /// The wake word of the client. After each wait the client calls [`WakeWord::finish_wait`],
    /// then [`Self::take`].
    pub fn wake_word(&self) -> WakeWord<'_> {
        WakeWord::new(self.words.at(word::WAKE))
    }

    fn count_taken(&mut self, more: u64) {
        self.taken = self.taken.wrapping_add(more);
        self.words.store(word::TAKEN, self.taken, Relaxed); // for `active` alone
    }
}

/// The watcher's end: takes interest, raises readiness.
#[derive(Debug)]
pub struct IoService<W> {
    words: Words<W>,
    raised: u64,
    taker: Taker,
}

impl<W: AsRef<[AtomicU64]>> IoService<W> {
    /// Attaches to the page that a client created in `words`. O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// The memory is no such page, has another version, or its reserved words are used.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let words = attach(words)?;
        let raised = words.load(word::RAISED, Relaxed); // by a service before this one
        Ok(IoService { words, raised, taker: Taker::default() })
    }

    /// The next descriptor whose interest changed since it was last returned here, and its newest
    /// interest. `None` if there is none. Costs one load if nothing changed.
    #[inline]
    pub fn take_update(&mut self) -> Option<(u32, Interest)> {
        let (descriptor, _) = self.taker.next(&tree(&self.words, word::UPDATED))?;
        // Relaxed: taking the bit in the tree has acquired the interest (2).
        let stated = self.words.load(word::interest(descriptor), Relaxed);
        Some((descriptor, Interest::of_word(stated)))
    }

    /// Reports that `descriptor` is ready for `bits`. A number without a place is ignored. Costs
    /// one exchange, and 2 more for the first of 32 and of 64 * 32 adjacent descriptors. The caller
    /// notifies the wake word once after all.
    #[inline]
    pub fn raise(&mut self, descriptor: u32, bits: u8) {
        if in_range(descriptor) && bits & 3 != 0 {
            let before = tree(&self.words, word::ACTIVE).raise(descriptor, bits & 3);
            if before == 0 {
                self.raised = self.raised.wrapping_add(1);
                self.words.store(word::RAISED, self.raised, Relaxed); // for `active` alone
            }
        }
    }

    /// The wake word of the client. The service notifies it after it has raised descriptors.
    pub fn wake_word(&self) -> WakeWord<'_> {
        WakeWord::new(self.words.at(word::WAKE))
    }
}
