//! Work conserved: a CPU that is awake idles only if no job is ready, and lets
//! no time pass between one handler and the next.
//!
//! There is no excuse from it: whatever goes wrong, what can run runs. A CPU
//! that sleeps is the matter of [`super::no_lost_wakeup`].

use super::Checker;
use crate::event::{Event, EventKind};
use crate::spec::SimSpec;
use std::collections::BTreeMap;
use upcall_core::time::Instant;

/// See the module's head.
#[derive(Debug)]
pub struct WorkConserved {
    /// Jobs of each activity that were released and have not ended.
    unfinished: Vec<u64>,
    cpus: BTreeMap<u32, CpuWork>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuWork {
    unfinished: u64,
    running: Option<u32>,
    /// Since when it is awake and runs nothing.
    choosing: Option<Instant>,
}

impl WorkConserved {
    /// For the activities of `spec`.
    pub fn new(spec: &SimSpec) -> Self {
        WorkConserved {
            unfinished: vec![0; spec.activities.len()],
            cpus: spec.cpus.iter().map(|&cpu| (cpu, CpuWork::default())).collect(),
        }
    }
}

impl Checker for WorkConserved {
    fn name(&self) -> &'static str {
        "work_conserved"
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        let cpu = self.cpus.entry(event.cpu).or_default();
        if let Some(since) = cpu.choosing.filter(|since| *since < event.at) {
            return Err(format!("cpu{} runs nothing since {} ns", event.cpu, since.as_nanos()));
        }
        match event.kind {
            EventKind::Release { activity, .. } => {
                self.unfinished[activity as usize] += 1;
                cpu.unfinished += 1;
            }
            EventKind::JobDone(record) => {
                let unfinished = &mut self.unfinished[record.id.0 as usize];
                if *unfinished == 0 {
                    return Err(format!("activity {}: a job too many ended", record.id.0));
                }
                *unfinished -= 1;
                cpu.unfinished -= 1;
                if cpu.running == Some(record.id.0) {
                    (cpu.running, cpu.choosing) = (None, Some(event.at));
                }
            }
            EventKind::Yield { .. } => (cpu.running, cpu.choosing) = (None, Some(event.at)),
            EventKind::Leave { activity } => {
                cpu.unfinished -= core::mem::take(&mut self.unfinished[activity as usize]);
            }
            EventKind::Wake => cpu.choosing = Some(event.at),
            EventKind::Upcall { activity, .. } => {
                (cpu.running, cpu.choosing) = (Some(activity), None);
            }
            EventKind::Idle => {
                cpu.choosing = None;
                if cpu.unfinished > 0 {
                    let ready = cpu.unfinished;
                    return Err(format!("cpu{} goes to sleep with {ready} jobs ready", event.cpu));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        // At the very end nothing is begun.
        match self.cpus.iter().find(|(_, cpu)| cpu.choosing.is_some_and(|since| since < end)) {
            Some((number, _)) => Err(format!("cpu{number} ran nothing at the end")),
            None => Ok(()),
        }
    }
}
