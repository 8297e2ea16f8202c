//! The state machine of the module's head, transition by transition.
//! `tests/rate_monotonic_model.rs` compares any sequence of inputs with a model.

use super::*;
use crate::activity::Terms;
use crate::discipline::RMDP;
use crate::record::JobRecord;

const A: ActivityId = ActivityId(0);
const B: ActivityId = ActivityId(1);

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

const fn at(ns: u64) -> Instant {
    Instant::from_nanos(ns)
}

/// A batch may take the whole period, so that no budget runs out; each test decides how long it
/// runs.
const fn task(period_ns: u64, batch: u32) -> ActivityParams {
    ActivityParams::new(ns(period_ns), ns(period_ns / batch as u64)).batch(batch)
}

/// A scheduler whose commands are all polled after each input, as in every driver.
struct Bench(Scheduler);

impl Bench {
    /// A scheduler with these activities created and running from 0 on, numbered as they stand.
    /// Nothing has been released yet unless its offset is 0.
    fn running(set: &[ActivityParams]) -> (Bench, Vec<Command>) {
        let mut bench = Bench(Scheduler::new(8, &RMDP));
        for (&params, number) in set.iter().zip(0..) {
            let id = ActivityId(number);
            assert_eq!(bench.handle(0, Input::Create { id, params, terms: Terms::default() }), []);
        }
        // No command is polled in between: all offsets of 0 are released together.
        for number in 0..u32::try_from(set.len()).unwrap() {
            bench.0.handle(at(0), Input::Run { id: ActivityId(number), at: at(0) }).unwrap();
        }
        let commands = bench.drain(0);
        (bench, commands)
    }

    fn handle(&mut self, now: u64, input: Input) -> Vec<Command> {
        self.0.handle(at(now), input).unwrap();
        self.drain(now)
    }

    fn drain(&mut self, now: u64) -> Vec<Command> {
        core::iter::from_fn(|| self.0.poll_command(at(now))).collect()
    }

    fn returned(&mut self, now: u64, pdus: u32, outcome: Outcome) -> Vec<Command> {
        self.handle(now, Input::Returned { pdus, outcome })
    }

    fn counters(&self, id: ActivityId) -> Counters {
        self.0.counters(id).unwrap()
    }
}

fn upcall(id: ActivityId, pdus_max: u32, resumed: bool, check_at: u64) -> Command {
    Command::Upcall { id, pdus_max, resumed, check_at: at(check_at) }
}

/// The records among the commands.
fn records(commands: &[Command]) -> Vec<JobRecord> {
    let record = |command: &Command| match command {
        Command::JobDone(record) => Some(*record),
        _ => None,
    };
    commands.iter().filter_map(record).collect()
}

#[test]
fn a_created_activity_is_suspended_and_never_upcalled() {
    let mut bench = Bench(Scheduler::new(8, &RMDP));
    assert_eq!(
        bench.handle(0, Input::Create { id: A, params: task(10, 1), terms: Terms::default() }),
        []
    );
    assert!(!bench.0.is_active(A));
    assert_eq!(bench.0.next_deadline(), None);
    assert_eq!(bench.handle(1_000, Input::Tick), []);
    assert_eq!(bench.counters(A), Counters::NONE);
}

#[test]
fn a_clock_that_is_set_back_stands_still_until_it_is_past_its_latest_reading() {
    // The answers at the readings of a faulty clock and of a correct one.
    let answers = |readings: [u64; 8]| {
        let (mut bench, mut commands) = Bench::running(&[task(10, 3), task(40, 9)]);
        let inputs = [
            Input::Returned { pdus: 3, outcome: Outcome::Done },
            Input::Boundary,
            Input::Returned { pdus: 2, outcome: Outcome::Yielded },
            Input::Boundary,
            Input::Returned { pdus: 3, outcome: Outcome::Done },
            Input::Boundary,
            Input::Returned { pdus: 7, outcome: Outcome::Done },
            Input::Tick,
        ];
        for (now, input) in readings.into_iter().zip(inputs) {
            commands.extend(bench.handle(now, input));
        }
        let counters = [A, B].map(|id| bench.0.counters_at(at(0), id));
        (commands, counters)
    };
    let steady = answers([3, 12, 12, 14, 15, 15, 18, 20]);
    assert_eq!(answers([3, 12, 5, 14, 15, 0, 18, 20]), steady);
    assert_ne!(answers([3, 12, 13, 14, 15, 15, 18, 20]), steady);
}

#[test]
fn run_sets_the_first_release_and_the_others_follow_by_the_period() {
    let (mut bench, commands) = Bench::running(&[task(10, 1).offset(ns(4))]);
    assert_eq!(commands, []);
    assert!(bench.0.is_active(A));
    for release in [4, 14, 24] {
        assert_eq!(bench.0.next_deadline(), Some(at(release)));
        assert_eq!(bench.handle(release - 1, Input::Tick), []);
        assert_eq!(bench.handle(release, Input::Tick), [upcall(A, 1, false, release + 10)]);
        let record = records(&bench.returned(release + 3, 1, Outcome::Done))[0];
        assert_eq!(
            (record.release, record.start, record.end),
            (at(release), at(release), at(release + 3))
        );
        assert_eq!(record.deadline, at(release + 10));
    }
    // A second run changes nothing.
    assert_eq!(bench.handle(28, Input::Run { id: A, at: at(28) }), []);
    assert_eq!(bench.0.next_deadline(), Some(at(34)));
}

#[test]
fn the_best_rank_is_upcalled_first_and_equal_periods_go_by_creation() {
    let (mut bench, commands) = Bench::running(&[task(30, 1), task(20, 1), task(20, 1)]);
    assert_eq!(commands, [upcall(B, 1, false, 20)]);
    let mut order = vec![];
    for now in 1..4 {
        let commands = bench.returned(now, 1, Outcome::Done);
        order.extend(commands.iter().filter_map(|command| match command {
            Command::Upcall { id, .. } => Some(id.0),
            _ => None,
        }));
    }
    assert_eq!(order, [2, 0]);
    assert_eq!(bench.0.running(), None);
    assert_eq!(bench.0.switches(), 3);
}

#[test]
fn a_release_of_worse_rank_lets_the_handler_go_on_and_one_of_better_rank_does_not() {
    let (mut bench, commands) =
        Bench::running(&[task(20, 2), task(50, 5), task(90, 1).offset(ns(3))]);
    assert_eq!(commands, [upcall(A, 2, false, 3)]);
    // The third was released at 3, so the question changes nothing.
    assert_eq!(bench.handle(4, Input::Boundary), [Command::Proceed { check_at: at(20) }]);
    assert_eq!(bench.returned(5, 2, Outcome::Done)[1..], [upcall(B, 5, false, 20)]);
    // A release at the very instant of the boundary is seen.
    assert_eq!(bench.handle(19, Input::Boundary), [Command::Proceed { check_at: at(20) }]);
    assert_eq!(bench.handle(20, Input::Boundary), [Command::Yield]);
    assert_eq!(bench.returned(20, 3, Outcome::Yielded), [upcall(A, 2, false, 40)]);
}

#[test]
fn the_rest_of_the_batch_is_kept_across_preemptions() {
    let (mut bench, commands) = Bench::running(&[task(10, 1).offset(ns(5)), task(100, 9)]);
    assert_eq!(commands, [upcall(B, 9, false, 5)]);
    assert_eq!(bench.handle(6, Input::Boundary), [Command::Yield]);
    assert_eq!(bench.returned(6, 4, Outcome::Yielded), [upcall(A, 1, false, 15)]);
    assert_eq!(bench.returned(8, 1, Outcome::Done)[1..], [upcall(B, 5, true, 15)]);
    assert_eq!(bench.handle(16, Input::Boundary), [Command::Yield]);
    assert_eq!(bench.returned(16, 2, Outcome::Yielded), [upcall(A, 1, false, 25)]);
    assert_eq!(bench.returned(18, 1, Outcome::Done)[1..], [upcall(B, 3, true, 25)]);
    let record = records(&bench.returned(21, 3, Outcome::Done))[0];
    // In the handler from 0 to 6, 8 to 16 and 18 to 21.
    assert_eq!((record.pdus, record.preemptions, record.run), (9, 2, ns(17)));
    assert_eq!((record.start, record.end, record.completed), (at(0), at(21), true));
    assert_eq!(bench.counters(B).preemptions, 2);
    assert_eq!(bench.0.switches(), 5);
    // The next job has its whole batch.
    bench.handle(22, Input::Suspend { id: A });
    assert_eq!(bench.handle(100, Input::Tick), [upcall(B, 9, false, 199)]);
}

#[test]
fn a_job_with_nothing_left_to_do_ends_early_and_leaves_nothing_behind() {
    let (mut bench, _) = Bench::running(&[task(10, 8)]);
    let record = records(&bench.returned(2, 3, Outcome::Done))[0];
    assert_eq!((record.pdus, record.completed, record.missed()), (3, true, false));
    assert_eq!(bench.handle(10, Input::Tick), [upcall(A, 8, false, 18)]);
}

#[test]
fn a_handler_that_yields_after_its_batch_has_ended_its_job() {
    let (mut bench, _) = Bench::running(&[task(10, 8)]);
    let commands = bench.returned(9, 8, Outcome::Yielded);
    assert_eq!(commands.len(), 1, "{commands:?}");
    assert!(records(&commands)[0].completed);
    assert_eq!(bench.counters(A).preemptions, 0);
}

#[test]
fn a_release_before_the_job_is_done_is_an_overrun_and_waits_behind_it() {
    let (mut bench, _) = Bench::running(&[task(10, 2)]);
    // No activity outranks it, although its own next job waits.
    assert_eq!(bench.handle(12, Input::Boundary), [Command::Proceed { check_at: at(20) }]);
    assert_eq!(bench.counters(A).overruns, 1);
    let commands = bench.returned(15, 2, Outcome::Done);
    let first = records(&commands)[0];
    assert_eq!((first.job, first.release, first.slack_ns()), (0, at(0), -5));
    assert_eq!(commands[1..], [upcall(A, 2, false, 20)]);
    let second = records(&bench.returned(18, 2, Outcome::Done))[0];
    assert_eq!((second.job, second.release, second.slack_ns()), (1, at(10), 2));
    let counters = bench.counters(A);
    assert_eq!((counters.jobs, counters.completed, counters.misses), (2, 2, 1));
    assert_eq!((counters.slack_ns_min, counters.response_max), (-5, ns(15)));
    assert_eq!(bench.0.switches(), 1);
}

#[test]
fn a_driver_that_was_late_releases_all_periods_in_one_step() {
    let (mut bench, _) = Bench::running(&[task(10, 1).offset(ns(10))]);
    assert_eq!(bench.handle(45, Input::Tick), [upcall(A, 1, false, 50)]);
    let counters = bench.counters(A);
    assert_eq!((counters.jobs, counters.overruns), (4, 3));
    let ends: Vec<_> = [46, 47, 48, 49]
        .map(|now| records(&bench.returned(now, 1, Outcome::Done))[0])
        .iter()
        .map(|record| (record.job, record.release.as_nanos(), record.slack_ns()))
        .collect();
    assert_eq!(ends, [(0, 10, -26), (1, 20, -17), (2, 30, -8), (3, 40, 1)]);
    assert_eq!(bench.counters(A).misses, 3);
    assert_eq!(bench.0.running(), None);
}

#[test]
fn suspending_a_waiting_activity_drops_its_releases() {
    let (mut bench, _) = Bench::running(&[task(10, 1).offset(ns(5))]);
    assert_eq!(bench.handle(1, Input::Suspend { id: A }), [Command::Inactive { id: A }]);
    assert_eq!(bench.handle(50, Input::Tick), []);
    assert_eq!((bench.0.is_active(A), bench.counters(A).jobs), (false, 0));
    // It is suspended already, so there is no second report.
    assert_eq!(bench.handle(51, Input::Suspend { id: A }), []);
    // It can be run again, from its offset on.
    assert_eq!(bench.handle(60, Input::Run { id: A, at: at(60) }), []);
    assert_eq!(bench.handle(65, Input::Tick), [upcall(A, 1, false, 75)]);
}

#[test]
fn suspending_a_ready_activity_drops_its_job() {
    let (mut bench, _) = Bench::running(&[task(10, 1), task(100, 9)]);
    assert_eq!(bench.handle(1, Input::Suspend { id: B }), [Command::Inactive { id: B }]);
    assert_eq!(bench.returned(2, 1, Outcome::Done).len(), 1);
    // A job that had begun is recorded as cut short.
    bench.handle(3, Input::Run { id: B, at: at(3) });
    bench.handle(11, Input::Boundary);
    bench.returned(11, 4, Outcome::Yielded);
    let commands = bench.handle(12, Input::Suspend { id: B });
    let record = records(&commands)[0];
    assert_eq!((record.pdus, record.completed, record.preemptions), (4, false, 1));
    assert_eq!(commands[1..], [Command::Inactive { id: B }]);
    let counters = bench.counters(B);
    assert_eq!((counters.jobs, counters.completed, counters.misses), (2, 0, 0));
}

/// The policy drops late jobs. Seed 2610 of the simulator found this case.
#[test]
fn a_lost_job_is_reported_before_its_activity_is_inactive_or_gone() {
    for close in [false, true] {
        let mut scheduler = Scheduler::new(2, &crate::discipline::DWCS);
        let handle = |scheduler: &mut Scheduler, now: u64, input| {
            scheduler.handle(at(now), input).unwrap();
            core::iter::from_fn(|| scheduler.poll_notice()).collect::<Vec<_>>()
        };
        for (id, params) in [(A, task(10, 1)), (B, task(100, 40).quantum(40))] {
            let terms = Terms::default();
            handle(&mut scheduler, 0, Input::Create { id, params, terms });
        }
        handle(&mut scheduler, 0, Input::Run { id: B, at: at(0) });
        assert!(matches!(scheduler.poll_command(at(0)), Some(Command::Upcall { id: B, .. })));
        handle(&mut scheduler, 1, Input::Run { id: A, at: at(1) });
        // The deadline of A passes while B runs. B must not get any report.
        assert_eq!(handle(&mut scheduler, 15, Input::Tick), []);
        let stop = if close { Input::Close { id: A } } else { Input::Suspend { id: A } };
        let commands = handle(&mut scheduler, 16, stop);
        let record = records(&commands)[0];
        assert_eq!((record.id, record.release, record.completed), (A, at(1), false));
        assert_eq!(commands[1], Command::Inactive { id: A });
        assert_eq!(commands.get(2), close.then_some(&Command::Closed { id: A }));
        let back = Input::Returned { pdus: 40, outcome: Outcome::Done };
        assert_eq!(records(&handle(&mut scheduler, 40, back))[0].id, B);
    }
}

#[test]
fn a_running_handler_is_suspended_at_its_next_boundary() {
    let (mut bench, _) = Bench::running(&[task(10, 4)]);
    assert_eq!(bench.handle(1, Input::Suspend { id: A }), []);
    assert_eq!((bench.0.running(), bench.0.is_active(A)), (Some(A), true));
    assert_eq!(bench.handle(2, Input::Boundary), [Command::Yield]);
    let commands = bench.returned(2, 2, Outcome::Yielded);
    assert!(!records(&commands)[0].completed);
    assert_eq!(commands[1..], [Command::Inactive { id: A }]);
    assert_eq!(bench.counters(A).preemptions, 0);
    // A job that was done by then is simply done.
    bench.handle(3, Input::Run { id: A, at: at(3) });
    bench.handle(4, Input::Suspend { id: A });
    let commands = bench.returned(5, 4, Outcome::Done);
    assert!(records(&commands)[0].completed);
    assert_eq!(commands[1..], [Command::Inactive { id: A }]);
}

#[test]
fn a_suspended_handler_that_still_runs_gets_no_further_release() {
    let (mut bench, _) = Bench::running(&[task(10, 4)]);
    bench.handle(1, Input::Suspend { id: A });
    assert_eq!(bench.0.next_deadline(), None);
    assert_eq!(bench.handle(35, Input::Boundary), [Command::Yield]);
    bench.returned(35, 2, Outcome::Yielded);
    let counters = bench.counters(A);
    assert_eq!((counters.jobs, counters.overruns), (1, 0));
}

#[test]
fn a_run_cancels_a_pending_suspend() {
    let (mut bench, _) = Bench::running(&[task(10, 4)]);
    bench.handle(1, Input::Suspend { id: A });
    assert_eq!(bench.handle(2, Input::Run { id: A, at: at(2) }), []);
    // The releases continue as if the suspend had never come.
    assert_eq!(bench.handle(3, Input::Boundary), [Command::Proceed { check_at: at(8) }]);
    assert_eq!(bench.returned(5, 4, Outcome::Done).len(), 1);
    assert_eq!(bench.handle(10, Input::Tick), [upcall(A, 4, false, 18)]);
    // A close is not cancelled.
    bench.handle(13, Input::Close { id: A });
    bench.handle(13, Input::Run { id: A, at: at(13) });
    assert_eq!(bench.handle(14, Input::Boundary), [Command::Yield]);
    assert_eq!(bench.0.next_deadline(), None);
}

#[test]
fn close_frees_the_number_in_any_state() {
    let closed = [Command::Inactive { id: A }, Command::Closed { id: A }];
    // Suspended: no job waits.
    let mut bench = Bench(Scheduler::new(1, &RMDP));
    bench.handle(0, Input::Create { id: A, params: task(10, 1), terms: Terms::default() });
    assert_eq!(bench.handle(0, Input::Close { id: A }), closed[1..]);
    // Waiting.
    let (mut bench, _) = Bench::running(&[task(10, 1).offset(ns(5))]);
    assert_eq!(bench.handle(1, Input::Close { id: A }), closed);
    // Running, at the boundary; a later suspend does not cancel the close.
    bench.handle(1, Input::Create { id: A, params: task(10, 4), terms: Terms::default() });
    bench.handle(1, Input::Run { id: A, at: at(1) });
    bench.handle(2, Input::Close { id: A });
    bench.handle(2, Input::Suspend { id: A });
    assert_eq!(bench.handle(3, Input::Boundary), [Command::Yield]);
    assert_eq!(bench.returned(3, 1, Outcome::Yielded)[1..], closed);
    assert_eq!((bench.0.counters(A), bench.0.next_deadline()), (None, None));
    // Ready, behind another.
    let (mut bench, _) = Bench::running(&[task(90, 1), task(10, 1)]);
    assert_eq!(bench.handle(1, Input::Close { id: A }), closed);
    assert_eq!(bench.returned(2, 1, Outcome::Done).len(), 1);
    // The counters of the number begin at zero.
    bench.handle(3, Input::Create { id: A, params: task(20, 1), terms: Terms::default() });
    assert_eq!(bench.counters(A), Counters::NONE);
}

#[test]
fn a_handler_that_is_finished_is_suspended() {
    let (mut bench, _) = Bench::running(&[task(10, 4)]);
    let commands = bench.returned(3, 2, Outcome::Finished);
    assert!(records(&commands)[0].completed);
    assert_eq!(commands[1..], [Command::Inactive { id: A }]);
    assert_eq!((bench.0.is_active(A), bench.0.next_deadline()), (false, None));
    // A handler that is finished is suspended even if another job waits.
    bench.handle(10, Input::Run { id: A, at: at(10) });
    bench.handle(25, Input::Boundary);
    assert_eq!(bench.returned(25, 2, Outcome::Finished)[1..], [Command::Inactive { id: A }]);
    assert_eq!(bench.handle(40, Input::Tick), []);
}

#[test]
fn an_input_that_does_not_fit_is_an_error_and_changes_nothing() {
    let (mut bench, _) = Bench::running(&[task(10, 2)]);
    let (far, free) = (ActivityId(8), ActivityId(7));
    let params = task(10, 1);
    let before = format!("{:?}", bench.0);
    for (input, error) in [
        (Input::Create { id: A, params, terms: Terms::default() }, InputError::Taken(A)),
        (Input::Create { id: far, params, terms: Terms::default() }, InputError::OutOfRange(far)),
        (Input::Run { id: free, at: at(0) }, InputError::Unknown(free)),
        (Input::Run { id: far, at: at(0) }, InputError::OutOfRange(far)),
        (Input::Suspend { id: free }, InputError::Unknown(free)),
        (Input::Close { id: free }, InputError::Unknown(free)),
        (Input::Close { id: far }, InputError::OutOfRange(far)),
        (
            Input::Returned { pdus: 3, outcome: Outcome::Done },
            InputError::TooManyPdus { pdus: 3, pdus_max: 2 },
        ),
    ] {
        assert_eq!(bench.0.handle(at(5), input), Err(error));
        assert_eq!(format!("{:?}", bench.0), before, "{input:?}");
    }
    bench.returned(6, 2, Outcome::Done);
    for input in [Input::Boundary, Input::Returned { pdus: 0, outcome: Outcome::Done }] {
        assert_eq!(bench.0.handle(at(6), input), Err(InputError::NothingRuns));
    }
}

#[test]
fn at_the_end_of_a_run_unfinished_late_jobs_count_as_missed() {
    let (mut bench, _) = Bench::running(&[task(10, 1).deadline(ns(6)), task(1000, 900)]);
    bench.returned(1, 1, Outcome::Done);
    // B runs without end; A is released at 10 and at 20, due at 16 and 26.
    let misses_at = |bench: &Bench, now| bench.0.counters_at(at(now), A).unwrap().misses;
    bench.handle(25, Input::Tick);
    assert_eq!(bench.counters(A).misses, 0);
    assert_eq!([15, 16, 17, 26, 27].map(|now| misses_at(&bench, now)), [0, 0, 1, 1, 2]);
    // Only a released job can be late.
    assert_eq!(misses_at(&bench, 500), 2);
    let counters = bench.0.counters_at(at(30), A).unwrap();
    assert_eq!((counters.slack_ns_min, counters.response_max), (-14, ns(20)));
    assert_eq!(bench.0.counters_at(at(30), B).unwrap().misses, 0);
    assert_eq!(bench.0.counters_at(at(30), ActivityId(5)), None);
}

#[test]
fn a_late_job_stays_missed_when_it_is_dropped() {
    let (mut bench, _) = Bench::running(&[task(10, 1).deadline(ns(6)), task(1000, 900)]);
    bench.returned(1, 1, Outcome::Done);
    bench.handle(30, Input::Tick);
    let before = bench.0.counters_at(at(30), A).unwrap();
    assert_eq!(before.misses, 2);
    bench.handle(30, Input::Suspend { id: A });
    assert_eq!(bench.0.counters_at(at(90), A), Some(before));
    // The same for jobs behind one that had begun. They are due at 16, 26 and, not yet, 36.
    let (mut bench, _) = Bench::running(&[task(10, 1).deadline(ns(6)).offset(ns(10))]);
    bench.handle(10, Input::Tick);
    bench.handle(30, Input::Suspend { id: A });
    bench.returned(30, 0, Outcome::Yielded);
    assert_eq!(bench.counters(A).misses, 1, "released once before the suspend");
    let (mut bench, _) = Bench::running(&[task(10, 1).deadline(ns(6)).offset(ns(10))]);
    bench.handle(10, Input::Tick);
    bench.handle(30, Input::Tick);
    bench.handle(30, Input::Suspend { id: A });
    bench.returned(30, 0, Outcome::Yielded);
    assert_eq!((bench.counters(A).jobs, bench.counters(A).misses), (3, 2));
}

#[test]
fn an_activity_with_a_job_at_an_idle_moment_awaits_the_next_one() {
    let (mut bench, _) = Bench::running(&[task(100, 2)]);
    // 30 over its budget.
    bench.returned(130, 2, Outcome::Done);
    assert!(bench.0.awaits_idle());
    // The job of 100 has come already.
    bench.0.handle(at(130), Input::Idle).unwrap();
    assert!(bench.0.awaits_idle());
    bench.drain(130);
    bench.returned(140, 2, Outcome::Done);
    bench.0.handle(at(140), Input::Idle).unwrap();
    assert!(!bench.0.awaits_idle());
}
