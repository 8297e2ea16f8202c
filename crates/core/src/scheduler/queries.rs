//! The queries that a driver may make. No query changes the scheduler.

use super::Scheduler;
use super::budget::{Budget, BudgetState};
use super::slot::Counters;
use crate::activity::ActivityId;
use crate::policy::Standing;
use crate::time::{Instant, Span};

#[cfg(doc)]
use crate::policy::Policy;

impl Scheduler {
    /// The activity that would be upcalled now, as of the last [`Scheduler::handle`], and its key
    /// in the order of all domains. `None` if none is ready, or under a policy without such an
    /// order. O(1).
    pub fn best(&self) -> Option<Standing> {
        self.policy.best()
    }

    /// When the rank of `id` changes next, and the key it will have then (split-level-1991 §3.2.2:
    /// the table of workahead and sleeping processes). That is its next release, the logical
    /// arrival of a message that came early, or the refill of its budget. `None` if `id` is not
    /// active, or under a policy without an order of all domains. O(1).
    pub fn upcoming(&self, id: ActivityId) -> Option<(Instant, Standing)> {
        let slot = self.slot(id).ok().filter(|slot| slot.active)?;
        let ahead = slot.unfinished > 0 && slot.release > self.clock;
        let mut at = if ahead { slot.release } else { slot.next_release };
        if let Some(budget) = slot.budget {
            at = match budget.over_until().filter(|_| slot.unfinished > 0) {
                Some(restored_at) => restored_at,
                None if at < Instant::FAR => budget.ranked_from(at),
                None => at,
            };
        }
        Some((at, self.policy.standing(id, slot.job_from(at, false), at)?))
    }

    /// When the next job of `id` is released, and the key that it will have then, if the activity
    /// has no job and will be over budget. The job gets its own rank at [`Scheduler::upcoming`],
    /// which is later. O(1).
    pub fn upcoming_over_budget(&self, id: ActivityId) -> Option<(Instant, Standing)> {
        let slot = self.slot(id).ok().filter(|slot| slot.active && slot.unfinished == 0)?;
        let at = slot.next_release;
        let budget = slot.budget.filter(|_| at < Instant::FAR)?.at_begin(at);
        budget.over_until()?;
        let job = slot.job_from(budget.rank_from(at), true);
        Some((at, self.policy.standing(id, job, at)?))
    }

    /// PS, for a scheduler with a [`super::Input::DomainShare`]: for how long its domain requests
    /// the CPU, as of the last [`Scheduler::handle`]. `None` if nothing is ready, or while a
    /// handler runs. A job that is released later requests [`Scheduler::request_at_release`]; the
    /// domain then requests the longer one. O(1).
    pub fn domain_request(&self) -> Option<Span> {
        self.domain_request.filter(|_| self.running.is_none())
    }

    /// PS: when the next job of `id` is released, and the length of its first request. `None` as
    /// for [`Scheduler::release_of`], and under other policies. O(1).
    pub fn request_at_release(&self, id: ActivityId) -> Option<(Instant, Span)> {
        let at = self.release_of(id)?;
        Some((at, self.policy.request_at_release(id)?))
    }

    /// When `id` would be released first, but for its offset, if it were run from `at` on, `now`.
    /// It is `at`, unless the domains of the CPU align their releases. O(1).
    pub fn first_release(&self, id: ActivityId, at: Instant, now: Instant) -> Instant {
        if self.slot(id).is_ok() { self.policy.first_release(id, at, now) } else { at }
    }

    /// PS: whether the handler that ran last returned within its request, which goes on. So its
    /// domain keeps the CPU. O(1).
    pub fn is_within_request(&self) -> bool {
        self.policy.is_within_request()
    }

    /// When the next job of `id` is released. On demand: the logical arrival of the announced
    /// message. `None` if that is not known, or if `id` is not active. O(1).
    pub fn release_of(&self, id: ActivityId) -> Option<Instant> {
        let slot = self.slot(id).ok().filter(|slot| slot.active)?;
        Some(slot.next_release).filter(|&at| at < Instant::FAR)
    }

    /// The release of the oldest job of `id` that has not ended. The release lies in the future if
    /// the job came early. `None` without a job. O(1).
    pub fn pending_since(&self, id: ActivityId) -> Option<Instant> {
        let slot = self.slot(id).ok().filter(|slot| slot.unfinished > 0)?;
        Some(slot.release)
    }

    /// Jobs of `id` that have not ended, those that came early included. 0 if there is no such
    /// activity. O(1).
    pub fn unfinished(&self, id: ActivityId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.unfinished)
    }

    /// The key of the running activity at `now`; `None` as for [`Scheduler::best`]. The key changes
    /// by the passing of time alone where work ahead becomes critical or a budget is used. Its
    /// event is the one with which the job began, even if that event was taken since. A later event
    /// counts at the next pick. O(1).
    pub fn running_standing(&self, now: Instant) -> Option<Standing> {
        let running = self.running.as_ref()?;
        let slot = self.slot(running.id).ok()?;
        let now = now.max(self.clock);
        let job = match slot.budget {
            Some(mut budget) => {
                budget.charge(now);
                slot.ranked_by(&budget)
            }
            None => slot.oldest(),
        };
        let standing = self.policy.standing(running.id, job, now)?;
        let of_service = self.policy.running_key(running.id, running.since, now);
        let key = of_service.unwrap_or(standing.key);
        Some(Standing { key, event: self.policy.served(running.id), ..standing })
    }

    /// The budget of `id`, as of its last charge. `None` if the policy keeps no budget for it.
    /// O(1).
    pub fn budget(&self, id: ActivityId) -> Option<BudgetState> {
        self.slot(id).ok()?.budget.as_ref().map(Budget::state)
    }

    /// Whether [`super::Input::Idle`] has an effect: an activity may have used more than its
    /// budget, or its windows may not begin with its releases. O(1).
    pub fn awaits_idle(&self) -> bool {
        self.awaits_idle
    }

    /// How many jobs of the running activity were dropped between its last job and the present one
    /// ([`crate::activity::Backlog`]). 0 if nothing runs. O(1).
    pub fn jobs_skipped(&self) -> u64 {
        let slot = self.running.and_then(|running| self.slot(running.id).ok());
        slot.map_or(0, |slot| slot.job.skipped)
    }

    /// The running activity.
    pub fn running(&self) -> Option<ActivityId> {
        self.running.map(|running| running.id)
    }

    /// The latest `now` so far, which the scheduler uses as the current time.
    pub fn clock(&self) -> Instant {
        self.clock
    }

    /// Whether `id` is active (neither suspended nor closed).
    pub fn is_active(&self, id: ActivityId) -> bool {
        self.slot(id).is_ok_and(|slot| slot.active)
    }

    /// How often the CPU went from one activity to another.
    pub fn switches(&self) -> u64 {
        self.switches
    }

    /// The counters of `id` so far; `None` if there is no such activity.
    pub fn counters(&self, id: ActivityId) -> Option<Counters> {
        self.slot(id).ok().map(|slot| slot.counters)
    }

    /// Like [`Scheduler::counters`], but jobs that have not ended count as missed if their deadline
    /// passed before `now`. Use this at the end of a run, so that unfinished work does not look
    /// like a kept promise.
    pub fn counters_at(&self, now: Instant, id: ActivityId) -> Option<Counters> {
        self.slot(id).ok().map(|slot| slot.counters_at(now))
    }

    /// The number of events that wait for `id`, and the rank of the most urgent one. O(1).
    pub fn pending(&self, id: ActivityId) -> (u32, Option<u64>) {
        let first = self.events.first(id).map(|first| first.rank);
        (self.events.count(id), first)
    }

    /// How far the policy's service of `id` is behind: see [`Policy::lag_ns`].
    #[inline]
    pub fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        self.slot(id).ok().and_then(|_| self.policy.lag_ns(id, now))
    }

    /// The window violations of `id`: see [`Policy::window_violations`].
    pub fn window_violations(&self, id: ActivityId) -> Option<u64> {
        self.slot(id).ok().and_then(|_| self.policy.window_violations(id))
    }

    /// Whether commands of the last input are left. The driver must poll them before the next
    /// input.
    pub(crate) fn has_commands(&self) -> bool {
        !self.commands.is_empty()
    }
}
