//! The facts about a finished job.
//!
//! The scheduler writes records. Live tables, CSV files, histograms and checkers read them. A
//! record has a fixed size and is plain data without references.

use crate::activity::ActivityId;
use crate::time::{Instant, Span};

/// One finished job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// The activity of the job.
    pub id: ActivityId,
    /// Number of the job, counted from 0 at the activity's start.
    pub job: u64,
    /// When the job became ready. Under a policy that works ahead: the logical arrival of its
    /// message, which can be later than `start` and `end`.
    pub release: Instant,
    /// When the job had to be done.
    pub deadline: Instant,
    /// When the handler was first upcalled for the job.
    pub start: Instant,
    /// When the handler returned for the last time. For a job that the policy dropped: when the
    /// policy dropped it, but not before the deadline.
    pub end: Instant,
    /// Time spent inside the handler, preemptions excluded.
    pub run: Span,
    /// PDUs processed.
    pub pdus: u32,
    /// How often the job yielded to an activity of better rank.
    pub preemptions: u32,
    /// Whether the job processed its batch or had nothing left to do. `false` if a suspend or close
    /// cut it short, or if the policy dropped it as lost.
    pub completed: bool,
}

impl JobRecord {
    /// From release to end; zero if the job ended before its release.
    pub fn response(&self) -> Span {
        self.end.since(self.release)
    }

    /// From release to the first upcall; zero if the upcall came before the release.
    pub fn wakeup_latency(&self) -> Span {
        self.start.since(self.release)
    }

    /// Deadline minus end, in nanoseconds; a negative slack is a miss.
    pub fn slack_ns(&self) -> i64 {
        self.deadline.signed_since(self.end)
    }

    /// Whether the job was not done at its deadline: it ended later, or it ended at the deadline
    /// without completing.
    pub fn missed(&self) -> bool {
        self.end > self.deadline || (!self.completed && self.end == self.deadline)
    }
}
