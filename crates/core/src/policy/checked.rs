//! A policy whose call protocol is asserted.
//!
//! [`Checked`] wraps a policy. It panics at the first call that breaks the protocol of [`Policy`],
//! and at the first answer of the policy that breaks it. Debug builds use it for every policy. The
//! random tests of the simulator (VOPR) and the fuzz targets use it in release builds too. All
//! other release builds run no check.
//!
//! States of an activity in the protocol:
//!
//! ```text
//!            (1) join              (2) ready                   (4) pick
//!   [absent] ----------> Idle --------------------> Ready -----------------> Picked
//!      ^                 |  ^  (3) withdraw, lost    |  ^                      |
//!      |   (8) leave     |  +------------------------+  | (7) resume           | (5) ran
//!      +-----------------+                              |                      v
//!                        ^                              +-------------------- Ran
//!                        |                (6) done                             |
//!                        +-----------------------------------------------------+
//! ```
//!
//! 1. The number is below the capacity and not in use; the parameters are valid.
//! 2. The job's release is at or before now, unless the policy works ahead.
//! 3. `lost` answers the last `overdue`, and nothing else happens between the two calls.
//! 4. Only one activity is picked at a time, and the next pick waits for (6), (7) or (9).
//! 5. Only the picked activity is charged, once, and for no more than the time since the pick.
//! 6. `done` names the deadline of the job.
//! 7. The job stays the same, but for what `rerank` changed.
//! 8. Only an idle activity leaves or is suspended.
//! 9. Not drawn: `pick` and `pick_extra` may pick an idle activity. After `ran`, `extra_done` ends
//!    this service without a job.

use super::{EventRank, ExtraEnd, Policy, Ready, Standing};
use crate::activity::{ActivityId, ActivityParams, Claim, GroupId, Terms};
use crate::share::Share;
use crate::time::{Instant, Span};

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Idle,
    Ready(Ready),
}

/// The activity that was picked.
#[derive(Clone, Copy, Debug)]
struct Picked {
    id: ActivityId,
    since: Instant,
    /// `None` for a service without a job.
    job: Option<Ready>,
    /// Whether `ran` was called.
    charged: bool,
}

/// A policy that panics when its call protocol is broken. [`Policy`] describes the protocol.
#[derive(Debug)]
pub struct Checked<P: ?Sized> {
    policy: Box<P>,
    /// By activity number. The picked activity is `Idle` here.
    states: Vec<State>,
    ready: usize,
    picked: Option<Picked>,
    /// The last answer of `overdue`, until `lost` follows.
    overdue: Option<ActivityId>,
    now: Instant,
}

impl<P: Policy + ?Sized> Checked<P> {
    /// Wraps `policy`, which was made for activities numbered `0..capacity`. Allocates.
    pub fn new(policy: Box<P>, capacity: u32) -> Self {
        Checked {
            policy,
            states: vec![State::Absent; capacity as usize],
            ready: 0,
            picked: None,
            overdue: None,
            now: Instant::ZERO,
        }
    }

    /// The policy itself.
    pub fn policy(&self) -> &P {
        &self.policy
    }

    fn advance(&mut self, now: Instant) {
        assert!(now >= self.now, "policy: time goes back from {:?} to {now:?}", self.now);
        self.now = now;
    }

    /// Begins a call that changes the policy. `overdue` and `lost` do not use it.
    fn begin(&mut self, now: Instant) {
        self.advance(now);
        assert!(self.overdue.is_none(), "policy: a call between overdue and lost");
    }

    fn state(&self, id: ActivityId) -> State {
        let state = self.states.get(id.0 as usize);
        *state.unwrap_or_else(|| panic!("policy: activity {} is out of range", id.0))
    }

    fn expect_member(&self, id: ActivityId) {
        assert!(self.state(id) != State::Absent, "policy: activity {} did not join", id.0);
    }

    fn expect_idle(&self, id: ActivityId) {
        let picked = self.picked.is_some_and(|picked| picked.id == id);
        assert!(
            self.state(id) == State::Idle && !picked,
            "policy: activity {} is {:?}, expected Idle and not picked",
            id.0,
            self.state(id)
        );
    }

    fn expect_ready(&self, id: ActivityId) -> Ready {
        match self.state(id) {
            State::Ready(job) => job,
            state => panic!("policy: activity {} is {state:?}, expected Ready", id.0),
        }
    }

    fn set(&mut self, id: ActivityId, state: State) {
        let is_ready = |state| matches!(state, State::Ready(_));
        self.ready -= usize::from(is_ready(self.state(id)));
        self.ready += usize::from(is_ready(state));
        self.states[id.0 as usize] = state;
    }

    /// The picked activity, which must be `id` and not charged yet.
    fn expect_picked(&self, id: ActivityId) -> Picked {
        let picked = self.picked.filter(|picked| picked.id == id && !picked.charged);
        picked.unwrap_or_else(|| panic!("policy: activity {} is not picked", id.0))
    }

    /// Ends the service of `id`, which was charged.
    fn end(&mut self, id: ActivityId) -> Option<Ready> {
        let picked = self.picked.filter(|picked| picked.id == id && picked.charged);
        let picked = picked.unwrap_or_else(|| panic!("policy: activity {} did not run", id.0));
        self.picked = None;
        picked.job
    }

    fn end_job(&mut self, id: ActivityId) -> Ready {
        let job = self.end(id);
        job.unwrap_or_else(|| panic!("policy: activity {} was served without a job", id.0))
    }

    fn pick_up(&mut self, id: ActivityId, now: Instant) {
        let job = match self.state(id) {
            State::Ready(job) => Some(job),
            State::Idle => None,
            State::Absent => panic!("policy: activity {} is picked and did not join", id.0),
        };
        self.set(id, State::Idle);
        self.picked = Some(Picked { id, since: now, job, charged: false });
    }
}

impl<P: Policy + ?Sized> Policy for Checked<P> {
    fn join(&mut self, id: ActivityId, params: &ActivityParams, terms: &Terms, now: Instant) {
        self.begin(now);
        assert!(self.state(id) == State::Absent, "policy: activity {} joins twice", id.0);
        assert!(params.validated().is_ok(), "policy: activity {} joins with bad parameters", id.0);
        self.set(id, State::Idle);
        self.policy.join(id, params, terms, now);
    }

    fn leave(&mut self, id: ActivityId, now: Instant) {
        self.begin(now);
        self.expect_idle(id);
        self.set(id, State::Absent);
        self.policy.leave(id, now);
    }

    fn reweigh(&mut self, id: ActivityId, claim: Claim, now: Instant) {
        self.begin(now);
        self.expect_member(id);
        self.policy.reweigh(id, claim, now);
    }

    fn ready(&mut self, id: ActivityId, job: Ready, now: Instant) {
        self.begin(now);
        self.expect_idle(id);
        let early = job.release > now && self.policy.workahead_max(id) == 0;
        assert!(!early, "policy: activity {} is ready before its release", id.0);
        self.set(id, State::Ready(job));
        self.policy.ready(id, job, now);
    }

    fn rerank(&mut self, id: ActivityId, job: Ready, now: Instant) {
        self.begin(now);
        assert!(self.policy.keeps_budget(id), "policy: activity {} has no budget", id.0);
        match self.picked.as_mut().filter(|picked| picked.id == id) {
            Some(picked) => picked.job = picked.job.map(|_| job),
            None => {
                self.expect_ready(id);
                self.set(id, State::Ready(job));
            }
        }
        self.policy.rerank(id, job, now);
    }

    fn keeps_budget(&self, id: ActivityId) -> bool {
        self.policy.keeps_budget(id)
    }

    fn drops_late_jobs(&self) -> bool {
        self.policy.drops_late_jobs()
    }

    fn withdraw(&mut self, id: ActivityId, now: Instant) {
        self.begin(now);
        self.expect_ready(id);
        self.set(id, State::Idle);
        self.policy.withdraw(id, now);
    }

    fn pick(&mut self, now: Instant) -> Option<ActivityId> {
        self.begin(now);
        assert!(self.picked.is_none(), "policy: a pick while an activity is picked");
        self.policy.tick(now);
        let (best, has_ready) = (self.policy.best(), self.policy.has_ready());
        let picked = self.policy.pick(now);
        if let Some(best) = best {
            assert_eq!(picked, Some(best.id), "policy: best and pick differ");
        }
        match picked {
            Some(_) => assert!(has_ready, "policy: has_ready is false, and pick finds one"),
            None => assert!(self.ready == 0, "policy: pick does not find a ready activity"),
        }
        picked.inspect(|&id| self.pick_up(id, now))
    }

    fn has_ready(&self) -> bool {
        let has_ready = self.policy.has_ready();
        assert!(has_ready || self.ready == 0, "policy: has_ready misses a ready activity");
        has_ready
    }

    fn best(&self) -> Option<Standing> {
        self.policy.best()
    }

    fn standing(&self, id: ActivityId, job: Ready, at: Instant) -> Option<Standing> {
        self.expect_member(id);
        self.policy.standing(id, job, at)
    }

    fn running_key(&self, running: ActivityId, since: Instant, now: Instant) -> Option<u64> {
        self.expect_picked(running);
        self.policy.running_key(running, since, now)
    }

    fn served(&self, running: ActivityId) -> Option<u64> {
        self.expect_picked(running);
        self.policy.served(running)
    }

    fn gives_way(&mut self, running: ActivityId, since: Instant, now: Instant) -> bool {
        self.begin(now);
        let picked = self.expect_picked(running);
        assert_eq!(picked.since, since, "policy: gives_way with another start");
        self.policy.gives_way(running, since, now)
    }

    fn check_at(&self, running: ActivityId, since: Instant, next_release: Instant) -> Instant {
        let picked = self.expect_picked(running);
        assert_eq!(picked.since, since, "policy: check_at with another start");
        let at = self.policy.check_at(running, since, next_release);
        assert!(at <= next_release, "policy: check_at is later than the next release");
        at
    }

    fn ran(&mut self, id: ActivityId, used: Span, now: Instant) {
        self.begin(now);
        let picked = self.expect_picked(id);
        let most = now.since(picked.since);
        assert!(used <= most, "policy: activity {} is charged {used} of {most}", id.0);
        self.picked = Some(Picked { charged: true, ..picked });
        self.policy.ran(id, used, now);
    }

    fn resume(&mut self, id: ActivityId, now: Instant) {
        self.begin(now);
        let job = self.end_job(id);
        self.set(id, State::Ready(job));
        self.policy.resume(id, now);
    }

    fn done(&mut self, id: ActivityId, deadline: Instant, now: Instant) {
        self.begin(now);
        let job = self.end_job(id);
        assert_eq!(job.deadline, deadline, "policy: done with another deadline");
        self.policy.done(id, deadline, now);
    }

    fn arrival_gap(&self, params: &ActivityParams, terms: &Terms) -> Span {
        self.policy.arrival_gap(params, terms)
    }

    fn relative_deadline(&self, params: &ActivityParams, terms: &Terms) -> Span {
        self.policy.relative_deadline(params, terms)
    }

    fn workahead_max(&self, id: ActivityId) -> u32 {
        self.expect_member(id);
        self.policy.workahead_max(id)
    }

    fn next_event(&self) -> Instant {
        self.policy.next_event()
    }

    fn tick(&mut self, now: Instant) {
        self.begin(now);
        self.policy.tick(now);
    }

    fn overdue(&mut self, now: Instant, choosing: bool) -> Option<ActivityId> {
        // `overdue` may be called again before `lost`.
        self.advance(now);
        let served = choosing && self.picked.is_some();
        assert!(!served, "policy: overdue is asked for a choice while an activity is picked");
        self.overdue = self.policy.overdue(now, choosing);
        if let Some(id) = self.overdue {
            self.expect_ready(id);
        }
        self.overdue
    }

    fn lost(&mut self, id: ActivityId, jobs: u64, now: Instant) {
        self.advance(now);
        assert_eq!(self.overdue.take(), Some(id), "policy: lost does not answer overdue");
        assert!(jobs >= 1, "policy: activity {} loses no job", id.0);
        self.set(id, State::Idle);
        self.policy.lost(id, jobs, now);
    }

    fn pick_extra(&mut self, now: Instant, next_release: Instant) -> Option<ActivityId> {
        self.begin(now);
        assert!(self.picked.is_none(), "policy: a pick while an activity is picked");
        assert!(self.ready == 0, "policy: an extra service while an activity is ready");
        let picked = self.policy.pick_extra(now, next_release);
        picked.inspect(|&id| self.pick_up(id, now))
    }

    fn extra_done(&mut self, id: ActivityId, end: ExtraEnd, now: Instant) {
        self.begin(now);
        let job = self.end(id);
        assert!(job.is_none(), "policy: activity {} was served for a job", id.0);
        self.policy.extra_done(id, end, now);
    }

    fn suspended(&mut self, id: ActivityId, now: Instant) {
        self.begin(now);
        self.expect_idle(id);
        self.policy.suspended(id, now);
    }

    fn posted(&mut self, id: ActivityId, first: EventRank, now: Instant) {
        self.begin(now);
        self.expect_member(id);
        self.policy.posted(id, first, now);
    }

    fn taken(&mut self, id: ActivityId, first: Option<EventRank>, now: Instant) {
        self.begin(now);
        self.expect_member(id);
        self.policy.taken(id, first, now);
    }

    fn first_release(&self, id: ActivityId, at: Instant, now: Instant) -> Instant {
        self.expect_member(id);
        let first = self.policy.first_release(id, at, now);
        assert!(first >= at, "policy: activity {} is released before it is run", id.0);
        first
    }

    fn set_switch_cost(&mut self, cost: Span) {
        self.policy.set_switch_cost(cost);
    }

    fn set_event_share(&mut self, share: Option<Share>, now: Instant) {
        self.begin(now);
        self.policy.set_event_share(share, now);
    }

    fn set_domain_share(&mut self, share: Option<Share>, now: Instant) {
        self.begin(now);
        self.policy.set_domain_share(share, now);
    }

    fn set_group_part(&mut self, group: GroupId, part: Share, now: Instant) {
        self.begin(now);
        self.policy.set_group_part(group, part, now);
    }

    fn next_request(&mut self) -> Option<Span> {
        assert!(
            self.picked.is_none(),
            "policy: a request is asked for while an activity is picked"
        );
        let request = self.policy.next_request();
        let found = request.is_some() || self.ready == 0;
        assert!(found || self.policy.best().is_some(), "policy: a ready activity has no request");
        request
    }

    fn request_at_release(&self, id: ActivityId) -> Option<Span> {
        self.expect_member(id);
        self.policy.request_at_release(id)
    }

    fn is_within_request(&self) -> bool {
        self.policy.is_within_request()
    }

    fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        self.policy.lag_ns(id, now)
    }

    fn window_violations(&self, id: ActivityId) -> Option<u64> {
        self.policy.window_violations(id)
    }
}
