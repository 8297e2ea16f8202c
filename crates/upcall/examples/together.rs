//! Many handlers that are all released at the same moments:
//!
//! ```sh
//! cargo run --release -p upcall --example together -- 8 200          # handlers, jobs of each
//! cargo run --release -p upcall --example together -- 8 200 masked   # PDUs under both masks
//! ```
//!
//! The program shows how periodic work is done beside other work: start a runtime, create handlers,
//! run them in phase, wait, and read the report. All handlers share one CPU and one thread,
//! `upcall-cpuN`. So between two ready handlers there is a return, a decision and a call, and no
//! system call. strace(1) shows this:
//!
//! ```sh
//! strace -f -o calls.txt target/release/examples/together 8 200
//! ```
//!
//! The thread makes some twenty calls to start and to end. It makes one call for each of the 200
//! moments at which it must sleep, not one for each of the 1600 upcalls (`tests/together.rs` counts
//! them).
//!
//! If `UPCALL_SOCKET` names the socket of a daemon, the program is one of its domains, on its CPUs.
//! Then there are two calls at each of the moments: one passes the turn on, and one sleeps until
//! the turn comes back. There is still none for each upcall.
//!
//! It prints one line, `upcalls 1600, jobs 1600, missed 0, thread 4711`. The last number is the
//! thread that ran all handlers (gettid(2)). It prints each missing right on standard error.

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, HandlerId, Runtime, clock, default_cpus};

/// Much longer than eight handlers take, and short enough for a quick example.
const PERIOD: Span = Span::from_millis(5);
/// The declared cost of a PDU. The work below takes a fraction of it.
const PDU_COST: Span = Span::from_micros(20);
/// Time between the last preparation and the first release.
const LEAD: Span = Span::from_millis(20);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let masked = arguments.pop_if(|last| last == "masked").is_some();
    let mut numbers = arguments.iter().map(|argument| argument.parse::<u64>());
    let handlers = numbers.next().transpose()?.unwrap_or(8);
    let jobs = numbers.next().transpose()?.unwrap_or(200);

    // One CPU: with more there would be a thread for each.
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

/// What all handlers did together.
#[derive(Default)]
struct Done {
    upcalls: AtomicU64,
    thread: OnceLock<PathBuf>,
}

/// The id of the calling thread: the last part of `PID/task/TID` (proc(5)).
fn this_thread() -> PathBuf {
    let link = fs::read_link("/proc/thread-self").unwrap_or_default();
    link.file_name().unwrap_or_default().into()
}

/// Creates a handler that has one PDU a period and ends its upcalls after `jobs`.
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
            // The masks cover one PDU each: they are set and released for each PDU.
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
