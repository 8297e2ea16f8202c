//! Progress after healing: a while after the last fault has healed every CPU is
//! back to its promises, and everyone who has jobs gets some of them done.
//!
//! Who was promised a response gets one done every few releases. Who was not
//! (an adaptive activity under PS) has what others leave: it may fall behind as
//! far as they like, but is not left out for good.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use upcall_core::time::Instant;

/// As many releases without one job done are no progress.
const DEFER_PREEMPTION: u64 = 3;

/// As many without the CPU once are no turn at all, for who was promised nothing:
/// the longest others have it is a few of their periods, and periods differ by
/// no more than fifteen times in what `vopr` draws.
const LEFT_OUT: u64 = 64;

/// See the module's head.
#[derive(Debug)]
pub struct Progress {
    /// From here on.
    settled: Instant,
    cpus: Vec<u32>,
    /// Of each activity, releases since it was settled or last got on.
    waiting: Vec<u64>,
    /// Of each activity, whether admission gave it a bound.
    promised: Vec<bool>,
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
                if *waiting > DEFER_PREEMPTION && self.promised[activity as usize] {
                    return Err(format!(
                        "activity {activity}: {waiting} releases, and no job got done"
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
        // Those with a promise were looked at release by release. A run lasts long
        // enough for everyone else's turn: see `vopr`.
        let promised = self.promised.iter();
        let left_out = self.waiting.iter().zip(promised).position(|(&w, p)| !p && w > LEFT_OUT);
        if let Some(activity) = left_out {
            let waiting = self.waiting[activity];
            return Err(format!(
                "activity {activity}: {waiting} releases, and it never had the CPU"
            ));
        }
        match self.cpus.iter().find(|cpu| self.settled < end && self.excuse.holds(**cpu)) {
            Some(cpu) => Err(format!("cpu{cpu} never had nothing to do since its faults healed")),
            None => Ok(()),
        }
    }
}
