//! Many handlers, all due at the same moment, over and over:
//!
//! ```sh
//! cargo run --release -p upcall --example together -- 8 200          # handlers, jobs of each
//! cargo run --release -p upcall --example together -- 8 200 masked   # PDUs under both masks
//! ```
//!
//! What a program does to have periodic work done beside its own: start a
//! runtime, create handlers, run them in phase, wait, and read the report. All
//! handlers share one CPU and one thread, `upcall-cpuN`, so between two that
//! are both ready there is a return, a decision and a call, and no system
//! call. That can be watched:
//!
//! ```sh
//! strace -f -o calls.txt target/release/examples/together 8 200
//! ```
//!
//! The thread makes some twenty calls to set itself up and to end, and one for
//! each of the 200 moments at which it must sleep until the next, not one for
//! each of the 1600 upcalls (`tests/together.rs` counts them).
//!
//! With `UPCALL_SOCKET` naming a daemon's socket it is one domain among others, on
//! the daemon's CPUs. Then there are two calls at each of the moments, to pass the
//! turn on and to sleep until it comes back, and still none for each upcall.
//!
//! It prints one line, `upcalls 1600, jobs 1600, missed 0, thread 4711`, where the last
//! is the thread that ran all handlers (gettid(2)), and says on standard error what
//! right is missing, if one is.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, HandlerId, Runtime, clock, default_cpus};

/// Long against what eight handlers take, short enough to be done soon.
const PERIOD: Span = Span::from_millis(5);
/// What a PDU may cost. The work below takes a fraction of it.
const PDU_COST: Span = Span::from_micros(20);
/// Between the last preparation and the first release.
const LEAD: Span = Span::from_millis(20);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let masked = arguments.pop_if(|last| last == "masked").is_some();
    let mut numbers = arguments.iter().map(|argument| argument.parse::<u64>());
    let handlers = numbers.next().transpose()?.unwrap_or(8);
    let jobs = numbers.next().transpose()?.unwrap_or(200);

    // One CPU: with more, there would be a thread for each.
    let cpus = default_cpus()?.into_iter().take(1).collect();
    let daemon = std::env::var_os("UPCALL_SOCKET")
        .map(|socket| Attach { socket: socket.into(), name: "together".into() });
    let mut runtime = Runtime::start(Config { cpus, daemon, ..Config::default() })?;
    let done = Arc::new(Done::default());
    let ids = (0..handlers)
        .map(|number| create(&mut runtime, number, (jobs, masked), done.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    runtime.run_at(&ids, clock::now() + LEAD)?;
    for notice in runtime.notices() {
        eprintln!("{notice}");
    }
    for &id in &ids {
        runtime.wait(&[id], None);
    }

    let report = runtime.stop(|_, _| {});
    let counters = || report.activities.iter().filter_map(|activity| activity.counters);
    println!(
        "upcalls {}, jobs {}, missed {}, thread {}",
        done.upcalls.load(Ordering::Relaxed),
        counters().map(|counters| counters.completed).sum::<u64>(),
        counters().map(|counters| counters.misses).sum::<u64>(),
        done.thread.get().map_or("none".into(), |thread| thread.display().to_string()),
    );
    Ok(())
}

/// What the handlers did, together.
#[derive(Default)]
struct Done {
    upcalls: AtomicU64,
    thread: OnceLock<PathBuf>,
}

/// The id of the thread that calls this: the last part of `PID/task/TID` (proc(5)).
fn this_thread() -> PathBuf {
    let link = fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().unwrap_or_default().into()
}

/// A handler that has one PDU a period and asks for no more upcalls after `jobs`.
fn create(
    runtime: &mut Runtime,
    number: u64,
    (jobs, masked): (u64, bool),
    all: Arc<Done>,
) -> Result<HandlerId, upcall::CreateError> {
    let need = ActivityParams::new(PERIOD, PDU_COST);
    let (mut done, mut state) = (0, number + 1);
    runtime.handler(&format!("handler {number}"), need, move |batch| {
        // Relaxed: read after the runtime has stopped.
        all.upcalls.fetch_add(1, Ordering::Relaxed);
        all.thread.get_or_init(this_thread);
        while batch.proceed() {
            // Masks as tight as they come: up and down for each PDU.
            let mut outer = masked.then(|| batch.mask_preemption());
            let _inner = outer.as_mut().map(|batch| batch.mask_interrupts());
            state = (0..100).fold(state, |state: u64, turn| state.rotate_left(5) ^ turn);
            std::hint::black_box(state);
        }
        done += 1;
        if done == jobs {
            batch.finish();
        }
    })
}
