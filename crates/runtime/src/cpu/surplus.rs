//! How an executor limits work beyond its budget: by its [`Credit`](super::credit::Credit).
//!
//! An executor in the real-time class has one. In a process without a daemon it sleeps while all
//! ready work is beyond its budget and without credit. Under a daemon the domain then says in its
//! user area that it has no work before a certain moment
//! ([`crate::domain::virtual_processor::VirtualProcessor::set_surplus`]), and others run.

use upcall_core::activity::{ActivityId, ActivityParams};
use upcall_core::time::{Instant, Span};
use upcall_sys::clock;

use super::credit::Credit;
use super::executor::Executor;

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
    /// must wait. O(1), unless the credit is used; then O(peer domains), and under PS and DWCS
    /// O(activities). Under a daemon one system call each 100 ms, or each millisecond while the
    /// credit is used.
    #[inline]
    pub(super) fn surplus_waits(&mut self, now: Instant) -> Option<Instant> {
        let credit = self.credit.as_mut()?;
        credit.earn(now);
        if credit.is_to_settle(now) {
            credit.settle(now, clock::thread_cpu_ns());
        }
        if !credit.is_used() {
            return None;
        }
        if let Some(virtual_processor) = &self.virtual_processor {
            credit.set_domains(virtual_processor.domains());
        }
        let wait = credit.wait();
        self.is_all_surplus(now).then(|| now + wait)
    }

    /// Until when the domain has nothing to run because no work with a reservation is ready, and
    /// the daemon keeps the time for ordinary programs. O(1), and O(activities) while it keeps
    /// time.
    #[inline]
    pub(super) fn unreserved_waits(&self, now: Instant) -> Option<Instant> {
        let (virtual_processor, best) = (self.virtual_processor.as_ref()?, self.scheduler.best()?);
        let from = virtual_processor.unreserved_from(best.id, now)?;
        // The core does not know reservations: the best of it may hide a job that has one, and that
        // is within its budget.
        let all = (0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)).map(ActivityId);
        let mut ready = all.filter(|&id| self.scheduler.unfinished(id) > 0);
        let may_wait = |id| !virtual_processor.is_reserved(id) || self.surplus_from(id, now) <= now;
        ready.all(may_wait).then_some(from)
    }

    /// Whether the core may learn that the CPU idles, by which it forgives debts.
    #[inline]
    pub(super) fn forgives_debts(&self) -> bool {
        self.credit.as_ref().is_none_or(Credit::forgives)
    }

    /// Under a daemon the credit depends on what the activities have reserved. O(activities).
    pub(super) fn update_reservation(&mut self, compute: Span) {
        let (Some(credit), Some(virtual_processor)) = (&mut self.credit, &self.virtual_processor)
        else {
            return;
        };
        let reserved = (0_u32..).map(ActivityId).zip(&self.slots).filter_map(|(id, slot)| {
            let params = slot.params?;
            virtual_processor.is_reserved(id).then_some(params)
        });
        let share_ppm = |params: ActivityParams| {
            params.compute().as_nanos().saturating_mul(1_000_000) / params.period.as_nanos().max(1)
        };
        let reserved_ppm = reserved.map(share_ppm).sum::<u64>() + self.event_share_ppm;
        credit.set_reservation(reserved_ppm, compute);
    }

    /// Whether no work within its budget is ready.
    fn is_all_surplus(&self, now: Instant) -> bool {
        let is_over = |id| self.surplus_from(id, now) <= now;
        let best = self.scheduler.best();
        // The core puts work beyond its budget after all other work.
        if let Some(best) = best.filter(|_| self.core_keeps_budgets) {
            return is_over(best.id);
        }
        if best.is_none() && self.virtual_processor.is_some() {
            return false;
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

    /// The activity ran from `start` to `end`, since `from` beyond its budget. O(1).
    pub(super) fn charge_surplus(
        &mut self,
        id: ActivityId,
        (start, from): (Instant, Instant),
        end: Instant,
    ) {
        let Some(credit) = &mut self.credit else { return };
        let slot = &mut self.slots[id.0 as usize];
        let compute = slot.params.map_or(Span::ZERO, |params| params.compute());
        credit.spend((start, from), end, compute);
        if let (None, Some(params)) = (self.scheduler.budget(id), slot.params) {
            slot.meter.charge(&params, start, end);
        }
    }
}
