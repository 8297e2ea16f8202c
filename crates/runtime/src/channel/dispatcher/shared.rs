//! What a dispatcher and its registrations both see.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use upcall_core::events::{Counts, ROUTE_MAX};

/// Of each handler of a route, what [`Counts`] says.
#[derive(Debug, Default)]
pub(in crate::channel) struct Tally([[AtomicU64; 6]; ROUTE_MAX]);

impl Tally {
    // Relaxed, both: numbers for themselves.

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

/// What both ends see.
#[derive(Default)]
pub(in crate::channel) struct State {
    pub(in crate::channel) tally: Tally,
    /// The desk has handed everything back.
    pub(in crate::channel) has_left: AtomicBool,
    /// What hangs up, once a handler panicked or the desk is gone.
    pub(in crate::channel) on_over: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("tally", &self.tally).finish_non_exhaustive()
    }
}

impl State {
    pub(in crate::channel) fn set_left(&self) {
        // Release pairs with the Acquire in `Line::leave`: what was handed back is there.
        self.has_left.store(true, Ordering::Release);
    }

    /// Nothing is handled any more: its peers are to find that it died. A system call.
    pub(in crate::channel) fn over(&self) {
        if let Some(on_over) = self.on_over.get() {
            on_over();
        }
    }
}
