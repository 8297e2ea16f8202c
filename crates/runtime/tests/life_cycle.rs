//! Tests of create, run, suspend, close and wait on real threads (rtu-1995 Table 1).
//!
//! The tests assert no deadlines, which depend on the machine. Any thread may be stopped at any
//! moment for any time.

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use upcall_core::trace::Crossing;
use upcall_runtime::activity::{ActivityParams, Claim, Terms};
use upcall_runtime::admission::Share;
use upcall_runtime::discipline::PS;
use upcall_runtime::scheduler::Input;
use upcall_runtime::time::Span;
use upcall_runtime::{
    ActivityReport, Config, CreateError, HandlerId, Mode, Report, Runtime, clock,
};

fn start(mode: Mode) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { mode, ..Config::default() })
}

fn every(period_ms: u64, cost_us: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(cost_us))
}

/// The report of an attempt in which every scheduling thread ended in time, as in most attempts.
/// `stop` leaves behind a thread that does not end within half a second. It cannot tell a handler
/// that does not yield from a machine that gave the thread no CPU time.
#[track_caller]
fn report_of_all(attempt: impl Fn() -> Report) -> Report {
    support::in_most_attempts(|| {
        let report = attempt();
        if report.stuck.is_empty() { Ok(report) } else { Err("a scheduling thread did not end") }
    })
}

/// Closes a handler. Tries again if the machine keeps the executor from answering within the half
/// second that `close` waits.
#[track_caller]
fn close(runtime: &mut Runtime, id: HandlerId) -> ActivityReport {
    let give_up = clock::now() + Span::from_secs(60);
    loop {
        match runtime.close(id) {
            Some(report) => return report,
            None => assert!(clock::now() < give_up, "not closed in a minute"),
        }
    }
}

#[test]
fn a_handler_runs_its_batches_until_it_calls_finish() {
    for mode in Mode::ALL {
        let report = report_of_all(|| {
            let (mut runtime, _alone) = start(mode);
            let (mut jobs, mut pdus) = (0, 0);
            let id = runtime
                .handler("h", every(2, 10).batch(3), move |batch| {
                    while batch.proceed() {
                        pdus += 1;
                    }
                    // The notification of `run` may still come, and end a batch.
                    if batch.remaining() > 0 {
                        return;
                    }
                    jobs += 1;
                    assert_eq!(pdus, 3 * jobs);
                    if jobs == 5 {
                        batch.finish();
                    }
                })
                .unwrap();
            assert!(!runtime.is_active(id));
            runtime.run(id).unwrap();
            assert_eq!(runtime.wait(&[id], None), [id]);
            runtime.stop(|_, _| {})
        });
        assert!(!report.activities[0].faulted, "{mode:?}");
        let counters = report.activities[0].counters.unwrap();
        assert_eq!((counters.completed, counters.pdus), (5, 15), "{mode:?}");
        assert_eq!(report.jobs_lost, 0);
    }
}

/// Runs a job of `slow` to its end beside a handler with a period of 5 ms. The job begins only when
/// that handler is certainly delivered.
fn run_beside_fast(mut runtime: Runtime, slow: HandlerId) -> Report {
    let jobs_of_fast = Arc::new(AtomicU32::new(0));
    let fast_counter = jobs_of_fast.clone();
    let fast = runtime
        .handler("fast", every(5, 100), move |batch| {
            while batch.proceed() {
                fast_counter.fetch_add(1, Ordering::Relaxed);
            }
        })
        .expect("the handler is created");
    runtime.run(fast).expect("the handler exists");
    while jobs_of_fast.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    runtime.run(slow).expect("the handler exists");
    runtime.wait(&[slow], None);
    runtime.stop(|_, _| {})
}

#[test]
fn a_long_job_yields_at_quantum_boundaries_and_keeps_its_remaining_count() {
    let (resumed, checks) = (AtomicU32::new(0), AtomicU32::new(0));
    let told = Arc::new([resumed, checks]);
    let report = report_of_all(|| {
        let (mut runtime, _alone) = start(Mode::Upcall);
        let (told, begun) = (told.clone(), clock::now());
        // 50 quanta of 1 ms beside a handler with a period of 5 ms.
        let slow = runtime
            .handler("slow", every(100, 1_000).batch(50), move |batch| {
                told[0].fetch_add(u32::from(batch.resumed()), Ordering::Relaxed);
                // The next release of the fast handler, at most its period away.
                let is_near = batch.check_at() <= clock::now() + Span::from_millis(5);
                let is_near = is_near && batch.check_at() > begun;
                told[1].fetch_add(u32::from(is_near), Ordering::Relaxed);
                while batch.proceed() {
                    let begin = clock::now();
                    while clock::now().since(begin) < Span::from_micros(900) {}
                }
                if batch.remaining() == 0 {
                    batch.finish();
                }
            })
            .unwrap();
        run_beside_fast(runtime, slow)
    });
    let slow = report.activities[0].counters.unwrap();
    // Six quanta, of 5.4 ms, see at least one release of the fast handler on any machine: more time
    // only adds releases. The 49 boundaries inside the job are eight times six.
    assert_eq!((slow.completed, slow.pdus), (1, 50));
    assert!(slow.preemptions >= 8, "{slow:?}");
    let [resumed, checks] = [&told[0], &told[1]].map(|count| count.load(Ordering::Relaxed));
    assert!(resumed >= 8 && checks >= 1, "{resumed} upcalls resumed, {checks} with a check");
    assert!(report.activities[1].counters.unwrap().completed >= 8);
    assert!(report.activity_switches >= 16);
}

/// As above, but the long job keeps the mask.
#[test]
fn a_job_that_masks_preemption_does_not_yield() {
    let report = report_of_all(|| {
        let (mut runtime, _alone) = start(Mode::Upcall);
        let slow = runtime
            .handler("slow", every(100, 1_000).batch(20), |batch| {
                let mut batch = batch.mask_preemption();
                while batch.proceed() {
                    let begin = clock::now();
                    while clock::now().since(begin) < Span::from_micros(900) {}
                }
                batch.finish();
            })
            .unwrap();
        run_beside_fast(runtime, slow)
    });
    let slow = report.activities[0].counters.unwrap();
    assert_eq!((slow.completed, slow.pdus, slow.preemptions), (1, 20, 0));
}

#[test]
fn a_suspended_handler_is_not_upcalled_and_can_be_run_again() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let upcalls = Arc::new(AtomicU32::new(0));
    let counter = upcalls.clone();
    let id = runtime
        .handler("h", every(2, 10), move |batch| {
            while batch.proceed() {
                counter.fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
    runtime.run(id).unwrap();
    while upcalls.load(Ordering::Relaxed) < 3 {
        std::thread::yield_now();
    }
    assert!(runtime.is_active(id));
    runtime.suspend(id);
    runtime.wait(&[id], None);
    assert!(!runtime.is_active(id));
    let at_suspend = upcalls.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(upcalls.load(Ordering::Relaxed), at_suspend);
    runtime.run(id).unwrap();
    while upcalls.load(Ordering::Relaxed) < at_suspend + 3 {
        std::thread::yield_now();
    }
}

#[test]
fn closing_gives_back_name_number_and_reservation() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    // More rounds than there are numbers. Each reserves most of the CPU.
    for round in 0..300 {
        let id = runtime.handler("h", every(1, 800), |batch| while batch.proceed() {}).unwrap();
        if round % 2 == 0 {
            runtime.run(id).unwrap();
        }
        let report = close(&mut runtime, id);
        assert_eq!(report.name, "h");
        assert!(report.counters.is_some());
        assert!(runtime.close(id).is_none());
        assert!(!runtime.is_active(id));
    }
}

#[test]
fn a_panic_ends_the_handler_and_nothing_else() {
    let report = report_of_all(|| {
        let (mut runtime, _alone) = start(Mode::Upcall);
        let bad = runtime
            .handler("bad", every(2, 10), |batch| {
                assert!(!batch.proceed(), "told to");
            })
            .unwrap();
        let mut jobs = 0;
        let good = runtime
            .handler("good", every(2, 10), move |batch| {
                while batch.proceed() {}
                jobs += 1;
                if jobs == 5 {
                    batch.finish();
                }
            })
            .unwrap();
        runtime.run_at(&[bad, good], clock::now()).unwrap();
        assert_eq!(runtime.wait(&[bad], None), [bad]);
        runtime.wait(&[good], None);
        runtime.stop(|_, _| {})
    });
    assert!(report.activities[0].faulted && !report.activities[1].faulted);
    assert_eq!(report.activities[1].counters.unwrap().completed, 5);
}

#[test]
fn a_refused_handler_leaves_no_reservation() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let cpus = runtime.config().cpus.len();
    for number in 0..cpus {
        runtime.handler(&format!("h{number}"), every(10, 6_000), |_| {}).unwrap();
    }
    let refused = runtime.handler("more", every(10, 6_000), |_| {});
    let Err(CreateError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.name, "more");
    assert!(matches!(
        runtime.handler("h0", every(10, 1), |_| {}),
        Err(CreateError::NameTaken(name)) if name == "h0"
    ));
    runtime.handler("less", every(10, 1_000), |_| {}).unwrap();
}

#[test]
fn a_handler_without_a_declared_cost_is_measured_before_admission() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    // The handler uses CPU time, not wall time: a preempted thread has not done its work yet. The
    // period leaves room for the time that the host takes from a trial.
    let id = runtime
        .handler("h", every(10_000, 0).batch(4), |batch| {
            while batch.proceed() {
                let begin_ns = upcall_sys::clock::thread_cpu_ns();
                while upcall_sys::clock::thread_cpu_ns() - begin_ns < 50_000 {}
            }
        })
        .unwrap();
    let cost = runtime.params(id).unwrap().pdu_cost;
    assert!(cost >= Span::from_micros(50), "{cost}");
    assert!(matches!(
        runtime.handler("idle", every(10, 0), |_| {}),
        Err(CreateError::NothingToMeasure)
    ));
}

#[test]
fn waiting_until_the_deadline_returns_an_empty_list() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let id = runtime.handler("h", every(2, 10), |batch| while batch.proceed() {}).unwrap();
    runtime.run(id).unwrap();
    assert!(runtime.wait(&[id], Some(clock::after(Span::from_millis(20)))).is_empty());
    assert!(runtime.is_active(id));
}

#[test]
fn a_running_handler_is_given_another_share_if_admission_grants_it() {
    let alone = support::alone();
    let switch_cost = Some(Span::from_micros(1));
    let config = Config { switch_cost, discipline: &PS, trace: true, ..Config::default() };
    let mut runtime = Runtime::start(config).expect("default CPUs are allowed");
    let share = |percent: u32| Share::from_ppm(percent * 10_000).expect("a share");
    let terms = Terms { share: Some(share(20)), ..Terms::default() };
    let upcalls = Arc::new(AtomicU32::new(0));
    let counted = upcalls.clone();
    let count = move |batch: &mut upcall_runtime::Batch<'_>| {
        while batch.proceed() {}
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let id = runtime.handler("h", (every(20, 10), terms), count).expect("it fits");
    runtime.run(id).expect("it starts");
    runtime.reweigh(id, Claim::Share(share(70))).expect("it fits");
    let refusal = runtime.reweigh(id, Claim::Share(share(95))).expect_err("above the limit");
    assert!(refusal.to_string().contains("a share of 90 % instead of 95 % would fit"), "{refusal}");
    runtime.reweigh(id, Claim::Weight(2)).expect_err("it has a share");
    let given_away = runtime.reservations().load().iter().map(|cpu| cpu.utilization).sum::<f64>();
    assert!((given_away - 0.7).abs() < 1e-9, "{given_away}");
    let seen = upcalls.load(Ordering::Relaxed);
    let give_up = clock::now() + Span::from_secs(60);
    while upcalls.load(Ordering::Relaxed) < seen + 3 {
        assert!(clock::now() < give_up, "not upcalled in a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (mut told, mut refused) = (Vec::new(), 0);
    runtime.poll_trace(|_, record| {
        if let Crossing::Input { input: Input::Reweigh { claim, .. }, refused: not_taken } =
            record.crossing
        {
            told.push(claim);
            refused += u32::from(not_taken);
        }
    });
    assert_eq!((told, refused), (vec![Claim::Share(share(70))], 0), "the core knows what fits");
    close(&mut runtime, id);
    runtime.reweigh(id, Claim::Weight(2)).expect("it is gone, and nothing happens");
    drop(runtime);
    drop(alone);
}

#[test]
fn pdus_that_are_put_back_do_not_count() {
    let report = report_of_all(|| {
        let (mut runtime, _alone) = start(Mode::Upcall);
        let mut jobs = 0;
        let id = runtime
            .handler("h", every(2, 10).batch(10).quantum(4), move |batch| {
                // 4, 4 and 2 PDUs; one of the last two is put back.
                let mut pdus = 0;
                loop {
                    match batch.proceed_quantum() {
                        0 => break,
                        2 => {
                            batch.put_back(1);
                            break;
                        }
                        quantum => pdus += quantum,
                    }
                }
                assert_eq!((pdus, batch.remaining()), (8, 1));
                batch.put_back(u32::MAX);
                assert!(batch.remaining() <= 5, "no more comes back than a quantum");
                assert!(batch.proceed(), "what was put back may be begun");
                jobs += 1;
                if jobs == 3 {
                    batch.finish();
                }
            })
            .unwrap();
        let endings = runtime.endings();
        let seen = endings.count();
        runtime.run(id).unwrap();
        endings.wait_past(seen, None);
        runtime.wait(&[id], None);
        assert_ne!(endings.count(), seen, "the handler has ended");
        runtime.stop(|_, _| {})
    });
    assert!(!report.activities[0].faulted);
    assert_eq!(report.activities[0].counters.unwrap().completed, 3);
}

#[test]
fn a_remote_reservation_takes_its_share_only() {
    for mode in Mode::ALL {
        let (runtime, _alone) = start(mode);
        let cpus = runtime.config().cpus.iter().copied().take(1).collect();
        drop(runtime);
        let config = Config { mode, cpus, ..Config::default() };
        let mut runtime = Runtime::start(config).expect("the CPU is allowed");
        runtime.reserve_remote("theirs", every(10, 7_000)).expect("there is room");
        let refused = runtime.handler("ours", every(10, 4_000), |_| {});
        assert!(matches!(refused, Err(CreateError::Refused(_))), "{refused:?}");
        let refused = runtime.reserve_remote("theirs too", every(10, 4_000));
        assert!(matches!(refused, Err(CreateError::Refused(_))), "{refused:?}");
        runtime.handler("ours", every(10, 500), |_| {}).expect("there is room for this");
        let report = runtime.stop(|_, _| {});
        assert_eq!(report.activities.len(), 1);
    }
}
