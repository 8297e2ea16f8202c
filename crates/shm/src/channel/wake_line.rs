//! The wake line of a segment: the cache line that holds the wake word of its taker.
//!
//! The line is separate memory beside the segment and holds nothing else. A raiser calls `notify`
//! on the wake word when it [must notify](super::ring::Raiser::must_notify) the taker. Either end
//! may also notify the taker of another change. [`crate::wake_word`] describes the states.

use crate::wake_word::WakeWord;
use crate::words::{LINE_WORDS, Words};
use crate::{AtomicU64, LayoutError};

use super::layout::KIND;

/// Words of a wake line.
pub const WAKE_LINE_WORDS: usize = LINE_WORDS;

/// See the [module's head](self). `W` is the memory, owned or borrowed. It is zero at first.
#[derive(Debug)]
pub struct WakeLine<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> WakeLine<W> {
    /// The wake line in `words`.
    ///
    /// # Errors
    /// The length is not [`WAKE_LINE_WORDS`].
    pub fn new(words: W) -> Result<Self, LayoutError> {
        Words::new(KIND, words, WAKE_LINE_WORDS).map(WakeLine)
    }

    /// The wake word of the taker. Its futex is shared between processes.
    #[inline]
    pub fn wake_word(&self) -> WakeWord<'_> {
        WakeWord::new(self.0.at(0))
    }
}
