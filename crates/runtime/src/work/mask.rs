//! Virtual masking (split-level-1991 §3.3): a handler keeps the CPU past the end of its quantum, or
//! keeps user interrupts away, without a system call.
//!
//! Handlers use [`Batch::mask_preemption`] and [`Batch::mask_interrupts`]. A task has
//! [`crate::Task::mask_preemption`]; its level is kept in its cell and, while the task is polled,
//! in the user area too.
//!
//! The batch counts the guards, and asks nothing at a boundary while a guard is held. Under a
//! daemon the count is also in the user area, where the daemon and the peer domains see it. A
//! request that comes meanwhile is not lost. It stays where it was made: in the wake word, the
//! clock, or the yield request of the kernel area. The first boundary after the mask looks there;
//! for interrupts, the end of the mask does. So masking only delays. The watchdog ends a delay that
//! is too long, as it does for a handler that never asks.

use std::ops::{Deref, DerefMut};

use upcall_shm::user_area::Mask;

use crate::work::batch::Batch;

/// A batch with preemption or interrupts masked until this guard is dropped. See
/// [`Batch::mask_preemption`] and [`Batch::mask_interrupts`].
#[derive(Debug)]
#[must_use = "it is masked only as long as this lives"]
pub struct MaskedBatch<'m, 'a> {
    batch: &'m mut Batch<'a>,
    mask: Mask,
}

impl<'a> Batch<'a> {
    /// Until the guard is dropped, [`Batch::proceed`] goes on past the end of a quantum even if
    /// more urgent work waits, up to the end of the batch (split-level-1991 §3.3). That work comes
    /// at the first `proceed` after the mask if a quantum ended under the mask, and otherwise at
    /// the end of the quantum: masking only delays. Guards may be nested. The mask holds for other
    /// domains too; nothing masks the kernel.
    ///
    /// A masked stretch is one quantum, and one quantum overrun if it takes longer than declared.
    /// Under a daemon the stretch must not take longer than a declared quantum and the watchdog's
    /// grace. Costs a store or two, and under a daemon a fence at the end; no system call.
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

    /// Until the guard is dropped, no user interrupt is delivered at the boundaries of this handler
    /// (split-level-1991 §3.3). An interrupt that was requested meanwhile is delivered when the
    /// last such guard goes. Guards may be nested. Does not mask preemption. No effect in virtual
    /// time, where no interrupts are delivered. Costs as much as [`Batch::mask_preemption`].
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
