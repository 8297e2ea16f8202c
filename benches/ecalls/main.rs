//! The cost of an event to a service, and of one back, without the kernel. This is ecalls-2001
//! Table 1 for `upcall_shm::channel` and `upcall::events`, in one run.
//!
//! All rows take turns, block by block, on one thread of one CPU. In the first part client and
//! service share one process, as with a library service. So no row of it contains a change of
//! address space or the wake of a sleeping thread. The service's handler returns the process's
//! number, as in the paper. The second part ([`remote`]) measures between two processes.
//!
//! The bench asserts nothing, because the machine is shared. Read the ratios.

#![forbid(unsafe_code)]

mod remote;
mod row;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant as Wall;

use row::{REAL_TIME_SIGNAL, Row, per_event, row, timed};
use rustix::process::{Signal, getpid, getppid, kill_process};
use upcall::time::{Instant, Span};
use upcall_benches::{heading, percentile, smoke};
use upcall_core::events::{
    Ancestry, Delivery, EventHandlerId, HandlerTerms, Next, QueuedEvent, SourceId, Verdict, When,
};
use upcall_shm::channel::{self, ENTRIES_MAX, Form, counter, ring, slots, typed};
use upcall_sys::{clock, schedule};

/// The number of turns of each row, and the samples of a turn.
const BLOCKS: usize = 11;
const SAMPLES: usize = 20;
/// Events of one sample.
const EVENTS: u64 = 1_024;
/// Events of a crossing, in the row with many.
const BATCH: u64 = 16;
/// Channels that cross one after the other, and the rounds of a sample.
const CHANNELS: u64 = 16;
const ROUNDS: u64 = 4;
/// Slots of the ring: as many as a sample has events, so that none is lost.
const SLOTS: u32 = 1_024;
/// The most invocations of a handler in a span of 1 ns: twice as many as a sample makes.
const INVOCATIONS_MAX: u32 = 2 * SLOTS;

fn main() {
    if remote::run_as_remote() {
        return;
    }
    let cpus = upcall::allowed_cpus().unwrap_or_default();
    let cpu = cpus.last().copied().unwrap_or(0);
    let other_cpu = cpus.iter().copied().find(|&other| other != cpu);
    schedule::pin_thread(&[cpu]).expect("the CPU is allowed");
    println!("{}", heading("ecalls"));
    println!("nanoseconds for one event or crossing, on CPU {cpu}; ratios of medians\n");
    let mut rows = rows();
    rows.extend(remote::rows(cpu, other_cpu));
    let (blocks, samples) = if smoke() { (1, 2) } else { (BLOCKS, SAMPLES) };
    let mut found = vec![Vec::new(); rows.len()];
    for _ in 0..blocks {
        for (row, found) in rows.iter_mut().zip(&mut found) {
            (row.sample)();
            found.extend((0..samples).map(|_| (row.sample)()));
        }
    }
    print(&rows, &mut found);
}

const SYSTEM_CALL: &str = "system call (getppid)";
const FAST: &str = "fast call, with its checks";
const EMPTY: &str = "deferred: crossing without events";
const FULL: &str = "deferred: crossing with 16";
const DEFERRED: [&str; 4] = [
    "deferred: post, counter",
    "deferred: post, typed",
    "deferred: post, ring",
    "deferred: post, slots",
];

fn rows() -> Vec<Row> {
    let mut rows = vec![
        row(SYSTEM_CALL, || {
            timed(EVENTS, || {
                black_box(getppid());
            })
        }),
        row("clock read (vDSO)", || {
            timed(EVENTS, || {
                black_box(clock::monotonic_ns());
            })
        }),
        fast(false),
        fast(true),
        post_counter(),
        post_typed(),
        post_ring(),
        post_slots(),
        post_over_255(),
        crossing_without(),
        crossing_with(1, "deferred: crossing with 1 event"),
        crossing_with(BATCH, FULL),
        handler(),
        queue_add(),
        queue_best(),
    ];
    rows.extend(signals());
    rows
}

/// The handler of the service.
fn process_number(event: u64) -> u64 {
    black_box(event) ^ NUMBER.load(Relaxed)
}

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A delivery with one handler and one source. Its limits are so high that no event counts as a
/// runaway.
fn delivery(pending_max: u32) -> (Delivery, EventHandlerId, SourceId) {
    NUMBER.store(u64::from(std::process::id()), Relaxed);
    let mut delivery = Delivery::new();
    let span = Span::from_nanos(1);
    let invocations_max = INVOCATIONS_MAX.min(2 * pending_max);
    let terms = HandlerTerms { pending_max, invocations_max, span };
    let handler = delivery.add_handler(terms).expect("the first");
    let source = delivery.add_source(&[handler]).expect("the first");
    (delivery, handler, source)
}

fn now() -> Instant {
    Instant::from_nanos(clock::monotonic_ns())
}

/// The paper's Fast User-ECall: the delivery checks for recursion and runaway, then the handler is
/// called.
fn fast(with_clock: bool) -> Row {
    let (mut delivery, handler, _) = delivery(SLOTS);
    let service: fn(u64) -> u64 = process_number;
    let name = if with_clock { "fast call, and a clock read" } else { FAST };
    row(name, move || {
        let at = now();
        timed(EVENTS, || {
            let at = if with_clock { now() } else { at };
            if delivery.call(at, handler, Ancestry::NONE).is_ok() {
                black_box(black_box(service)(1));
            }
        })
    })
}

fn segment(form: Form) -> Arc<[AtomicU64]> {
    let words: Arc<[AtomicU64]> = (0..form.words()).map(|_| AtomicU64::new(0)).collect();
    channel::create(words.clone(), form).expect("new memory");
    words
}

fn post_counter() -> Row {
    let words = segment(Form::Counter);
    let mut raiser = counter::Raiser::attach(words.clone()).expect("a segment");
    let mut taker = counter::Taker::attach(words).expect("a segment");
    row(DEFERRED[0], move || {
        let ps = timed(EVENTS, || raiser.post());
        assert_eq!(taker.take(), Ok(Some(EVENTS)));
        ps
    })
}

fn post_typed() -> Row {
    let words = segment(Form::Typed { types: 64 });
    let mut raiser = typed::Raiser::attach(words.clone(), 64).expect("a segment");
    let mut taker = typed::Taker::attach(words, 64).expect("a segment");
    row(DEFERRED[1], move || {
        let mut number = 0u32;
        let ps = timed(EVENTS, || {
            number += 1;
            let _ = black_box(raiser.post(number % 64, &[u64::from(number); 7]));
        });
        while let Ok(Some(_)) = taker.take() {}
        ps
    })
}

fn post_ring() -> Row {
    let words = segment(Form::Ring { slots: SLOTS });
    let mut raiser = ring::Raiser::attach(words.clone(), SLOTS).expect("a segment");
    let mut taker = ring::Taker::attach(words, SLOTS).expect("a segment");
    row(DEFERRED[2], move || {
        let ps = timed(EVENTS, || {
            let _ = black_box(raiser.post(&black_box([1; 7])));
        });
        let mut taken = 0;
        while let Ok(Some(_)) = taker.take() {
            taken += 1;
        }
        assert_eq!(taken, EVENTS, "none is lost");
        ps
    })
}

fn post_slots() -> Row {
    const LEVELS: u32 = 4;
    let depth = ENTRIES_MAX / LEVELS;
    let words = segment(Form::Slots { levels: LEVELS, depth });
    let mut raiser = slots::Raiser::attach(words.clone(), LEVELS, depth).expect("a segment");
    let mut taker = slots::Taker::attach(words, LEVELS, depth).expect("a segment");
    row(DEFERRED[3], move || {
        let mut number = 0u32;
        let ps = timed(u64::from(ENTRIES_MAX), || {
            number += 1;
            let _ = black_box(raiser.post(number % LEVELS, &black_box([1; 7])));
        });
        let mut taken = 0;
        while let Ok(Some(_)) = taker.take() {
            taken += 1;
        }
        assert_eq!(taken, ENTRIES_MAX, "none is lost");
        ps
    })
}

/// Posts the same type over and over, and no end takes it. Its mark is at its maximum, so each post
/// needs a fence.
fn post_over_255() -> Row {
    let words = segment(Form::Typed { types: 64 });
    let mut raiser = typed::Raiser::attach(words, 64).expect("a segment");
    row("deferred: post, typed, 256th and later", move || {
        timed(EVENTS, || {
            let _ = black_box(raiser.post(7, &black_box([1; 7])));
        })
    })
}

/// A crossing of a client and a service. The service empties the segment into the delivery and
/// handles the events that were deferred to this crossing.
struct Crossing {
    raiser: ring::Raiser<Arc<[AtomicU64]>>,
    taker: ring::Taker<Arc<[AtomicU64]>>,
    delivery: Delivery,
    source: SourceId,
    handled: u64,
}

impl Crossing {
    fn new(slots: u32) -> Self {
        let words = segment(Form::Ring { slots });
        let (delivery, _, source) = delivery(slots);
        Crossing {
            raiser: ring::Raiser::attach(words.clone(), slots).expect("a segment"),
            taker: ring::Taker::attach(words, slots).expect("a segment"),
            delivery,
            source,
            handled: 0,
        }
    }

    fn cross(&mut self, at: Instant) {
        while let Ok(Some(event)) = self.taker.take() {
            let event = QueuedEvent::new(self.source, 0, event.payload[0]);
            self.delivery.raise(at, event, When::NextCrossing).expect("there is room");
        }
        self.delivery.crossing();
        self.handled += invoke_all(&mut self.delivery, at);
    }
}

/// Invokes handlers until no event is ripe. Returns the number of events that they took.
fn invoke_all(delivery: &mut Delivery, at: Instant) -> u64 {
    let mut handled = 0;
    while let Some(Next::Invoke(handler)) = delivery.next(at) {
        while let Some(event) = delivery.take(handler) {
            black_box(process_number(event.token));
            delivery.conclude(at, event, Verdict::Drop).expect("its source is there");
            handled += 1;
        }
    }
    handled
}

fn crossing_without() -> Row {
    let mut both = Crossing::new(16);
    row(EMPTY, move || {
        let at = now();
        timed(EVENTS, || both.cross(at))
    })
}

/// Measures a whole crossing without its posts. Several channels cross one after the other, so that
/// the clock is not read around each.
fn crossing_with(events: u64, name: &'static str) -> Row {
    let mut all: Vec<_> = (0..CHANNELS).map(|_| Crossing::new(16)).collect();
    row(name, move || {
        let mut ps = 0;
        for _ in 0..ROUNDS {
            let at = now();
            for both in &mut all {
                both.handled = 0;
                for number in 0..events {
                    both.raiser.post(&[number; 7]).expect("a valid taker");
                }
            }
            let begun = Wall::now();
            all.iter_mut().for_each(|both| both.cross(at));
            ps += per_event(begun, CHANNELS);
            assert!(all.iter().all(|both| both.handled == events));
        }
        ps / ROUNDS
    })
}

/// An event of the service, handled by the client. The service could handle it on the client's
/// behalf at the same cost.
fn handler() -> Row {
    let (mut delivery, _, source) = delivery(SLOTS);
    row("handler upcall: raise to return", move || {
        let at = now();
        timed(EVENTS, || {
            delivery.raise(at, QueuedEvent::new(source, 0, 1), When::Now).expect("there is room");
            invoke_all(&mut delivery, at);
        })
    })
}

/// Adds an event to a queue that holds events of many ranks.
fn queue_add() -> Row {
    let (mut delivery, handler, source) = delivery(SLOTS);
    row("event queue: add (to 0..1024)", move || {
        let at = now();
        let mut rank = 0u64;
        let ps = timed(EVENTS, || {
            rank = rank.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let event = QueuedEvent::new(source, rank >> 32, 1);
            delivery.raise(at, event, When::Now).expect("there is room");
        });
        while delivery.take(handler).is_some() {}
        ps
    })
}

/// Finds the most urgent event, which is the question of a scheduler.
fn queue_best() -> Row {
    let (mut delivery, _, source) = delivery(SLOTS);
    for rank in 0..64 {
        let event = QueuedEvent::new(source, rank, 1);
        delivery.raise(Instant::ZERO, event, When::Now).expect("there is room");
    }
    row("event queue: look (64 pending)", move || {
        timed(EVENTS, || {
            black_box(black_box(&mut delivery).best());
        })
    })
}

/// Signals to the process itself. The kernel runs the handler before the call returns.
fn signals() -> [Row; 2] {
    let counted = Arc::new(AtomicUsize::new(0));
    let register = |signal| {
        signal_hook::flag::register_usize(signal, counted.clone(), 1).expect("the signal is free");
    };
    register(Signal::USR1.as_raw());
    register(REAL_TIME_SIGNAL);
    let [first, second] = [counted.clone(), counted];
    let check = |counted: &AtomicUsize| assert_eq!(counted.swap(0, Relaxed), 1, "the signal came");
    [
        row("signal: SIGUSR1, kill(2)", move || {
            let own = getpid();
            timed(EVENTS, || {
                kill_process(own, Signal::USR1).expect("this process");
                check(&first);
            })
        }),
        row("real-time signal: raise(3)", move || {
            timed(EVENTS, || {
                signal_hook::low_level::raise(REAL_TIME_SIGNAL).expect("this process");
                check(&second);
            })
        }),
    ]
}

fn print(rows: &[Row], found: &mut [Vec<u64>]) {
    println!("{:<49} {:>9} {:>9} {:>9} {:>9}", "", "p10", "median", "p90", "/ syscall");
    let medians: Vec<f64> = found.iter_mut().map(|ps| percentile(ps, 50.0) as f64).collect();
    for ((row, ps), median) in rows.iter().zip(found).zip(&medians) {
        let [p10, p90] = [10.0, 90.0].map(|percent| percentile(ps, percent) as f64 / 1e3);
        let (ns, ratio) = (median / 1e3, median / medians[0].max(1.0));
        println!("{:<49} {p10:>9.1} {ns:>9.1} {p90:>9.1} {ratio:>9.3}", row.name);
    }
    let of = |name: &str| {
        let at = rows.iter().position(|row| row.name == name).unwrap_or(0);
        medians[at] / medians[0].max(1.0)
    };
    let holds = |ratio: f64, most: f64| if ratio < most { "holds" } else { "DOES NOT HOLD" };
    println!("\nfast below a system call: {:.2}, {}", of(FAST), holds(of(FAST), 1.0));
    for name in DEFERRED {
        println!("{name}, below a tenth of one: {:.3}, {}", of(name), holds(of(name), 0.1));
    }
    println!("{EMPTY}, below half of one: {:.3}, {}", of(EMPTY), holds(of(EMPTY), 0.5));
    let each = of(FULL) / BATCH as f64;
    println!("{FULL}, of each event, below one: {each:.3}, {}", holds(each, 1.0));
    println!("\n{CONTENTS}");
}

const CONTENTS: &str = "\
what a row contains
  system call   getppid: into the kernel and back
  fast call     the check for recursion and runaway, and an indirect call of the handler
  post          one event into the segment; typed cycles through 64 types, and merges with events
                that are pending
  crossing      the segment emptied, events made ripe, the handler invoked once, each event taken
                and concluded
  handler       an event raised, the handler chosen and invoked, the event taken and concluded
  across        to the other process, which is this program again. A handler in a thread of its
                service raises back, and the client sleeps on its wake word. Awake: the receiver
                polls without end, and no side makes a system call
  call by name  connects and calls, and a thread of the service replies; comparable to a UNIX
                socket with a new connection
  round trip    two system calls on each side; the signal is queued with its value and reaches a
                thread that sleeps
  add           an event of any rank into a queue that grows from 0 to 1,024
  signal        kill(2) is one system call, with signal_hook's handler; raise(3) of glibc makes
                three (getpid, gettid, tgkill). The kernel makes a frame, and sigreturn is one
                more call";
