//! The state that a dispatcher shares with each of its registrations.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall_core::events::{Counts, ROUTE_MAX};

/// The [`Counts`] of each handler of a route.
#[derive(Debug, Default)]
pub(in crate::channel) struct SharedCounts([[AtomicU64; 6]; ROUTE_MAX]);

impl SharedCounts {
    // Relaxed, in both methods: each number stands for itself.

    pub(in crate::channel) fn store(&self, stage: usize, counts: &Counts) {
        let Counts { invocations, lost, dropped, merged, recursions, run_aways } = *counts;
        let values = [invocations, lost, dropped, merged, recursions, run_aways];
        for (word, value) in self.0[stage].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(in crate::channel) fn load(&self, stage: usize) -> Counts {
        let word = |at: usize| self.0[stage][at].load(Ordering::Relaxed);
        Counts {
            invocations: word(0),
            lost: word(1),
            dropped: word(2),
            merged: word(3),
            recursions: word(4),
            run_aways: word(5),
        }
    }
}

/// See the module's head.
#[derive(Default)]
pub(in crate::channel) struct RegistrationState {
    pub(in crate::channel) counts: SharedCounts,
    /// Whether the dispatcher has handed everything back.
    has_left: AtomicBool,
    /// Closes the connections to the peers after a handler has panicked, or the dispatcher is gone.
    on_hang_up: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for RegistrationState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistrationState").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl RegistrationState {
    pub(in crate::channel) fn set_left(&self) {
        // Release pairs with the Acquire in `has_left`: all retired values are in the queue by
        // then.
        self.has_left.store(true, Ordering::Release);
    }

    pub(in crate::channel) fn has_left(&self) -> bool {
        // Acquire pairs with the Release in `set_left`.
        self.has_left.load(Ordering::Acquire)
    }

    /// Sets what [`RegistrationState::hang_up`] calls. Only the first call counts.
    pub(in crate::channel) fn set_on_hang_up(&self, on_hang_up: Box<dyn Fn() + Send + Sync>) {
        let _ = self.on_hang_up.set(on_hang_up);
    }

    /// Ends the connections, because no event is handled any more. The peers find that this end
    /// died. A system call.
    pub(in crate::channel) fn hang_up(&self) {
        if let Some(on_hang_up) = self.on_hang_up.get() {
            on_hang_up();
        }
    }
}
