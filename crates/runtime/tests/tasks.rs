//! Tests of tasks on real threads: order, counts, and that no wake-up is lost. The tests assert no
//! deadlines, which depend on the machine.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};
use std::thread::ThreadId;
use std::time::Duration;

use upcall_runtime::activity::{ActivityParams, Backlog, Terms, WorkClass};
use upcall_runtime::discipline::{DWCS, DWS, PS};
use upcall_runtime::scheduler::Counters;
use upcall_runtime::time::Span;
use upcall_runtime::{Config, CreateError, HandlerId, Mode, Runtime, clock};

fn start(mode: Mode) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config {
        mode,
        cpus: vec![support::cpu()],
        discipline: &DWS,
        ..Config::default()
    })
}

fn every(period_ms: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(20))
}

fn interactive(period_ms: u64) -> (ActivityParams, Terms) {
    (every(period_ms), Terms { class: WorkClass::Interactive, ..Terms::default() })
}

fn soon() -> upcall_runtime::time::Instant {
    clock::now() + Span::from_millis(30)
}

/// Waits until each task has ended, at most a minute: a lost wake-up must not hang the test.
fn all_end(runtime: &mut Runtime, ids: &[HandlerId]) {
    for &id in ids {
        assert_eq!(
            runtime.wait(&[id], Some(clock::after(Span::from_secs(60)))),
            [id],
            "it never ended"
        );
    }
}

type Log = Arc<Mutex<Vec<&'static str>>>;

fn note(log: &Log, what: &'static str) {
    log.lock().unwrap().push(what);
}

#[test]
fn of_two_tasks_ready_at_once_the_earlier_deadline_goes_first() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let log = Log::default();
    let [first, second] = [("late", 900), ("early", 500)].map(|(name, deadline_ms)| {
        let log = log.clone();
        let need = every(1_000).deadline(Span::from_millis(deadline_ms));
        runtime.task(name, need, async move |_| note(&log, name)).unwrap()
    });
    runtime.run_at(&[first, second], soon()).unwrap();
    all_end(&mut runtime, &[first, second]);
    assert_eq!(*log.lock().unwrap(), ["early", "late"]);
}

#[test]
fn interactive_goes_before_workahead_and_that_before_background() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let log = Log::default();
    let (back, inter, real) = (log.clone(), log.clone(), log.clone());
    let class = Terms { class: WorkClass::Background, ..Terms::default() };
    let background = runtime
        .task("background", (every(60_000), class), async move |_| note(&back, "background"))
        .unwrap();
    let inter = runtime
        .task("interactive", interactive(60_000), async move |_| note(&inter, "interactive"))
        .unwrap();
    let ahead = Terms { workahead_max: 1, ..Terms::default() };
    let real = runtime
        .task(
            "real",
            (ActivityParams { pdu_cost: Span::from_millis(5), ..every(60_000) }, ahead),
            async move |task| {
                note(&real, "critical");
                task.time_advance(clock::now() + Span::from_secs(60)).await;
                note(&real, "workahead");
            },
        )
        .unwrap();
    let ids = [background, inter, real];
    runtime.run_at(&ids, soon()).unwrap();
    all_end(&mut runtime, &ids);
    assert_eq!(*log.lock().unwrap(), ["critical", "interactive", "workahead", "background"]);
}

#[test]
fn a_task_answers_one_pipe_through_another() {
    for mode in Mode::ALL {
        let (mut runtime, _alone) = start(mode);
        let (mut input, mut question) = std::io::pipe().unwrap();
        let (mut answer, mut output) = std::io::pipe().unwrap();
        let id = runtime
            .task("echo", interactive(10), async move |task| {
                loop {
                    task.io_wait(&input).await.unwrap();
                    let mut byte = [0];
                    if input.read(&mut byte).unwrap() == 0 {
                        return;
                    }
                    task.io_wait_writable(&output).await.unwrap();
                    output.write_all(&[byte[0] + 1]).unwrap();
                }
            })
            .unwrap();
        runtime.run(id).unwrap();
        for byte in 0..50 {
            question.write_all(&[byte]).unwrap();
            let mut back = [0];
            answer.read_exact(&mut back).unwrap();
            assert_eq!(back[0], byte + 1, "{mode:?}");
        }
        assert!(runtime.is_active(id));
        drop(question);
        all_end(&mut runtime, &[id]);
    }
}

/// The counters of an echo task with a delay bound of 10 ms, after 6 questions at least 60 ms
/// apart.
fn echoed(runtime: &mut Runtime, names_now: bool) -> Counters {
    let (mut asker, mut peer) = UnixStream::pair().unwrap();
    let need = every(20).deadline(Span::from_millis(10));
    let id = runtime
        .task("echo", need, async move |task| {
            loop {
                match names_now {
                    true => task.io_wait_at(&peer, clock::now()).await.unwrap(),
                    false => task.io_wait(&peer).await.unwrap(),
                }
                let mut byte = [0];
                if peer.read(&mut byte).unwrap() == 0 {
                    return;
                }
                peer.write_all(&byte).unwrap();
            }
        })
        .unwrap();
    runtime.run(id).unwrap();
    for byte in 0..6 {
        std::thread::sleep(Duration::from_millis(60));
        asker.write_all(&[byte]).unwrap();
        let mut back = [0];
        asker.read_exact(&mut back).unwrap();
        assert_eq!(back, [byte]);
    }
    drop(asker);
    all_end(runtime, &[id]);
    runtime.close(id).unwrap().counters.unwrap()
}

#[test]
fn an_echo_that_names_no_critical_time_does_not_miss_late_messages() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let named = echoed(&mut runtime, true);
    let unnamed = echoed(&mut runtime, false);
    // A busy machine may delay some messages.
    assert!(named.misses > 3, "each came after its deadline: {named:?}");
    assert!(unnamed.completed >= 7 && unnamed.misses < 3, "{unnamed:?}");
}

#[test]
fn two_tasks_may_wait_for_one_descriptor() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let reader = Arc::new(reader);
    let ids = ["one", "two"].map(|name| {
        let reader = reader.clone();
        runtime
            .task(name, interactive(10), async move |task| {
                task.io_wait(&*reader).await.unwrap();
            })
            .unwrap()
    });
    runtime.run_at(&ids, clock::now()).unwrap();
    assert!(runtime.wait(&ids, Some(clock::after(Span::from_millis(30)))).is_empty());
    writer.write_all(b"x").unwrap();
    all_end(&mut runtime, &ids);
}

#[test]
fn a_sleep_is_never_too_short() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let ids = ["one", "two", "three"].map(|name| {
        runtime
            .task(name, interactive(10), async move |task| {
                for round in 1..40u64 {
                    let until = clock::now() + Span::from_micros(round * 7_919 % 1_500);
                    task.timed_sleep(until).await;
                    assert!(clock::now() >= until);
                }
            })
            .unwrap()
    });
    runtime.run_at(&ids, clock::now()).unwrap();
    all_end(&mut runtime, &ids);
    let report = runtime.stop(|_, _| {});
    assert!(report.activities.iter().all(|activity| !activity.faulted));
    assert_eq!(report.activities[0].counters.unwrap().completed, 40);
}

#[test]
fn a_task_that_masks_preemption_is_preempted_when_the_mask_is_dropped() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let log = Log::default();
    let (long, urgent) = (log.clone(), log.clone());
    let asleep = Arc::new(AtomicU32::new(0));
    let call = Arc::new(Counter::default());
    let (calls, called) = (call.clone(), call);
    let long = runtime
        .task("long", every(60_000), async move |task| {
            let mask = task.mask_preemption();
            // Only this wakes the other task, however late it runs.
            calls.add();
            // Waits until the next message of the other task may come, and longer than the declared
            // cost of a quantum.
            let until = clock::now() + Span::from_millis(2);
            while clock::now() <= until {
                task.checkpoint().await;
            }
            note(&long, "masked");
            drop(mask);
            task.checkpoint().await;
            note(&long, "unmasked");
        })
        .unwrap();
    let waits = asleep.clone();
    let urgent = runtime
        .task("urgent", every(1), async move |_| {
            waits.store(1, Ordering::SeqCst);
            called.past(0).await;
            note(&urgent, "urgent");
        })
        .unwrap();
    runtime.run(urgent).unwrap();
    while asleep.load(Ordering::SeqCst) == 0 {
        assert!(runtime.wait(&[urgent], Some(clock::after(Span::from_millis(1)))).is_empty());
    }
    runtime.run(long).unwrap();
    all_end(&mut runtime, &[long, urgent]);
    assert_eq!(*log.lock().unwrap(), ["masked", "urgent", "unmasked"]);
    let report = runtime.stop(|_, _| {});
    assert!(report.activities[0].statistics.quantum_overruns >= 1);
    assert_eq!(report.activities[0].counters.unwrap().preemptions, 1);
}

/// Its second message takes longer than three periods. Only the newest message after it counts.
#[test]
fn a_task_that_was_held_up_is_told_how_many_jobs_it_lost() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let terms = Terms { backlog: Backlog::Latest, ..Terms::default() };
    let period = Span::from_millis(20);
    let task = runtime.task("held up", (every(20), terms), async move |task| {
        let begun = clock::now();
        for message in 1..4 {
            noted.lock().unwrap().push(task.jobs_skipped());
            if message == 2 {
                std::thread::sleep(Duration::from_millis(75));
            }
            task.time_advance(begun + period * message).await;
        }
    });
    let task = task.unwrap();
    runtime.run(task).unwrap();
    all_end(&mut runtime, &[task]);
    let seen = seen.lock().unwrap();
    // A late machine loses more, but not fewer.
    assert!(seen.len() == 3 && seen[2] >= 2, "{seen:?}");
}

/// The messages wait already, and the task may not work ahead.
#[test]
fn a_task_cannot_go_beyond_its_declared_rate() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let (seen, begun) = (Arc::new(Mutex::new(Vec::new())), clock::now());
    let noted = seen.clone();
    let task = runtime.task("fast", every(10), async move |task| {
        for _ in 0..4 {
            noted.lock().unwrap().push(clock::now());
            task.time_advance(begun).await;
        }
    });
    let task = task.unwrap();
    runtime.run(task).unwrap();
    all_end(&mut runtime, &[task]);
    for (message, at) in (0..).zip(seen.lock().unwrap().iter()) {
        assert!(*at >= begun + Span::from_millis(10) * message, "message {message} came early");
    }
}

#[test]
fn a_panic_ends_the_task_and_nothing_else() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let bad = runtime
        .task("bad", every(2), async move |task| {
            task.timed_sleep(clock::now()).await;
            panic!("told to");
        })
        .unwrap();
    let good = runtime
        .task("good", interactive(2), async move |task| {
            for _ in 0..5 {
                task.timed_sleep(clock::now() + Span::from_millis(1)).await;
            }
        })
        .unwrap();
    let mut jobs = 0;
    let handler = runtime
        .handler("handler", every(2), move |batch| {
            while batch.proceed() {}
            jobs += 1;
            if jobs == 5 {
                batch.finish();
            }
        })
        .unwrap();
    let ids = [bad, good, handler];
    runtime.run_at(&ids, clock::now()).unwrap();
    all_end(&mut runtime, &ids);
    // The task stays ended, and is not polled again.
    runtime.run(bad).unwrap();
    all_end(&mut runtime, &[bad]);
    let report = runtime.stop(|_, _| {});
    let faulted: Vec<bool> = report.activities.iter().map(|activity| activity.faulted).collect();
    assert_eq!(faulted, [true, false, false]);
    assert_eq!(report.activities[1].counters.unwrap().completed, 6);
    assert_eq!(report.activities[2].counters.unwrap().completed, 5);
}

/// Notes in which thread it was dropped.
struct Dropped(Arc<Mutex<Option<ThreadId>>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.lock().unwrap() = Some(std::thread::current().id());
    }
}

#[test]
fn the_thread_that_closes_a_sleeping_task_drops_it() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let begun = Arc::new(AtomicU32::new(0));
    let dropped = Arc::new(Mutex::new(None));
    let (reader, _writer) = std::io::pipe().unwrap();
    let (seen, kept) = (begun.clone(), Dropped(dropped.clone()));
    let sleeper = runtime
        .task("sleeper", every(10), async move |task| {
            let _kept = kept;
            seen.fetch_add(1, Ordering::Release);
            task.timed_sleep(clock::now() + Span::from_secs(3_600)).await;
        })
        .unwrap();
    let seen = begun.clone();
    let waiter = runtime
        .task("waiter", every(10), async move |task| {
            seen.fetch_add(1, Ordering::Release);
            task.io_wait(&reader).await.unwrap();
        })
        .unwrap();
    runtime.run_at(&[sleeper, waiter], clock::now()).unwrap();
    while begun.load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
    assert!(runtime.close(sleeper).is_some() && runtime.close(waiter).is_some());
    assert_eq!(*dropped.lock().unwrap(), Some(std::thread::current().id()));
    assert!(runtime.task("sleeper", every(10), async |_| {}).is_ok());
}

/// A count that a task can wait for. It stands for a future of another library.
#[derive(Default)]
struct Counter {
    count: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl Counter {
    fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }

    async fn past(&self, seen: u32) -> u32 {
        poll_fn(|context| {
            *self.waker.lock().unwrap() = Some(context.waker().clone());
            match self.count.load(Ordering::SeqCst) {
                count if count > seen => Poll::Ready(count),
                _ => Poll::Pending,
            }
        })
        .await
    }
}

#[test]
fn no_wake_up_from_another_thread_is_lost() {
    const WAKES: u32 = 10_000;
    let (mut runtime, _alone) = start(Mode::Upcall);
    // Each turn waits for the other side: a single lost wake-up would hang the test.
    let (there, back) = (Arc::new(Counter::default()), Arc::new(AtomicU32::new(0)));
    let (waited, answered) = (there.clone(), back.clone());
    let id = runtime
        .task("counts", interactive(10), async move |_| {
            let mut seen = 0;
            while seen < WAKES {
                seen = waited.past(seen).await;
                answered.store(seen, Ordering::Release);
            }
        })
        .unwrap();
    runtime.run(id).unwrap();
    let waker = std::thread::spawn(move || {
        let mut random = 1_991u32;
        let give_up = clock::now() + Span::from_secs(60);
        for wake in 1..=WAKES {
            there.add();
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            for _ in 0..random >> 22 {
                std::hint::spin_loop();
            }
            // Pauses now and then, so that the wake-up finds the executor asleep.
            while random >> 30 == 0 && back.load(Ordering::Acquire) < wake {
                assert!(clock::now() < give_up, "wake {wake} was lost");
                std::thread::yield_now();
            }
        }
    });
    all_end(&mut runtime, &[id]);
    waker.join().unwrap();
}

#[test]
fn tasks_of_one_cpu_wake_each_other() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let (ping, pong) = (Arc::new(Counter::default()), Arc::new(Counter::default()));
    let (to, from) = (ping.clone(), pong.clone());
    let one = runtime
        .task("one", interactive(10), async move |_| {
            for turn in 0..1_000 {
                to.add();
                from.past(turn).await;
            }
        })
        .unwrap();
    let two = runtime
        .task("two", interactive(10), async move |_| {
            for turn in 0..1_000 {
                ping.past(turn).await;
                pong.add();
            }
        })
        .unwrap();
    runtime.run_at(&[one, two], clock::now()).unwrap();
    all_end(&mut runtime, &[one, two]);
}

#[test]
fn a_suspended_task_goes_on_sleeping_when_it_is_run_again() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let until = clock::now() + Span::from_millis(60);
    let id = runtime
        .task("sleeper", interactive(10), async move |task| {
            task.timed_sleep(until).await;
            assert!(clock::now() >= until);
        })
        .unwrap();
    runtime.run(id).unwrap();
    runtime.suspend(id);
    all_end(&mut runtime, &[id]);
    runtime.run(id).unwrap();
    all_end(&mut runtime, &[id]);
    let report = runtime.stop(|_, _| {});
    assert!(!report.activities[0].faulted);
    assert!(clock::now() >= until);
}

/// A task that sleeps, one that waits for the wake-ups of a thread, and a handler beside them.
#[test]
fn tasks_sleep_and_are_woken_under_ps_and_dwcs() {
    for discipline in [&PS, &DWCS] {
        let config = Config { cpus: vec![support::cpu()], discipline, ..Config::default() };
        let (mut runtime, _alone) = support::start(config);
        let handler = runtime.handler("handler", every(2), |batch| while batch.proceed() {});
        let handler = handler.unwrap();
        let sleeper = runtime
            .task("sleeper", every(5), async move |task| {
                for _ in 0..10 {
                    let until = task.now() + Span::from_millis(5);
                    task.timed_sleep(until).await;
                    assert!(task.now() >= until);
                }
            })
            .unwrap();
        let (input, mut output) = std::io::pipe().unwrap();
        let mut input = std::fs::File::from(std::os::fd::OwnedFd::from(input));
        let reader = runtime
            .task("reader", every(1), async move |task| {
                for byte in 0..20 {
                    task.io_wait(&input).await.unwrap();
                    let mut found = [0];
                    input.read_exact(&mut found).unwrap();
                    assert_eq!(found, [byte]);
                }
            })
            .unwrap();
        let ids = [handler, sleeper, reader];
        runtime.run_at(&ids, clock::now()).unwrap();
        for byte in 0..20 {
            output.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
        all_end(&mut runtime, &[sleeper, reader]);
        let report = runtime.stop(|_, _| {});
        assert!(report.activities.iter().all(|of| !of.faulted), "{discipline:?}");
        let has_lag = |of: &upcall_runtime::ActivityReport| of.statistics.lag.is_some();
        assert!(report.activities.iter().all(|of| has_lag(of) == discipline.has_lag()));
    }
}

#[test]
fn rate_monotonic_policies_have_no_tasks() {
    let _alone = support::alone();
    let mut runtime = Runtime::start(Config::default()).unwrap();
    let refused = runtime.task("t", every(10), async |_| {});
    assert_eq!(refused, Err(CreateError::NotForTasks { policy: "rmdp" }));
}
