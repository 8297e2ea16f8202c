//! The two domains of a row: the worse one, which works, and the better one, which is woken.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use upcall::activity::ActivityParams;
use upcall::scheduler::Input;
use upcall::stream::{Stream, StreamForm};
use upcall::time::Span;
use upcall::{Attach, Config, Runtime, clock};
use upcall_benches::measured_cpu;
use upcall_core::trace::Crossing;
use upcall_sys::schedule;

/// The job of the worse domain, and its period.
pub(crate) const JOB: Span = Span::from_millis(40);
pub(crate) const PERIOD: Span = Span::from_millis(60);
/// As `stream`, with the better activity in a domain of another user.
pub(crate) const OF_OTHER: &str = "other-user";

fn runtime(socket: &Path, name: &str, policy: &str, trace: bool) -> Runtime {
    let daemon = Some(Attach { socket: socket.into(), name: name.to_owned() });
    let discipline = upcall::discipline::by_name(policy).expect("a policy");
    let config = Config { daemon, discipline, trace, ..Config::default() };
    Runtime::start(config).expect("the daemon attaches it")
}

/// The number of quanta of a job of the worse domain.
pub(crate) fn quanta_of(quantum_us: u64) -> u32 {
    u32::try_from(JOB.as_nanos() / Span::from_micros(quantum_us).as_nanos()).unwrap_or(1)
}

/// The worse domain: a job of many quanta. At the end of each job it writes when each quantum began
/// and when the job ended: `u64`, little-endian, in ns. Runs until it is killed.
pub(crate) fn works(socket: &Path, policy: &str, quantum_us: u64) {
    let mut runtime = runtime(socket, "works", policy, false);
    let quantum = Span::from_micros(quantum_us);
    let quanta = quanta_of(quantum_us);
    let need = ActivityParams::new(PERIOD, quantum + Span::from_micros(4)).batch(quanta);
    let mut times = Vec::with_capacity(8 * (quanta as usize + 1));
    let mut done = 0;
    let id = runtime.handler("works", need, move |batch| {
        while batch.proceed() {
            let now = clock::now();
            times.extend(now.as_nanos().to_le_bytes());
            let until = now + quantum;
            while clock::now() < until {}
            done += 1;
            if done == quanta {
                times.extend(now_ns().to_le_bytes());
                // The pipe has room for a job, and the bench empties it.
                std::io::stdout().write_all(&times).expect("the bench reads");
                times.clear();
                done = 0;
            }
        }
    });
    runtime.run(id.expect("it is admitted")).expect("the executor runs");
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// When the better activity ran last, in ns.
#[derive(Clone, Default)]
pub(crate) struct Ran(Arc<AtomicU64>);

impl Ran {
    pub(crate) fn note(&self) {
        // Release pairs with the Acquire in `after`.
        self.0.store(now_ns(), Ordering::Release);
    }

    /// Blocks until it ran at `woken_ns` or later. Returns when. The waker sleeps meanwhile, so
    /// that it takes no CPU from a thread on the way of the wake-up.
    pub(crate) fn after(&self, woken_ns: u64) -> u64 {
        loop {
            match self.0.load(Ordering::Acquire) {
                at if at >= woken_ns => return at,
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
    }
}

pub(crate) fn now_ns() -> u64 {
    clock::now().as_nanos()
}

/// The time before a wake-up. The times differ, so that the wake-ups fall into all parts of a
/// quantum and of a job.
pub(crate) fn pause_of(round: u32) -> Duration {
    Duration::from_micros(2_500 + u64::from(round * 7_919 % 4_001))
}

/// The calling thread stays away from `cpu`, if there is another CPU.
pub(crate) fn pin_away_from(cpu: u32) {
    let others: Vec<u32> =
        schedule::allowed_cpus().unwrap_or_default().into_iter().filter(|&of| of != cpu).collect();
    if !others.is_empty() {
        schedule::pin_thread(&others).expect("the process may use these CPUs");
    }
}

/// The better domain. Prints when the wake-up began, when the executor had noticed it, and when
/// the activity ran, in ns.
pub(crate) fn wakes(socket: &Path, kind: &str, policy: &str, rounds: u32) {
    let mut runtime = runtime(socket, "wakes", policy, true);
    let ran = Ran::default();
    let cpu = measured_cpu();
    let mut wake = better(&mut runtime, kind, ran.clone());
    pin_away_from(cpu);
    std::thread::sleep(Duration::from_millis(50));
    for round in 0..rounds {
        std::thread::sleep(pause_of(round));
        let woken_ns = now_ns();
        wake(&mut runtime);
        let ran_ns = ran.after(woken_ns);
        // The executor notes the input before the run. So the record is there.
        let noticed_ns = noticed_since(&mut runtime, woken_ns).expect("a trace without a gap");
        println!("{woken_ns} {noticed_ns} {ran_ns}");
    }
}

/// When the executor first gave work to its scheduler after `woken_ns`: from then on the better
/// domain seeks the CPU. The time is read before that.
fn noticed_since(runtime: &mut Runtime, woken_ns: u64) -> Option<u64> {
    let mut noticed_ns = None;
    runtime.poll_trace(|_, record| {
        let now_ns = record.now.as_nanos();
        let is_work = matches!(
            record.crossing,
            Crossing::Input { input: Input::Message { .. } | Input::Run { .. }, .. }
        );
        if is_work && now_ns >= woken_ns {
            noticed_ns.get_or_insert(now_ns);
        }
    });
    noticed_ns
}

/// Creates the better activity. Returns what wakes it.
fn better(runtime: &mut Runtime, kind: &str, ran: Ran) -> Box<dyn FnMut(&mut Runtime)> {
    // Many times what it takes. An interrupt or the host may lengthen a run. A run beyond its cost
    // would make the next one wait for its budget, by one period or more (decision 0016).
    let need = ActivityParams::new(Span::from_millis(2), Span::from_micros(100));
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
