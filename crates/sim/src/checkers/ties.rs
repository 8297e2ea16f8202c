//! Checks that events decide ties. Among ready activities of equal rank, no other runs or continues
//! while a more urgent event waits for one of them (RMDP, RM and DWS; ecalls-2001 §2.4).
//!
//! RMDP and RM compare periods, and only events of activities that may win ties count. DWS compares
//! class and deadline (or release, if there is no deadline). An activity that was begun with an
//! event keeps it to the end of its job. DWCS has no such rule: there the needs of windows come
//! before events, which [`super::windows`] checks.
//!
//! Two domains that are processes do not know which of two events of one rank was posted first.
//! Between them the order of admission decides.
//!
//! A domain is chosen when the hand-off to it begins. Events and releases of other domains during
//! the hand-off count at its first boundary. An activity that may be over its budget has no equals
//! that an observer knows (`over_budget`).
//!
//! During a fault of the clock and its aftermath, an observer does not know which ranks the CPU
//! found equal. Such a fault excuses violations like other faults.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use super::over_budget::OverBudget;
use super::pending::{Pending, PendingJob};
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use std::collections::BTreeMap;
use upcall_core::activity::WorkClass;
use upcall_core::discipline::EventTie;
use upcall_core::time::{Instant, Span};

/// The checker of ties; see the module.
#[derive(Debug)]
pub struct Ties {
    equal: EventTie,
    activities: Vec<Standing>,
    pending: Pending,
    /// Number of events posted so far.
    posted: u64,
    /// For each CPU that hands over to another domain, when that began and how many events were
    /// posted by then.
    handing_over: BTreeMap<u32, (Instant, u64)>,
    over_budget: OverBudget,
    excuse: Excuse,
}

#[derive(Clone, Debug)]
struct Standing {
    cpu: u32,
    /// Its domain, if domains are processes.
    domain: Option<u32>,
    period: Span,
    class: WorkClass,
    /// The time from the release of a job to its deadline.
    bound: Span,
    wins_ties: bool,
    /// Rank and number of the waiting events.
    events: Vec<(u64, u64)>,
    /// The event with which its job was begun.
    served: Option<(u64, u64)>,
}

impl Standing {
    /// Its most urgent event, of those that were posted before that number.
    fn event(&self, before: u64) -> Option<(u64, u64)> {
        let waiting = self.events.iter().copied().filter(|(_, posted)| *posted < before);
        waiting.chain(self.served).min().filter(|_| self.wins_ties)
    }
}

impl Ties {
    /// The checker for `spec`; `None` if its policy has no such rule, or if a domain may go on
    /// although another one has a better rank.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Option<Self> {
        if spec.split_level.is_some_and(|of| !of.defer_preemption.is_zero()) {
            return None;
        }
        let equal = spec.discipline.event_tie()?;
        let activities = spec.activities.iter().map(|activity| Standing {
            cpu: activity.cpu,
            domain: spec.split_level.map(|_| activity.domain),
            period: activity.params.period,
            class: activity.terms.class,
            bound: activity.terms.delay_bound.unwrap_or(activity.params.deadline),
            wins_ties: spec.discipline.wins_ties(&activity.terms),
            events: Vec::new(),
            served: None,
        });
        Some(Ties {
            equal,
            activities: activities.collect(),
            pending: Pending::new(spec.activities.len()),
            posted: 0,
            handing_over: BTreeMap::new(),
            over_budget: OverBudget::new(spec),
            excuse: Excuse::new(spec, promises.wakeup_latency),
        })
    }

    /// The key that the policy compares.
    fn key(&self, job: PendingJob) -> (u8, u64) {
        let standing = &self.activities[job.activity as usize];
        let due = |span: Span| (job.release + span).max(Instant::ZERO).as_nanos();
        match (self.equal, standing.class) {
            (EventTie::Period, _) => (0, standing.period.as_nanos()),
            (EventTie::Urgency, WorkClass::RealTime) => (0, due(standing.bound)),
            (EventTie::Urgency, WorkClass::Interactive) => (1, due(Span::ZERO)),
            (EventTie::Urgency, WorkClass::Background) => (3, due(Span::ZERO)),
        }
    }

    fn begun(&mut self, activity: u32) -> Result<(), String> {
        let standing = &self.activities[activity as usize];
        let (cpu, domain, own) = (standing.cpu, standing.domain, standing.event(u64::MAX));
        let chosen = self.handing_over.remove(&cpu).unwrap_or((Instant::FAR, u64::MAX));
        let Some(job) = self.pending.oldest(activity) else { return Ok(()) };
        let key = self.key(job);
        for (number, other) in (0u32..).zip(&self.activities) {
            // A domain knows all of its own, and of others what there was when it was chosen.
            let (by, before) =
                if other.domain == domain { (Instant::FAR, u64::MAX) } else { chosen };
            let Some(event) = other.event(before).filter(|_| other.cpu == cpu) else { continue };
            let job = self.pending.oldest(number).filter(|job| job.release <= by);
            let ties = job.is_some_and(|job| self.key(job) == key);
            let later = own.is_none_or(|own| match other.domain == domain {
                true => event < own,
                false => event.0 < own.0,
            });
            let excused = [activity, number]
                .iter()
                .any(|&of| self.over_budget.may_hold(of) || self.excuse.holds_for(of));
            if number != activity && ties && later && !excused {
                let rank = event.0;
                return Err(format!(
                    "activity {activity} runs, and an event of rank {rank} waits for activity \
                     {number} of equal rank"
                ));
            }
        }
        self.activities[activity as usize].served = own;
        Ok(())
    }
}

impl Checker for Ties {
    fn name(&self) -> &'static str {
        "ties"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.excuse.event(event);
        self.over_budget.event(event);
        self.pending.event(event, |_| Ok(()))?;
        match event.kind {
            EventKind::Posted { activity, rank } => {
                self.activities[activity as usize].events.push((rank, self.posted));
                self.posted += 1;
            }
            EventKind::Taken { activity, events } => {
                let waiting = &mut self.activities[activity as usize].events;
                waiting.sort_unstable();
                let taken = waiting.len().min(events as usize);
                waiting.drain(..taken);
                if taken < events as usize {
                    return Err(format!("activity {activity} took {events} of {taken} events"));
                }
            }
            EventKind::HandOff { .. } => {
                self.handing_over.insert(event.cpu, (event.at, self.posted));
            }
            EventKind::Idle => _ = self.handing_over.remove(&event.cpu),
            EventKind::Upcall { activity, .. } => self.begun(activity)?,
            EventKind::JobDone(record) => self.activities[record.id.0 as usize].served = None,
            EventKind::Leave { activity } => {
                let standing = &mut self.activities[activity as usize];
                standing.events.clear();
                standing.served = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, _: Instant) -> Result<(), String> {
        Ok(())
    }
}
