//! Windows kept: of the `y` periods of a window, at most `x` are missed.
//!
//! Windows follow each other without overlap, counted in periods from the
//! moment the activity joins: "in a window of T y time units" (ecalls-2001
//! §2.4). A period is missed if its job ends after its deadline, or not at all.

use super::excuse::Excuse;
use super::{Checker, Promises};
use crate::event::{Event, EventKind};
use crate::spec::SimSpec;
use std::collections::VecDeque;
use upcall_core::activity::Window;
use upcall_core::time::Instant;

/// See the module's head.
#[derive(Debug)]
pub struct Windows {
    activities: Vec<Periods>,
    excuse: Excuse,
}

#[derive(Debug)]
struct Periods {
    allowed: Option<Window>,
    cpu: u32,
    /// Jobs that have not ended: their deadlines.
    due: VecDeque<Instant>,
    /// Of the present window.
    passed: u32,
    missed: u32,
    excused: bool,
}

impl Windows {
    /// For the activities of `spec` that have a window-constraint.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Self {
        let activities = spec.activities.iter().map(|activity| Periods {
            allowed: activity.terms.window,
            cpu: activity.cpu,
            due: VecDeque::new(),
            passed: 0,
            missed: 0,
            excused: false,
        });
        Windows {
            activities: activities.collect(),
            excuse: Excuse::new(spec, promises.wakeup_latency),
        }
    }

    /// The oldest job of `activity` ended, or did not, by `end`.
    fn period(&mut self, activity: u32, end: Instant) -> Result<(), String> {
        let periods = &mut self.activities[activity as usize];
        let Some(deadline) = periods.due.pop_front() else { return Ok(()) };
        let Some(allowed) = periods.allowed else { return Ok(()) };
        periods.passed += 1;
        periods.missed += u32::from(end > deadline);
        periods.excused |= self.excuse.holds(periods.cpu);
        let broken = periods.missed > allowed.misses && !periods.excused;
        let missed = periods.missed;
        if periods.passed >= allowed.periods {
            periods.restart();
        }
        match broken {
            true => Err(format!(
                "activity {activity}: {missed} periods missed in a window of {}/{}",
                allowed.misses, allowed.periods
            )),
            false => Ok(()),
        }
    }
}

impl Periods {
    fn restart(&mut self) {
        (self.passed, self.missed, self.excused) = (0, 0, false);
    }
}

impl Checker for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn event(&mut self, event: &Event) -> Result<(), String> {
        self.excuse.event(event);
        match event.kind {
            EventKind::Release { activity, deadline, .. } => {
                self.activities[activity as usize].due.push_back(deadline);
                Ok(())
            }
            EventKind::JobDone(record) => self.period(record.id.0, event.at),
            EventKind::Leave { activity } => {
                while !self.activities[activity as usize].due.is_empty() {
                    self.period(activity, event.at)?;
                }
                self.activities[activity as usize].restart();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        for activity in (0u32..).take(self.activities.len()) {
            while !self.activities[activity as usize].due.is_empty() {
                self.period(activity, end)?;
            }
        }
        Ok(())
    }
}
