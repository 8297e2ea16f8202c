//! A batch: the PDUs that a handler may process in the present period.
//!
//! The executor makes a batch for each upcall, the handler uses it, and the executor reads it back.
//! The handler's loop calls [`Batch::proceed`] before each PDU. The paper has that loop over the
//! PDUs of one invocation in rtu-1995 Figure 5.

use std::sync::atomic::{AtomicBool, Ordering};

use upcall_core::scheduler::Outcome;
use upcall_core::time::{Instant, Span};
use upcall_shm::user_area::Mask;

use crate::events::PostedEvent;
use crate::preemption::PreemptionPoint;

#[cfg(test)]
mod tests;

/// What a handler is given: how many PDUs it may process in this upcall, and whether it may go on.
///
/// A PDU (protocol data unit) is a unit of work that the program chooses: a packet, a block of
/// samples, a frame. A handler calls [`Batch::proceed`] before each PDU and returns when the answer
/// is `false`.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// # fn process_one_pdu() {}
/// # fn handler(batch: &mut upcall::Batch<'_>) {
/// while batch.proceed() {
///     process_one_pdu();
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Batch<'a> {
    authority: Authority<'a>,
    /// How many PDUs this upcall may process.
    pdus_max: u32,
    /// PDUs that were begun.
    begun: u32,
    /// Further PDUs of the present quantum that need no permission.
    quantum_left: u32,
    quantum: u32,
    /// Before this moment no other work can outrank the handler.
    check_at: Instant,
    quantum_start: Instant,
    quantum_cost: Span,
    quantum_overruns: u32,
    resumed: bool,
    jobs_skipped: u64,
    aborting: bool,
    told_to_yield: bool,
    finished: bool,
    early: Early,
    /// How often each mask is held: that of preemption, then that of interrupts.
    masks: [u32; 2],
}

/// What decides at a quantum boundary whether the handler goes on.
#[derive(Debug)]
pub(crate) enum Authority<'a> {
    /// Nothing decides, and the handler always goes on: a trial run.
    Trial,
    /// The scheduler, through the preemption point.
    Scheduler(PreemptionPoint<'a>),
    /// The thread of virtual time. The flag says that another handler waits for its turn.
    VirtualTime(&'a AtomicBool),
}

/// The terms of an upcall, as the executor grants it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) pdus_max: u32,
    pub(crate) quantum: u32,
    pub(crate) quantum_cost: Span,
    pub(crate) check_at: Instant,
    pub(crate) start: Instant,
    pub(crate) resumed: bool,
    pub(crate) jobs_skipped: u64,
    pub(crate) aborting: bool,
}

/// What a handler said of the messages after this job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Early {
    /// The number of whole messages that wait already.
    pub(crate) waiting: u32,
    /// The logical arrival of the first of them, or of the one that comes next.
    pub(crate) arrival: Option<Instant>,
}

/// What an upcall used, and how it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) pdus: u32,
    pub(crate) quantum_overruns: u32,
    pub(crate) outcome: Outcome,
    pub(crate) end: Instant,
    pub(crate) early: Early,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(authority: Authority<'a>, grant: Grant) -> Self {
        Batch {
            authority,
            pdus_max: grant.pdus_max,
            begun: 0,
            quantum_left: 0,
            quantum: grant.quantum,
            check_at: grant.check_at,
            quantum_start: grant.start,
            quantum_cost: grant.quantum_cost,
            quantum_overruns: 0,
            resumed: grant.resumed,
            jobs_skipped: grant.jobs_skipped,
            aborting: grant.aborting,
            told_to_yield: false,
            finished: false,
            early: Early::default(),
            masks: [0; 2],
        }
    }

    /// Whether the handler may process one more PDU now. On `false` it must return.
    ///
    /// Call it once before each PDU, and only when there is a PDU to process: each `true` counts as
    /// one. Within a quantum it is a decrement. At the end of a quantum it reads the clock and one
    /// flag. It asks the scheduler, O(log n), only if something was released meanwhile. It never
    /// blocks, allocates, or makes a system call (it reads the clock in the vDSO).
    #[inline]
    pub fn proceed(&mut self) -> bool {
        if self.quantum_left > 0 {
            self.quantum_left -= 1;
            self.begun += 1;
            return true;
        }
        self.boundary()
    }

    /// As [`Batch::proceed`], but for the rest of the present quantum, or the whole next one, at
    /// once. Returns how many PDUs the handler may process now; on 0 it must return. For callers
    /// that count by themselves, such as C code: they put back the PDUs that they do not process.
    /// Costs as much as `proceed`.
    pub fn proceed_quantum(&mut self) -> u32 {
        let begun = self.begun;
        if self.proceed() {
            self.begun += std::mem::take(&mut self.quantum_left);
        }
        self.begun - begun
    }

    /// Gives back PDUs that [`Batch::proceed_quantum`] gave last and that the handler did not
    /// begin. They do not count, and may be begun later in this upcall. At most as many as it gave.
    pub fn put_back(&mut self, pdus: u32) {
        let pdus = pdus.min(self.begun).min(self.quantum - self.quantum_left);
        self.begun -= pdus;
        self.quantum_left += pdus;
    }

    /// Before this moment no other work can outrank the handler. From then on [`Batch::proceed`]
    /// asks the scheduler at the end of a quantum.
    pub fn check_at(&self) -> Instant {
        self.check_at
    }

    /// PDUs that may still be begun in this upcall, if nothing outranks the handler.
    pub fn remaining(&self) -> u32 {
        self.pdus_max - self.begun
    }

    /// Whether this upcall continues a job that had to yield.
    pub fn resumed(&self) -> bool {
        self.resumed
    }

    /// How many jobs were dropped between the job before and the present one, because they waited
    /// too long ([`Backlog`](crate::activity::Backlog)). The same in every upcall of a job. A
    /// handler that reads a socket or samples should discard the data of that many periods.
    /// Otherwise data that waited stays late for ever. 0 in a trial run and in virtual time.
    pub fn jobs_skipped(&self) -> u64 {
        self.jobs_skipped
    }

    /// Takes the most urgent event that was posted to this handler ([`crate::Poster`]): the one of
    /// the smallest rank, and of equals the first.
    ///
    /// A taken event no longer counts when the next handler is chosen. The upcall itself takes no
    /// event. A handler that was chosen because of an event keeps its place until its job is done,
    /// whatever it takes. Costs a clock reading and O(k) for k waiting events; does not block or
    /// allocate. `None` also in a trial run and in virtual time.
    ///
    /// A taken event cannot be put back. If [`Batch::proceed`] then says no, the handler keeps the
    /// event for its next upcall:
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Batch, PostedEvent};
    /// # fn show(frame: PostedEvent) {}
    /// let mut held: Option<PostedEvent> = None; // taken, but not processed
    /// let player = move |batch: &mut Batch<'_>| {
    ///     while let Some(frame) = held.take().or_else(|| batch.take_event()) {
    ///         if !batch.proceed() {
    ///             held = Some(frame);
    ///             break;
    ///         }
    ///         show(frame);
    ///     }
    /// };
    /// # let _: Box<dyn FnMut(&mut Batch<'_>)> = Box::new(player);
    /// ```
    pub fn take_event(&mut self) -> Option<PostedEvent> {
        match &mut self.authority {
            Authority::Scheduler(point) => point.take_event(),
            Authority::Trial | Authority::VirtualTime(_) => None,
        }
    }

    /// Whether the process is ending (rtu-1996 §7.3, the *abort* field). The handler should then
    /// end its work and call [`finish`](Batch::finish). Always `false` for a handler without an
    /// abort phase ([`Runtime::give_abort_phase`](crate::Runtime::give_abort_phase)). The value
    /// does not change during an upcall. A handler that runs when the process ends is asked to
    /// yield, and is called again.
    pub fn aborting(&self) -> bool {
        self.aborting
    }

    /// Ends the upcalls of this handler: when it returns, its job is done and the activity is
    /// suspended, as by `rts_suspend` (rtu-1995 §6).
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Says that `messages` whole messages wait beyond this job, each the work of a further job.
    /// They came before their logical arrivals, which are the next releases. Under DWS each becomes
    /// a job at once, up to [`Terms::workahead_max`](crate::activity::Terms::workahead_max)
    /// periods ahead (split-level-1991 §2.2). The others wait for their releases, and under other
    /// policies all do. The last call of an upcall counts, and only if the upcall ends its job.
    ///
    /// A handler knows the number without a system call if it fetches more than a batch at a time:
    /// [`udp::Receiver::waiting`](crate::udp::Receiver::waiting).
    pub fn messages_waiting(&mut self, messages: u32) {
        self.early.waiting = messages;
    }

    /// Says that the message after this job logically arrives at `at`, because its timestamp says
    /// so. Its job is released then, and later ones follow by the period. No effect if `at` is
    /// before the next release, because the declared rate holds, or while a further job is
    /// unfinished. If the message waits already, add `messages_waiting(1)`: further messages would
    /// follow by the period and not by their timestamps. The last call of an upcall counts, and
    /// only if the upcall ends its job.
    pub fn next_logical_arrival(&mut self, at: Instant) {
        self.early.arrival = Some(at);
    }

    pub(crate) fn raise_mask(&mut self, mask: Mask) {
        self.masks[mask as usize] += 1;
        if let Authority::Scheduler(point) = &mut self.authority {
            point.raise_mask(mask);
        }
    }

    /// The handler looks for other work at the next boundary. If the mask skipped a boundary, the
    /// next `proceed` is one, because nothing is left of the quantum.
    pub(crate) fn lower_mask(&mut self, mask: Mask) {
        self.masks[mask as usize] -= 1;
        if let Authority::Scheduler(point) = &mut self.authority {
            point.lower_mask(mask);
        }
    }

    fn boundary(&mut self) -> bool {
        if self.told_to_yield || self.begun == self.pdus_max {
            return false;
        }
        if self.masks[Mask::Preemption as usize] > 0 && self.begun > 0 {
            self.begun += 1;
            return true;
        }
        // The upcall itself is the permission for the first quantum.
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

    /// Counts an overrun if the quantum that ends took longer than declared.
    fn meter(&mut self, now: Instant) {
        if now.since(self.quantum_start) > self.quantum_cost {
            self.quantum_overruns += 1;
        }
        self.quantum_start = now;
    }

    fn may_go_on(&mut self, now: Instant) -> bool {
        let goes_on = match &mut self.authority {
            Authority::Trial => Some(self.check_at),
            Authority::Scheduler(point) => point.go_on(now, self.check_at),
            // Relaxed: only decides whether to return; see `virtual_time`.
            Authority::VirtualTime(over) => {
                (!over.load(Ordering::Relaxed)).then_some(self.check_at)
            }
        };
        self.check_at = goes_on.unwrap_or(self.check_at);
        goes_on.is_some()
    }

    /// Ends the upcall at `end`.
    pub(crate) fn close(mut self, end: Instant) -> Use {
        // Lowers the masks of guards that were forgotten (`std::mem::forget`).
        for mask in [Mask::Preemption, Mask::Interrupts] {
            while self.masks[mask as usize] > 0 {
                self.lower_mask(mask);
            }
        }
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
        let (pdus, quantum_overruns) = (self.begun, self.quantum_overruns);
        Use { pdus, quantum_overruns, outcome, end, early: self.early }
    }
}
