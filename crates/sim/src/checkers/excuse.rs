//! When a CPU is excused from its promises: from the beginning of a fault that
//! breaks them, until the CPU has nothing left to do after it healed: until it idles, or
//! upcalls somebody though there is no job (DWCS: for an event).
//!
//! Work that piled up is worked off by then, and what comes later starts from
//! nothing, as admission assumes.

use super::pending::Pending;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::collections::BTreeMap;
use upcall_core::time::Span;

/// Follows the faults of one run.
#[derive(Clone, Debug)]
pub struct Excuse {
    /// Of each fault, whether it breaks promises.
    breaks: Vec<bool>,
    cpus: BTreeMap<u32, CpuExcuse>,
    pending: Pending,
    /// Of each activity, its CPU.
    places: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuExcuse {
    /// Faults that have not healed.
    faults: u32,
    /// Whether work from their time may be left.
    aftermath: bool,
}

impl Excuse {
    /// Nothing is wrong yet. Wake-ups that are late by no more than
    /// `wakeup_latency` never are.
    pub fn new(spec: &SimSpec, wakeup_latency: Span) -> Self {
        let breaks = spec.faults.iter().map(|fault| fault.breaks_promises(wakeup_latency));
        Excuse {
            breaks: breaks.collect(),
            cpus: BTreeMap::new(),
            pending: Pending::new(spec.activities.len()),
            places: spec.activities.iter().map(|activity| activity.cpu).collect(),
        }
    }

    /// Takes in the next event.
    pub fn event(&mut self, event: &SimEvent) {
        // What ended without having been there is for others to find.
        let _ = self.pending.event(event, |_| Ok(()));
        match event.kind {
            EventKind::Fault { index, begins } if self.breaks[index as usize] => {
                let cpu = self.cpus.entry(event.cpu).or_default();
                cpu.aftermath = true;
                cpu.faults = if begins { cpu.faults + 1 } else { cpu.faults.saturating_sub(1) };
            }
            EventKind::Idle | EventKind::Upcall { .. } => {
                let waits = |(activity, cpu): (u32, &u32)| {
                    *cpu == event.cpu && self.pending.count(activity) > 0
                };
                if event.kind != EventKind::Idle
                    && (!self.holds(event.cpu) || (0..).zip(&self.places).any(waits))
                {
                    return;
                }
                if let Some(cpu) = self.cpus.get_mut(&event.cpu).filter(|cpu| cpu.faults == 0) {
                    cpu.aftermath = false;
                }
            }
            _ => {}
        }
    }

    /// Whether the CPU is excused now.
    pub fn holds(&self, cpu: u32) -> bool {
        self.cpus.get(&cpu).is_some_and(|cpu| cpu.aftermath)
    }
}
