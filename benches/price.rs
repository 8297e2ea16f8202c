//! The price of an upcall: what it costs to go from one ready handler to the
//! next, and to ask whether to go on, against a bare indirect call and against
//! two ways of waking somebody, all in one run on one CPU.
//!
//! Nothing here is asserted: the machine is shared. Read the ratios.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use upcall::activity::ActivityParams;
use upcall::time::{Instant, Span};
use upcall::{Config, Runtime, clock, default_cpus};
use upcall_benches::{heading, percentile, smoke};
use upcall_sys::{futex, schedule};

/// Handlers that are released together, so that one is ready when another ends.
const HANDLERS: usize = 32;
/// Priority of the threads that wake each other.
const FIFO_PRIORITY: u8 = 50;

/// Samples of one row, in nanoseconds for one event.
struct Row {
    name: &'static str,
    samples: Vec<u64>,
}

fn main() {
    let rounds = if smoke() { 200 } else { 20_000 };
    let cpu = default_cpus().ok().and_then(|cpus| cpus.last().copied()).unwrap_or(0);
    println!("{}", heading());
    let measured_in_handlers = in_handlers(cpu, rounds);
    let rows = std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            // The others run where and as the handlers ran.
            let class = schedule::pin_thread(&[cpu]).and(schedule::set_fifo(FIFO_PRIORITY));
            if let Err(error) = class {
                println!("not in the real-time class: {error}");
            }
            vec![
                clock_read(rounds),
                indirect_call(rounds),
                futex_wake_up(cpu, rounds),
                tokio_wake_up(rounds),
            ]
        });
        let mut rows = measured_in_handlers;
        rows.extend(others.join().expect("no measurement panics"));
        rows
    });
    print(rows);
}

fn print(mut rows: Vec<Row>) {
    let dispatch = percentile(&mut rows[0].samples, 50.0).max(1);
    println!("{:<52} {:>9} {:>9} {:>9} {:>12}", "", "median", "p90", "p99", "/ dispatch");
    for row in &mut rows {
        let median = percentile(&mut row.samples, 50.0);
        println!(
            "{:<52} {:>6} ns {:>6} ns {:>6} ns {:>12.2}",
            row.name,
            median,
            percentile(&mut row.samples, 90.0),
            percentile(&mut row.samples, 99.0),
            median as f64 / dispatch as f64,
        );
    }
}

/// Dispatch of a ready handler and `proceed`, measured by the handlers
/// themselves in a running `Runtime`.
fn in_handlers(cpu: u32, rounds: usize) -> Vec<Row> {
    const PDUS: u32 = 1_000;
    let jobs = (rounds / HANDLERS).max(10);
    let config = Config { cpus: vec![cpu], unscreened: true, ..Config::default() };
    let mut runtime = Runtime::start(config).expect("the CPU is allowed");
    for notice in runtime.notices() {
        println!("{notice}");
    }
    let period = Span::from_millis(2);
    let entries = Arc::new(Mutex::new(Vec::new()));
    let mut ids = Vec::new();
    for number in 0..HANDLERS {
        let need = ActivityParams::new(period, Span::from_nanos(100));
        let mut stamps: Vec<(u64, u64)> = Vec::with_capacity(jobs);
        let entries = entries.clone();
        let id = runtime.handler(&format!("h{number}"), need, move |batch| {
            let begin = clock::now().as_nanos();
            black_box(batch.proceed());
            if stamps.len() < jobs {
                stamps.push((begin, clock::now().as_nanos()));
            } else {
                batch.finish();
                entries.lock().expect("no handler panics").push((number, stamps.clone()));
            }
        });
        ids.push(id.expect("unscreened"));
    }
    runtime.run_at(&ids, clock::now() + Span::from_millis(10)).expect("the thread runs");
    for &id in &ids {
        runtime.wait(&[id], None);
    }
    let mut entries = std::mem::take(&mut *entries.lock().expect("no handler panics"));
    entries.sort_by_key(|(number, _)| *number);
    // From the end of one handler's stamp to the begin of the next one's: its
    // return, the core's decision, the upcall, and one read of the clock.
    let dispatch = (0..jobs)
        .flat_map(|job| entries.windows(2).map(move |pair| (pair[0].1[job].1, pair[1].1[job].0)))
        .map(|(end, begin)| begin.saturating_sub(end))
        .collect();
    let mut rows = vec![Row { name: "dispatch of a ready handler", samples: dispatch }];
    for (name, quantum) in
        [("proceed() inside a quantum", PDUS), ("proceed() at a quantum's boundary", 1)]
    {
        let need = ActivityParams::new(period, Span::from_nanos(100)).batch(PDUS).quantum(quantum);
        let samples = Arc::new(Mutex::new(Vec::new()));
        let out = samples.clone();
        let id = runtime.handler(name, need, move |batch| {
            let begin = clock::now();
            let mut pdus = 0u64;
            while batch.proceed() {
                pdus += black_box(1);
            }
            let mut samples = out.lock().expect("no handler panics");
            samples.push(clock::now().since(begin).as_nanos() / pdus.max(1));
            if samples.len() >= jobs {
                batch.finish();
            }
        });
        let id = id.expect("unscreened");
        runtime.run(id).expect("the thread runs");
        runtime.wait(&[id], None);
        let samples = std::mem::take(&mut *samples.lock().expect("no handler panics"));
        rows.push(Row { name, samples });
    }
    runtime.stop(|_, _| {});
    rows
}

/// One read of the clock that all of the above read.
fn clock_read(rounds: usize) -> Row {
    let samples = per_event(rounds, || {
        black_box(clock::now());
    });
    Row { name: "one read of the clock (vDSO)", samples }
}

fn indirect_call(rounds: usize) -> Row {
    let functions: [fn(u64) -> u64; 2] = [|x| x + 1, |x| x + 2];
    let mut state = 0;
    let samples = per_event(rounds, || {
        state = black_box(functions[(state & 1) as usize])(black_box(state));
    });
    Row { name: "bare indirect call", samples }
}

/// Time of one event, from batches of a hundred.
fn per_event(rounds: usize, mut event: impl FnMut()) -> Vec<u64> {
    const BATCH: u64 = 100;
    (0..rounds)
        .map(|_| {
            let begin = clock::now();
            for _ in 0..BATCH {
                event();
            }
            clock::now().since(begin).as_nanos() / BATCH
        })
        .collect()
}

/// Two threads of one CPU that wake each other: from the wake to running.
fn futex_wake_up(cpu: u32, rounds: usize) -> Row {
    let turn = AtomicU32::new(0);
    let samples = std::thread::scope(|scope| {
        scope.spawn(|| {
            // As the caller: where it has no right, this one has none either.
            let _ = schedule::pin_thread(&[cpu]).and(schedule::set_fifo(FIFO_PRIORITY));
            for _ in 0..rounds {
                wait_for(&turn, 1);
                turn.store(0, Ordering::Release);
                futex::wake(&turn, 1);
            }
        });
        (0..rounds)
            .map(|_| {
                let begin = clock::now();
                turn.store(1, Ordering::Release);
                futex::wake(&turn, 1);
                wait_for(&turn, 0);
                clock::now().since(begin).as_nanos() / 2
            })
            .collect()
    });
    Row { name: "thread wake-up on the same CPU (futex)", samples }
}

fn wait_for(turn: &AtomicU32, mine: u32) {
    loop {
        let seen = turn.load(Ordering::Acquire);
        if seen == mine {
            return;
        }
        futex::wait_until(turn, seen, None);
    }
}

/// Two tasks of one thread that wake each other.
fn tokio_wake_up(rounds: usize) -> Row {
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing");
    let samples = runtime.block_on(async {
        let (ping, pong) =
            (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (other_ping, other_pong) = (ping.clone(), pong.clone());
        let other = tokio::spawn(async move {
            for _ in 0..rounds {
                other_ping.notified().await;
                other_pong.notify_one();
            }
        });
        let mine = tokio::spawn(async move {
            let mut samples = Vec::with_capacity(rounds);
            for _ in 0..rounds {
                let begin: Instant = clock::now();
                ping.notify_one();
                pong.notified().await;
                samples.push(clock::now().since(begin).as_nanos() / 2);
            }
            samples
        });
        let samples = mine.await.expect("no task panics");
        other.await.expect("no task panics");
        samples
    });
    Row { name: "tokio task wake-up (current_thread, Notify)", samples }
}
