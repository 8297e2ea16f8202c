//! Progress after healing: a while after the last fault has healed every CPU is
//! back to its promises, and everyone who has jobs gets some of them done.

use super::excuse::Excuse;
use super::{Checker, Promises};
use crate::event::{Event, EventKind};
use crate::spec::SimSpec;
use upcall_core::time::Instant;

/// As many releases without one job done are no progress.
const PATIENCE: u64 = 3;

/// See the module's head.
#[derive(Debug)]
pub struct Progress {
    /// From here on.
    settled: Instant,
    cpus: Vec<u32>,
    /// Of each activity, releases since it was settled or last got on.
    waiting: Vec<u64>,
    excuse: Excuse,
}

impl Progress {
    /// For a run of `spec`; it has settled `promises.settled_after` after the
    /// last fault healed.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Self {
        let healed = spec.faults.iter().map(|fault| fault.window().until).max();
        Progress {
            settled: healed.unwrap_or(Instant::ZERO) + promises.settled_after,
            cpus: spec.cpus.clone(),
            waiting: vec![0; spec.activities.len()],
            excuse: Excuse::new(spec, promises.wakeup_latency),
        }
    }
}

impl Checker for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        self.excuse.event(event);
        match event.kind {
            EventKind::Release { activity, .. } if event.at >= self.settled => {
                let waiting = &mut self.waiting[activity as usize];
                *waiting += 1;
                if *waiting > PATIENCE {
                    return Err(format!(
                        "activity {activity}: {waiting} releases, and no job got done"
                    ));
                }
            }
            EventKind::JobDone(record) => self.waiting[record.id.0 as usize] = 0,
            EventKind::Leave { activity } => self.waiting[activity as usize] = 0,
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        match self.cpus.iter().find(|cpu| self.settled < end && self.excuse.holds(**cpu)) {
            Some(cpu) => Err(format!("cpu{cpu} never had nothing to do since its faults healed")),
            None => Ok(()),
        }
    }
}
