//! The bell of a segment: how its taker is told, awake or asleep.
//!
//! A line of its own, in memory beside the segment: written by both ends, and only for this. Rung by who was
//! answered that it [must tell](super::ring::Raiser::must_tell), and by who has other news.
//!
//! ```text
//!             ring (1)                 answer
//!   SILENT ------------> RUNG --------------------> SILENT (2)
//!      |  ^                ^
//! doze |  | stir           | ring: the caller wakes (3)
//!      v  |                |
//!     ASLEEP --------------+
//! ```
//!
//! 1. No system call: the taker looks here now and then.
//! 2. It takes after that: what was raised before the ring is seen.
//! 3. It is one word, so either the ring comes first and the taker does not sleep, or it finds
//!    `ASLEEP`.
//!
//! What else may stand there a peer wrote: it counts as rung, and as asleep for who rings.

use crate::edge::{Edge, ordering};
use crate::words::{LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::{Acquire, Relaxed, Release};

use super::layout::KIND;

/// Words of a bell.
pub const BELL_WORDS: usize = LINE_WORDS;

/// What a bell (the low half is the futex) holds while its taker sleeps.
pub const ASLEEP: u32 = 2;

const SILENT: u64 = 0;
const RUNG: u64 = 1;

/// See the [module's head](self). `W` is the memory, owned or borrowed: zero at first.
#[derive(Debug)]
pub struct Bell<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> Bell<W> {
    /// The bell in `words`.
    ///
    /// # Errors
    /// They are not [`BELL_WORDS`].
    pub fn new(words: W) -> Result<Self, LayoutError> {
        Words::new(KIND, words, BELL_WORDS).map(Bell)
    }

    /// Rings: `true` if the taker sleeps and the caller must wake one waiter of the futex. From anyone;
    /// one exchange.
    #[inline]
    #[must_use = "who sleeps must be woken"]
    pub fn ring(&self) -> bool {
        // Release pairs with the Acquire in `answer`. An exchange, no store: who hears a later ring has
        // heard this one too.
        let before = self.word().swap(RUNG, ordering(Edge::ChannelRing, Release));
        before != SILENT && before != RUNG
    }

    /// Whether it was rung; then it is silent, and the taker is to look. A load if it was not. By the
    /// taker.
    #[inline]
    pub fn answer(&self) -> bool {
        // Relaxed: only spares the exchange. Acquire pairs with the Release in `ring`.
        self.word().load(Relaxed) != SILENT
            && self.word().swap(SILENT, ordering(Edge::ChannelHear, Acquire)) != SILENT
    }

    /// Whether the taker, the caller, may sleep now. After this, whatever it says and after the sleep
    /// if there was one, comes [`Self::stir`].
    #[inline]
    #[must_use = "a bell that was rung is not to be slept on"]
    pub fn doze(&self) -> bool {
        // Relaxed: a rung bell stays so until `answer` acquires it.
        let asleep = u64::from(ASLEEP);
        self.word().compare_exchange(SILENT, asleep, Relaxed, Relaxed).is_ok()
    }

    /// The taker is awake. A ring stays to be answered.
    #[inline]
    pub fn stir(&self) {
        // Relaxed: as in `doze`.
        let asleep = u64::from(ASLEEP);
        let _ = self.word().compare_exchange(asleep, SILENT, Relaxed, Relaxed);
    }

    /// The word to sleep on while its low half is [`ASLEEP`], shared between processes. Only for that.
    #[inline]
    pub fn word(&self) -> &AtomicU64 {
        self.0.at(0)
    }
}
