//! Checks progress after faults have healed. Some time after the last fault, every CPU keeps its
//! promises again, and every activity with jobs completes some.
//!
//! An activity with a promised response completes a job every few releases. An activity without a
//! promised response (adaptive, under PS) gets the CPU time that others leave. It may fall behind
//! without limit, but must get the CPU at least once in a number of releases.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use upcall_core::time::Instant;

/// Number of releases without a completed job that are allowed to an activity with a promise.
const RELEASES_WITHOUT_JOB_MAX: u64 = 3;

/// Number of releases without any CPU that are allowed to an activity without a promise. Others
/// have the CPU for a few of their periods at most, and the periods that `vopr` draws differ by a
/// factor of fifteen at most.
const RELEASES_WITHOUT_CPU_MAX: u64 = 64;

/// The checker of progress; see the module.
#[derive(Debug)]
pub struct Progress {
    /// The time from which the check applies.
    settled: Instant,
    cpus: Vec<u32>,
    /// For each activity, releases since that time or since its last progress.
    waiting: Vec<u64>,
    /// For each activity, whether admission gave it a bound.
    promised: Vec<bool>,
    excuse: Excuse,
}

impl Progress {
    /// The checker for a run of `spec`. It applies from `promises.settled_after` after the last
    /// fault healed.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Self {
        let healed = spec.faults.iter().map(|fault| fault.window().until).max();
        Progress {
            settled: healed.unwrap_or(Instant::ZERO) + promises.settled_after,
            cpus: spec.cpus.clone(),
            waiting: vec![0; spec.activities.len()],
            promised: promises.response_max.iter().map(Option::is_some).collect(),
            excuse: Excuse::new(spec, promises.wakeup_latency),
        }
    }
}

impl Checker for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.excuse.event(event);
        match event.kind {
            EventKind::Release { activity, .. } if event.at >= self.settled => {
                let waiting = &mut self.waiting[activity as usize];
                *waiting += 1;
                if *waiting > RELEASES_WITHOUT_JOB_MAX && self.promised[activity as usize] {
                    return Err(format!(
                        "activity {activity}: {waiting} releases without a completed job"
                    ));
                }
            }
            EventKind::JobDone(record) => self.waiting[record.id.0 as usize] = 0,
            EventKind::Upcall { activity, .. } if !self.promised[activity as usize] => {
                self.waiting[activity as usize] = 0;
            }
            EventKind::Leave { activity } => self.waiting[activity as usize] = 0,
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        // Activities with a promise were checked at each release. A run is long enough for every
        // other activity to get the CPU: see `vopr`.
        let promised = self.promised.iter();
        let left_out = self
            .waiting
            .iter()
            .zip(promised)
            .position(|(&w, p)| !p && w > RELEASES_WITHOUT_CPU_MAX);
        if let Some(activity) = left_out {
            let waiting = self.waiting[activity];
            return Err(format!("activity {activity}: {waiting} releases without any CPU time"));
        }
        match self.cpus.iter().find(|cpu| self.settled < end && self.excuse.holds(**cpu)) {
            Some(cpu) => Err(format!("cpu{cpu} was never idle after its faults healed")),
            None => Ok(()),
        }
    }
}
