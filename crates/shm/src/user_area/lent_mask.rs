//! The preemption mask of a user area, lent to the code that runs there.

use super::{layout, sized};
use crate::edge::{Edge, barrier};
use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::{Relaxed, SeqCst};
use layout::word;

/// Writes the preemption mask of an area, in the thread of its [`Owner`](super::Owner). For code
/// that the owner calls and that cannot reach the owner meanwhile, such as a future that it polls.
/// The owner itself masks nothing in that time. The level is 0 before and afterwards. `W` is the
/// memory.
#[derive(Debug)]
pub struct LentMask<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> LentMask<W> {
    /// The mask of the area in `words`, which its owner has created.
    ///
    /// # Errors
    /// The length is wrong, or it is no user area of this version.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let (words, _) = sized(words)?;
        words.check_kind(layout::KIND)?;
        Ok(LentMask(words))
    }

    /// States that `level` guards are held. Costs one store. At level 0 it also costs a fence, and
    /// the caller must then look for a request in its kernel area, as after
    /// [`Owner::unmask`](super::Owner::unmask).
    pub fn show(&self, level: u32) {
        // Relaxed: as in `Owner::mask`.
        self.0.store(word::PREEMPTION_MASK, u64::from(level), Relaxed);
        if level == 0 {
            // Pairs with the fence in `kernel_area::Writer::request_yield`, as the fence in
            // `Owner::unmask` does.
            barrier(Edge::UnmaskFence, SeqCst);
        }
    }
}
