//! Virtual masking (split-level-1991 §3.3): a handler keeps the CPU past the end of its
//! quantum, or user interrupts away, without a system call.
//!
//! Used by handlers through [`Batch::mask_preemption`] and
//! [`Batch::mask_interrupts`]; a task has [`crate::Task::mask_preemption`], whose level
//! stands in its cell and, while it is polled, in the user area too. The level stands in the batch,
//! which asks nobody while it is above 0; among domains also in the user area, where
//! the daemon and the others see it. A request that comes meanwhile is not lost: it stays
//! where it is made (the bell, the clock, the yield request in the kernel area), and
//! the first boundary after the mask looks there (for interrupts, the end of the mask
//! does). So masking only ever delays, and what it
//! delays too long the watchdog ends, as it does for who never asks.

use std::ops::{Deref, DerefMut};

use upcall_shm::user_area::Mask;

use crate::batch::Batch;

/// A batch while something is masked, until this is dropped. See
/// [`Batch::mask_preemption`] and [`Batch::mask_interrupts`].
#[derive(Debug)]
#[must_use = "it is masked only as long as this lives"]
pub struct MaskedBatch<'m, 'a> {
    batch: &'m mut Batch<'a>,
    mask: Mask,
}

impl<'m, 'a> MaskedBatch<'m, 'a> {
    pub(crate) fn new(batch: &'m mut Batch<'a>, mask: Mask) -> Self {
        batch.raise_mask(mask);
        MaskedBatch { batch, mask }
    }
}

impl<'a> Deref for MaskedBatch<'_, 'a> {
    type Target = Batch<'a>;

    fn deref(&self) -> &Batch<'a> {
        self.batch
    }
}

impl<'a> DerefMut for MaskedBatch<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Batch<'a> {
        self.batch
    }
}

impl Drop for MaskedBatch<'_, '_> {
    fn drop(&mut self) {
        self.batch.lower_mask(self.mask);
    }
}
