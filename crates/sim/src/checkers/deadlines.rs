//! Checks admitted deadlines. A job for which admission gave a worst response ends within it, or
//! within its deadline if that is shorter.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use super::pending::{Pending, PendingJob};
use crate::event::SimEvent;
use crate::spec::SimSpec;
use upcall_core::time::{Instant, Span};

/// The checker of deadlines; see the module.
#[derive(Debug)]
pub struct Deadlines {
    bounds: Bounds,
    pending: Pending,
}

#[derive(Debug)]
struct Bounds {
    /// The bound of each activity.
    longest: Vec<Option<Span>>,
    excuse: Excuse,
}

impl Deadlines {
    /// The checker for the activities of `spec`, with the bounds of `promises`.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Self {
        let bounds = spec.activities.iter().zip(&promises.response_max);
        let longest = bounds
            .map(|(activity, bound)| bound.map(|bound| bound.min(activity.params.deadline)))
            .collect();
        let excuse = Excuse::new(spec, promises.wakeup_latency);
        Deadlines {
            bounds: Bounds { longest, excuse },
            pending: Pending::new(spec.activities.len()),
        }
    }
}

impl Bounds {
    /// Checks `job`, which ended at `end` or had not ended by then.
    fn check(&self, job: PendingJob, end: Instant) -> Result<(), String> {
        let activity = job.activity as usize;
        match self.longest[activity] {
            Some(longest)
                if end.since(job.release) > longest && !self.excuse.holds_for(job.activity) =>
            {
                Err(format!(
                    "activity {activity}: the job released at {} ns is {} ns old, admitted were \
                     {} ns",
                    job.release.as_nanos(),
                    end.since(job.release).as_nanos(),
                    longest.as_nanos()
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Checker for Deadlines {
    fn name(&self) -> &'static str {
        "deadlines"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.bounds.excuse.event(event);
        self.pending.event(event, |ended| self.bounds.check(ended.job, event.at))
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        self.pending.iter().try_for_each(|job| self.bounds.check(job, end))
    }
}
