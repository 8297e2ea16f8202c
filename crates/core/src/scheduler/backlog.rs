//! What becomes of jobs that wait for too long ([`Backlog`]).
//!
//! A job that did not begin in time is dropped before it begins, by the rule of its activity. A
//! dropped job counts as missed and as skipped. The first of the jobs that are dropped at once
//! leaves a record, like a job that DWCS drops. The scheduler looks when jobs are released, when a
//! job ends and when it is about to upcall. A policy that drops late jobs itself (DWCS) has no such
//! backlog.
//!
//! An activity on demand has one job at a time, and the next message is announced by the end of
//! this job. So its late job is not dropped. The job moves to a later period, and the periods
//! between count as jobs that were dropped. The same holds for a job that DWCS drops: its message
//! waits on, and the job of a later period finds it.

use super::Scheduler;
use super::slot::{JOB_FRESH, Slot, end_job};
use crate::activity::{ActivityId, Backlog};
use crate::time::Instant;

impl Slot {
    /// How many jobs from the oldest one on are to be dropped at `now`.
    #[inline]
    fn stale(&self, now: Instant) -> u64 {
        match self.backlog {
            Backlog::CatchUp => 0,
            _ => self.stale_jobs(now),
        }
    }

    fn stale_jobs(&self, now: Instant) -> u64 {
        if self.unfinished == 0 || self.job.start.is_some() {
            return 0;
        }
        let period = self.params.period;
        let periods = match self.backlog {
            Backlog::CatchUp => 0,
            Backlog::Skip => {
                let deadline = self.oldest().deadline;
                if now < deadline { 0 } else { now.since(deadline).whole(period) + 1 }
            }
            Backlog::Latest => now.since(self.release).whole(period),
        };
        if self.on_demand.is_some() {
            return periods;
        }
        let released = self.unfinished - self.ahead.min(self.unfinished);
        let droppable = match self.backlog {
            Backlog::Latest => released.saturating_sub(1),
            _ => released,
        };
        periods.min(droppable)
    }
}

impl Slot {
    /// Counts jobs that were dropped before they began.
    pub(super) fn count_skipped(&mut self, jobs: u64) {
        self.skipped += jobs;
        self.counters.skipped += jobs;
    }
}

impl Scheduler {
    /// Drops the jobs of `id` that are stale at `now`, before the policy has the oldest one.
    /// Returns whether a job is left.
    #[inline]
    pub(super) fn drop_stale(&mut self, id: ActivityId, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        slot.settle(now);
        match slot.stale(now) {
            0 => slot.unfinished > 0,
            jobs => self.drop_oldest(id, jobs, now),
        }
    }

    /// Drops the oldest `jobs` of `id`, of which only the first may have begun. Returns whether a
    /// job is left.
    pub(super) fn drop_oldest(&mut self, id: ActivityId, jobs: u64, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return false;
        };
        if slot.on_demand.is_some() {
            // The periods between count as released; the job itself is the last of them.
            slot.counters.jobs += jobs;
            slot.unfinished += jobs;
        }
        let begun = slot.job.start.is_some();
        let record = end_job(id, slot, now.max(slot.oldest().deadline), false);
        slot.job = JOB_FRESH;
        slot.count_skipped(jobs - u64::from(begun));
        slot.counters.misses += jobs - 1;
        slot.unfinished -= jobs;
        slot.release += slot.params.period.saturating_mul(jobs);
        if slot.lost.is_none() {
            slot.lost = Some(record);
            self.lost.set(record.end, id.0);
        }
        if let Some(gap) = slot.on_demand {
            slot.earliest = slot.release + gap;
            if slot.release > now {
                // The period has not begun: the message arrives then.
                slot.earliest = slot.release;
                (slot.unfinished, slot.next_release) = (0, slot.release);
                slot.counters.jobs -= 1;
                self.releases.set(slot.next_release, id.0);
            }
        }
        slot.unfinished > 0
    }

    /// Whether the oldest job of `id` is to be dropped.
    #[inline]
    pub(super) fn is_stale(&self, id: ActivityId, now: Instant) -> bool {
        self.slot(id).is_ok_and(|slot| slot.stale(now) > 0)
    }

    /// As [`Self::drop_stale`], for an activity whose job the policy has as ready.
    pub(super) fn drop_stale_ready(&mut self, id: ActivityId, now: Instant) {
        if self.is_stale(id, now) {
            self.policy.withdraw(id, now);
            self.restores.remove(id.0);
            if self.drop_stale(id, now) {
                self.enlist(id, now);
            }
        }
    }
}
