//! Checks windows: of the `y` periods of a window, at most `x` are missed.
//!
//! Windows follow each other without overlap, counted in periods from the moment the activity
//! joins: "in a window of T y time units" (ecalls-2001 §2.4). A period is missed if its job ends
//! after its deadline, or never.

use super::checker::{Checker, Promises};
use super::excuse::Excuse;
use super::pending::{Ended, Pending};
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;
use upcall_core::activity::Window;
use upcall_core::time::Instant;

/// The checker of windows; see the module.
#[derive(Debug)]
pub struct Windows {
    periods: Vec<Periods>,
    pending: Pending,
    excuse: Excuse,
}

/// The present window of one activity.
#[derive(Debug)]
struct Periods {
    allowed: Option<Window>,
    cpu: u32,
    passed: u32,
    missed: u32,
    excused: bool,
}

impl Windows {
    /// The checker for the activities of `spec` with a window-constraint.
    pub fn new(spec: &SimSpec, promises: &Promises) -> Self {
        let periods = spec.activities.iter().map(|activity| Periods {
            allowed: activity.terms.window,
            cpu: activity.cpu,
            passed: 0,
            missed: 0,
            excused: false,
        });
        Windows {
            periods: periods.collect(),
            pending: Pending::new(spec.activities.len()),
            excuse: Excuse::new(spec, promises.wakeup_latency),
        }
    }
}

impl Periods {
    /// Counts a job that ended, and with it its period.
    fn pass(&mut self, ended: Ended, excuse: &Excuse) -> Result<(), String> {
        let Some(allowed) = self.allowed else { return Ok(()) };
        self.passed += 1;
        self.missed += u32::from(ended.missed);
        self.excused |= excuse.holds(self.cpu);
        let (missed, broken) = (self.missed, self.missed > allowed.misses && !self.excused);
        if self.passed >= allowed.periods {
            self.restart();
        }
        match broken {
            true => Err(format!(
                "activity {}: {missed} periods missed in a window of {}/{}",
                ended.job.activity, allowed.misses, allowed.periods
            )),
            false => Ok(()),
        }
    }

    fn restart(&mut self) {
        (self.passed, self.missed, self.excused) = (0, 0, false);
    }
}

impl Checker for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn event(&mut self, event: &SimEvent) -> Result<(), String> {
        self.excuse.event(event);
        self.pending.event(event, |ended| {
            self.periods[ended.job.activity as usize].pass(ended, &self.excuse)
        })?;
        if let EventKind::Leave { activity } = event.kind {
            self.periods[activity as usize].restart();
        }
        Ok(())
    }

    fn finish(&mut self, end: Instant) -> Result<(), String> {
        self.pending.iter().try_for_each(|job| {
            let ended = Ended { job, missed: job.deadline < end };
            self.periods[job.activity as usize].pass(ended, &self.excuse)
        })
    }
}
