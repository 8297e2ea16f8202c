//! Tests of tasks and the core in virtual time. They imitate the executor's loop without its
//! thread.

use std::cell::Cell;
use std::future::Future;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use upcall_core::activity::{ActivityId, ActivityParams, Terms, WorkClass};
use upcall_core::discipline::DWS;
use upcall_core::scheduler::{Command, Counters, Input};
use upcall_core::time::{Instant, Span};
use upcall_core::trace::Traced;
use upcall_sys::readiness::Readiness;

use super::{Address, NextMessage, Task, TaskCell, TaskWork};
use crate::mailbox::Shared;
use crate::notify::Notifier;
use crate::preemption::PreemptionPoint;
use crate::trace::Ring;
use crate::work::batch::Grant;

thread_local! {
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
}

fn now() -> Instant {
    Instant::from_nanos(NOW_NS.get())
}

/// Virtual work.
fn spend(ms: u64) {
    NOW_NS.set(NOW_NS.get() + Span::from_millis(ms).as_nanos());
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Span::from_millis(ms)
}

fn ms(at: Instant) -> u64 {
    at.as_nanos() / 1_000_000
}

/// What happened, and when in milliseconds.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(u64, String)>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push((ms(now()), what.into()));
    }

    fn seen(&self) -> Vec<(u64, String)> {
        self.0.lock().unwrap().clone()
    }

    fn order(&self) -> Vec<String> {
        self.seen().into_iter().map(|(_, what)| what).collect()
    }
}

struct Cpu {
    scheduler: Traced<Ring>,
    tasks: Vec<TaskWork>,
    params: Vec<ActivityParams>,
    shared: Arc<Shared>,
    readiness: Arc<Readiness>,
    quantum_overruns: u32,
}

impl Cpu {
    fn new() -> Self {
        NOW_NS.set(0);
        Cpu {
            scheduler: Traced::new(8, &DWS),
            tasks: Vec::new(),
            params: Vec::new(),
            shared: Arc::new(Shared::new(Notifier::default(), Arc::default())),
            readiness: Arc::new(Readiness::new().unwrap()),
            quantum_overruns: 0,
        }
    }

    /// Creates a task and runs it from time 0 on.
    fn task<T>(&mut self, params: ActivityParams, terms: Terms, code: impl FnOnce(Task) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let id = ActivityId(u32::try_from(self.tasks.len()).unwrap());
        let cell = Arc::new(TaskCell::new(now));
        // No thread waits for descriptors: a test wakes the tasks itself.
        let watcher = Some((self.readiness.clone(), u64::from(id.0)));
        cell.bind(Address { shared: self.shared.clone(), id, watcher });
        self.tasks.push(TaskWork::new(cell.clone(), code(Task::new(cell))));
        self.params.push(params);
        let terms = Terms { on_demand: true, ..terms };
        self.handle(Input::Create { id, params, terms });
        self.handle(Input::Run { id, at: Instant::ZERO });
    }

    fn handle(&mut self, input: Input) {
        self.scheduler.handle(now(), input).unwrap();
        while self.scheduler.poll_notice().is_some() {}
    }

    fn handle_message(&mut self, id: ActivityId, next: Option<NextMessage>) {
        if let Some(NextMessage { critical, from }) = next {
            self.handle(Input::Message { id, critical, from });
        }
    }

    fn run_until(&mut self, end: Instant) {
        while now() <= end {
            self.shared.notifier.acknowledge();
            let woken: Vec<_> = self.shared.take_woken().collect();
            for id in woken {
                let next = self.tasks[id.0 as usize].woken(now(), self.shared.is_aborting(id));
                self.handle_message(id, next);
            }
            if let Some(command) = self.scheduler.poll_command(now()) {
                self.upcall(command);
            } else {
                let due = self.scheduler.next_deadline().unwrap_or(Instant::FAR);
                NOW_NS.set(due.min(end + Span::from_nanos(1)).max(now()).as_nanos());
                self.handle(Input::Tick);
            }
        }
    }

    fn upcall(&mut self, command: Command) {
        let Command::Upcall { id, pdus_max, resumed, check_at } = command else {
            panic!("{command:?}");
        };
        let params = self.params[id.0 as usize];
        let grant = Grant {
            pdus_max,
            quantum: params.quantum,
            quantum_cost: params.quantum_cost(),
            check_at,
            start: now(),
            resumed,
            jobs_skipped: self.scheduler.jobs_skipped(),
            aborting: self.shared.is_aborting(id),
        };
        let task = &mut self.tasks[id.0 as usize];
        let mut point = PreemptionPoint::on_trial(&mut self.scheduler, &self.shared.notifier, None);
        let turn = task.upcall(&mut point, &grant);
        assert!(!turn.panicked);
        self.quantum_overruns += turn.used.quantum_overruns;
        self.handle(Input::Returned { pdus: turn.used.pdus, outcome: turn.used.outcome });
        self.handle_message(id, turn.next);
    }

    fn counters(&self, id: u32) -> Counters {
        self.scheduler.counters(ActivityId(id)).unwrap()
    }
}

fn every(period: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(period), Span::from_millis(1))
}

fn of(class: WorkClass) -> Terms {
    Terms { class, ..Terms::default() }
}

fn ahead(workahead_max: u32) -> Terms {
    Terms { workahead_max, ..Terms::default() }
}

#[test]
fn messages_are_handled_ahead_at_most_as_far_as_the_terms_allow() {
    let (mut cpu, log) = (Cpu::new(), Log::default());
    let noted = log.clone();
    cpu.task(every(10), ahead(2), async move |task| {
        for message in 1..6 {
            noted.note("m");
            task.time_advance(at(10 * message)).await;
        }
    });
    cpu.run_until(at(100));
    let times: Vec<u64> = log.seen().iter().map(|seen| seen.0).collect();
    assert_eq!(times, [0, 0, 0, 10, 20]);
    assert_eq!((cpu.counters(0).completed, cpu.counters(0).misses), (6, 0));
}

/// The second message takes 35 ms of its period of 10, so the next one is three periods late.
#[test]
fn a_task_learns_how_many_jobs_were_dropped() {
    let mut cpu = Cpu::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let terms = Terms { backlog: upcall_core::activity::Backlog::Latest, ..Terms::default() };
    cpu.task(every(10), terms, async move |task| {
        for message in 1..5 {
            noted.lock().unwrap().push(task.jobs_skipped());
            if message == 2 {
                spend(35);
            }
            task.time_advance(at(10 * message)).await;
        }
    });
    cpu.run_until(at(100));
    assert_eq!(*seen.lock().unwrap(), [0, 0, 2, 0]);
}

#[test]
fn a_real_time_task_cannot_go_beyond_its_declared_rate() {
    let (mut cpu, log) = (Cpu::new(), Log::default());
    let noted = log.clone();
    cpu.task(every(10), ahead(0), async move |task| {
        for _ in 0..4 {
            noted.note("m");
            // The task names the same critical time for all messages.
            task.time_advance(Instant::ZERO).await;
        }
    });
    cpu.run_until(at(100));
    assert_eq!(log.seen().iter().map(|seen| seen.0).collect::<Vec<_>>(), [0, 10, 20, 30]);
}

#[test]
fn critical_before_interactive_before_workahead_before_background() {
    let (mut cpu, log) = (Cpu::new(), Log::default());
    let (back, inter, real) = (log.clone(), log.clone(), log.clone());
    cpu.task(every(10), of(WorkClass::Background), async move |_| back.note("background"));
    cpu.task(every(10), of(WorkClass::Interactive), async move |_| inter.note("interactive"));
    cpu.task(every(10), ahead(1), async move |task| {
        real.note("critical");
        task.time_advance(at(10)).await;
        real.note("workahead");
    });
    cpu.run_until(at(5));
    assert_eq!(log.order(), ["critical", "interactive", "workahead", "background"]);
}

#[test]
fn a_sleep_ends_at_its_moment_even_if_the_task_is_woken_before() {
    let (mut cpu, log) = (Cpu::new(), Log::default());
    let noted = log.clone();
    let shared = cpu.shared.clone();
    cpu.task(every(100), of(WorkClass::Interactive), async move |task| {
        task.timed_sleep(at(40)).await;
        noted.note("slept");
        task.timed_sleep(at(7)).await;
        noted.note("past");
    });
    cpu.task(every(10), of(WorkClass::Interactive), async move |task| {
        task.timed_sleep(at(20)).await;
        shared.wake(ActivityId(0));
    });
    cpu.run_until(at(100));
    assert_eq!(log.seen(), [(40, "slept".to_owned()), (40, "past".to_owned())]);
}

/// A task that works in steps of 3 ms, and a more urgent one that is due at 5 ms.
fn long_and_urgent(masked_steps: u64) -> (Cpu, Log) {
    let (mut cpu, log) = (Cpu::new(), Log::default());
    let (long, urgent) = (log.clone(), log.clone());
    let params = ActivityParams::new(Span::from_millis(100), Span::from_millis(3)).batch(10);
    cpu.task(params, Terms::default(), async move |task| {
        let outer = task.mask_preemption();
        let inner = task.mask_preemption();
        drop(outer);
        for _ in 0..masked_steps {
            spend(3);
            long.note("masked");
            task.checkpoint().await;
        }
        drop(inner);
        for _ in masked_steps..4 {
            spend(3);
            long.note("long");
            task.checkpoint().await;
        }
    });
    let params = every(10).offset(Span::from_millis(5));
    cpu.task(params, Terms::default(), async move |_| urgent.note("urgent"));
    cpu.run_until(at(90));
    (cpu, log)
}

#[test]
fn a_checkpoint_yields_only_to_a_task_that_outranks_it() {
    let (cpu, log) = long_and_urgent(0);
    assert_eq!(log.order(), ["long", "long", "urgent", "long", "long"]);
    let long = cpu.counters(0);
    assert_eq!((long.preemptions, long.completed, cpu.quantum_overruns), (1, 1, 0));
    assert_eq!(cpu.scheduler.switches(), 3);
}

#[test]
fn a_mask_delays_the_yield_to_the_first_checkpoint_after_it_and_is_one_quantum() {
    let (cpu, log) = long_and_urgent(3);
    assert_eq!(log.order(), ["masked", "masked", "masked", "long", "urgent"]);
    assert_eq!((cpu.counters(0).preemptions, cpu.quantum_overruns), (1, 1));
}

#[test]
fn more_checkpoints_than_the_batch_do_not_end_the_message() {
    let mut cpu = Cpu::new();
    cpu.task(every(100), Terms::default(), async move |task| {
        for _ in 0..30 {
            spend(1);
            task.checkpoint().await;
        }
    });
    cpu.task(every(2), Terms::default(), async move |task| {
        for message in 1..10 {
            task.time_advance(at(2 * message)).await;
        }
    });
    cpu.run_until(at(200));
    assert_eq!((cpu.counters(0).completed, cpu.counters(0).jobs), (1, 1));
    assert_eq!(cpu.counters(1).completed, 10);
}

/// The counters of an echo task with a delay bound of 2 ms, after 20 questions 13 ms apart.
/// `names_now`: the task names the moment of the wait as the critical time. Otherwise the arrival
/// of the message is its critical time.
fn echoed(names_now: bool) -> Counters {
    let mut cpu = Cpu::new();
    let (mut asker, mut peer) = UnixStream::pair().unwrap();
    let params = every(10).deadline(Span::from_millis(2));
    cpu.task(params, Terms::default(), async move |task| {
        for _ in 0..20 {
            match names_now {
                true => task.io_wait_at(&peer, now()).await.unwrap(),
                false => task.io_wait(&peer).await.unwrap(),
            }
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            spend(1);
            peer.write_all(&byte).unwrap();
        }
    });
    let shared = cpu.shared.clone();
    cpu.task(every(13), of(WorkClass::Interactive), async move |task| {
        for byte in 1..=20 {
            task.timed_sleep(at(13 * u64::from(byte))).await;
            asker.write_all(&[byte]).unwrap();
            shared.wake(ActivityId(0));
            task.timed_sleep(at(13 * u64::from(byte) + 5)).await;
            let mut back = [0];
            asker.read_exact(&mut back).unwrap();
            assert_eq!(back, [byte]);
        }
    });
    cpu.run_until(at(400));
    cpu.counters(0)
}

#[test]
fn the_deadline_of_an_io_message_is_the_delay_bound_after_its_arrival() {
    // The first message is the task's start.
    let when_it_comes = echoed(false);
    assert_eq!((when_it_comes.completed, when_it_comes.misses), (21, 0));
    let at_the_wait = echoed(true);
    assert_eq!((at_the_wait.completed, at_the_wait.misses), (21, 20));
}

#[test]
fn a_message_that_waits_already_arrives_at_the_wait() {
    let mut cpu = Cpu::new();
    let (mut asker, mut peer) = UnixStream::pair().unwrap();
    asker.write_all(&[7; 20]).unwrap();
    cpu.task(every(10).deadline(Span::from_millis(2)), ahead(1), async move |task| {
        for _ in 0..20 {
            // The task handles each message late.
            task.timed_sleep(now() + Span::from_millis(15)).await;
            task.io_wait(&peer).await.unwrap();
            peer.read_exact(&mut [0]).unwrap();
        }
    });
    cpu.run_until(at(1_000));
    assert_eq!((cpu.counters(0).completed, cpu.counters(0).misses), (41, 0));
}

/// Four tasks wait for a second, and the process ends at 5 ms. Returns what the tasks note.
fn ended_at_5(has_phase: bool) -> Vec<(u64, String)> {
    let (mut cpu, log) = (Cpu::new(), Log::default());
    let [sleeps, advances, awaits, goes_on] = std::array::from_fn(|_| log.clone());
    cpu.task(every(1), of(WorkClass::Interactive), async move |task| {
        task.timed_sleep(at(1_000)).await;
        sleeps.note(format!("slept {}", task.aborting()));
    });
    cpu.task(every(1), of(WorkClass::Interactive), async move |task| {
        task.time_advance(at(1_000)).await;
        advances.note(format!("advanced {}", task.aborting()));
    });
    cpu.task(every(1), of(WorkClass::Interactive), async move |task| {
        task.aborted().await;
        task.aborted().await;
        awaits.note("aborted");
    });
    cpu.task(every(1), of(WorkClass::Interactive), async move |task| {
        task.timed_sleep(at(1_000)).await;
        task.timed_sleep(at(20)).await;
        goes_on.note("slept");
        task.time_advance(at(30)).await;
        goes_on.note("advanced");
    });
    cpu.run_until(at(5));
    assert_eq!(log.seen(), []);
    for id in (0..4).map(ActivityId) {
        if has_phase {
            cpu.shared.set_aborting(id);
        }
        cpu.shared.wake(id);
    }
    cpu.run_until(at(15));
    // A second wake-up cuts nothing short: only the first one begins the phase.
    cpu.shared.wake(ActivityId(3));
    cpu.run_until(at(25));
    cpu.shared.wake(ActivityId(3));
    cpu.run_until(at(100));
    log.seen()
}

#[test]
fn the_abort_phase_cuts_short_only_waits_that_began_before_it() {
    let expected =
        [(5, "slept true"), (5, "advanced true"), (5, "aborted"), (20, "slept"), (30, "advanced")];
    let seen = ended_at_5(true);
    assert_eq!(seen.len(), expected.len());
    for (at, what) in expected {
        assert!(seen.contains(&(at, what.to_owned())), "{what} at {at} ms: {seen:?}");
    }
}

#[test]
fn a_wake_up_without_an_abort_phase_cuts_nothing_short() {
    assert_eq!(ended_at_5(false), []);
}
