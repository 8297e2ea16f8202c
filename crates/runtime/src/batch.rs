//! What a handler holds while it runs: its share of the present period.
//!
//! Made by the executive for each upcall, used by the handler, read back by
//! the executive. It is the paper's loop over the PDUs of one invocation
//! (rtu-1995 Figure 5) turned into one method, [`Batch::proceed`].

use upcall_core::scheduler::Outcome;
use upcall_core::time::{Instant, Span};

use crate::gate::Gate;

/// One upcall's worth of work.
///
/// ```no_run
/// # fn process_one_pdu() {}
/// # fn handler(batch: &mut upcall_runtime::Batch<'_>) {
/// while batch.proceed() {
///     process_one_pdu();
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Batch<'a> {
    /// `None`: nobody to ask, a trial run.
    gate: Option<Gate<'a>>,
    /// PDUs this upcall may process.
    pdus_max: u32,
    /// PDUs that were begun.
    begun: u32,
    /// Further PDUs of the present quantum that need no permission.
    quantum_left: u32,
    quantum: u32,
    /// Before this moment nothing can outrank the handler.
    check_at: Instant,
    quantum_start: Instant,
    quantum_cost: Span,
    quantum_overruns: u32,
    resumed: bool,
    aborting: bool,
    told_to_yield: bool,
    finished: bool,
}

/// What an upcall is given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) pdus_max: u32,
    pub(crate) quantum: u32,
    pub(crate) quantum_cost: Span,
    pub(crate) check_at: Instant,
    pub(crate) start: Instant,
    pub(crate) resumed: bool,
    pub(crate) aborting: bool,
}

/// What came of an upcall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) pdus: u32,
    pub(crate) quantum_overruns: u32,
    pub(crate) outcome: Outcome,
    pub(crate) end: Instant,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(gate: Option<Gate<'a>>, grant: Grant) -> Self {
        Batch {
            gate,
            pdus_max: grant.pdus_max,
            begun: 0,
            quantum_left: 0,
            quantum: grant.quantum,
            check_at: grant.check_at,
            quantum_start: grant.start,
            quantum_cost: grant.quantum_cost,
            quantum_overruns: 0,
            resumed: grant.resumed,
            aborting: grant.aborting,
            told_to_yield: false,
            finished: false,
        }
    }

    /// Whether the handler may process one more PDU now. On `false` it must
    /// return.
    ///
    /// Call it once before each PDU, and only when there is a PDU to process:
    /// each `true` counts as one. Within a quantum it is a decrement; at a
    /// quantum's end it reads the clock and one flag; only when something was
    /// released meanwhile does it ask the scheduler, O(log n). It never blocks,
    /// allocates, or makes a system call (the clock is read in the vDSO).
    #[inline]
    pub fn proceed(&mut self) -> bool {
        if self.quantum_left > 0 {
            self.quantum_left -= 1;
            self.begun += 1;
            return true;
        }
        self.boundary()
    }

    /// As [`Batch::proceed`], for all that is left of the present quantum, or the
    /// whole next one, at once: how many PDUs the handler may process now; on 0 it
    /// must return. For callers that count by themselves, such as C code; what
    /// they do not process they put back. Costs what `proceed` does.
    pub fn proceed_quantum(&mut self) -> u32 {
        let begun = self.begun;
        if self.proceed() {
            self.begun += std::mem::take(&mut self.quantum_left);
        }
        self.begun - begun
    }

    /// Gives back PDUs of the quantum that [`Batch::proceed_quantum`] gave last and
    /// that were not begun: they may be begun later in this upcall, and do not
    /// count. At most as many as it gave.
    pub fn put_back(&mut self, pdus: u32) {
        let pdus = pdus.min(self.begun).min(self.quantum - self.quantum_left);
        self.begun -= pdus;
        self.quantum_left += pdus;
    }

    /// Before this moment nothing can outrank the handler; from then on
    /// [`Batch::proceed`] asks the scheduler at the end of a quantum.
    pub fn check_at(&self) -> Instant {
        self.check_at
    }

    /// PDUs that may still be begun in this upcall, if nobody outranks it.
    pub fn remaining(&self) -> u32 {
        self.pdus_max - self.begun
    }

    /// Whether this upcall continues a job that had to yield.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// Whether the process ends, and the handler is to bring what it does to an end and
    /// then [`finish`](Batch::finish) (rtu-1996 §7.3, the *abort* field). Only of
    /// handlers that [`Runtime::give_abort_phase`](crate::Runtime::give_abort_phase)
    /// gave the phase. Settled when an upcall begins; one that runs when the end comes
    /// is asked to yield, and called again.
    pub fn aborting(&self) -> bool {
        self.aborting
    }

    /// Says that the handler wants no further upcalls: when it returns, the job
    /// is done and the activity suspended, as by `rts_suspend` (rtu-1995 §6).
    pub fn finish(&mut self) {
        self.finished = true;
    }

    fn boundary(&mut self) -> bool {
        if self.told_to_yield || self.begun == self.pdus_max {
            return false;
        }
        // The first quantum needs no permission: the upcall was it.
        if self.begun > 0 {
            let now = crate::clock::now();
            self.meter(now);
            if !self.may_go_on(now) {
                self.told_to_yield = true;
                return false;
            }
        }
        self.quantum_left = self.quantum.min(self.pdus_max - self.begun) - 1;
        self.begun += 1;
        true
    }

    /// Closes the account of a quantum.
    fn meter(&mut self, now: Instant) {
        if now.since(self.quantum_start) > self.quantum_cost {
            self.quantum_overruns += 1;
        }
        self.quantum_start = now;
    }

    fn may_go_on(&mut self, now: Instant) -> bool {
        let Some(gate) = &mut self.gate else { return true };
        match gate.go_on(now, self.check_at) {
            Some(check_at) => self.check_at = check_at,
            None => return false,
        }
        true
    }

    /// Ends the upcall at `end`.
    pub(crate) fn close(mut self, end: Instant) -> Use {
        if self.begun > 0 && !self.told_to_yield {
            self.meter(end);
        }
        let outcome = if self.finished {
            Outcome::Finished
        } else if self.told_to_yield && self.begun < self.pdus_max {
            Outcome::Yielded
        } else {
            Outcome::Done
        };
        Use { pdus: self.begun, quantum_overruns: self.quantum_overruns, outcome, end }
    }
}
