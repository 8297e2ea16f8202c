//! From a wake-up to the run: a better activity of one process is woken while a worse domain, in
//! another process, runs on the same CPU. The bench compares the time with what admission counts:
//! one quantum of the worse domain and a hand-off.
//!
//! The row *other user* is a stream, too, but the better activity belongs to a domain of another
//! user. Only root can measure it.
//!
//! Two kinds of threads wake: one that knows the domain (a thread of its process wakes a task or
//! starts a handler), and one that does not (it writes to a stream). Both run on another CPU, so
//! the time includes the kernel's wake-up across CPUs.
//!
//! The bench asserts nothing, because the machine is shared. It prints which rows keep the bound.

#![forbid(unsafe_code)]

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::discipline::{DWS, Discipline, RMDP};
use upcall::stream::{Stream, StreamForm};
use upcall::time::Span;
use upcall::{Attach, Config, Runtime, clock};
use upcall_benches::{heading, measured_cpu, percentile, smoke};
use upcall_daemon::server::{self, Access, Daemon, DaemonEvent};

/// The environment variable that gives a process started by this one its role.
const ROLE: &str = "UPCALL_BENCH_ROLE";
/// The quanta of the worse domain. 0: there is no worse domain, and the CPU is idle.
const QUANTA_US: [u64; 4] = [0, 20, 100, 500];
/// The job of the worse domain, and its period.
const JOB: Span = Span::from_millis(40);
const PERIOD: Span = Span::from_millis(60);
/// The kinds of wake-ups, with the policy under which each is measured.
const KINDS: [(&str, &Discipline); 5] =
    [("stream", &RMDP), (OF_OTHER, &RMDP), ("task", &DWS), ("io_wait", &DWS), ("control", &RMDP)];
/// What a sample may have beyond one quantum and a hand-off: the yield, which includes the kernel's
/// wake-up across CPUs and two switches of threads. It is fixed before the run, so that a slow
/// machine cannot widen the bound. Admission counts such time of the kernel by `wakeup_latency`.
const ALLOWANCE: Span = Span::from_micros(50);
/// As `stream`, with the better activity in a domain of [`OTHER_USER`].
const OF_OTHER: &str = "other-user";
/// The user *nobody*.
const OTHER_USER: u32 = 65_534;

fn main() {
    match std::env::var(ROLE).as_deref().map(|role| role.split(' ').collect::<Vec<_>>()) {
        Err(_) => measure(),
        Ok(role) => match role[..] {
            ["works", socket, policy, quantum_us] => {
                works(Path::new(socket), policy, quantum_us.parse().expect("a number"));
            }
            ["wakes", socket, kind, policy, rounds] => {
                wakes(Path::new(socket), kind, policy, rounds.parse().expect("a number"));
            }
            _ => panic!("unknown role {role:?}"),
        },
    }
}

fn measure() {
    let rounds = if smoke() { 20 } else { 1_500 };
    println!("{}\n", heading("wake"));
    println!(
        "{:<10} {:>10} {:>8} {:>10} {:>8} {:>8} {:>8} {:>8} {:>9}",
        "us", "quantum", "hand-off", "samples", "p50", "p99", "p99.9", "worst", "above sum"
    );
    for (kind, discipline) in KINDS {
        if kind == OF_OTHER && upcall_sys::process::effective_user() != 0 {
            println!("{kind:<10} SKIPPED: needs root");
            continue;
        }
        for quantum_us in QUANTA_US {
            let (mut samples, cost) = samples(kind, discipline, quantum_us, rounds);
            let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            let counted = quantum_us * 1_000 + (cost + ALLOWANCE).as_nanos();
            let above = samples.iter().filter(|&&ns| ns > counted).count();
            let [p50, p99, p999, worst] =
                [50.0, 99.0, 99.9, 100.0].map(|of| us(percentile(&mut samples, of)));
            let (count, hand_off) = (samples.len(), us(cost.as_nanos()));
            println!(
                "{kind:<10} {quantum_us:>10} {hand_off:>8} {count:>10} {p50:>8} {p99:>8} \
                 {p999:>8} {worst:>8} {above:>9}  {}",
                verdict(above)
            );
        }
    }
    println!(
        "\nstream: an ordinary thread writes to a stream that a handler reads; it knows no domain\n\
         other-user: the same, and the two domains belong to different users\n\
         task: an ordinary thread of the process wakes a task\n\
         control: an ordinary thread of the process starts a handler\n\
         The time begins before the write, the wake-up or the start, and ends in the handler or\n\
         task. It contains the wake-up across CPUs. Quantum 0: no worse domain, an idle CPU.\n\
         io_wait: an ordinary thread writes to a pipe for which a task waits; a thread of the\n\
         runtime wakes the task\n\
         above sum: samples above one quantum, one hand-off as the daemon measured it, and {}\n\
         for the yield: the kernel's wake-up across CPUs, and its two switches of threads. Each\n\
         quantum takes exactly its time, by the clock. A row keeps the bound if no sample is above.",
        ALLOWANCE
    );
}

const fn verdict(above: usize) -> &'static str {
    if above == 0 { "keeps the bound" } else { "ABOVE THE BOUND" }
}

/// The times from the wake-up to the run in ns, and the daemon's cost of a hand-off.
fn samples(kind: &str, of: &'static Discipline, quantum_us: u64, rounds: u32) -> (Vec<u64>, Span) {
    let socket = std::env::temp_dir().join(format!("upcall-bench-{}", std::process::id()));
    let config = server::Config {
        discipline: of,
        access: Access::Everyone,
        ..server::Config::new(socket.clone(), vec![measured_cpu()])
    };
    let daemon = Daemon::start(config).expect("a daemon");
    let (stopper, cost) = (daemon.stopper(), daemon.switch_cost());
    let serving = std::thread::spawn(move || {
        daemon.run(|event, _| {
            if let DaemonEvent::Offence { .. } = event {
                println!("{event:?}");
            }
        });
    });
    let (path, policy) = (socket.display(), of.name);
    let mut works = (quantum_us > 0).then(|| start(&format!("works {path} {policy} {quantum_us}")));
    let mut wakes = command(&format!("wakes {path} {kind} {policy} {rounds}"));
    if kind == OF_OTHER {
        wakes.uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
    }
    let wakes = wakes.spawn().expect("any user can start this program");
    let output = wakes.wait_with_output().expect("it ends");
    if let Some(works) = &mut works {
        let _ = (works.kill(), works.wait());
    }
    stopper.stop();
    serving.join().expect("the daemon does not panic");
    let text = String::from_utf8(output.stdout).expect("numbers");
    (text.split_whitespace().map(|ns| ns.parse().expect("a number")).collect(), cost)
}

fn start(role: &str) -> Child {
    command(role).spawn().expect("this program can be started")
}

fn command(role: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.env(ROLE, role).stdout(Stdio::piped());
    command
}

fn runtime(socket: &Path, name: &str, policy: &str) -> Runtime {
    let daemon = Some(Attach { socket: socket.into(), name: name.to_owned() });
    let discipline = upcall::discipline::by_name(policy).expect("a policy");
    let config = Config { daemon, discipline, ..Config::default() };
    Runtime::start(config).expect("the daemon attaches it")
}

/// The worse domain: a job of many quanta. Runs until it is killed.
fn works(socket: &Path, policy: &str, quantum_us: u64) {
    let mut runtime = runtime(socket, "works", policy);
    let quantum = Span::from_micros(quantum_us);
    let batch = u32::try_from(JOB.as_nanos() / quantum.as_nanos()).unwrap_or(1);
    let need = ActivityParams::new(PERIOD, quantum + Span::from_micros(2)).batch(batch);
    let id = runtime.handler("works", need, move |batch| {
        while batch.proceed() {
            let until = clock::now() + quantum;
            while clock::now() < until {}
        }
    });
    runtime.run(id.expect("it is admitted")).expect("the executor runs");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// When the better activity ran last, in ns.
#[derive(Clone, Default)]
struct Ran(Arc<AtomicU64>);

impl Ran {
    fn note(&self) {
        self.0.store(clock::now().as_nanos(), Ordering::Release);
    }
}

/// The better domain. Prints the times from its wake-ups to its runs.
fn wakes(socket: &Path, kind: &str, policy: &str, rounds: u32) {
    let mut runtime = runtime(socket, "wakes", policy);
    let ran = Ran::default();
    let mut wake = better(&mut runtime, kind, ran.clone());
    std::thread::sleep(Duration::from_millis(50));
    for round in 0..rounds {
        // The spans differ, so that the wake-ups fall into all parts of a quantum and a job.
        std::thread::sleep(Duration::from_micros(2_500 + u64::from(round * 7_919 % 4_001)));
        let woken = clock::now().as_nanos();
        wake(&mut runtime);
        let at = loop {
            match ran.0.load(Ordering::Acquire) {
                at if at >= woken => break at,
                _ => std::hint::spin_loop(),
            }
        };
        println!("{}", at - woken);
    }
}

/// Creates the better activity. Returns what wakes it.
fn better(runtime: &mut Runtime, kind: &str, ran: Ran) -> Box<dyn FnMut(&mut Runtime)> {
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(20));
    match kind {
        "stream" | OF_OTHER => {
            let form = StreamForm::Slots { slots: 16, slot_bytes: 8 };
            let stream = Stream::create(form, 0).expect("memory");
            let mut writer = stream.writer().expect("the only writer");
            let reader = stream.reader().expect("the only reader");
            let id = runtime.stream_reader_handler("reader", need, reader, 1, move |r, batch| {
                while let Some(message) = r.next(batch) {
                    message.done();
                    ran.note();
                }
            });
            runtime.run(id.expect("it is admitted")).expect("the executor runs");
            Box::new(move |_| {
                assert!(writer.push(&[1; 8]).expect("an open stream"), "there is room");
                writer.commit().expect("an open stream");
            })
        }
        "task" => {
            let place: Arc<Mutex<Option<Waker>>> = Arc::default();
            let waits = place.clone();
            let id = runtime.task("task", need, move |_| async move {
                loop {
                    let mut polled = false;
                    std::future::poll_fn(|context| {
                        *waits.lock().expect("no panic") = Some(context.waker().clone());
                        match std::mem::replace(&mut polled, true) {
                            true => Poll::Ready(()),
                            false => Poll::Pending,
                        }
                    })
                    .await;
                    ran.note();
                }
            });
            runtime.run(id.expect("it is admitted")).expect("the executor runs");
            Box::new(move |_| {
                let waker = place.lock().expect("no panic").take();
                waker.expect("the task waits").wake();
            })
        }
        "io_wait" => {
            let (reader, mut writer) = std::io::pipe().expect("a pipe");
            let mut reader = std::fs::File::from(OwnedFd::from(reader));
            let id = runtime.task("task", need, move |task| async move {
                loop {
                    task.io_wait(&reader).await.expect("a pipe can be waited for");
                    ran.note();
                    let _ = reader.read(&mut [0; 8]);
                }
            });
            runtime.run(id.expect("it is admitted")).expect("the executor runs");
            Box::new(move |_| writer.write_all(&[1]).expect("there is room"))
        }
        _ => {
            let id = runtime.handler("started", need, move |batch| {
                while batch.proceed() {
                    ran.note();
                }
                batch.finish();
            });
            let id = id.expect("it is admitted");
            Box::new(move |runtime| runtime.run(id).expect("the executor runs"))
        }
    }
}
