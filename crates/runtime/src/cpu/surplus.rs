//! How an executor limits work beyond its budget: by its [`Credit`](super::credit::Credit).
//!
//! Only an executor that has the real-time class by its process' own right has one. Under a daemon
//! the daemon compares what a domain uses with its reservation.

use upcall_core::activity::ActivityId;
use upcall_core::time::{Instant, Span};

use super::executor::Executor;
use crate::watchdog;

/// The part of an upcall that is beyond the budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surplus {
    /// When it begins if the activity runs for so long.
    pub(super) from: Instant,
    /// When the handler must return, at its next boundary, because the credit is used.
    pub(super) return_at: Instant,
}

impl Executor {
    /// The part of an upcall from `start` on that is beyond the budget. O(1).
    #[inline]
    pub(super) fn surplus(&self, id: ActivityId, start: Instant) -> Surplus {
        let Some(credit) = &self.credit else {
            return Surplus { from: Instant::FAR, return_at: Instant::FAR };
        };
        let from = self.surplus_from(id, start);
        Surplus { from, return_at: from + credit.left() }
    }

    /// Until when to sleep although work may be ready, because all of that is beyond its budget and
    /// must wait. A comparison, unless the credit is used; then O(1) under RMDP, RM and DWS, and
    /// O(activities) under PS and DWCS.
    #[inline]
    pub(super) fn surplus_waits(&self, now: Instant) -> Option<Instant> {
        let credit = self.credit.as_ref().filter(|credit| credit.is_used())?;
        self.is_all_surplus(now).then(|| now + credit.wait())
    }

    /// Whether no work within its budget is ready.
    fn is_all_surplus(&self, now: Instant) -> bool {
        let is_over = |id| self.surplus_from(id, now) <= now;
        if let Some(best) = self.scheduler.best() {
            return is_over(best.id);
        }
        let all = 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        all.map(ActivityId).all(|id| self.scheduler.unfinished(id) == 0 || is_over(id))
    }

    /// When the activity goes beyond its budget if it runs from `start` on. O(1).
    fn surplus_from(&self, id: ActivityId, start: Instant) -> Instant {
        let left = self.scheduler.budget(id).map(|state| state.left).or_else(|| {
            let slot = &self.slots[id.0 as usize];
            slot.params.map(|params| slot.meter.left(&params, start))
        });
        start + left.unwrap_or_default()
    }

    /// The activity ran from `start` to `end`, since `from` beyond its budget. An upcall that takes
    /// longer than the watchdog lets it run was blocked: only the CPU time that it may have used
    /// counts. O(1).
    pub(super) fn charge_surplus(
        &mut self,
        id: ActivityId,
        (start, from): (Instant, Instant),
        end: Instant,
    ) {
        let Some(credit) = &mut self.credit else { return };
        let slot = &mut self.slots[id.0 as usize];
        if end > from {
            let compute = slot.params.map_or(Span::ZERO, |params| params.compute());
            credit.spend(end.since(from).min(compute.max(watchdog::GRACE)));
        }
        if let (None, Some(params)) = (self.scheduler.budget(id), slot.params) {
            slot.meter.charge(&params, start, end);
        }
    }
}
