//! Who outranks whom: one file a policy, all behind [`Policy`].
//!
//! Every policy of the papers is the same two numbers an activity, when it
//! becomes eligible and its rank among the eligible. A policy keeps
//! them for one CPU; [`crate::scheduler::Scheduler`] tells it what happened and
//! asks it who is next. A policy knows no handler, no record and no clock, and
//! never calls out.
//!
//! To add a policy, write a file here and a static in [`crate::discipline`].

use core::fmt;

use crate::activity::{ActivityId, ActivityParams, Claim, Terms};
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

/// Place among the eligible: the smaller one runs first.
///
/// Ends in the order of creation, so two activities never tie and the one that
/// stands first in the file wins. Of equal keys, one with an
/// event goes before that where the policy says so ([`rmdp`], [`dws`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank {
    /// What the policy orders by.
    pub key: u64,
    /// How many activities were created before it.
    pub tie: u32,
}

/// The place of an event among all that wait: the smaller one first (ecalls-2001 §2.1:
/// the *event queue*). No two events of a scheduler have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventRank {
    /// What whoever posted it said: a priority, or when it must be dealt with.
    pub rank: u64,
    /// How many were posted before it.
    pub posted: u64,
}

/// A place in the one order of a CPU that several schedulers share, one a domain
/// ([`Policy::standing`]): the smaller key goes first, and equals by their order of
/// admission, which only who holds them all together knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whose.
    pub id: ActivityId,
    /// Compares with those of other schedulers of the same policy.
    pub key: u64,
    /// The rank of the event by which it goes before others of the same key, the
    /// smaller first and those without one last; `None` if it has none.
    pub event: Option<u64>,
    /// Of what is ready in its scheduler and has this key, the first without regard to events: events
    /// preempt no equal, and do not keep it from doing so. Itself, where one is asked for.
    pub first: ActivityId,
}

/// A job that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// When it was released; at or before now, or later where
    /// [`Policy::workahead_max`] is above 0.
    pub release: Instant,
    /// When it must be done.
    pub deadline: Instant,
}

/// How an extra service ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraEnd {
    /// Told to return, amid what it did.
    Yielded,
    /// All PDUs done that it was given; there may be more.
    Filled,
    /// Nothing was left to do.
    Done,
}

/// One CPU's order. The scheduler keeps these rules: `join` comes first and
/// `leave` last; an activity is *ready* from [`Policy::ready`] until it is picked
/// or withdrawn; at most one is picked at a time, and `ran` follows before the
/// next `pick`; then it is either ready again (`resume`, or `ready` with its next
/// job) or idle. A policy that drops jobs or serves idle activities says so by
/// [`Policy::overdue`] and [`Policy::pick_extra`]; by default there is no such
/// thing. `now` never goes back. No call may allocate after creation, and each
/// should be O(log n).
pub trait Policy: fmt::Debug + Send {
    /// An activity comes under this policy, idle.
    fn join(&mut self, id: ActivityId, params: &ActivityParams, terms: &Terms, now: Instant);

    /// It goes. It is idle.
    fn leave(&mut self, id: ActivityId, now: Instant);

    /// An activity claims another part of the CPU from now on. Policies that do not
    /// share time out do nothing, nor is anything done if the claim is not of the
    /// kind that it joined with.
    fn reweigh(&mut self, id: ActivityId, claim: Claim, now: Instant) {
        let _ = (id, claim, now);
    }

    /// An idle activity has a job.
    fn ready(&mut self, id: ActivityId, job: Ready, now: Instant);

    /// A ready activity loses its job without having run it: it was suspended.
    fn withdraw(&mut self, id: ActivityId, now: Instant);

    /// Takes out the activity that runs next; `None` if none is ready.
    fn pick(&mut self, now: Instant) -> Option<ActivityId>;

    /// Whether any is ready.
    fn has_ready(&self) -> bool;

    /// Who `pick` would take, and its key in the order of all domains; `None` if nobody is
    /// ready, or if ranks mean something to this scheduler alone. O(1), after a `tick`.
    fn best(&self) -> Option<Standing> {
        None
    }

    /// The key that `id` has at `at` in the order of all domains, with this job;
    /// `None` where there is no such order. O(1).
    fn standing(&self, id: ActivityId, job: Ready, at: Instant) -> Option<Standing> {
        let _ = (id, job, at);
        None
    }

    /// The rank of the event with which the job of `running` was begun, if it was: no equal preempts it.
    fn served(&self, running: ActivityId) -> Option<u64> {
        let _ = running;
        None
    }

    /// Whether `running`, picked at `since` and at a point where it may be
    /// preempted, must give way to another.
    fn gives_way(&mut self, running: ActivityId, since: Instant, now: Instant) -> bool;

    /// When `gives_way` must be asked next, if nothing is released before
    /// `next_release`: not later than that.
    fn check_at(&self, running: ActivityId, since: Instant, next_release: Instant) -> Instant {
        let _ = (running, since);
        next_release
    }

    /// The activity that was picked ran for `used`. Followed by `resume`, `done`
    /// or `withdraw`.
    fn ran(&mut self, id: ActivityId, used: Span, now: Instant) {
        let _ = (id, used, now);
    }

    /// It gave way with work left: it is ready again, with the same job.
    fn resume(&mut self, id: ActivityId, now: Instant);

    /// Its job, due at `deadline`, is done at `now`: it is idle.
    fn done(&mut self, id: ActivityId, deadline: Instant, now: Instant) {
        let _ = (id, deadline, now);
    }

    /// From a job's release to the moment it must be done. Asked once, when the
    /// activity is created.
    fn relative_deadline(&self, params: &ActivityParams, terms: &Terms) -> Span {
        let _ = terms;
        params.deadline
    }

    /// How many jobs may be ready ahead of their releases, those done ahead
    /// included; 0 where nothing runs before its release.
    fn workahead_max(&self, id: ActivityId) -> u32 {
        let _ = id;
        0
    }

    /// When the policy itself has something to do, such as to note a deadline
    /// that passed; [`Instant::FAR`] if never.
    fn next_event(&self) -> Instant {
        Instant::FAR
    }

    /// Does what is due by `now`.
    fn tick(&mut self, now: Instant) {
        let _ = now;
    }

    /// A ready activity whose oldest job has no value any more: because its
    /// deadline is `now` or before, or, if `choosing` (nothing runs, and `pick`
    /// follows), because the policy will not run it. Answered by
    /// [`Policy::lost`], and asked until there is none.
    fn overdue(&mut self, now: Instant, choosing: bool) -> Option<ActivityId> {
        let _ = (now, choosing);
        None
    }

    /// A ready activity lost its oldest job and those behind it that are as
    /// late, `jobs >= 1` in all. It is idle; `ready` follows if it has more.
    fn lost(&mut self, id: ActivityId, jobs: u64, now: Instant) {
        let _ = (id, jobs, now);
    }

    /// Asked when nothing is ready: an active activity without a job that is
    /// served all the same, an *extra* service; `None` if there is none that may
    /// begin now. Nothing is released before `next_release`. It is picked;
    /// `ran` and `extra_done` follow.
    fn pick_extra(&mut self, now: Instant, next_release: Instant) -> Option<ActivityId> {
        let _ = (now, next_release);
        None
    }

    /// What was picked without a job has returned: it is idle.
    fn extra_done(&mut self, id: ActivityId, end: ExtraEnd, now: Instant) {
        let _ = (id, end, now);
    }

    /// An idle activity has no job and is not served until it is `ready` again.
    fn suspended(&mut self, id: ActivityId, now: Instant) {
        let _ = (id, now);
    }

    /// One more event waits for an activity; `first` is the most urgent of them all.
    fn posted(&mut self, id: ActivityId, first: EventRank, now: Instant) {
        let _ = (id, first, now);
    }

    /// Some of its events were taken; `first` is the most urgent of those that are left.
    fn taken(&mut self, id: ActivityId, first: Option<EventRank>, now: Instant) {
        let _ = (id, first, now);
    }

    /// What share of the CPU is reserved for events, beside what is for their owners.
    fn set_event_share(&mut self, share: Option<Share>, now: Instant) {
        let _ = (share, now);
    }

    /// PS: how far service is behind the ideal share, in nanoseconds of CPU time
    /// (negative: ahead); `None` where there is no such thing.
    fn lag_ns(&self, id: ActivityId, now: Instant) -> Option<i64> {
        let _ = (id, now);
        None
    }

    /// DWCS: windows in which more periods were missed than allowed.
    fn window_violations(&self, id: ActivityId) -> Option<u64> {
        let _ = id;
        None
    }
}
