//! Which ready activity runs first: one file per policy, all behind [`Policy`].
//!
//! Every policy of the papers computes two numbers for an activity: when it becomes eligible, and
//! its rank among the eligible activities. A policy keeps them for one CPU.
//! [`crate::scheduler::Scheduler`] tells the policy what happened and asks it for the next
//! activity. A policy has no access to handlers, records or a clock.
//!
//! To add a policy, write a file here and a static in [`crate::discipline`].

use core::fmt;

use crate::activity::{ActivityId, ActivityParams, Claim, GroupId, Terms, WorkClass};
use crate::share::Share;
use crate::time::{Instant, Span};

mod checked;
pub mod dwcs;
pub mod dws;
pub mod ps;
pub mod rmdp;

pub use checked::Checked;

/// Makes the policy of each CPU.
pub trait PolicyFactory {
    /// One CPU's policy for activities numbered `0..capacity`. Takes all memory that the policy
    /// will ever need.
    fn policy(&self, capacity: u32) -> Box<dyn Policy>;
}

impl<F: PolicyFactory> PolicyFactory for &F {
    fn policy(&self, capacity: u32) -> Box<dyn Policy> {
        F::policy(self, capacity)
    }
}

/// The place of an activity among the eligible activities. The smallest rank runs first.
///
/// Ranks end with the order of creation, so no two activities tie. Of two activities with equal
/// keys, the one that comes first in the spec file goes first. Under [`rmdp`] and [`dws`] an
/// activity with a pending event goes before activities with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// The number that the policy sorts by.
    pub key: u64,
    /// How many activities were created before this one.
    pub tie: u32,
}

/// The bit of a key that puts work beyond its budget after all work within budgets, in the order of
/// all domains of a CPU. No period and no instant reaches it.
pub const KEY_OVER_BUDGET: u64 = 1 << 63;

/// The place of an event among all waiting events. The smallest goes first (ecalls-2001 §2.1: the
/// *event queue*). No two events of a scheduler have the same rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventRank {
    /// The rank that the poster of the event stated: a priority, or an instant by which the event
    /// must be dealt with.
    pub rank: u64,
    /// How many events were posted before this one.
    pub posted: u64,
}

/// The place of an activity in the common order of a CPU. Several schedulers, one per domain, share
/// that order ([`Policy::standing`]). The smaller key goes first. Equal keys go by their order of
/// admission, which only the daemon knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The activity.
    pub id: ActivityId,
    /// Compares with the keys of other schedulers of the same policy.
    pub key: u64,
    /// The rank of the event by which the activity goes before others with the same key. The
    /// smaller rank goes first, and activities without an event go last. `None` without an event.
    /// Under DWCS it is the place of the activity's window.
    pub event: Option<u64>,
    /// The first ready activity of the scheduler with this key, without regard to events. Only this
    /// activity decides which activities of an equal key are preempted, because a waiting event
    /// neither causes nor prevents such a preemption. [`Policy::standing`] sets it to `id`.
    pub first: ActivityId,
}

/// A job that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// When the job was released. At or before now, or later under a policy with
    /// [`Policy::workahead_max`] above 0.
    ///
    /// Under a policy with [`Policy::keeps_budget`] this is the release from which the rank counts:
    /// that of the job, or the beginning of a later budget.
    pub release: Instant,
    /// When the job must be done, counted from `release`.
    pub deadline: Instant,
    /// Whether the activity has used its budget. Its job goes after the jobs of all activities that
    /// have budget left. Always `false` without [`Policy::keeps_budget`].
    pub is_over_budget: bool,
}

impl Ready {
    /// A job of an activity within its budget.
    pub const fn new(release: Instant, deadline: Instant) -> Self {
        Ready { release, deadline, is_over_budget: false }
    }
}

/// How an extra service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraEnd {
    /// The scheduler told the handler to return before the handler was done.
    Yielded,
    /// The handler processed all PDUs that it was given; there may be more work.
    Filled,
    /// The handler had nothing left to do.
    Done,
}

/// The order of one CPU.
///
/// # Protocol
///
/// The scheduler keeps these rules, and [`Checked`] asserts them:
///
/// - `join` comes first and `leave` last. An activity that leaves is idle.
/// - An idle activity becomes *ready* by [`Policy::ready`], and stays ready until it is picked or
///   withdrawn, or until its job is lost. A ready activity is not made ready again.
/// - At most one activity is picked at a time. Exactly one `ran` follows, for the picked activity
///   and for no more time than passed, then one of `resume`, `done` and `extra_done`. Only then may
///   `pick` be called again.
/// - `rerank` names a ready or picked activity. The job is the same, with another rank.
/// - After `resume` the activity is ready with the same job. After `done` and `extra_done` it is
///   idle; `ready` follows if it has a job.
/// - `pick` and [`Policy::pick_extra`] may name an idle activity. That is an *extra* service, which
///   is no job and ends with `extra_done`.
/// - `lost` answers the last [`Policy::overdue`]; no other change comes between the two.
/// - `gives_way`, `check_at` and `served` name the picked activity, before `ran`.
/// - `now` never goes back.
///
/// No call may allocate after creation, and each should be O(log n).
pub trait Policy: fmt::Debug + Send {
    /// Adds an idle activity.
    fn join(&mut self, id: ActivityId, params: &ActivityParams, terms: &Terms, now: Instant);

    /// Removes an idle activity.
    fn leave(&mut self, id: ActivityId, now: Instant);

    /// Changes the part of the CPU that the activity claims. No effect under a policy that does not
    /// share time, or if the claim is not of the kind with which the activity joined.
    fn reweigh(&mut self, id: ActivityId, claim: Claim, now: Instant) {
        let _ = (id, claim, now);
    }

    /// Gives an idle activity a job.
    fn ready(&mut self, id: ActivityId, job: Ready, now: Instant);

    /// The activity, which is ready or picked, used its budget or has a new one. `job` is its job
    /// with the rank that follows.
    fn rerank(&mut self, id: ActivityId, job: Ready, now: Instant) {
        let _ = (id, job, now);
    }

    /// Whether the scheduler keeps a budget for the activity and calls [`Policy::rerank`]. `false`
    /// if the policy itself charges time, or if nothing is promised to the activity.
    fn keeps_budget(&self, id: ActivityId) -> bool {
        let _ = id;
        false
    }

    /// When an activity that is run from `at` on is released first, but for its offset. Later than
    /// `at` where the domains of a CPU align their releases ([`Policy::set_domain_share`]), and not
    /// before `now` there. O(1).
    fn first_release(&self, id: ActivityId, at: Instant, now: Instant) -> Instant {
        let _ = (id, now);
        at
    }

    /// Whether the policy itself drops jobs that are late. The scheduler asks once, and calls
    /// [`Policy::overdue`] only if so.
    fn drops_late_jobs(&self) -> bool {
        false
    }

    /// Takes the job from a ready activity, because the activity was suspended or its job
    /// is dropped.
    fn withdraw(&mut self, id: ActivityId, now: Instant);

    /// Picks the activity that runs next; `None` if none is ready.
    fn pick(&mut self, now: Instant) -> Option<ActivityId>;

    /// Whether `pick` would find an activity.
    fn has_ready(&self) -> bool;

    /// The activity that `pick` would return, and its key in the order of all domains. `None` if no
    /// activity is ready, or if ranks compare only within this scheduler. O(1), after a `tick`.
    fn best(&self) -> Option<Standing> {
        None
    }

    /// The key that `id` has at `at` with this job, in the order of all domains. `None` if there is
    /// no such order. O(1).
    fn standing(&self, id: ActivityId, job: Ready, at: Instant) -> Option<Standing> {
        let _ = (id, job, at);
        None
    }

    /// The key that `running`, picked at `since`, has at `now` in the order of all domains, if it
    /// is not that of its job ([`Policy::standing`]).
    fn running_key(&self, running: ActivityId, since: Instant, now: Instant) -> Option<u64> {
        let _ = (running, since, now);
        None
    }

    /// The rank of the event with which the job of `running` began, if there was one. No activity
    /// of equal rank preempts such a job.
    fn served(&self, running: ActivityId) -> Option<u64> {
        let _ = running;
        None
    }

    /// Whether `running`, picked at `since` and now at a preemption point, must give way to another
    /// activity.
    fn gives_way(&mut self, running: ActivityId, since: Instant, now: Instant) -> bool;

    /// When `gives_way` must be called next, if nothing is released before `next_release`. Not
    /// later than `next_release`.
    fn check_at(&self, running: ActivityId, since: Instant, next_release: Instant) -> Instant {
        let _ = (running, since);
        next_release
    }

    /// Charges the picked activity `used`. `resume`, `done` or `extra_done` follows.
    fn ran(&mut self, id: ActivityId, used: Span, now: Instant) {
        let _ = (id, used, now);
    }

    /// The activity gave way with work left. It is ready again, with the same job.
    fn resume(&mut self, id: ActivityId, now: Instant);

    /// The job, due at `deadline`, ended at `now`. The activity is idle.
    fn done(&mut self, id: ActivityId, deadline: Instant, now: Instant) {
        let _ = (id, deadline, now);
    }

    /// The time from a job's release to its deadline. The scheduler calls this once, when the
    /// activity is created.
    fn relative_deadline(&self, params: &ActivityParams, terms: &Terms) -> Span {
        let _ = terms;
        params.deadline
    }

    /// The least time between the logical arrivals of an activity on demand
    /// ([`Terms::on_demand`]): its period, or zero if nothing that is promised to it or to others
    /// relies on its rate. The scheduler calls this once, when the activity is created.
    fn arrival_gap(&self, params: &ActivityParams, terms: &Terms) -> Span {
        match terms.class {
            WorkClass::RealTime => params.period,
            WorkClass::Interactive | WorkClass::Background => Span::ZERO,
        }
    }

    /// How many jobs may be ready before their releases, including jobs that were done ahead. 0 if
    /// nothing runs before its release.
    fn workahead_max(&self, id: ActivityId) -> u32 {
        let _ = id;
        0
    }

    /// When `tick` has something to do, such as to note that a deadline passed. [`Instant::FAR`] if
    /// never.
    fn next_event(&self) -> Instant {
        Instant::FAR
    }

    /// Does everything that is due by `now`.
    fn tick(&mut self, now: Instant) {
        let _ = now;
    }

    /// A ready activity whose oldest job has lost its value. Either the job's deadline is at or
    /// before `now`. Or `choosing` is set (nothing runs, and `pick` follows), and the policy will
    /// not run the job any more. The scheduler answers with [`Policy::lost`] and asks again until
    /// the answer is `None`.
    fn overdue(&mut self, now: Instant, choosing: bool) -> Option<ActivityId> {
        let _ = (now, choosing);
        None
    }

    /// A ready activity lost its oldest job, and the following jobs whose deadlines have passed as
    /// well: `jobs >= 1` in all. The activity is idle; `ready` follows if it has more jobs.
    fn lost(&mut self, id: ActivityId, jobs: u64, now: Instant) {
        let _ = (id, jobs, now);
    }

    /// Picks an active activity without a job for an *extra* service, or `None` if no such service
    /// may begin now. The scheduler calls this when nothing is ready. Nothing is released before
    /// `next_release`. The activity counts as picked; `ran` and `extra_done` follow.
    fn pick_extra(&mut self, now: Instant, next_release: Instant) -> Option<ActivityId> {
        let _ = (now, next_release);
        None
    }

    /// The extra service of the activity has ended. The activity is idle.
    fn extra_done(&mut self, id: ActivityId, end: ExtraEnd, now: Instant) {
        let _ = (id, end, now);
    }

    /// An idle activity is suspended. It gets no service until it is `ready` again.
    fn suspended(&mut self, id: ActivityId, now: Instant) {
        let _ = (id, now);
    }

    /// One more event waits for an activity; `first` is the most urgent of its events.
    fn posted(&mut self, id: ActivityId, first: EventRank, now: Instant) {
        let _ = (id, first, now);
    }

    /// Some events of the activity were taken; `first` is the most urgent of those left.
    fn taken(&mut self, id: ActivityId, first: Option<EventRank>, now: Instant) {
        let _ = (id, first, now);
    }

    /// Sets how long a hand-off to another activity takes. It is part of what `ran` charges.
    fn set_switch_cost(&mut self, cost: Span) {
        let _ = cost;
    }

    /// Sets the share of the CPU that is reserved for events, in addition to the reservations of
    /// the activities that own the events.
    fn set_event_share(&mut self, share: Option<Share>, now: Instant) {
        let _ = (share, now);
    }

    /// Other domains have schedulers of their own on the CPU. PS: `share` is the part of the CPU
    /// that the activities of this scheduler have together; the driver compares the domains when
    /// nothing runs ([`ps::DomainAccounts`]). DWCS: the share has no meaning, and first releases
    /// are aligned from then on. `None`, as at the start: this scheduler has the whole CPU.
    fn set_domain_share(&mut self, share: Option<Share>, now: Instant) {
        let _ = (share, now);
    }

    /// PS: this scheduler has `part` of the group, because other domains have members there
    /// ([`ps::Parts`]). At the start it has the whole group. A group that does not exist has no
    /// effect.
    fn set_group_part(&mut self, group: GroupId, part: Share, now: Instant) {
        let _ = (group, part, now);
    }

    /// PS: the length of the request with which `pick` would begin. `None` if nothing is ready, or
    /// under other policies. Nothing is picked. The answer holds until the next change: a job that
    /// becomes ready later makes it [`Policy::request_at_release`] of that activity at most, if
    /// that is longer.
    fn next_request(&mut self) -> Option<Span> {
        None
    }

    /// PS: the length of the first request of the activity's next job. `None` under other policies.
    /// O(1).
    fn request_at_release(&self, id: ActivityId) -> Option<Span> {
        let _ = id;
        None
    }

    /// PS: whether the activity that was served last returned within its request. The request goes
    /// on, so no other domain may be served before it has ended.
    fn is_within_request(&self) -> bool {
        false
    }

    /// PS: how far the activity's service is behind its ideal share, in nanoseconds of CPU time
    /// (negative: ahead). `None` under other policies.
    fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        let _ = (id, now);
        None
    }

    /// DWCS: the number of windows in which more periods were missed than allowed.
    fn window_violations(&self, id: ActivityId) -> Option<u64> {
        let _ = id;
        None
    }
}
