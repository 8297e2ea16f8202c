//! Which activities may be over their budgets, so that they wait behind all others
//! (docs/decisions/0016).
//!
//! An activity that takes more than declared may be over budget at any time. One that keeps to its
//! declaration may be so if it was late: a release found its last job unfinished, so two jobs use
//! one budget. The last quantum may leave a debt to the jobs after them. When the CPU idles, all
//! debts are forgiven.

use super::pending::Pending;
use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;

/// The activities that may be over budget.
#[derive(Clone, Debug)]
pub(crate) struct OverBudget {
    activities: Vec<Activity>,
    pending: Pending,
}

#[derive(Clone, Debug)]
struct Activity {
    cpu: u32,
    keeps_cost: bool,
    is_late: bool,
}

impl OverBudget {
    pub(crate) fn new(spec: &SimSpec) -> Self {
        let activities = spec.activities.iter().map(|activity| Activity {
            cpu: activity.cpu,
            keeps_cost: activity.keeps_cost(),
            is_late: false,
        });
        OverBudget {
            activities: activities.collect(),
            pending: Pending::new(spec.activities.len()),
        }
    }

    /// Handles the next event. O(1), or O(activities) if a CPU idles.
    pub(crate) fn event(&mut self, event: &SimEvent) {
        match event.kind {
            EventKind::Release { activity, .. } => {
                let is_late = self.pending.count(activity) > 0;
                self.activities[activity as usize].is_late |= is_late;
            }
            EventKind::Idle => {
                for (number, activity) in (0..).zip(&mut self.activities) {
                    if activity.cpu == event.cpu && self.pending.count(number) == 0 {
                        activity.is_late = false;
                    }
                }
            }
            _ => {}
        }
        // Other checkers report a job that ends without a release.
        let _ = self.pending.event(event, |_| Ok(()));
    }

    pub(crate) fn may_hold(&self, activity: u32) -> bool {
        let activity = &self.activities[activity as usize];
        activity.is_late || !activity.keeps_cost
    }
}
