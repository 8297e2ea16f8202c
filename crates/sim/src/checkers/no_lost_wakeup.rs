//! Checks for lost wake-ups. A sleeping CPU wakes for a release, and for a message, within the
//! wake-up latency.
//!
//! A fault that keeps the CPU asleep (late wake-ups, stalls, lost notifications) excuses the CPU
//! only until the fault heals.

use super::away::Away;
use super::checker::Checker;
use super::excuse::Excuse;
use crate::event::{EventKind, SimEvent};
use crate::fault::Fault;
use crate::spec::SimSpec;
use std::collections::BTreeMap;
use upcall_core::time::{Instant, Span};

/// The checker of wake-ups; see the module.
#[derive(Debug)]
pub struct NoLostWakeup {
    wakeup_latency: Span,
    away: Away,
    /// If domains are processes: one that does not run does not show work beyond its budget.
    excuse: Option<Excuse>,
    /// For each fault, whether it keeps a CPU asleep beyond the latency.
    keeps_asleep: Vec<bool>,
    cpus: BTreeMap<u32, CpuSleep>,
}

#[derive(Clone, Copy, Debug)]
struct CpuSleep {
    asleep: bool,
    /// The time since which a release or a message waits for the CPU.
    waited_for: Option<Instant>,
    /// Number of active faults that keep the CPU asleep.
    faults: u32,
}

impl NoLostWakeup {
    /// The checker for the CPUs of `spec`, which may wake late by `wakeup_latency`.
    pub fn new(spec: &SimSpec, wakeup_latency: Span) -> Self {
        let keeps_asleep = spec.faults.iter().map(|fault| match *fault {
            Fault::LateWakeups { by_max, .. } => by_max > wakeup_latency,
            Fault::Stall { .. } | Fault::LostNotifications { .. } => true,
            // The CPU sleeps by its own clock, and releases are emitted by the same clock.
            Fault::NeverYields { .. }
            | Fault::DomainDies { .. }
            | Fault::DomainStops { .. }
            | Fault::HandlerBlocks { .. }
            | Fault::ClockForward { .. }
            | Fault::ClockBack { .. } => false,
        });
        let asleep = CpuSleep { asleep: true, waited_for: None, faults: 0 };
        NoLostWakeup {
            wakeup_latency,
            away: Away::new(spec),
            excuse: spec.split_level.is_some().then(|| Excuse::new(spec, wakeup_latency)),
            keeps_asleep: keeps_asleep.collect(),
            cpus: spec.cpus.iter().map(|&cpu| (cpu, asleep)).collect(),
        }
    }

    /// Checks that every CPU that should have woken before `now` has.
    fn all_woke(&self, now: Instant) -> Result<(), String> {
        for (number, cpu) in &self.cpus {
            if let Some(since) = cpu.waited_for
                && cpu.faults == 0
                && since + self.wakeup_latency < now
            {
                return Err(format!(
                    "cpu{number} sleeps while a job or a message waits since {} ns",
                    since.as_nanos()
                ));
            }
        }
        Ok(())
    }
}

impl Checker for NoLostWakeup {
    fn name(&self) -> &'static str {
        "no_lost_wakeup"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.all_woke(event.at)?;
        self.away.event(event);
        self.excuse.iter_mut().for_each(|excuse| excuse.event(event));
        let excused = |a| self.excuse.as_ref().is_some_and(|excuse| excuse.holds_for(a));
        let Some(cpu) = self.cpus.get_mut(&event.cpu) else {
            return Err(format!("the machine has no cpu{}", event.cpu));
        };
        match event.kind {
            EventKind::Release { activity, .. } | EventKind::Message { activity }
                if cpu.asleep && !self.away.holds(activity) && !excused(activity) =>
            {
                cpu.waited_for.get_or_insert(event.at);
            }
            EventKind::Wake => (cpu.asleep, cpu.waited_for) = (false, None),
            EventKind::Idle => cpu.asleep = true,
            EventKind::Fault { index, begins } if self.keeps_asleep[index as usize] => {
                cpu.faults = if begins { cpu.faults + 1 } else { cpu.faults.saturating_sub(1) };
                // From the fault's end the CPU again has the whole latency.
                cpu.waited_for = cpu.waited_for.map(|_| event.at);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        self.all_woke(end)
    }
}
