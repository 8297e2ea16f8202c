//! Which domains the CPUs pass over, according to the events.

use crate::event::{EventKind, SimEvent};
use crate::spec::SimSpec;

/// The domains that are blocked or stopped.
#[derive(Clone, Debug)]
pub(crate) struct Away {
    /// For each activity, its CPU, its domain, and whether that CPU passes over that domain.
    activities: Vec<(u32, u32, bool)>,
}

impl Away {
    pub(crate) fn new(spec: &SimSpec) -> Self {
        let activities = spec.activities.iter().map(|of| (of.cpu, of.domain, false));
        Away { activities: activities.collect() }
    }

    /// Handles the next event. O(1), or O(activities) if a domain goes away or comes back.
    pub(crate) fn event(&mut self, event: &SimEvent) {
        let (domain, is_away) = match event.kind {
            EventKind::DomainAway { domain } => (domain, true),
            EventKind::DomainBack { domain } => (domain, false),
            _ => return,
        };
        let all = self.activities.iter_mut();
        for place in all.filter(|place| (place.0, place.1) == (event.cpu, domain)) {
            place.2 = is_away;
        }
    }

    /// Whether the CPU of `activity` passes over its domain.
    pub(crate) fn holds(&self, activity: u32) -> bool {
        self.activities[activity as usize].2
    }
}
