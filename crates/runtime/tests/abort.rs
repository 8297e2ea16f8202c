//! Tests of the abort phase (rtu-1996 §7.3) on real threads. The tests assert no times, except that
//! the abort phase ends at its bound.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::future::pending;
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};

use upcall_runtime::activity::ActivityParams;
use upcall_runtime::discipline::DWS;
use upcall_runtime::time::Span;
use upcall_runtime::{Batch, Config, HandlerId, Mode, Runtime, Task, clock};

/// Longer than a busy machine takes for work of milliseconds.
const LONG: Span = Span::from_secs(60);
/// Upcalls that a well-behaved handler needs to say goodbye.
const FAREWELLS: u32 = 3;

fn start(mode: Mode) -> (Runtime, MutexGuard<'static, ()>) {
    support::start(Config { mode, ..Config::default() })
}

/// A busy machine may give the handlers no CPU time within the bound, so a few attempts may fail.
#[track_caller]
fn in_most_attempts(mut attempt: impl FnMut() -> bool) {
    support::in_most_attempts(|| if attempt() { Ok(()) } else { Err("no farewell in time") });
}

/// The counters of a handler.
#[derive(Clone, Default)]
struct Seen {
    upcalls: Arc<AtomicU32>,
    /// How many of these upcalls were in the abort phase.
    aborting: Arc<AtomicU32>,
}

impl Seen {
    fn count(&self, batch: &Batch<'_>) -> u32 {
        self.upcalls.fetch_add(1, Ordering::Relaxed);
        self.aborting.fetch_add(u32::from(batch.aborting()), Ordering::Relaxed)
            + u32::from(batch.aborting())
    }

    fn upcalls(&self) -> u32 {
        self.upcalls.load(Ordering::Relaxed)
    }

    fn aborting(&self) -> u32 {
        self.aborting.load(Ordering::Relaxed)
    }
}

fn create(
    runtime: &mut Runtime,
    name: &str,
    mut handler: impl FnMut(&mut Batch<'_>, u32) + Send + 'static,
) -> (HandlerId, Seen) {
    let seen = Seen::default();
    let counted = seen.clone();
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(10)).batch(4);
    let upcall = move |batch: &mut Batch<'_>| {
        let farewells = counted.count(batch);
        handler(batch, farewells);
    };
    (runtime.handler(name, need, upcall).unwrap(), seen)
}

fn all_of_it(batch: &mut Batch<'_>, _: u32) {
    while batch.proceed() {}
}

fn says_farewell(batch: &mut Batch<'_>, farewells: u32) {
    while batch.proceed() {}
    if farewells == FAREWELLS {
        batch.finish();
    }
}

/// Runs the handlers, and waits until each was upcalled.
fn run(runtime: &mut Runtime, all: &[(HandlerId, &Seen)]) {
    let give_up = clock::now() + LONG;
    for (id, _) in all {
        runtime.run(*id).unwrap();
    }
    while all.iter().any(|(_, seen)| seen.upcalls() == 0) {
        assert!(clock::now() < give_up, "not upcalled in a minute");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_handler_with_an_abort_phase_is_upcalled_on_until_it_finishes() {
    for mode in Mode::ALL {
        let (mut runtime, _alone) = start(mode);
        let (polite, polite_seen) = create(&mut runtime, "polite", says_farewell);
        let (plain, plain_seen) = create(&mut runtime, "plain", all_of_it);
        let (idle, idle_seen) = create(&mut runtime, "idle", says_farewell);
        runtime.give_abort_phase(polite);
        runtime.give_abort_phase(idle);
        run(&mut runtime, &[(polite, &polite_seen), (plain, &plain_seen)]);
        let report = runtime.abort(Some(clock::after(LONG)), |_, _| {});
        assert!(report.unfinished.is_empty(), "{:?}", report.unfinished);
        assert_eq!(polite_seen.aborting(), FAREWELLS, "{}", mode.name());
        assert_eq!(plain_seen.aborting(), 0, "it has no abort phase");
        assert_eq!(idle_seen.upcalls(), 0, "it was never run, and has nothing to end");
    }
}

#[test]
fn a_handler_that_does_not_finish_is_named_and_one_that_panics_is_not_waited_for() {
    in_most_attempts(|| {
        let (mut runtime, _alone) = start(Mode::Upcall);
        let (deaf, deaf_seen) = create(&mut runtime, "deaf", all_of_it);
        let (broken, broken_seen) = create(&mut runtime, "broken", |batch, _| {
            assert!(!batch.aborting(), "on purpose");
        });
        runtime.give_abort_phase(deaf);
        runtime.give_abort_phase(broken);
        run(&mut runtime, &[(deaf, &deaf_seen), (broken, &broken_seen)]);
        let report = runtime.abort(Some(clock::after(Span::from_millis(500))), |_, _| {});
        assert!(broken_seen.aborting() <= 1 && report.unfinished.contains(&"deaf".to_owned()));
        let faulted: Vec<_> = report.activities.iter().map(|activity| activity.faulted).collect();
        deaf_seen.aborting() >= 2 && report.unfinished == ["deaf"] && faulted == [false, true]
    });
}

#[test]
fn a_running_handler_learns_of_the_end_within_a_quantum() {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let enough = Arc::new(AtomicBool::new(false));
    let (seen, seen_by_handler) = (Seen::default(), Arc::new(AtomicU32::new(0)));
    let (counted, told, until) = (seen.clone(), seen_by_handler.clone(), enough.clone());
    // One job of a million quanta of a millisecond, with a period of an hour: the handler learns of
    // the end between two quanta.
    let need = ActivityParams::new(Span::from_secs(3600), Span::from_millis(1)).batch(1_000_000);
    let id = runtime
        .handler("endless", need, move |batch| {
            counted.count(batch);
            if batch.aborting() {
                told.store(1 + u32::from(batch.resumed()), Ordering::Relaxed);
                batch.finish();
                return;
            }
            while !until.load(Ordering::Relaxed) && batch.proceed() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        })
        .unwrap();
    runtime.give_abort_phase(id);
    run(&mut runtime, &[(id, &seen)]);
    let report = runtime.abort(Some(clock::after(LONG)), |_, _| {});
    enough.store(true, Ordering::Relaxed);
    assert!(report.unfinished.is_empty());
    assert_eq!(seen_by_handler.load(Ordering::Relaxed), 2, "told when its job was resumed");
}

/// How many farewell upcalls a handler makes when its runtime is dropped, in a panic or not.
fn farewells_at_drop(panics: bool) -> u32 {
    let (mut runtime, _alone) = start(Mode::Upcall);
    let (id, seen) = create(&mut runtime, "polite", says_farewell);
    runtime.give_abort_phase(id);
    run(&mut runtime, &[(id, &seen)]);
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _runtime = runtime;
        assert!(!panics, "on purpose");
    }));
    assert_eq!(ended.is_err(), panics);
    seen.aborting()
}

#[test]
fn a_drop_in_a_panic_begins_the_abort_phase_and_an_ordinary_drop_does_not() {
    assert_eq!(farewells_at_drop(false), 0);
    in_most_attempts(|| farewells_at_drop(true) == FAREWELLS);
}

/// Counts when it is dropped.
struct Held(Arc<AtomicU32>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates a task and runs it until it has been polled once.
fn run_task<T>(
    runtime: &mut Runtime,
    name: &str,
    code: impl FnOnce(Task, UnixDatagram) -> T,
) -> (HandlerId, UnixDatagram)
where
    T: Future<Output = ()> + Send + 'static,
{
    let (near, far) = UnixDatagram::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(10));
    let id = runtime.task(name, need, |task| code(task, near)).unwrap();
    runtime.run(id).unwrap();
    far.recv(&mut [0; 8]).unwrap();
    (id, far)
}

/// A task that says hello, serves its peer, and says goodbye when the process ends.
async fn serves(task: Task, peer: UnixDatagram) {
    peer.send(b"hello").unwrap();
    while let Ok(()) = task.io_wait(&peer).await {
        let _ = peer.recv(&mut [0; 8]);
    }
    assert!(task.aborting(), "nothing else ends a wait for a socket that is open");
    task.timed_sleep(clock::now() + Span::from_millis(1)).await;
    peer.send(b"goodbye").unwrap();
}

/// The last message to a peer when the runtime has ended.
fn last_words(far: &UnixDatagram) -> Vec<u8> {
    let mut words = [0; 8];
    far.set_nonblocking(true).unwrap();
    let len = far.recv(&mut words).unwrap_or(0);
    words[..len].to_vec()
}

#[test]
fn a_task_with_an_abort_phase_is_woken_from_its_wait_and_polled_until_it_ends() {
    for mode in Mode::ALL {
        let (mut runtime, _alone) =
            support::start(Config { mode, discipline: &DWS, ..Config::default() });
        let (polite, far) = run_task(&mut runtime, "polite", serves);
        let (_, plain) = run_task(&mut runtime, "plain", serves);
        runtime.give_abort_phase(polite);
        let report = runtime.abort(Some(clock::after(LONG)), |_, _| {});
        assert!(report.unfinished.is_empty(), "{:?}", report.unfinished);
        assert_eq!(last_words(&far), b"goodbye", "{}", mode.name());
        assert_eq!(last_words(&plain), b"", "it has no abort phase");
        assert!(report.activities.iter().all(|activity| !activity.faulted));
    }
}

#[test]
fn a_task_that_does_not_end_in_its_abort_phase_is_dropped_and_named() {
    in_most_attempts(deaf_task_is_dropped_and_named);
}

fn deaf_task_is_dropped_and_named() -> bool {
    let (mut runtime, _alone) = support::start(Config { discipline: &DWS, ..Config::default() });
    let drops = Arc::new(AtomicU32::new(0));
    let held = Held(drops.clone());
    let (deaf, _far) = run_task(&mut runtime, "deaf", async move |_, peer| {
        let _held = held;
        peer.send(b"hello").unwrap();
        pending::<()>().await;
    });
    runtime.give_abort_phase(deaf);
    let report = runtime.abort(Some(clock::after(Span::from_millis(10))), |_, _| {});
    assert_eq!(report.unfinished, ["deaf"]);
    // A thread that gets no CPU time for half a second is left behind, and with it the task.
    drops.load(Ordering::Relaxed) == 1
}

#[test]
fn a_panic_that_drops_the_runtime_gives_its_tasks_their_abort_phase() {
    in_most_attempts(|| {
        let (mut runtime, _alone) =
            support::start(Config { discipline: &DWS, ..Config::default() });
        let (polite, far) = run_task(&mut runtime, "polite", serves);
        runtime.give_abort_phase(polite);
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _runtime = runtime;
            panic!("on purpose");
        }));
        assert!(ended.is_err());
        last_words(&far) == b"goodbye"
    });
}
