//! The abort phase: the last upcalls of a handler when its process ends (rtu-1996 §7.3).
//!
//! A handler or task that speaks a protocol must close the connection to its peer. When the process
//! ends in an orderly way, handlers with the phase are upcalled further, with
//! [`Batch::aborting`](crate::Batch::aborting) true, until they finish. Tasks with the phase are
//! polled further, with [`Task::aborting`](crate::Task::aborting) true, until they end. All others
//! are suspended. In the paper the kernel waits for the handlers without limit. Here a bound limits
//! the wait for a handler that never finishes. A process that is killed has no such phase.
//!
//! ```text
//!   active --abort, has the phase--> (1) aborting --finish, panic, suspend--> inactive
//!      \                                  \--bound passed--> (2) left behind
//!       \--abort, has no phase--> suspended
//! ```
//!
//! 1. The handler is upcalled each period as before, so no promise suffers. A task is woken once,
//!    whatever it waits for, and then goes on as before.
//! 2. The handler is ended as [`Runtime::stop`] ends it, and [`Report::unfinished`] names it.

use upcall_core::time::{Instant, Span};

use crate::clock;
use crate::cpu::link::Control;
use crate::id::HandlerId;
use crate::mailbox::Job;
use crate::statistics::Report;
use crate::virtual_time::VirtualTime;

use super::{LOOK_EVERY, Runtime};

/// The bound of the abort phase in a process that panics.
pub(super) const WITHIN_AT_PANIC: Span = Span::from_millis(500);

impl Runtime {
    /// Gives a handler or task an abort phase (rtu-1996 §7.3).
    ///
    /// If a handler with the phase is active when the process ends in an orderly way, it is
    /// upcalled further, with [`Batch::aborting`](crate::Batch::aborting) true, until it calls
    /// [`Batch::finish`](crate::Batch::finish). A task is polled further, with
    /// [`Task::aborting`](crate::Task::aborting) true and its present wait cut short, until it
    /// ends. No effect on a handler that is closed.
    ///
    /// An orderly end is [`Runtime::abort`], or a panic that drops the runtime while it unwinds. In
    /// a panic the phase lasts at most half a second. [`Runtime::stop`] and an ordinary drop are
    /// not the end of the process, and end delivery at once. The program itself must catch signals
    /// and call `abort`.
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
    /// // ... and after SIGTERM was caught:
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

    /// Ends the process's handlers in an orderly way, and returns the report. Waits until
    /// `deadline` for the handlers with an abort phase (`None`: until all have finished). Then it
    /// ends all delivery as [`Runtime::stop`] does. [`Report::unfinished`] names the handlers that
    /// did not finish in time; tasks are dropped. A handler whose next period begins after
    /// `deadline` is not upcalled any more. Blocks at most until `deadline` and half a second more.
    pub fn abort(
        mut self,
        deadline: Option<Instant>,
        mut on_job: impl FnMut(HandlerId, &Job),
    ) -> Report {
        let unfinished = self.abort_phase(deadline, &mut on_job);
        Report { unfinished, ..self.stop(on_job) }
    }

    /// Runs the abort phase. Returns the names of the handlers that did not finish.
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
            // Wakes at intervals to take in records.
            let look_at = now + LOOK_EVERY;
            let until = deadline.map_or(look_at, |deadline| deadline.min(look_at));
            self.inactive_epoch.wait_past(seen, Some(until));
        }
    }

    /// Begins the abort phase of the active handlers that have one, and suspends the others.
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
            // Wakes tasks and handlers of streams; other handlers ignore it. The flag was set
            // before.
            let shared = &self.executors[activity.executor].link.shared;
            shared.wake(activity.id);
        }
        // The flags need the notification too: a handler that runs returns at its next boundary,
        // and is called again with `aborting` true.
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
