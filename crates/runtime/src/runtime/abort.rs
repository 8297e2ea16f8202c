//! The abort phase: what a handler has still to do when its process ends
//! (rtu-1996 §7.3).
//!
//! A handler or task that speaks a protocol owes its peer an end. When the process ends in an
//! orderly way, those that were given the phase are upcalled on, with
//! [`Batch::aborting`](crate::Batch::aborting) true, until they finish, and a task is
//! polled on, with [`Task::aborting`](crate::Task::aborting) true, until it ends; all others
//! are suspended. In the paper the kernel waits for them without end; here a bound stands
//! in the way of one that never does. A process that is killed has no such phase.
//!
//! ```text
//!   active --abort, was given the phase--> (1) aborting --finish, panic, suspend--> inactive
//!      \                                        \--bound passed--> (2) left behind
//!       \--abort, was not--> suspended
//! ```
//!
//! 1. Upcalled each period as before: nobody's promise suffers from it. A task is woken
//!    out of what it waits for, once, and then goes on as before.
//! 2. Ended as by [`Runtime::stop`], and named in [`Report::unfinished`].

use upcall_core::time::{Instant, Span};

use crate::clock;
use crate::cpu::link::Control;
use crate::id::HandlerId;
use crate::mailbox::Job;
use crate::statistics::Report;
use crate::virtual_time::VirtualTime;

use super::{LOOK_EVERY, Runtime};

/// What a process that panics gives its handlers.
pub(super) const WITHIN_AT_PANIC: Span = Span::from_millis(500);

impl Runtime {
    /// Gives a handler or task an abort phase (rtu-1996 §7.3): if it is active when the process
    /// ends in an orderly way, it is upcalled on, with
    /// [`Batch::aborting`](crate::Batch::aborting) true, until it calls
    /// [`Batch::finish`](crate::Batch::finish). A task is polled on, with
    /// [`Task::aborting`](crate::Task::aborting) true and what it awaits cut short, until
    /// it ends. No effect on one that is closed.
    ///
    /// An orderly end is [`Runtime::abort`], or a panic that drops the runtime while it
    /// unwinds: then for at most half a second. [`Runtime::stop`] and an ordinary drop
    /// are not the end of the process, and end delivery at once. A signal is for the
    /// program to catch, and to call `abort` for.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::{Config, Runtime, activity::ActivityParams, clock, time::Span};
    /// # fn send_reset() {}
    /// # fn process_one_segment() {}
    /// let mut runtime = Runtime::start(Config::default())?;
    /// let need = ActivityParams::new(Span::from_millis(10), Span::from_micros(100));
    /// let tcp = runtime.handler("tcp", need, |batch| {
    ///     if batch.aborting() {
    ///         send_reset();
    ///         batch.finish();
    ///         return;
    ///     }
    ///     while batch.proceed() {
    ///         process_one_segment();
    ///     }
    /// })?;
    /// runtime.give_abort_phase(tcp);
    /// runtime.run(tcp)?;
    /// // ... and when SIGTERM was caught:
    /// let report = runtime.abort(Some(clock::after(Span::from_millis(500))), |_, _| {});
    /// assert!(report.unfinished.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn give_abort_phase(&mut self, id: HandlerId) {
        if let Some(activity) = &mut self.activities[id.0] {
            activity.abort_phase = true;
        } else if let Some(virtual_time) = &self.virtual_time {
            virtual_time.give_abort_phase(id);
        }
    }

    /// Ends the process's handlers in an orderly way, and says how it went: those that
    /// have an abort phase are waited for, until `deadline` (`None`: until all have finished),
    /// then all is ended as by [`Runtime::stop`]. A handler that did not finish in time is named
    /// in [`Report::unfinished`], and a task is dropped. A handler whose next period begins after
    /// `deadline` is not upcalled any more. Blocks until `deadline` and half a second at most.
    pub fn abort(
        mut self,
        deadline: Option<Instant>,
        mut on_job: impl FnMut(HandlerId, &Job),
    ) -> Report {
        let unfinished = self.abort_phase(deadline, &mut on_job);
        Report { unfinished, ..self.stop(on_job) }
    }

    /// The names of those that did not finish.
    pub(super) fn abort_phase(
        &mut self,
        deadline: Option<Instant>,
        mut on_job: impl FnMut(HandlerId, &Job),
    ) -> Vec<String> {
        self.announce_abort();
        loop {
            let seen = self.inactive_epoch.now();
            self.poll(&mut on_job);
            let left = self.aborting();
            let now = clock::now();
            if left.is_empty() || deadline.is_some_and(|deadline| now >= deadline) {
                return left;
            }
            // Wakes now and then to keep the records flowing.
            let look_at = now + LOOK_EVERY;
            let until = deadline.map_or(look_at, |deadline| deadline.min(look_at));
            self.inactive_epoch.wait_past(seen, Some(until));
        }
    }

    /// Tells each active handler: to abort, or to be suspended.
    fn announce_abort(&mut self) {
        if let Some(virtual_time) = &self.virtual_time {
            virtual_time.announce_abort();
        }
        for index in 0..self.activities.len() {
            let id = HandlerId(index);
            let Some(activity) = self.activities[index].as_ref() else { continue };
            if !self.is_active(id) {
                continue;
            }
            let (executor, number) = (activity.executor, activity.id);
            if activity.abort_phase {
                self.executors[executor].link.shared.set_aborting(number);
            } else {
                self.post(executor, Control::Suspend { id: number });
            }
        }
        for activity in self.activities.iter().flatten().filter(|known| known.abort_phase) {
            // A task is to look now; a handler is not woken by it. The flag came before.
            let shared = &self.executors[activity.executor].link.shared;
            shared.wake(activity.id);
        }
        // Also for the flags: a handler that runs returns at its next boundary, and is
        // called again with the news.
        for executor in &self.executors {
            executor.link.shared.notifier.notify();
        }
    }

    fn aborting(&self) -> Vec<String> {
        let all = self.activities.iter().enumerate();
        let left = all.filter_map(|(index, activity)| {
            let activity = activity.as_ref()?;
            let waited_for = activity.abort_phase && self.is_active(HandlerId(index));
            waited_for.then(|| activity.name.clone())
        });
        let mut left: Vec<String> = left.collect();
        left.extend(self.virtual_time.iter().flat_map(VirtualTime::aborting));
        left
    }
}
