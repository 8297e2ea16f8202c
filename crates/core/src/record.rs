//! What is known of a job when it has finished.
//!
//! Written by the scheduler, read by whoever reports: live tables, CSV,
//! histograms, checkers. Fixed size, plain data, no references.

use crate::activity::ActivityId;
use crate::time::{Instant, Span};

/// One finished job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Whose job it was.
    pub id: ActivityId,
    /// Number of the job, counted from 0 at the activity's start.
    pub job: u64,
    /// When the job became ready; under a policy that works ahead, the logical
    /// arrival of its message, which `start` and `end` may come before.
    pub release: Instant,
    /// When it had to be done.
    pub deadline: Instant,
    /// When its handler was upcalled first.
    pub start: Instant,
    /// When its handler returned for the last time; of a job that the policy
    /// dropped, when it did, but not before the deadline.
    pub end: Instant,
    /// Time spent inside the handler, preemptions excluded.
    pub run: Span,
    /// PDUs processed.
    pub pdus: u32,
    /// How often the job yielded to an activity of better rank.
    pub preemptions: u32,
    /// Whether it processed its batch or had nothing left to do; `false` if it
    /// was cut short by a suspend or close, or dropped as lost.
    pub completed: bool,
}

impl JobRecord {
    /// From release to end; zero if it ended before.
    pub fn response(&self) -> Span {
        self.end.since(self.release)
    }

    /// From release to the first upcall; zero if that came before.
    pub fn wakeup_latency(&self) -> Span {
        self.start.since(self.release)
    }

    /// Deadline minus end, in nanoseconds; negative is a miss.
    pub fn slack_ns(&self) -> i64 {
        self.deadline.signed_since(self.end)
    }

    /// Whether the job was not done at its deadline: it ended later, or just
    /// then without being completed.
    pub fn missed(&self) -> bool {
        self.end > self.deadline || (!self.completed && self.end == self.deadline)
    }
}
