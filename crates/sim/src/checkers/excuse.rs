//! Decides when a CPU is excused from its promises. The excuse begins with a fault that breaks the
//! promises. It ends when the CPU has nothing left to do after the fault has healed. That is when
//! the CPU idles, or upcalls an activity that has no job (DWCS: for an event).
//!
//! By then the accumulated work is done. Later work starts from an empty queue, as admission
//! assumes.
//!
//! A handler that ran during a fault was charged for time that it did not use: a stall, or a step
//! of the clock. Its budget pays that back window by window, and meanwhile the activity runs after
//! all others. Such an activity alone is excused for as many periods as the payment takes.
//!
//! A domain that is blocked or stopped while the others run on excuses only its own activities on
//! that CPU. The excuse lasts until one of them is released while no job of the domain is left.

use super::away::Away;
use super::pending::Pending;
use crate::event::{EventKind, SimEvent};
use crate::fault::Fault;
use crate::spec::{SimActivity, SimSpec};
use std::collections::BTreeMap;
use upcall_core::time::{Instant, Span};

/// The excuses of one run.
#[derive(Clone, Debug)]
pub struct Excuse {
    /// For each fault, whether it breaks promises.
    breaks: Vec<bool>,
    cpus: BTreeMap<u32, CpuExcuse>,
    pending: Pending,
    /// The CPU of each activity.
    places: Vec<u32>,
    /// The domain of each activity.
    domains: Vec<u32>,
    away: Away,
    /// For each activity, whether work may be left from a time when its domain was away.
    behind: Vec<bool>,
    debts: Vec<Debt>,
    /// The largest error of the clock.
    clock_error: Span,
    now: Instant,
}

/// What one activity may owe after a fault.
#[derive(Clone, Copy, Debug)]
struct Debt {
    period: Span,
    /// The budget of a period.
    full: Span,
    /// When its present upcall began or continued.
    runs_since: Instant,
    paid_at: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct CpuExcuse {
    /// Number of active faults.
    faults: u32,
    /// Whether work from a fault may be left.
    aftermath: bool,
}

impl Debt {
    fn of(activity: &SimActivity) -> Self {
        Debt {
            period: activity.params.period,
            full: activity.params.compute(),
            runs_since: Instant::ZERO,
            paid_at: Instant::ZERO,
        }
    }
}

impl Debt {
    /// The activity was charged for `charged` until `now`.
    fn add(&mut self, charged: Span, now: Instant) {
        // The window that is charged, one that may have begun, and one in which the last late job
        // ends.
        let windows = charged.as_nanos() / self.full.as_nanos().max(1) + 3;
        self.paid_at = self.paid_at.max(now + self.period.saturating_mul(windows));
    }
}

fn clock_error(fault: &Fault) -> Span {
    match *fault {
        Fault::ClockForward { by, .. } | Fault::ClockBack { by, .. } => by,
        _ => Span::ZERO,
    }
}

impl Excuse {
    /// Begins without faults. Wake-ups that are late by at most `wakeup_latency` are no fault.
    pub fn new(spec: &SimSpec, wakeup_latency: Span) -> Self {
        let of_cpu = |fault: &Fault| spec.split_level.is_none() || !fault.is_of_one_domain();
        let breaks =
            spec.faults.iter().map(|fault| of_cpu(fault) && fault.breaks_promises(wakeup_latency));
        Excuse {
            breaks: breaks.collect(),
            cpus: BTreeMap::new(),
            pending: Pending::new(spec.activities.len()),
            places: spec.activities.iter().map(|activity| activity.cpu).collect(),
            domains: spec.activities.iter().map(|activity| activity.domain).collect(),
            away: Away::new(spec),
            behind: vec![false; spec.activities.len()],
            debts: spec.activities.iter().map(Debt::of).collect(),
            clock_error: spec.faults.iter().map(clock_error).max().unwrap_or(Span::ZERO),
            now: Instant::ZERO,
        }
    }

    /// Handles the next event.
    pub fn event(&mut self, event: &SimEvent) {
        self.now = event.at;
        self.away.event(event);
        match event.kind {
            EventKind::Upcall { activity, .. } | EventKind::Continue { activity } => {
                self.debts[activity as usize].runs_since = event.at;
            }
            EventKind::Yield { activity, .. } | EventKind::Pause { activity } => {
                self.charge(activity);
            }
            EventKind::JobDone(record) => self.charge(record.id.0),
            EventKind::Idle => {
                let of_cpu = self.debts.iter_mut().zip(&self.places);
                for (debt, _) in of_cpu.filter(|(_, place)| **place == event.cpu) {
                    debt.paid_at = event.at;
                }
            }
            EventKind::DomainAway { .. } => {
                for (activity, behind) in (0..).zip(&mut self.behind) {
                    *behind |= self.away.holds(activity);
                }
            }
            EventKind::Release { activity, .. } => {
                let pays = event.at < self.debts[activity as usize].paid_at;
                if self.behind[activity as usize] && !pays {
                    self.catch_up(activity);
                }
            }
            _ => {}
        }
        // Other checkers report a job that ends without a release.
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

    /// Whether the activity is excused now, with its CPU or alone.
    pub fn holds_for(&self, activity: u32) -> bool {
        self.behind[activity as usize]
            || self.now < self.debts[activity as usize].paid_at
            || self.holds(self.places[activity as usize])
    }

    /// A job of `activity` is released, and its domain is excused.
    fn catch_up(&mut self, activity: u32) {
        let place = |of: u32| (self.places[of as usize], self.domains[of as usize]);
        let all = 0..u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let of_domain: Vec<_> = all.filter(|&of| place(of) == place(activity)).collect();
        let has_left = |&of: &u32| self.away.holds(of) || self.pending.count(of) > 0;
        if !of_domain.iter().any(has_left) {
            of_domain.iter().for_each(|&of| self.behind[of as usize] = false);
        }
    }

    /// An upcall ends or stops in the middle.
    fn charge(&mut self, activity: u32) {
        if self.holds(self.places[activity as usize]) {
            let (now, error) = (self.now, self.clock_error);
            let debt = &mut self.debts[activity as usize];
            debt.add(now.since(debt.runs_since) + error, now);
        }
    }

    /// Whether the CPU is excused now.
    pub fn holds(&self, cpu: u32) -> bool {
        self.cpus.get(&cpu).is_some_and(|cpu| cpu.aftermath)
    }
}
