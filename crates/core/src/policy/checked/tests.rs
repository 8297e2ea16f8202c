//! Each rule of the protocol, broken once by the user of a policy or by the policy.

use super::*;
use crate::policy::rmdp::RateMonotonic;
use std::panic::{AssertUnwindSafe, catch_unwind};

const A: ActivityId = ActivityId(0);
const B: ActivityId = ActivityId(1);
const JOB: Ready = Ready::new(at(0), at(40));

const fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn params() -> ActivityParams {
    ActivityParams::new(Span::from_millis(40), Span::from_millis(1))
}

/// A policy with one activity, whose answers the test sets.
#[derive(Debug, Default)]
struct Faulty {
    picks: Option<ActivityId>,
    best: Option<ActivityId>,
    picks_extra: Option<ActivityId>,
    overdue: Option<ActivityId>,
    has_ready: bool,
    check_late: bool,
}

impl Policy for Faulty {
    fn join(&mut self, _: ActivityId, _: &ActivityParams, _: &Terms, _: Instant) {}
    fn leave(&mut self, _: ActivityId, _: Instant) {}
    fn ready(&mut self, _: ActivityId, _: Ready, _: Instant) {}
    fn withdraw(&mut self, _: ActivityId, _: Instant) {}
    fn pick(&mut self, _: Instant) -> Option<ActivityId> {
        self.picks
    }
    fn has_ready(&self) -> bool {
        self.has_ready
    }
    fn best(&self) -> Option<Standing> {
        self.best.map(|id| Standing { id, key: 0, event: None, first: id })
    }
    fn gives_way(&mut self, _: ActivityId, _: Instant, _: Instant) -> bool {
        false
    }
    fn check_at(&self, _: ActivityId, _: Instant, next_release: Instant) -> Instant {
        if self.check_late { Instant::FAR } else { next_release }
    }
    fn resume(&mut self, _: ActivityId, _: Instant) {}
    fn overdue(&mut self, _: Instant, _: bool) -> Option<ActivityId> {
        self.overdue
    }
    fn pick_extra(&mut self, _: Instant, _: Instant) -> Option<ActivityId> {
        self.picks_extra
    }
}

/// `A` has joined.
fn joined<P: Policy>(policy: P) -> Checked<P> {
    let mut policy = Checked::new(Box::new(policy), 2);
    policy.join(A, &params(), &Terms::default(), at(1));
    policy
}

/// `A` is ready.
fn ready<P: Policy>(policy: P) -> Checked<P> {
    let mut policy = joined(policy);
    policy.ready(A, JOB, at(1));
    policy
}

/// `A` was picked at 2 ms.
fn picked() -> Checked<RateMonotonic> {
    let mut policy = ready(RateMonotonic::new(2));
    assert_eq!(policy.pick(at(2)), Some(A));
    policy
}

/// `A` ran from 2 ms to 3 ms.
fn ran() -> Checked<RateMonotonic> {
    let mut policy = picked();
    policy.ran(A, Span::from_millis(1), at(3));
    policy
}

/// `A` was picked without a job.
fn extra() -> Checked<Faulty> {
    let mut policy = joined(Faulty { picks_extra: Some(A), ..Faulty::default() });
    assert_eq!(policy.pick_extra(at(2), Instant::FAR), Some(A));
    policy
}

/// `A` is ready, and its job has lost its value.
fn overdue() -> Checked<Faulty> {
    let mut policy = ready(Faulty { overdue: Some(A), has_ready: true, ..Faulty::default() });
    assert_eq!(policy.overdue(at(2), false), Some(A));
    policy
}

fn ignore<T>(_: T) {}

/// A call sequence that breaks one rule, and a part of the panic's message.
type Mutant = (&'static str, fn());

#[track_caller]
fn expect_panics(mutants: &[Mutant]) {
    for (message, mutant) in mutants {
        let panic = catch_unwind(AssertUnwindSafe(mutant)).expect_err(message);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("");
        assert!(text.contains(message), "expected {message:?}, found {text:?}");
    }
}

#[test]
fn the_life_of_an_activity_keeps_the_protocol() {
    let mut policy = ran();
    policy.resume(A, at(3));
    policy.withdraw(A, at(3));
    policy.ready(A, JOB, at(4));
    assert!(policy.has_ready());
    assert_eq!(policy.pick(at(4)), Some(A));
    assert!(!policy.gives_way(A, at(4), at(5)));
    policy.ran(A, Span::from_millis(1), at(5));
    policy.done(A, JOB.deadline, at(5));
    assert_eq!(policy.pick(at(5)), None);
    policy.suspended(A, at(5));
    policy.leave(A, at(5));
    policy.join(A, &params(), &Terms::default(), at(6));
}

#[test]
fn an_extra_service_and_a_lost_job_keep_the_protocol() {
    let mut policy = extra();
    policy.ran(A, Span::ZERO, at(2));
    policy.extra_done(A, ExtraEnd::Done, at(2));
    policy.leave(A, at(2));
    let mut policy = overdue();
    policy.lost(A, 1, at(2));
    policy.ready(A, JOB, at(2));
}

#[test]
fn a_user_that_breaks_the_life_of_an_activity_panics() {
    expect_panics(&[
        ("joins twice", || {
            joined(RateMonotonic::new(2)).join(A, &params(), &Terms::default(), at(1))
        }),
        ("bad parameters", || {
            joined(RateMonotonic::new(2)).join(B, &params().batch(0), &Terms::default(), at(1));
        }),
        ("out of range", || joined(RateMonotonic::new(2)).leave(ActivityId(2), at(1))),
        ("expected Idle", || ready(RateMonotonic::new(2)).leave(A, at(1))),
        ("expected Idle", || picked().leave(A, at(2))),
        ("expected Idle", || joined(RateMonotonic::new(2)).leave(B, at(1))),
        ("expected Idle", || ready(RateMonotonic::new(2)).suspended(A, at(1))),
        ("did not join", || joined(RateMonotonic::new(2)).taken(B, None, at(1))),
        ("did not join", || {
            joined(RateMonotonic::new(2)).posted(B, EventRank { rank: 0, posted: 0 }, at(1));
        }),
        ("did not join", || joined(RateMonotonic::new(2)).reweigh(B, Claim::Weight(1), at(1))),
        ("did not join", || ignore(joined(RateMonotonic::new(2)).standing(B, JOB, at(1)))),
        ("did not join", || ignore(joined(RateMonotonic::new(2)).workahead_max(B))),
        ("time goes back", || joined(RateMonotonic::new(2)).tick(at(0))),
    ]);
}

#[test]
fn a_user_that_breaks_the_life_of_a_job_panics() {
    expect_panics(&[
        ("expected Idle", || ready(RateMonotonic::new(2)).ready(A, JOB, at(1))),
        ("expected Idle", || picked().ready(A, JOB, at(2))),
        ("before its release", || {
            joined(RateMonotonic::new(2)).ready(A, Ready { release: at(2), ..JOB }, at(1));
        }),
        ("expected Ready", || joined(RateMonotonic::new(2)).withdraw(A, at(1))),
        ("expected Ready", || picked().withdraw(A, at(2))),
        ("while an activity is picked", || ignore(picked().pick(at(2)))),
        ("while an activity is picked", || ignore(ran().pick(at(3)))),
        ("while an activity is picked", || ignore(picked().pick_extra(at(2), Instant::FAR))),
        ("while an activity is ready", || {
            ignore(ready(RateMonotonic::new(2)).pick_extra(at(2), Instant::FAR));
        }),
        ("for a choice while", || ignore(picked().overdue(at(2), true))),
        ("is not picked", || joined(RateMonotonic::new(2)).ran(A, Span::ZERO, at(2))),
        ("is not picked", || ran().ran(A, Span::ZERO, at(3))),
        ("is not picked", || ignore(ran().gives_way(A, at(2), at(3)))),
        ("is not picked", || ignore(ran().check_at(A, at(2), at(9)))),
        ("is not picked", || ignore(ran().served(A))),
        ("another start", || ignore(picked().gives_way(A, at(1), at(3)))),
        ("another start", || ignore(picked().check_at(A, at(1), at(9)))),
        ("is charged", || picked().ran(A, Span::from_millis(2), at(3))),
        ("did not run", || picked().resume(A, at(3))),
        ("did not run", || picked().done(A, JOB.deadline, at(3))),
        ("did not run", || ran().resume(B, at(3))),
        ("another deadline", || ran().done(A, at(41), at(3))),
        ("served for a job", || ran().extra_done(A, ExtraEnd::Done, at(3))),
    ]);
}

#[test]
fn a_user_that_breaks_an_extra_service_or_a_loss_panics() {
    expect_panics(&[
        ("without a job", || {
            let mut policy = extra();
            policy.ran(A, Span::ZERO, at(2));
            policy.done(A, JOB.deadline, at(2));
        }),
        ("did not run", || extra().extra_done(A, ExtraEnd::Done, at(2))),
        ("does not answer overdue", || ready(Faulty::default()).lost(A, 1, at(2))),
        ("does not answer overdue", || overdue().lost(B, 1, at(2))),
        ("loses no job", || overdue().lost(A, 0, at(2))),
        ("between overdue and lost", || overdue().withdraw(A, at(2))),
        ("between overdue and lost", || ignore(overdue().pick(at(2)))),
    ]);
}

#[test]
fn a_policy_that_answers_wrongly_panics() {
    expect_panics(&[
        ("does not find a ready activity", || ignore(ready(Faulty::default()).pick(at(2)))),
        ("has_ready is false", || {
            ignore(ready(Faulty { picks: Some(A), ..Faulty::default() }).pick(at(2)));
        }),
        ("did not join", || {
            let faulty = Faulty { picks: Some(B), has_ready: true, ..Faulty::default() };
            ignore(ready(faulty).pick(at(2)));
        }),
        ("best and pick differ", || {
            let faulty =
                Faulty { picks: Some(A), best: Some(B), has_ready: true, ..Faulty::default() };
            ignore(ready(faulty).pick(at(2)));
        }),
        ("misses a ready activity", || ignore(ready(Faulty::default()).has_ready())),
        ("did not join", || {
            let faulty = Faulty { picks_extra: Some(B), ..Faulty::default() };
            ignore(joined(faulty).pick_extra(at(2), Instant::FAR));
        }),
        ("expected Ready", || {
            ignore(joined(Faulty { overdue: Some(A), ..Faulty::default() }).overdue(at(2), false));
        }),
        ("later than the next release", || {
            let check_late = true;
            let faulty =
                Faulty { picks: Some(A), has_ready: true, check_late, ..Faulty::default() };
            let mut policy = ready(faulty);
            policy.pick(at(2));
            ignore(policy.check_at(A, at(2), at(9)));
        }),
    ]);
}
