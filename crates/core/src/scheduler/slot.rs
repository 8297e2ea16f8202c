//! One activity of a scheduler: its parameters, its jobs and its counters.
//!
//! Only [`super`] uses this module. A slot has no access to the policy or to other activities.

use super::budget::Budget;
use crate::activity::{ActivityId, ActivityParams, Backlog};
use crate::policy::Ready;
use crate::record::JobRecord;
use crate::time::{Instant, Span};

/// The counters of one activity since its creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Jobs released, or ready before their releases.
    pub jobs: u64,
    /// Jobs completed, late ones included.
    pub completed: u64,
    /// Jobs that ended after their deadline, or that have not ended by their deadline.
    pub misses: u64,
    /// Releases at which the previous job was unfinished.
    pub overruns: u64,
    /// Yields to an activity of better rank.
    pub preemptions: u64,
    /// PDUs processed.
    pub pdus: u64,
    /// Least slack of an ended job; `i64::MAX` before the first.
    pub slack_ns_min: i64,
    /// Longest response of an ended job.
    pub response_max: Span,
    /// Jobs that were dropped before they began ([`crate::activity::Backlog`], DWCS). All of them
    /// count in `misses`.
    pub skipped: u64,
}

impl Counters {
    pub(super) const NONE: Counters = Counters {
        jobs: 0,
        completed: 0,
        misses: 0,
        overruns: 0,
        preemptions: 0,
        pdus: 0,
        slack_ns_min: i64::MAX,
        response_max: Span::ZERO,
        skipped: 0,
    };
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) params: ActivityParams,
    /// The time from release to deadline, as the policy defines it.
    pub(super) deadline: Span,
    pub(super) active: bool,
    /// The release of the oldest job that has not ended. Meaningful while `unfinished > 0`.
    pub(super) release: Instant,
    /// The next release. On demand: the logical arrival of the announced message, which may be
    /// after the moment when the job is ready; `FAR` without a message.
    pub(super) next_release: Instant,
    /// `Some` for an activity on demand, whose releases follow by `Message` and not by the period.
    /// The value is the least time between two logical arrivals; 0 for an activity without a
    /// promise.
    pub(super) on_demand: Option<Span>,
    /// On demand: the earliest logical arrival that the declared rate allows.
    pub(super) earliest: Instant,
    /// Jobs that are released or came early, and have not ended.
    pub(super) unfinished: u64,
    /// How many of the unfinished jobs came early and had not reached their releases at the last
    /// check. They are the last jobs.
    pub(super) ahead: u64,
    pub(super) job: Job,
    /// The oldest job as the policy knows it. Meaningful while `unfinished > 0`.
    pub(super) placed: Ready,
    /// `None` if the policy keeps no budget for the activity.
    pub(super) budget: Option<Budget>,
    /// The budget's window does not begin before this moment. On demand: when the message was
    /// announced, if that was late.
    pub(super) window_from: Instant,
    /// When the last job ended.
    pub(super) ended: Instant,
    pub(super) backlog: Backlog,
    /// Jobs that were dropped since the last one began.
    pub(super) skipped: u64,
    pub(super) counters: Counters,
    /// The record of a dropped job that was not reported yet. The scheduler reports it when nothing
    /// runs, because the driver of a running handler expects only the reply to that handler.
    pub(super) lost: Option<JobRecord>,
}

impl Slot {
    /// The counters, with the unfinished jobs that are late at `now` counted as missed.
    pub(super) fn counters_at(&self, now: Instant) -> Counters {
        let mut counters = self.counters;
        counters.overruns += self.reached(now).1;
        let oldest_due = self.oldest().deadline;
        if self.unfinished > 0 && oldest_due < now {
            let late_ns = now.since(oldest_due).as_nanos() - 1;
            let overdue = (late_ns / self.params.period.as_nanos() + 1).min(self.unfinished);
            counters.misses += overdue;
            counters.slack_ns_min = counters.slack_ns_min.min(oldest_due.signed_since(now));
            counters.response_max = counters.response_max.max(now.since(self.release));
        }
        counters
    }

    /// The oldest unfinished job, in the form that the policy takes.
    pub(super) fn oldest(&self) -> Ready {
        Ready::new(self.release, self.release + self.deadline)
    }

    /// Adds `count` jobs, the first of which is released at `at`. Returns whether this first job is
    /// now the oldest one.
    pub(super) fn add_jobs(&mut self, count: u64, at: Instant) -> bool {
        let idle = self.unfinished == 0;
        if idle {
            self.release = at;
        }
        self.unfinished += count;
        self.counters.jobs += count;
        self.next_release = at + self.params.period.saturating_mul(count);
        if let Some(gap) = self.on_demand {
            (self.next_release, self.earliest) = (Instant::FAR, at + gap);
        }
        idle
    }

    /// How many of the early jobs have releases before `now`, and at how many of these releases the
    /// previous job was unfinished.
    pub(super) fn reached(&self, now: Instant) -> (u64, u64) {
        if self.ahead == 0 {
            return (0, 0);
        }
        let before = self.unfinished - self.ahead;
        let first = self.release + self.params.period.saturating_mul(before);
        let since_ns = now.since(first).as_nanos();
        if since_ns == 0 {
            return (0, 0);
        }
        let reached = ((since_ns - 1) / self.params.period.as_nanos() + 1).min(self.ahead);
        (reached, reached - u64::from(before == 0))
    }

    /// Counts the early jobs whose releases are before `now`.
    #[inline]
    pub(super) fn settle(&mut self, now: Instant) {
        if self.ahead == 0 {
            return;
        }
        let (reached, overruns) = self.reached(now);
        self.ahead -= reached;
        self.counters.overruns += overruns;
    }

    /// Advances to the job after the oldest one, which ended at `now`.
    pub(super) fn next_job(&mut self, now: Instant) {
        self.settle(now);
        self.ended = now;
        self.unfinished -= 1;
        self.ahead = self.ahead.min(self.unfinished);
        self.release += self.params.period;
        self.job = JOB_FRESH;
    }
}

/// The progress of the oldest unfinished job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) start: Option<Instant>,
    pub(super) run: Span,
    pub(super) pdus: u32,
    pub(super) preemptions: u32,
    /// Jobs that were dropped between the one before and this one.
    pub(super) skipped: u64,
}

pub(super) const JOB_FRESH: Job =
    Job { start: None, run: Span::ZERO, pdus: 0, preemptions: 0, skipped: 0 };

#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub(super) id: ActivityId,
    pub(super) since: Instant,
    pub(super) pdus_max: u32,
    /// Whether the activity was upcalled without a job.
    pub(super) extra: bool,
    /// Set by `Suspend` and `Close`.
    pub(super) stop: Option<Stop>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Suspend,
    Close,
}

/// Counts the end of the oldest unfinished job, and returns its record.
pub(super) fn end_job(id: ActivityId, slot: &mut Slot, end: Instant, completed: bool) -> JobRecord {
    let record = JobRecord {
        id,
        job: slot.counters.jobs - slot.unfinished,
        release: slot.release,
        deadline: slot.oldest().deadline,
        start: slot.job.start.unwrap_or(end),
        end,
        run: slot.job.run,
        pdus: slot.job.pdus,
        preemptions: slot.job.preemptions,
        completed,
    };
    let counters = &mut slot.counters;
    if completed {
        counters.completed += 1;
    }
    // A job that was cut short broke no promise, unless it was late already.
    if record.missed() {
        counters.misses += 1;
    }
    if completed || record.missed() {
        counters.slack_ns_min = counters.slack_ns_min.min(record.slack_ns());
        counters.response_max = counters.response_max.max(record.response());
    }
    record
}
