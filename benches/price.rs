//! The price of an upcall. The bench measures the step from one ready handler to the next, and the
//! question whether to go on. It compares both with a bare indirect call and with two ways to wake
//! a thread or a task. All rows come from one run on one CPU.
//!
//! The bench asserts nothing, because the machine is shared. Read the ratios.

#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use upcall::activity::ActivityParams;
use upcall::time::{Instant, Span};
use upcall::{Config, HandlerId, Runtime, clock};
use upcall_benches::{heading, measured_cpu, percentile, smoke};
use upcall_sys::{futex, schedule};

/// Handlers that are released together, so that one is ready when another ends.
const HANDLERS: usize = 32;
/// Periods that are due at once when a handler is to run again and again. The executor's ring can
/// hold the records of that many jobs.
const BACKLOG: u64 = 10_000;
/// Events of one sample, where a clock read around each event would cost too much.
const EVENTS: u64 = 1_000;
/// Priority of the threads that wake each other.
const FIFO_PRIORITY: u8 = 50;

/// The measurements of one line of the table.
struct Row {
    name: &'static str,
    /// Number of events over which one sample is the mean.
    events: u64,
    /// Picoseconds for one event.
    samples_ps: Vec<u64>,
}

fn main() {
    let samples = if smoke() { 100 } else { 2_000 };
    let cpu = measured_cpu();
    println!("{}", heading("price"));
    let mut rows = in_handlers(cpu, samples);
    rows.extend(std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            // These rows run on the CPU and in the class in which the handlers ran.
            let class = schedule::pin_thread(&[cpu]).and(schedule::set_fifo(FIFO_PRIORITY));
            if let Err(error) = class {
                println!(
                    "from `one read of the clock` down, rows ran in the ordinary class: {error}"
                );
            }
            vec![
                clock_read(samples),
                indirect_call(samples),
                tokio_wake_up(samples),
                futex_wake_up(cpu, 10 * samples),
            ]
        });
        others.join().expect("no measurement panics")
    }));
    print(rows);
    println!("admission charges {} for a hand-off: p99 of one at a time", upcall::switch_cost());
    println!();
    println!("{CONTENTS}");
}

const CONTENTS: &str = "\
what a row contains, beside its name
  dispatch, in turn    the return, the end of the job, its record into the ring, the decision, the
                       upcall, one proceed(), and one read of the clock, which the scheduler
                       needs. The caches are as a sleep of 2 ms left them
  dispatch, the same   as above, but the same handler again, so that the caches are warm
  proceed(), inside    its two counters are in memory, as in a handler that calls other code
  proceed(), boundary  one read of the clock, one flag
  indirect call        a call of `fn(u64) -> u64` through a pointer; each waits for the one before
  tokio                Notify::notify_one, park of one task, poll of the other, in one thread
  futex                wake, wait, and the kernel's switch; half a round trip";

fn print(mut rows: Vec<Row>) {
    let medians: Vec<u64> =
        rows.iter_mut().map(|row| percentile(&mut row.samples_ps, 50.0).max(1)).collect();
    let of = |name| rows.iter().position(|row| row.name == name).map_or(1, |row| medians[row]);
    let (dispatch, call) = (of(DISPATCH) as f64, of(CALL) as f64);
    println!();
    println!(
        "{:<52} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8} {:>8}",
        "nanoseconds for one", "p10", "median", "p90", "p99", "/dispatch", "/call", "mean of",
    );
    for (row, &median) in rows.iter_mut().zip(&medians) {
        let mut at = |percent| percentile(&mut row.samples_ps, percent) as f64 / 1e3;
        println!(
            "{:<52} {:>10.1} {:>10.1} {:>10.1} {:>10.1} {:>9.3} {:>8.1} {:>8}",
            row.name,
            at(10.0),
            at(50.0),
            at(90.0),
            at(99.0),
            median as f64 / dispatch,
            median as f64 / call,
            row.events,
        );
    }
    println!();
}

const DISPATCH: &str = "dispatch of a ready handler, 32 of them in turn";
const CALL: &str = "bare indirect call";

/// The rows that handlers measure themselves in a running `Runtime`.
fn in_handlers(cpu: u32, samples: usize) -> Vec<Row> {
    let config = Config { cpus: vec![cpu], unscreened: true, ..Config::default() };
    let mut runtime = Runtime::start(config).expect("the CPU is allowed");
    for notice in runtime.notices() {
        println!("{notice}");
    }
    let rows = vec![
        dispatch_in_turn(&mut runtime, samples),
        dispatch_again(&mut runtime, samples),
        proceed(&mut runtime, "proceed() inside a quantum", EVENTS, samples),
        proceed(&mut runtime, "proceed() at a quantum's boundary", 1, samples),
    ];
    runtime.stop(|_, _| {});
    rows
}

/// Measures a burst of handlers that run one after the other, from the upcall of the first to that
/// of the last.
fn dispatch_in_turn(runtime: &mut Runtime, samples: usize) -> Row {
    let need = ActivityParams::new(Span::from_millis(2), Span::from_nanos(100));
    let (first, last) = (Stamps::new(samples), Stamps::new(samples));
    let ids: Vec<HandlerId> = (0..HANDLERS)
        .map(|number| {
            let mine = match number {
                0 => Some(first.clone()),
                n if n == HANDLERS - 1 => Some(last.clone()),
                _ => None,
            };
            let mut jobs = 0;
            let created = runtime.handler(&format!("h{number}"), need, move |batch| {
                if let Some(stamps) = &mine {
                    stamps.push(clock::now());
                }
                black_box(batch.proceed());
                jobs += 1;
                if jobs == samples {
                    batch.finish();
                }
            });
            created.expect("unscreened")
        })
        .collect();
    runtime.run_at(&ids, clock::now() + Span::from_millis(10)).expect("the thread runs");
    for &id in &ids {
        runtime.wait(&[id], None);
    }
    let events = HANDLERS as u64 - 1;
    let bursts = first.taken().into_iter().zip(last.taken());
    let samples_ps = bursts.map(|(first, last)| picoseconds(first, last, events)).collect();
    Row { name: DISPATCH, events, samples_ps }
}

/// Measures one handler that has many missed periods to catch up with.
fn dispatch_again(runtime: &mut Runtime, samples: usize) -> Row {
    const EVENTS: u64 = 100;
    let period = Span::from_micros(1);
    let stamps = Stamps::new(samples + 2 * usize::try_from(BACKLOG).unwrap_or_default());
    let mut jobs = 0;
    let mine = stamps.clone();
    let id = runtime.handler("again", ActivityParams::new(period, period), move |batch| {
        if jobs % EVENTS == 0 {
            mine.push(clock::now());
        }
        black_box(batch.proceed());
        jobs += 1;
        if jobs % BACKLOG == 0 {
            batch.finish();
        }
    });
    let id = id.expect("unscreened");
    let mut samples_ps = Vec::with_capacity(samples);
    while samples_ps.len() < samples {
        // Takes records out, so that the ring has room again.
        runtime.poll(|_, _| {});
        let due = Instant::from_nanos(clock::now().as_nanos() - 2 * BACKLOG * 1_000);
        runtime.run_at(&[id], due).expect("the thread runs");
        runtime.wait(&[id], None);
        let taken = stamps.taken();
        samples_ps.extend(taken.windows(2).map(|pair| picoseconds(pair[0], pair[1], EVENTS)));
    }
    runtime.poll(|_, _| {});
    Row { name: "dispatch of a ready handler, the same again", events: EVENTS, samples_ps }
}

/// Measures a handler that calls `proceed` `EVENTS` times and does nothing else.
fn proceed(runtime: &mut Runtime, name: &'static str, quantum: u64, samples: usize) -> Row {
    let whole = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let need = ActivityParams::new(Span::from_millis(2), Span::from_nanos(100))
        .batch(whole(EVENTS))
        .quantum(whole(quantum));
    let (begins, ends) = (Stamps::new(samples), Stamps::new(samples));
    let (my_begins, my_ends) = (begins.clone(), ends.clone());
    let mut jobs = 0;
    let id = runtime.handler(name, need, move |batch| {
        let begin = clock::now();
        let mut pdus = 0u64;
        while batch.proceed() {
            pdus += black_box(1);
        }
        let end = clock::now();
        // A batch that `proceed` ended early, because another thread notified the executor, is no
        // sample.
        if pdus == EVENTS {
            my_begins.push(begin);
            my_ends.push(end);
            jobs += 1;
        }
        if jobs == samples {
            batch.finish();
        }
    });
    let id = id.expect("unscreened");
    runtime.run(id).expect("the thread runs");
    runtime.wait(&[id], None);
    let pairs = begins.taken().into_iter().zip(ends.taken());
    let samples_ps = pairs.map(|(begin, end)| picoseconds(begin, end, EVENTS)).collect();
    Row { name, events: EVENTS, samples_ps }
}

/// Times that a handler records. The memory is allocated before, and the lock is free while
/// handlers run.
#[derive(Clone)]
struct Stamps(Arc<Mutex<Vec<Instant>>>);

impl Stamps {
    fn new(room: usize) -> Self {
        Stamps(Arc::new(Mutex::new(Vec::with_capacity(room))))
    }

    fn push(&self, now: Instant) {
        self.0.lock().expect("no handler panics").push(now);
    }

    /// The times that were recorded since the last call.
    fn taken(&self) -> Vec<Instant> {
        self.0.lock().expect("no handler panics").drain(..).collect()
    }
}

fn picoseconds(begin: Instant, end: Instant, events: u64) -> u64 {
    end.since(begin).as_nanos() * 1_000 / events
}

/// One read of the clock that all rows above read.
fn clock_read(samples: usize) -> Row {
    per_event("one read of the clock (vDSO)", samples, || {
        black_box(clock::now());
    })
}

fn indirect_call(samples: usize) -> Row {
    // `black_box` hides from the compiler which function this is.
    let function: fn(u64) -> u64 = black_box(|state| state.wrapping_add(1));
    let mut state = 0;
    let row = per_event(CALL, samples, || state = function(state));
    black_box(state);
    row
}

/// Time of one event, measured over `EVENTS` events at a time.
fn per_event(name: &'static str, samples: usize, mut event: impl FnMut()) -> Row {
    let one = |_| {
        let begin = clock::now();
        for _ in 0..EVENTS {
            event();
        }
        picoseconds(begin, clock::now(), EVENTS)
    };
    Row { name, events: EVENTS, samples_ps: (0..samples).map(one).collect() }
}

/// Two threads of one CPU wake each other. Measures the time from the wake call to running.
fn futex_wake_up(cpu: u32, samples: usize) -> Row {
    let turn = AtomicU32::new(0);
    let samples_ps = std::thread::scope(|scope| {
        scope.spawn(|| {
            // If the caller lacks the right to a real-time class, this thread lacks it too.
            let _ = schedule::pin_thread(&[cpu]).and(schedule::set_fifo(FIFO_PRIORITY));
            for _ in 0..samples {
                wait_for(&turn, 1);
                turn.store(0, Ordering::Release); // pairs with the Acquire in `wait_for`
                futex::wake(&turn, 1);
            }
        });
        (0..samples)
            .map(|_| {
                let begin = clock::now();
                turn.store(1, Ordering::Release); // pairs with the Acquire in `wait_for`
                futex::wake(&turn, 1);
                wait_for(&turn, 0);
                picoseconds(begin, clock::now(), 2)
            })
            .collect()
    });
    Row { name: "thread wake-up on the same CPU (futex)", events: 2, samples_ps }
}

fn wait_for(turn: &AtomicU32, mine: u32) {
    loop {
        // Acquire pairs with the Release stores in `futex_wake_up`.
        let seen = turn.load(Ordering::Acquire);
        if seen == mine {
            return;
        }
        futex::wait_until(turn, seen, None);
    }
}

/// Two tasks of one thread wake each other.
fn tokio_wake_up(samples: usize) -> Row {
    const ROUND_TRIPS: u64 = 50;
    let runtime =
        tokio::runtime::Builder::new_current_thread().build().expect("a runtime needs nothing");
    let samples_ps = runtime.block_on(async {
        let (ping, pong) =
            (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let (other_ping, other_pong) = (ping.clone(), pong.clone());
        let other = tokio::spawn(async move {
            for _ in 0..samples as u64 * ROUND_TRIPS {
                other_ping.notified().await;
                other_pong.notify_one();
            }
        });
        let mine = tokio::spawn(async move {
            let mut samples_ps = Vec::with_capacity(samples);
            for _ in 0..samples {
                let begin = clock::now();
                for _ in 0..ROUND_TRIPS {
                    ping.notify_one();
                    pong.notified().await;
                }
                samples_ps.push(picoseconds(begin, clock::now(), 2 * ROUND_TRIPS));
            }
            samples_ps
        });
        let samples_ps = mine.await.expect("no task panics");
        other.await.expect("no task panics");
        samples_ps
    });
    let name = "tokio task wake-up (current_thread, Notify)";
    Row { name, events: 2 * ROUND_TRIPS, samples_ps }
}
