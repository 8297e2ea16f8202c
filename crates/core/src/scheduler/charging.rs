//! Charges the activities for what they use, and ranks them by what is left of their budgets.
//!
//! [`super::budget`] has the rules. This module tells the policy when the rank of an activity
//! changes, and keeps the moments of the refills in `Scheduler::restores`. An activity is in there
//! if, and only if, it has a job and is over budget.

use super::budget::Budget;
use super::slot::Slot;
use super::{Running, Scheduler};
use crate::activity::ActivityId;
use crate::policy::Ready;
use crate::time::{Instant, Span};

impl Slot {
    /// The oldest job in the form that the policy takes: with the release from which its rank
    /// counts. Under a policy with budgets that is not before the beginning of the window.
    #[inline]
    pub(super) fn standing_job(&self) -> Ready {
        let job = self.oldest();
        match &self.budget {
            Some(budget) => self.ranked_by(budget),
            None => job,
        }
    }

    /// The oldest job with the rank that `budget` gives it.
    #[inline]
    pub(super) fn ranked_by(&self, budget: &Budget) -> Ready {
        self.job_from(budget.rank_from(self.release), budget.is_over())
    }

    /// A job whose rank counts from `release`.
    #[inline]
    pub(super) fn job_from(&self, release: Instant, is_over_budget: bool) -> Ready {
        Ready { release, deadline: release + self.deadline, is_over_budget }
    }
}

impl Scheduler {
    /// Hands the oldest job of an idle activity to the policy.
    pub(super) fn enlist(&mut self, id: ActivityId, now: Instant) {
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        let start = slot.release.max(slot.window_from);
        if let Some(budget) = &mut slot.budget {
            // A window that has expired moves on when the upcall begins.
            self.awaits_idle |= !budget.begin(start);
        }
        let job = slot.standing_job();
        slot.placed = job;
        let restored_at = slot.budget.as_ref().and_then(Budget::over_until);
        self.note_restore(id, restored_at);
        self.policy.ready(id, job, now);
    }

    /// Updates when the activity has a budget again; `None`: it has one.
    #[inline]
    fn note_restore(&mut self, id: ActivityId, restored_at: Option<Instant>) {
        match restored_at {
            Some(at) => self.restores.set(at, id.0),
            None => self.restores.remove(id.0),
        }
    }

    /// Tells the policy if the job of an activity counts from another release, or if the budget is
    /// used or refilled. Returns the job as it was placed before, if its rank changed.
    #[inline]
    fn place_again(&mut self, id: ActivityId, now: Instant) -> Option<Ready> {
        let slot = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut)?;
        let (old, job) = (slot.placed, slot.standing_job());
        // Within its budget an activity has no refill to wait for.
        if job == old && !job.is_over_budget {
            return None;
        }
        slot.placed = job;
        let restored_at = slot.budget.as_ref().and_then(Budget::over_until);
        self.note_restore(id, restored_at);
        if job == old {
            return None;
        }
        self.policy.rerank(id, job, now);
        Some(old)
    }

    /// The upcall of an activity with a job begins: charges it from `from` on. Returns whether its
    /// rank is worse than the one it was picked by, because its window expired meanwhile.
    pub(super) fn begin_charge(&mut self, id: ActivityId, now: Instant, from: Instant) -> bool {
        let Some(budget) = self.budget_mut(id) else { return false };
        if !budget.begin_charge(now, from) {
            return false;
        }
        let Some(old) = self.place_again(id, now) else { return false };
        let key = |job| self.policy.standing(id, job, now).map(|standing| standing.key);
        let job = self.slot(id).map(|slot| slot.placed);
        job.is_ok_and(|job| key(old) < key(job))
    }

    /// Charges the activity that runs, and ranks it by what is left.
    #[inline]
    pub(super) fn charge(&mut self, running: Running, now: Instant) {
        if !running.extra && self.charge_last(running.id, now) {
            self.place_again(running.id, now);
        }
    }

    /// Charges the running activity whose job ends now: it needs no rank any more. Returns whether
    /// its rank may be another one now.
    #[inline]
    pub(super) fn charge_last(&mut self, id: ActivityId, now: Instant) -> bool {
        let Some(budget) = self.budget_mut(id) else { return false };
        let may_change = budget.charge(now);
        let is_in_debt = budget.is_in_debt();
        self.awaits_idle |= is_in_debt;
        may_change
    }

    /// Processes [`super::Input::Interrupted`]. O(1).
    pub(super) fn interrupted(&mut self, length: Span) {
        if let Some(running) = self.running.filter(|running| !running.extra)
            && let Some(budget) = self.budget_mut(running.id)
        {
            budget.excuse(length);
        }
    }

    /// Refills the budgets that are due at `now`.
    #[inline]
    pub(super) fn restore_due(&mut self, now: Instant) {
        while let Some((at, number)) = self.restores.peek().filter(|&(at, _)| at <= now) {
            let id = ActivityId(number);
            // `place_again` takes the activity out, or sets a later moment.
            self.restores.remove(number);
            match self.running.filter(|running| running.id == id) {
                Some(running) => self.charge(running, now),
                None => {
                    if let Some(budget) = self.budget_mut(id) {
                        // As of that moment, even if the driver comes late.
                        budget.advance(at);
                        self.place_again(id, now);
                    }
                }
            }
        }
    }

    #[inline]
    fn budget_mut(&mut self, id: ActivityId) -> Option<&mut Budget> {
        self.slots.get_mut(id.0 as usize)?.as_mut()?.budget.as_mut()
    }

    /// Processes [`super::Input::Idle`]. An activity with a job keeps its budget, and awaits the
    /// next idle moment. That happens if the clock was ahead, so that the job has come for the
    /// scheduler only. O(n).
    pub(super) fn renew_budgets(&mut self, now: Instant) {
        let mut has_work = false;
        for slot in self.slots.iter_mut().flatten() {
            match &mut slot.budget {
                Some(budget) if slot.unfinished == 0 => budget.renew(now),
                Some(_) => has_work = true,
                None => {}
            }
        }
        self.awaits_idle &= has_work;
    }

    /// Processes [`super::Input::PassedOver`]. O(n log n).
    pub(super) fn passed_over(&mut self, now: Instant) {
        self.release_due(now);
        self.awaits_idle = true;
        for number in 0..self.slots.len() {
            let Some(slot) = self.slots[number].as_mut() else { continue };
            let has_work = slot.unfinished > 0;
            let Some(budget) = slot.budget.as_mut() else { continue };
            budget.void(has_work, now);
            if has_work {
                self.place_again(ActivityId(u32::try_from(number).unwrap_or(u32::MAX)), now);
            }
        }
    }
}
