//! A wake-up in one domain while a worse domain runs on the same CPU, under a daemon with the
//! real-time class (docs/decisions/0017). The tests count the quanta that the worse domain begins
//! between the wake-up and the moment at which the better activity runs.
//!
//! On a virtual machine the host may take a CPU away. A round with such time proves nothing and
//! does not count. In most of the other rounds the better activity must run in time.
//!
//! The role [`child`] is a domain that sleeps on a stream. It belongs to [`support`].

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[allow(dead_code, reason = "each test program uses its own part")]
mod support;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use upcall_core::activity::ActivityParams;
use upcall_core::discipline::{DWS, Discipline, RM, RMDP};
use upcall_core::time::Span;
use upcall_daemon::server::{Access, DaemonEvent};
use upcall_runtime::channel::{Client, Form, Forms, Raise, Route, ServiceTerms};
use upcall_runtime::stream::{Stream, StreamForm};
use upcall_runtime::{HandlerId, Runtime, clock};

use support::lost_time::steal;
use support::{ChildProcess, ROLE, Server, attach, skipped};

const NOBODY: u32 = 65534;

/// Quanta of a job of the worse domain, of 500 us each.
const QUANTA: u32 = 100;
/// The quantum of a job in which the test wakes the better activity.
const WOKEN_IN: u32 = 20;
/// The period of the worse domain.
const PERIOD: Span = Span::from_millis(80);
/// Wake-ups of a test that count, and wake-ups in all.
const ROUNDS: usize = 6;
const ROUNDS_MAX: usize = 18;

fn start(discipline: &'static Discipline) -> Server {
    Server::start(|config| {
        config.discipline = discipline;
        config.access = Access::Everyone;
    })
}

/// Stops the daemon, which has seen no offence.
fn stop(server: Server) {
    let events = server.stop();
    let is_offence = |event: &DaemonEvent| matches!(event, DaemonEvent::Offence { .. });
    assert!(!events.iter().any(is_offence), "{events:?}");
}

/// The quanta that the worse domain has begun.
type Count = Arc<AtomicU32>;

/// A handler of long jobs, of a rank below all activities of these tests.
fn worse(runtime: &mut Runtime, count: &Count) -> HandlerId {
    let count = count.clone();
    let need = ActivityParams::new(PERIOD, Span::from_micros(550)).batch(QUANTA);
    let handler = runtime.handler("worse", need.quantum(1), move |batch| {
        while batch.proceed() {
            count.fetch_add(1, Relaxed);
            let until = clock::now() + Span::from_micros(500);
            while clock::now() < until {}
        }
        if batch.remaining() == 0 {
            batch.finish();
        }
    });
    handler.unwrap()
}

/// Waits for the end of the worse domain's job and of its period: it uses what it reserved.
fn end_of_job(theirs: &mut Runtime, handler: HandlerId) {
    theirs.wait(&[handler], Some(clock::after(Span::from_secs(10))));
    std::thread::sleep(Duration::from_nanos(PERIOD.as_nanos() / 2));
}

fn better() -> ActivityParams {
    ActivityParams::new(Span::from_millis(20), Span::from_micros(200))
}

/// The better activity's side: it stores how many quanta had begun when it ran.
#[derive(Clone)]
struct Ran {
    count: Count,
    at: Arc<Mutex<Vec<u32>>>,
}

impl Ran {
    fn note(&self) {
        self.at.lock().unwrap().push(self.count.load(Relaxed));
    }
}

/// Runs the worse domain, and calls `wake` in the middle of each of its jobs from this ordinary
/// thread on another CPU. `set_up` makes the better activity. Asserts that at most one quantum
/// began between a wake-up and the run: the one that was under way on that CPU when the kernel's
/// wake-up arrived there.
fn check(
    what: &str,
    discipline: &'static Discipline,
    set_up: impl FnOnce(&mut Runtime, Ran) -> Box<dyn FnMut(&mut Runtime)>,
) {
    let _alone = support::alone();
    if has_one_cpu() {
        return;
    }
    let server = start(discipline);
    let (mut ours, mut theirs) = (server.attach("wakes"), server.attach("works"));
    let ran = Ran { count: Count::default(), at: Arc::default() };
    let (count, at) = (ran.count.clone(), ran.at.clone());
    let mut wake = set_up(&mut ours, ran);
    let handler = worse(&mut theirs, &count);
    // The better activity sleeps by then.
    std::thread::sleep(Duration::from_millis(30));
    let between = rounds(|| {
        let job = count.load(Relaxed);
        theirs.run(handler).unwrap();
        while count.load(Relaxed) < job + WOKEN_IN {}
        at.lock().unwrap().clear();
        wake(&mut ours);
        // Not before: this ordinary thread may lose its CPU before it wakes.
        let woken = count.load(Relaxed);
        end_of_job(&mut theirs, handler);
        let ran = at.lock().unwrap().first().copied().unwrap_or(u32::MAX);
        ran.saturating_sub(woken)
    });
    drop((ours, theirs));
    stop(server);
    assert_few(&format!("{what} under {}", discipline.name), &between, 1);
}

/// True, and the test is skipped, if no other CPU is there that could wake the better activity.
fn has_one_cpu() -> bool {
    let is_one = std::thread::available_parallelism().unwrap().get() == 1;
    if is_one {
        skipped(None, "needs a second CPU, which wakes");
    }
    is_one
}

/// The results of the first [`ROUNDS`] rounds in which the host took no time.
fn rounds(mut round: impl FnMut() -> u32) -> Vec<u32> {
    let mut between = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let before = steal();
        let quanta = round();
        if steal() == before {
            between.push(quanta);
        }
        if between.len() == ROUNDS {
            break;
        }
    }
    between
}

/// At most `most` quanta began between the wake-up and the run, in most rounds that count. The
/// kernel counts steal time in steps of 10 ms, so a round may have some that it does not show.
#[track_caller]
fn assert_few(what: &str, between: &[u32], most: u32) {
    println!("{what}: {between:?} quanta from the wake to the run");
    let late = between.iter().filter(|&&quanta| quanta > most).count();
    if between.len() == ROUNDS {
        assert!(late <= ROUNDS / 3, "{what}: {between:?}, at most {most}");
    } else {
        let why = format!("{} of {ROUNDS_MAX} rounds without steal", between.len());
        skipped(Some(what), &why);
    }
}

/// A message in a stream. The writer knows nothing of domains.
#[test]
#[ignore = "needs root"]
fn a_stream_reader_runs_at_the_next_boundary_of_a_worse_domain() {
    for discipline in [&RMDP, &RM, &DWS] {
        check("stream", discipline, |runtime, ran| {
            let stream = Stream::create(StreamForm::Slots { slots: 16, slot_bytes: 8 }, 0).unwrap();
            let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
            let id =
                runtime.stream_reader_handler("reader", better(), reader, 1, move |r, batch| {
                    while let Some(message) = r.next(batch) {
                        message.done();
                        ran.note();
                    }
                });
            runtime.run(id.unwrap()).unwrap();
            Box::new(move |_| {
                assert!(writer.push(&[1; 8]).unwrap());
                writer.commit().unwrap();
            })
        });
    }
}

/// A task that an ordinary thread of its process wakes.
#[test]
#[ignore = "needs root"]
fn a_woken_task_runs_at_the_next_boundary_of_a_worse_domain() {
    check("task", &DWS, |runtime, ran| {
        let place: Arc<Mutex<Option<Waker>>> = Arc::default();
        let waits = place.clone();
        let id = runtime.task("task", better(), move |_| async move {
            loop {
                let mut polled = false;
                std::future::poll_fn(|context| {
                    *waits.lock().unwrap() = Some(context.waker().clone());
                    if std::mem::replace(&mut polled, true) {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
                ran.note();
            }
        });
        runtime.run(id.unwrap()).unwrap();
        Box::new(move |_| place.lock().unwrap().take().unwrap().wake())
    });
}

/// A task that waits for a descriptor. A thread of the runtime wakes it.
#[test]
#[ignore = "needs root"]
fn a_task_in_io_wait_runs_at_the_next_boundary_of_a_worse_domain() {
    check("io_wait", &DWS, |runtime, ran| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut reader = std::fs::File::from(OwnedFd::from(reader));
        let id = runtime.task("task", better(), move |task| async move {
            loop {
                task.io_wait(&reader).await.unwrap();
                ran.note();
                let _ = std::io::Read::read(&mut reader, &mut [0; 8]);
            }
        });
        runtime.run(id.unwrap()).unwrap();
        Box::new(move |_| writer.write_all(&[1]).unwrap())
    });
}

/// An event of a channel, whose handler the executor invokes. It has no rank. The raiser knows
/// nothing of domains.
#[test]
#[ignore = "needs root"]
fn a_channel_event_is_handled_at_the_next_boundary_of_a_worse_domain() {
    check("channel", &RMDP, |runtime, ran| {
        let name = format!("wake-{}", std::process::id());
        let ring = Form::Ring { slots: 8 };
        let forms = Forms { to_service: ring, to_client: ring };
        let route = Route::to(move |events| {
            while events.take().is_some() {
                ran.note();
            }
        });
        let cpu = runtime.config().cpus[0];
        // The executor runs from its first activity on.
        let first = runtime.handler("first", better(), |batch| batch.finish()).unwrap();
        runtime.run(first).unwrap();
        let service = runtime.service(cpu, &name, ServiceTerms::new(forms, route)).unwrap();
        let client = Client::polled(&name).unwrap();
        Box::new(move |_| {
            let _service = &service;
            client.raise(&Raise::row(0)).unwrap();
        })
    });
}

/// An activity that an ordinary thread starts.
#[test]
#[ignore = "needs root"]
fn a_started_activity_runs_at_the_next_boundary_of_a_worse_domain() {
    for discipline in [&RMDP, &RM, &DWS] {
        check("control", discipline, |runtime, ran| {
            let id = runtime.handler("new", better(), move |batch| {
                while batch.proceed() {
                    ran.note();
                }
                batch.finish();
            });
            let id = id.unwrap();
            Box::new(move |runtime| runtime.run(id).unwrap())
        });
    }
}

/// No test of its own: the other tests start it. For each line that it reads, it writes to its
/// stream from an ordinary thread, and prints the times of the write and of the reader's run.
#[test]
fn child() {
    let Ok(socket) = std::env::var(ROLE) else { return };
    let mut runtime = attach(Path::new(&socket), "wakes", &RMDP);
    let stream = Stream::create(StreamForm::Slots { slots: 16, slot_bytes: 8 }, 0).unwrap();
    let (mut writer, reader) = (stream.writer().unwrap(), stream.reader().unwrap());
    let (ran, runs) = std::sync::mpsc::channel();
    let id = runtime.stream_reader_handler("reader", better(), reader, 1, move |reader, batch| {
        while let Some(message) = reader.next(batch) {
            message.done();
            ran.send(clock::now()).unwrap();
        }
    });
    runtime.run(id.unwrap()).unwrap();
    println!("#ready ");
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "wake");
        assert!(writer.push(&[1; 8]).unwrap());
        writer.commit().unwrap();
        let woken = clock::now();
        let ran = runs.recv().unwrap();
        println!("#ran {} {}", woken.as_nanos(), ran.as_nanos());
    }
}

/// Runs the worse domain as root, with quanta of that length, and wakes a domain in another
/// process, of the user `uid`. Returns how many quanta began between each wake-up and the run.
fn across_processes(uid: u32, quantum: Span) -> Vec<u32> {
    let _alone = support::alone();
    if has_one_cpu() {
        return Vec::new();
    }
    let server = start(&RMDP);
    let mut program = Command::new(support::program_for_all(server.directory.path()));
    program.current_dir(server.directory.path());
    let socket = server.socket.to_str().unwrap();
    let mut child = ChildProcess::start(program, uid, socket);
    child.read_word("ready");
    let mut theirs = server.attach("works");
    let (begun, quanta): (Count, Arc<Mutex<Vec<u64>>>) = Default::default();
    let (count, noted) = (begun.clone(), quanta.clone());
    let quanta_of_job = (Span::from_micros(500) * QUANTA).as_nanos() / quantum.as_nanos();
    let need = ActivityParams::new(PERIOD, quantum * 11 / 10);
    let need = need.batch(u32::try_from(quanta_of_job).unwrap());
    let handler = theirs.handler("worse", need.quantum(1), move |batch| {
        while batch.proceed() {
            let at = clock::now();
            noted.lock().unwrap().push(at.as_nanos());
            count.fetch_add(1, Relaxed);
            while clock::now() < at + quantum {}
        }
        if batch.remaining() == 0 {
            batch.finish();
        }
    });
    let handler = handler.unwrap();
    let between = rounds(|| {
        let job = begun.load(Relaxed);
        theirs.run(handler).unwrap();
        while begun.load(Relaxed) < job + WOKEN_IN {}
        child.write_line("wake");
        let times = child.numbers("ran");
        end_of_job(&mut theirs, handler);
        let quanta = std::mem::take(&mut *quanta.lock().unwrap());
        let counted = quanta.iter().filter(|&&at| (times[0]..times[1]).contains(&at)).count();
        u32::try_from(counted).unwrap()
    });
    drop((theirs, child));
    stop(server);
    between
}

/// A domain in another process.
#[test]
#[ignore = "needs root"]
fn a_domain_in_another_process_runs_at_the_next_boundary_of_a_worse_domain() {
    assert_few("another process", &across_processes(0, Span::from_micros(500)), 1);
}

/// A domain of another user. The holder lets it run at its next boundary, and then its KLS thread,
/// which shows the work to the holder's group. Before, two looks of the watchdog did that, 1 ms
/// apart: up to ten of these quanta began meanwhile.
#[test]
#[ignore = "needs root"]
fn a_domain_of_another_user_runs_at_the_next_boundary_of_a_worse_domain() {
    assert_few("another user", &across_processes(NOBODY, Span::from_micros(200)), 2);
}
