//! What becomes of the jobs of an activity that was stopped or is late (docs/decisions/0016).

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityId, ActivityParams, Backlog, Terms};
use upcall_core::discipline::{DWS, RMDP};
use upcall_core::record::JobRecord;
use upcall_core::scheduler::{Command, Counters, Input, Outcome, Scheduler};
use upcall_core::time::{Instant, Span};

const A: ActivityId = ActivityId(0);

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

fn handle(scheduler: &mut Scheduler, now: u64, input: Input) {
    scheduler.handle(at(now), input).unwrap();
}

/// The records that wait, and the activity of the upcall that follows.
fn next(scheduler: &mut Scheduler, now: u64) -> (Vec<JobRecord>, Option<ActivityId>) {
    let mut records = Vec::new();
    loop {
        match scheduler.poll_command(at(now)) {
            Some(Command::JobDone(record)) => records.push(record),
            Some(Command::Upcall { id, .. }) => return (records, Some(id)),
            Some(other) => panic!("{other:?}"),
            None => return (records, None),
        }
    }
}

/// 2 of 10 ns.
fn params() -> ActivityParams {
    ActivityParams::new(Span::from_nanos(10), Span::from_nanos(1)).batch(2)
}

fn create(scheduler: &mut Scheduler, id: ActivityId, params: ActivityParams, terms: Terms) {
    handle(scheduler, 0, Input::Create { id, params, terms });
    handle(scheduler, 0, Input::Run { id, at: at(0) });
}

/// The driver sleeps from 0 to 57: the jobs of 0 to 50 wait. Returns the release of the first job
/// that runs, the jobs that it knows to be skipped, and the counters.
fn after_a_pause(backlog: Backlog) -> (u64, u64, Counters) {
    let mut scheduler = Scheduler::new(2, &RMDP);
    create(&mut scheduler, A, params(), Terms { backlog, ..Terms::default() });
    handle(&mut scheduler, 57, Input::Tick);
    let (dropped, first) = next(&mut scheduler, 57);
    assert_eq!(first, Some(A));
    let skipped = scheduler.jobs_skipped();
    assert_eq!(dropped.len(), usize::from(skipped > 0));
    assert!(dropped.iter().all(|record| record.missed() && !record.completed && record.job == 0));
    handle(&mut scheduler, 58, Input::Returned { pdus: 2, outcome: Outcome::Done });
    let done = scheduler.poll_notice();
    let Some(Command::JobDone(record)) = done else { panic!("{done:?}") };
    (record.release.as_nanos(), skipped, scheduler.counters_at(at(58), A).unwrap())
}

#[test]
fn a_backlog_is_caught_up_skipped_or_cut_to_the_latest_job() {
    let (release, skipped, counters) = after_a_pause(Backlog::CatchUp);
    assert_eq!((release, skipped), (0, 0));
    assert_eq!((counters.jobs, counters.completed, counters.skipped), (6, 1, 0));
    for backlog in [Backlog::Skip, Backlog::Latest] {
        let (release, skipped, counters) = after_a_pause(backlog);
        assert_eq!((release, skipped), (50, 5), "{backlog:?}");
        assert_eq!((counters.jobs, counters.completed), (6, 1));
        assert_eq!((counters.misses, counters.skipped), (5, 5));
    }
}

#[test]
fn skip_drops_what_is_late_and_latest_what_has_a_successor() {
    // Deadlines are 4 after the release. At 57 the job of 50 is late, and no newer one is there.
    let first = |backlog| {
        let mut scheduler = Scheduler::new(2, &RMDP);
        let params = params().deadline(Span::from_nanos(4));
        create(&mut scheduler, A, params, Terms { backlog, ..Terms::default() });
        handle(&mut scheduler, 57, Input::Tick);
        (next(&mut scheduler, 57).1, scheduler.jobs_skipped())
    };
    assert_eq!(first(Backlog::Latest), (Some(A), 5));
    assert_eq!(first(Backlog::Skip), (None, 0));
}

#[test]
fn a_job_that_began_is_never_cut_and_its_successors_are_dropped_after_it() {
    for backlog in [Backlog::Skip, Backlog::Latest] {
        let mut scheduler = Scheduler::new(2, &RMDP);
        create(&mut scheduler, A, params(), Terms { backlog, ..Terms::default() });
        assert_eq!(next(&mut scheduler, 0).1, Some(A));
        handle(&mut scheduler, 38, Input::Boundary);
        assert!(matches!(scheduler.poll_notice(), Some(Command::Proceed { .. })));
        handle(&mut scheduler, 39, Input::Returned { pdus: 2, outcome: Outcome::Done });
        let (records, first) = next(&mut scheduler, 39);
        assert_eq!(records.iter().map(|record| record.job).collect::<Vec<_>>(), [0, 1]);
        assert!(records[0].completed && !records[1].completed);
        assert_eq!((first, scheduler.jobs_skipped()), (Some(A), 2), "{backlog:?}");
    }
}

/// A task has one job at a time. Its late message moves to the present period.
#[test]
fn the_late_message_of_a_task_counts_the_periods_that_it_missed() {
    for (backlog, skipped) in [(Backlog::CatchUp, 0), (Backlog::Skip, 3), (Backlog::Latest, 3)] {
        let mut scheduler = Scheduler::new(2, &DWS);
        let terms = Terms { backlog, on_demand: true, ..Terms::default() };
        create(&mut scheduler, A, params(), terms);
        handle(&mut scheduler, 35, Input::Tick);
        assert_eq!(next(&mut scheduler, 35).1, Some(A));
        assert_eq!(scheduler.jobs_skipped(), skipped, "{backlog:?}");
        handle(&mut scheduler, 36, Input::Returned { pdus: 1, outcome: Outcome::Done });
        let (records, _) = next(&mut scheduler, 36);
        let done = records.last().unwrap();
        assert_eq!(done.release, at(10 * skipped));
        let counters = scheduler.counters(A).unwrap();
        assert_eq!((counters.jobs, counters.skipped), (1 + skipped, skipped));
        assert_eq!(counters.misses, skipped.max(1));
    }
}

/// After a stop, the other domains see the backlog behind their own work until the next release.
/// From then on the activity has its reservation again, and no more.
#[test]
fn after_a_stop_the_backlog_waits_for_the_budget_of_the_next_release() {
    for discipline in [&RMDP, &DWS] {
        let mut scheduler = Scheduler::new(2, discipline);
        create(&mut scheduler, A, params(), Terms::default());
        let key = |scheduler: &Scheduler| scheduler.best().unwrap().key;
        handle(&mut scheduler, 0, Input::Tick);
        let own = key(&scheduler);
        handle(&mut scheduler, 57, Input::PassedOver);
        let behind = key(&scheduler);
        assert!(behind >= 1 << 63, "{discipline:?}: {behind}");
        let (restored_at, then) = scheduler.upcoming(A).unwrap();
        assert_eq!(restored_at, at(60));
        handle(&mut scheduler, 60, Input::Tick);
        assert_eq!(key(&scheduler), then.key);
        // Under DWS the rank counts from the new budget.
        assert_eq!(then.key, if discipline.is_named("dws") { own + 60 } else { own });
        // One job costs the whole budget. The next one waits for the release at 70.
        assert_eq!(next(&mut scheduler, 60).1, Some(A));
        handle(&mut scheduler, 62, Input::Returned { pdus: 2, outcome: Outcome::Done });
        assert!(matches!(scheduler.poll_notice(), Some(Command::JobDone(_))));
        assert!(key(&scheduler) >= 1 << 63, "{discipline:?}");
        assert_eq!(scheduler.upcoming(A).unwrap().0, at(70));
    }
}

/// A driver that was away tells the time once, after a release and the refill that follows it. So
/// did a domain that got the turn late, and then ran another activity first.
#[test]
fn a_refill_counts_although_the_driver_comes_late() {
    for discipline in [&RMDP, &DWS] {
        let mut scheduler = Scheduler::new(2, discipline);
        let (b, rare) =
            (ActivityId(1), ActivityParams { period: Span::from_nanos(90), ..params() });
        create(&mut scheduler, A, params(), Terms::default());
        create(
            &mut scheduler,
            b,
            ActivityParams { deadline: rare.period, ..rare },
            Terms::default(),
        );
        assert_eq!(next(&mut scheduler, 0).1, Some(A));
        // Used 5 instead of 2 ns: the next window has a debt, and the one at 20 pays it.
        handle(&mut scheduler, 5, Input::Returned { pdus: 2, outcome: Outcome::Done });
        assert!(matches!(scheduler.poll_notice(), Some(Command::JobDone(_))));
        let over = scheduler.upcoming_over_budget(A).unwrap();
        let refill = scheduler.upcoming(A).unwrap();
        assert_eq!((over.0, refill.0), (at(10), at(20)), "{discipline:?}");
        assert!(over.1.key > refill.1.key, "{discipline:?}");
        handle(&mut scheduler, 25, Input::Tick);
        assert_eq!(scheduler.best(), Some(refill.1), "{discipline:?}");
        assert_eq!(next(&mut scheduler, 25).1, Some(A), "{discipline:?}");
    }
}
