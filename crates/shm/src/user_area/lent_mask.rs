//! The preemption mask of a user area in the hands of what runs there.

use super::{layout, sized};
use crate::edge::{Edge, barrier};
use crate::words::Words;
use crate::{AtomicU64, LayoutError, Ordering};
use Ordering::{Relaxed, SeqCst};
use layout::word;

/// Writes the preemption mask of an area beside its [`Owner`](super::Owner), whose thread
/// it is used in: for code that the owner calls and that cannot reach the owner
/// meanwhile, such as a future that it polls. The owner itself masks nothing in that time,
/// and before and after the level is 0. `W` is the memory.
#[derive(Debug)]
pub struct LentMask<W>(Words<W>);

impl<W: AsRef<[AtomicU64]>> LentMask<W> {
    /// Of the area in `words`, which its owner has created.
    ///
    /// # Errors
    /// Wrong length, or no user area of this version.
    pub fn attach(words: W) -> Result<Self, LayoutError> {
        let (words, _) = sized(words)?;
        words.check_kind(layout::KIND)?;
        Ok(LentMask(words))
    }

    /// Says that `level` guards are held. A store; at 0 a fence as well, and the caller
    /// must look for a request in its kernel area, as after
    /// [`Owner::unmask`](super::Owner::unmask).
    pub fn show(&self, level: u32) {
        // Relaxed: as in `Owner::mask`.
        self.0.store(word::PREEMPTION_MASK, u64::from(level), Relaxed);
        if level == 0 {
            // Pairs with the fence in `kernel_area::Writer::request_yield`, as that in
            // `Owner::unmask` does.
            barrier(Edge::UnmaskFence, SeqCst);
        }
    }
}
