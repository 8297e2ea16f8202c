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

use crate::work::batch::Batch;

/// A batch while something is masked, until this is dropped. See
/// [`Batch::mask_preemption`] and [`Batch::mask_interrupts`].
#[derive(Debug)]
#[must_use = "it is masked only as long as this lives"]
pub struct MaskedBatch<'m, 'a> {
    batch: &'m mut Batch<'a>,
    mask: Mask,
}

impl<'a> Batch<'a> {
    /// Until the guard is dropped, [`Batch::proceed`] goes on past the end of a quantum
    /// whoever else waits, as far as the batch goes (split-level-1991 §3.3). What was to
    /// come first meanwhile comes at the first `proceed` after, if a quantum ended
    /// under the mask, and else at the end of the quantum: masking only delays.
    /// May be nested. Also true of other domains; nothing masks the kernel.
    ///
    /// A masked stretch is one quantum, and if it takes longer than declared, one
    /// quantum overrun; with a daemon, the watchdog's grace is that long too. A store
    /// or two and, among domains, a fence at the end; no system call.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// # fn process_one_pdu() {}
    /// # fn handler(batch: &mut upcall::Batch<'_>) {
    /// while batch.proceed() {
    ///     process_one_pdu();
    ///     // These two belong together, whatever the quantum is.
    ///     let mut batch = batch.mask_preemption();
    ///     if batch.proceed() {
    ///         process_one_pdu();
    ///     }
    /// }
    /// # }
    /// ```
    pub fn mask_preemption(&mut self) -> MaskedBatch<'_, 'a> {
        MaskedBatch::new(self, Mask::Preemption)
    }

    /// Until the guard is dropped, no user interrupt is delivered at the boundaries of
    /// this handler; one that was requested meanwhile is when the last such guard goes
    /// (split-level-1991 §3.3). May be nested. Does not mask preemption; no effect
    /// in virtual time, where none is delivered. Costs what [`Batch::mask_preemption`] does.
    pub fn mask_interrupts(&mut self) -> MaskedBatch<'_, 'a> {
        MaskedBatch::new(self, Mask::Interrupts)
    }
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
