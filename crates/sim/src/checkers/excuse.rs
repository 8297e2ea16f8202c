//! When a CPU is excused from its promises: from the beginning of a fault that
//! breaks them, until the CPU has nothing left to do after it healed.
//!
//! Work that piled up is worked off by then, and what comes later starts from
//! nothing, as admission assumes.

use crate::event::{Event, EventKind};
use crate::spec::SimSpec;
use std::collections::BTreeMap;
use upcall_core::time::Span;

/// Follows the faults of one run.
#[derive(Clone, Debug)]
pub struct Excuse {
    /// Of each fault, whether it breaks promises.
    breaks: Vec<bool>,
    cpus: BTreeMap<u32, CpuExcuse>,
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
        Excuse { breaks: breaks.collect(), cpus: BTreeMap::new() }
    }

    /// Takes in the next event.
    pub fn event(&mut self, event: &Event) {
        match event.kind {
            EventKind::Fault { index, begins } if self.breaks[index as usize] => {
                let cpu = self.cpus.entry(event.cpu).or_default();
                cpu.aftermath = true;
                cpu.faults = if begins { cpu.faults + 1 } else { cpu.faults.saturating_sub(1) };
            }
            EventKind::Idle => {
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
