//! Checks work conservation. An awake CPU idles only if no job is ready, and lets no time pass
//! between two handlers.
//!
//! A CPU passes over the jobs of a domain that is blocked or stopped. No other fault excuses a
//! violation, because ready work runs in any case. [`super::no_lost_wakeup`] checks sleeping CPUs.

use super::away::Away;
use super::checker::Checker;
use super::excuse::Excuse;
use super::pending::Pending;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::collections::BTreeMap;
use upcall_core::time::{Instant, Span};

/// The checker of work conservation; see the module.
#[derive(Debug)]
pub struct WorkConserved {
    pending: Pending,
    away: Away,
    /// If domains are processes: one that does not run does not show work beyond its budget.
    excuse: Option<Excuse>,
    cpus: BTreeMap<u32, CpuWork>,
}

#[derive(Clone, Debug, Default)]
struct CpuWork {
    activities: Vec<u32>,
    running: Option<u32>,
    /// The time since which the CPU is awake and runs nothing.
    choosing: Option<Instant>,
}

impl WorkConserved {
    /// The checker for the activities of `spec`.
    pub fn new(spec: &SimSpec) -> Self {
        let mut cpus: BTreeMap<_, _> =
            spec.cpus.iter().map(|&cpu| (cpu, CpuWork::default())).collect();
        for (number, activity) in (0u32..).zip(&spec.activities) {
            cpus.entry(activity.cpu).or_default().activities.push(number);
        }
        let pending = Pending::new(spec.activities.len());
        let excuse = spec.split_level.is_some().then(|| Excuse::new(spec, Span::ZERO));
        WorkConserved { pending, away: Away::new(spec), excuse, cpus }
    }
}

impl Checker for WorkConserved {
    fn name(&self) -> &'static str {
        "work_conserved"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.pending.event(event, |_| Ok(()))?;
        self.away.event(event);
        self.excuse.iter_mut().for_each(|excuse| excuse.event(event));
        let cpu = self.cpus.entry(event.cpu).or_default();
        if let Some(since) = cpu.choosing.filter(|since| *since < event.at) {
            return Err(format!(
                "cpu{} is awake but runs nothing since {} ns",
                event.cpu,
                since.as_nanos()
            ));
        }
        match event.kind {
            EventKind::JobDone(record) if cpu.running == Some(record.id.0) => {
                (cpu.running, cpu.choosing) = (None, Some(event.at));
            }
            EventKind::Yield { activity, .. } if cpu.running == Some(activity) => {
                (cpu.running, cpu.choosing) = (None, Some(event.at));
            }
            EventKind::Pause { .. } => (cpu.running, cpu.choosing) = (None, Some(event.at)),
            EventKind::HandOff { .. } => cpu.choosing = None,
            EventKind::Wake => cpu.choosing = Some(event.at),
            EventKind::Upcall { activity, .. } | EventKind::Continue { activity } => {
                (cpu.running, cpu.choosing) = (Some(activity), None);
            }
            EventKind::Idle => {
                cpu.choosing = None;
                let excused = |a| self.excuse.as_ref().is_some_and(|excuse| excuse.holds_for(a));
                let is_ready =
                    |&&a: &&u32| self.pending.count(a) > 0 && !self.away.holds(a) && !excused(a);
                let ready = cpu.activities.iter().find(is_ready);
                if let Some(activity) = ready {
                    return Err(format!(
                        "cpu{} goes to sleep while activity {activity} is ready",
                        event.cpu
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        // At the very end nothing begins.
        match self.cpus.iter().find(|(_, cpu)| cpu.choosing.is_some_and(|since| since < end)) {
            Some((number, _)) => Err(format!("cpu{number} ran nothing at the end")),
            None => Ok(()),
        }
    }
}
