//! Jobs that were released and have not ended, according to the events.
//!
//! A job ends by its own record or by the record of another job. A policy that drops a late job
//! also drops later jobs that are late too, and reports only the oldest (`completed` is false).
//! Jobs end in order. When an activity leaves, its unfinished jobs are dropped.

use crate::event::{EventKind, SimEvent};
use std::collections::VecDeque;
use upcall_core::time::Instant;

/// A job that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PendingJob {
    pub(crate) activity: u32,
    job: u64,
    pub(crate) release: Instant,
    pub(crate) deadline: Instant,
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) job: PendingJob,
    /// Whether the job was not done at its deadline.
    pub(crate) missed: bool,
}

/// The pending jobs of every activity, the oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Pending(Vec<VecDeque<PendingJob>>);

impl Pending {
    pub(crate) fn new(activities: usize) -> Self {
        Pending(vec![VecDeque::new(); activities])
    }

    /// Handles the next event, and gives every job that ends by it to `ended` until that fails.
    /// Amortized O(1).
    ///
    /// # Errors
    /// The error of `ended`, or a job ended that was never released.
    pub(crate) fn event(
        &mut self,
        event: &SimEvent,
        mut ended: impl FnMut(Ended) -> Result<(), String>,
    ) -> Result<(), String> {
        let at = event.at;
        match event.kind {
            EventKind::Release { activity, job, deadline } => {
                let pending = PendingJob { activity, job, release: at, deadline };
                self.0[activity as usize].push_back(pending);
                Ok(())
            }
            EventKind::Early { activity, job, release, deadline } => {
                let pending = PendingJob { activity, job, release, deadline };
                self.0[activity as usize].push_back(pending);
                Ok(())
            }
            EventKind::JobDone(record) => {
                let jobs = &mut self.0[record.id.0 as usize];
                let mut found = false;
                while let Some(&job) = jobs.front() {
                    let own = job.job == record.job;
                    let with_it = !record.completed && job.deadline <= at;
                    if job.job > record.job && !with_it {
                        break;
                    }
                    found |= own;
                    jobs.pop_front();
                    ended(Ended { job, missed: if own { record.missed() } else { true } })?;
                }
                match found {
                    true => Ok(()),
                    false => Err(format!(
                        "activity {}: job {} ended without a release",
                        record.id.0, record.job
                    )),
                }
            }
            EventKind::Leave { activity } => {
                let dropped = core::mem::take(&mut self.0[activity as usize]);
                dropped
                    .into_iter()
                    .try_for_each(|job| ended(Ended { job, missed: job.deadline < at }))
            }
            _ => Ok(()),
        }
    }

    /// The oldest job of an activity.
    pub(crate) fn oldest(&self, activity: u32) -> Option<PendingJob> {
        self.0[activity as usize].front().copied()
    }

    /// Number of pending jobs of an activity.
    pub(crate) fn count(&self, activity: u32) -> usize {
        self.0[activity as usize].len()
    }

    /// All pending jobs, activity by activity.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PendingJob> + '_ {
        self.0.iter().flatten().copied()
    }
}
