//! The page by which an event loop and whoever watches descriptors for it say what
//! the one is interested in and what the other found ready: ecalls-2001 §3.2.
//!
//! Used by the runtime's poller and its I/O service. The loop is the [`IoClient`], the
//! watcher the [`IoService`]; each end is one thread's. Nothing here waits, allocates or makes a
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
//! | `updated_fd_list`, its `flag` | a [`tree`](#trees) of bits; its top word is 0 while nothing changed |
//! | `fd_active` | a tree of 2 bits for each descriptor: readable, writable |
//! | its `flag` | `raised` less `taken`, each written by one end alone |
//!
//! A generation tells a descriptor from a later one of the same number. Readiness carries none:
//! an event may be *spurious*, and whoever gets one finds out by a call that does not block.
//!
//! # Trees
//!
//! A leaf word has the bits of 32 descriptors; a summary word a bit for each of 64 leaves, the top
//! word a bit for each summary word. So a look costs one load where nothing happened, and else as many
//! exchanges as words were touched, however many descriptors there are.
//!
//! ```text
//!   raise: (a) leaf |= bits     was 0? (b) summary |= leaf     was 0? (c) top |= summary
//!   take:  (d) top <- 0   then each (e) summary <- 0   then each (f) leaf <- 0
//! ```
//!
//! Upwards and downwards are opposite orders, so no bit is left below a zero: whoever found a leaf at 0
//! in (a) comes after (f), thus after (e), and what it sets in (b) is there for the next take; whoever
//! did not comes before (f) and is taken with it. The same holds between (b), (c), (d) and (e). For
//! *after (f), thus after (e)* both sides of each level acquire and release.
//!
//! # Trust
//!
//! A wrong or hostile service can raise what is not ready, which is spurious, or raise nothing; a
//! client can ask for descriptors that the service must check as it does those of any client. Bits
//! beyond the page are not followed.
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

/// There is something to read, or the end has come.
pub const READABLE: u8 = 1;
/// There is room to write, or nobody reads any more.
pub const WRITABLE: u8 = 2;

/// What a descriptor is to be watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// [`READABLE`], [`WRITABLE`], both; 0: not watched any more.
    pub bits: u8,
    /// Which registration of this number it is; 0: there was none yet.
    pub generation: u32,
}

impl Interest {
    fn to_word(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.bits)
    }

    fn of_word(found: u64) -> Self {
        // What is not a direction is not an interest either.
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
    /// Makes `words`, all zero and shared with nobody yet, such a page. O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// Wrong length, or a word that is not 0.
    pub fn create(words: W) -> Result<Self, LayoutError> {
        Ok(IoClient { words: create(words)?, taken: 0, taker: Taker::default() })
    }

    /// The memory, to be handed to the service.
    pub fn memory(&self) -> &W {
        &self.words.0
    }

    /// States what `descriptor` is to be watched for, in place of what was stated before.
    /// Readiness that was not taken yet is forgotten: arming looks anew. `false`: the page
    /// has no place for it. A store and up to 4 exchanges.
    #[must_use = "a descriptor without a place is not watched"]
    pub fn state(&mut self, descriptor: u32, interest: Interest) -> bool {
        if !in_range(descriptor) {
            return false;
        }
        // Before the new generation is there to be seen: what comes for it stays.
        let gone = tree(&self.words, word::ACTIVE).clear(descriptor);
        let said = self.taker.forget(descriptor);
        self.count_taken(u64::from(said) + u64::from(gone != 0));
        // Relaxed: handed over by the bit in the tree, (1) to (2).
        self.words.store(word::interest(descriptor), interest.to_word(), Relaxed);
        tree(&self.words, word::UPDATED).raise(descriptor, 1);
        true
    }

    /// The next descriptor that is ready, and for what; `None`: there is none now. One load
    /// where nothing happened; else O(words touched) over all calls. Round robin: what is
    /// raised again comes after all that was raised before.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, u8)> {
        let found = self.taker.next(&tree(&self.words, word::ACTIVE))?;
        self.count_taken(1);
        Some(found)
    }

    /// How many descriptors are ready: a hint where the service is another thread. Two loads.
    pub fn active(&self) -> u64 {
        // Relaxed: nothing follows from it. One end may be ahead of the other.
        let raised = self.words.load(word::RAISED, Relaxed);
        raised.wrapping_sub(self.taken).min(u64::from(DESCRIPTORS_MAX))
    }

    /// The wake word of the client. After each wait comes [`WakeWord::finish_wait`], then
    /// [`Self::take`].
    pub fn wake_word(&self) -> WakeWord<'_> {
        WakeWord::new(self.words.at(word::WAKE))
    }

    fn count_taken(&mut self, more: u64) {
        self.taken = self.taken.wrapping_add(more);
        self.words.store(word::TAKEN, self.taken, Relaxed); // for `active` alone
    }
}

/// The watcher's end: finds interest, raises readiness.
#[derive(Debug)]
pub struct IoService<W> {
    words: Words<W>,
    raised: u64,
    taker: Taker,
}

impl<W: AsRef<[AtomicU64]>> IoService<W> {
    /// Takes up the page that a client created in `words`. O([`PAGE_WORDS`]).
    ///
    /// # Errors
    /// It is no such page, of another version, or its reserved words are used.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let words = attach(words)?;
        let raised = words.load(word::RAISED, Relaxed); // by a service before this one
        Ok(IoService { words, raised, taker: Taker::default() })
    }

    /// The next descriptor whose interest was stated since it was last said here, and the
    /// newest statement; `None`: there is none. One load where nothing changed.
    #[inline]
    pub fn take_update(&mut self) -> Option<(u32, Interest)> {
        let (descriptor, _) = self.taker.next(&tree(&self.words, word::UPDATED))?;
        // Relaxed: the bit in the tree was taken before, (2).
        let stated = self.words.load(word::interest(descriptor), Relaxed);
        Some((descriptor, Interest::of_word(stated)))
    }

    /// Says that `descriptor` is ready for `bits`; a number without a place is left out.
    /// One exchange, 2 more for the first of 32, 64 * 32 neighbours. Afterwards the wake word is
    /// notified once.
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

    /// As [`IoClient::wake_word`]: to be notified after something was raised.
    pub fn wake_word(&self) -> WakeWord<'_> {
        WakeWord::new(self.words.at(word::WAKE))
    }
}
