//! No admitted deadline missed: a job for which admission gave a worst response
//! ends within it, or within its deadline if that is shorter.

use super::excuse::Excuse;
use super::{Checker, Promises};
use crate::event::{Event, EventKind};
use crate::spec::SimSpec;
use std::collections::VecDeque;
use upcall_core::time::{Instant, Span};

/// See the module's head.
#[derive(Debug)]
pub struct Deadlines {
    /// Of each activity.
    bounds: Vec<Option<Span>>,
    cpus: Vec<u32>,
    /// Releases of each activity's jobs that have not ended and have no excuse.
    due: Vec<VecDeque<Instant>>,
    excuse: Excuse,
}

impl Deadlines {
    /// For the activities of `spec`, with the bounds of `promises`.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Self {
        let bounds = spec.activities.iter().zip(&promises.response_max);
        Deadlines {
            bounds: bounds
                .map(|(activity, bound)| bound.map(|bound| bound.min(activity.params.deadline)))
                .collect(),
            cpus: spec.activities.iter().map(|activity| activity.cpu).collect(),
            due: vec![VecDeque::new(); spec.activities.len()],
            excuse: Excuse::new(spec, promises.wakeup_latency),
        }
    }

    fn kept(&self, activity: u32, release: Instant, end: Instant) -> Result<(), String> {
        match self.bounds[activity as usize] {
            Some(bound) if end.since(release) > bound && !self.is_excused(activity) => {
                Err(format!(
                    "activity {activity}: the job released at {} ns is {} ns old, admitted were {} ns",
                    release.as_nanos(),
                    end.since(release).as_nanos(),
                    bound.as_nanos()
                ))
            }
            _ => Ok(()),
        }
    }

    fn is_excused(&self, activity: u32) -> bool {
        self.excuse.holds(self.cpus[activity as usize])
    }
}

impl Checker for Deadlines {
    fn name(&self) -> &'static str {
        "deadlines"
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        self.excuse.event(event);
        match event.kind {
            EventKind::Release { activity, .. } => {
                self.due[activity as usize].push_back(event.at);
                Ok(())
            }
            EventKind::JobDone(record) => {
                let activity = record.id.0;
                let release = self.due[activity as usize].pop_front().ok_or_else(|| {
                    format!("activity {activity}: a job ended that was never released")
                })?;
                self.kept(activity, release, event.at)
            }
            EventKind::Leave { activity } => {
                let dropped = core::mem::take(&mut self.due[activity as usize]);
                dropped.into_iter().try_for_each(|release| self.kept(activity, release, event.at))
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        (0u32..).zip(&self.due).try_for_each(|(activity, due)| {
            due.iter().try_for_each(|release| self.kept(activity, *release, end))
        })
    }
}
