//! Checks what one activity costs another one (RMDP, RM and DWS; docs/decisions/0016). While a job
//! waits for a time `t`, any other activity with period `T`, budget `C` and longest quantum `q`
//! runs for at most
//!
//! ```text
//! ceil(t/T) C + max(C, q) + q, the hand-offs, and the time of deferred preemption
//! ```
//!
//! - `ceil(t/T)` windows begin in that time.
//! - Before them, either a window has begun, which has at most `C` left. Or the activity is over
//!   budget, and runs a quantum that it began before the job was released. Nobody waited then.
//! - The last quantum may end over budget. Quanta before it that did so were paid by the windows
//!   after them.
//!
//! `q` is the true quantum: no policy without preemption can cut a quantum that is longer than
//! declared.
//!
//! The checker does not look at ranks, so the bound also holds for activities of better rank. It
//! leaves out jobs that may wait behind all others because their own activity is over budget
//! (`over_budget`). A fault excuses a violation, because budgets are charged by the clock.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use super::over_budget::OverBudget;
use super::pending::Pending;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use upcall_core::activity::WorkClass;
use upcall_core::time::{Instant, Span};

/// The checker of interference; see the module.
#[derive(Debug)]
pub struct Interference {
    activities: Vec<Known>,
    pending: Pending,
    /// The running activity of each CPU, and since when.
    running: Vec<(u32, Option<(u32, Instant)>)>,
    over_budget: OverBudget,
    excuse: Excuse,
}

#[derive(Debug)]
struct Known {
    cpu: u32,
    period: Span,
    full: Span,
    /// The longest quantum, by the true cost of a PDU.
    quantum: Span,
    /// The hand-offs of a budget: one for each PDU at most.
    hand_offs: Span,
    is_real_time: bool,
    /// For how long an activity of another domain may go on although this one is better.
    deferral: Span,
    /// The oldest job of this activity at the last look, and how long each activity ran since it
    /// became the oldest.
    job: Option<Instant>,
    of_others: Vec<Span>,
}

impl Interference {
    /// The checker for `spec`; `None` if its policy keeps no budgets.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Option<Self> {
        if !spec.discipline.keeps_budgets() {
            return None;
        }
        let count = spec.activities.len();
        let activities = spec.activities.iter().map(|activity| Known {
            cpu: activity.cpu,
            period: activity.params.period,
            full: activity.params.compute(),
            quantum: activity.quantum_max(),
            hand_offs: spec.switch_cost * (activity.params.batch + 1),
            is_real_time: activity.terms.class == WorkClass::RealTime,
            deferral: spec.split_level.map_or(Span::ZERO, |of| of.defer_preemption),
            job: None,
            of_others: vec![Span::ZERO; count],
        });
        Some(Interference {
            activities: activities.collect(),
            pending: Pending::new(count),
            running: spec.cpus.iter().map(|&cpu| (cpu, None)).collect(),
            over_budget: OverBudget::new(spec),
            excuse: Excuse::new(spec, promises.wakeup_latency),
        })
    }

    /// The present upcall of `cpu` ended or goes on at `now`: adds its time to every job that
    /// waits.
    fn account(&mut self, cpu: u32, now: Instant) -> Result<(), String> {
        let place = self.running.iter_mut().find(|(number, _)| *number == cpu);
        let Some((_, Some((running, since)))) = place else { return Ok(()) };
        let (by, ran) = (*running as usize, now.since(*since));
        *since = now;
        let Known { period, full, quantum, hand_offs, .. } = self.activities[by];
        for (number, known) in (0u32..).zip(&mut self.activities) {
            let oldest = self.pending.oldest(number).map(|job| job.release);
            let Some(release) = oldest.filter(|_| known.cpu == cpu && number as usize != by) else {
                known.job = None;
                continue;
            };
            if known.job.replace(release) != Some(release) {
                known.of_others.fill(Span::ZERO);
            }
            // The job became the oldest after this upcall began, at the earliest at its release.
            known.of_others[by] += ran.min(now.since(release));
            let windows = now.since(release).as_nanos().div_ceil(period.as_nanos());
            // Each quantum of each window may begin with a hand-off.
            let own = full.saturating_mul(windows) + hand_offs.saturating_mul(windows + 1);
            let bound = own + full.max(quantum) + quantum + known.deferral;
            let excused = self.excuse.holds_for(number);
            let checked = known.is_real_time && !self.over_budget.may_hold(number) && !excused;
            if checked && known.of_others[by] > bound {
                return Err(format!(
                    "activity {number}: the job released at {} ns waits, and activity {by} ran for \
                     {} ns meanwhile, at most {} ns are its own",
                    release.as_nanos(),
                    known.of_others[by].as_nanos(),
                    bound.as_nanos()
                ));
            }
        }
        Ok(())
    }

    fn set_running(&mut self, cpu: u32, running: Option<(u32, Instant)>) {
        if let Some(place) = self.running.iter_mut().find(|(number, _)| *number == cpu) {
            place.1 = running;
        }
    }
}

impl Checker for Interference {
    fn name(&self) -> &'static str {
        "interference"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.excuse.event(event);
        match event.kind {
            EventKind::Release { .. }
            | EventKind::Yield { .. }
            | EventKind::Pause { .. }
            | EventKind::JobDone(_) => {
                self.account(event.cpu, event.at)?;
            }
            _ => {}
        }
        match event.kind {
            EventKind::Upcall { activity, .. } | EventKind::Continue { activity } => {
                self.set_running(event.cpu, Some((activity, event.at)));
            }
            EventKind::JobDone(record) => {
                let running = self.running.iter().find(|(cpu, _)| *cpu == event.cpu);
                if running.is_some_and(|(_, by)| by.is_some_and(|(by, _)| by == record.id.0)) {
                    self.set_running(event.cpu, None);
                }
            }
            EventKind::Yield { .. } | EventKind::Pause { .. } | EventKind::Idle => {
                self.set_running(event.cpu, None)
            }
            _ => {}
        }
        self.over_budget.event(event);
        self.pending.event(event, |_| Ok(()))
    }

    fn finish(&mut self, _: Instant) -> Result<(), String> {
        Ok(())
    }
}
