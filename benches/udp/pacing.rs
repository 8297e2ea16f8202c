//! Part `pacing`: how even the packets of a stream leave, 1000 a second, each sent in its period.
//!
//! The receiver in the other namespace reads the kernel's arrival times. The packet crosses the
//! virtual wire on the sender's CPU, so they are departure times and some microseconds. The error
//! is the distance of two arrivals from a millisecond.
//!
//! | way | who sends |
//! |---|---|
//! | flow | a handler of Upcall that sends by a flow, and calls the owner of the interface |
//! | socket | a handler of Upcall with a kernel socket |
//! | fifo | a thread of SCHED_FIFO that sleeps until each millisecond |
//! | thread | an ordinary thread that does the same |

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use upcall::activity::ActivityParams;
use upcall::clock::now;
use upcall::net::{FlowForm, FlowTerms, InterfaceSettings, Share, UdpInterface};
use upcall::time::Span;
use upcall::{Config, Runtime};
use upcall_benches::calm::{Calm, Try, why_none_is_judged};
use upcall_benches::{measured_cpu, percentile, smoke};
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule;
use upcall_sys::udp::{ReceiveBatch, SendBatch, UdpSocket};

use crate::wire::{self, INTERFACE, OURS, THEIRS, Wire};

const PORT: u16 = 5006;
const PERIOD: Span = Span::from_millis(1);
const PAYLOAD: [u8; 160] = [7; 160];
/// How much longer a run is: it takes a while to start, and the first packets do not count.
const LONGER_MS: u64 = 500;
const CALM: Calm = Calm { tries_max: 2, stolen_ms_max: 20, wait_s_max: 10, ..Calm::ONCE };

/// What the receiver printed: errors in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Row {
    packets: u64,
    p50: u64,
    p99: u64,
    max: u64,
}

/// Measures and prints all rows.
pub fn measure(ms: u64) {
    println!("\nInter-departure error of 1000 packets/s, {ms} ms a run");
    println!(
        "{:<8} {:<7} {:>8} {:>9} {:>9} {:>9}  tries",
        "load", "way", "packets", "p50 us", "p99 us", "max us"
    );
    let rule = if smoke() { Calm::ONCE } else { CALM };
    for is_loaded in [false, true] {
        let _hogs = is_loaded.then(Hogs::start);
        for way in ["flow", "socket", "fifo", "thread"] {
            let tries = rule.runs(|| run(way, ms));
            let marks: Vec<String> = tries.iter().map(Try::marked).collect();
            let load = if is_loaded { "loaded" } else { "idle" };
            let Some(row) = tries.iter().find(|it| it.judged).map(|it| it.result) else {
                let (why, marks) = (why_none_is_judged(&tries), marks.join(" "));
                println!("{load:<8} {way:<7} {why}: {marks}");
                continue;
            };
            let us = |ns: u64| ns as f64 / 1e3;
            println!(
                "{:<8} {way:<7} {:>8} {:>9.1} {:>9.1} {:>9.1}  {}",
                load,
                row.packets,
                us(row.p50),
                us(row.p99),
                us(row.max),
                marks.join(" "),
            );
        }
    }
}

/// Two busy ordinary processes a CPU.
pub struct Hogs(Vec<Child>);

impl Hogs {
    pub fn start() -> Hogs {
        let hog = |cpu: &u32| {
            // The bench has a real-time class and one CPU, which its children would inherit.
            let mut command = Command::new("chrt");
            command.args(["--other", "0", "taskset", "--cpu-list", &cpu.to_string()]);
            command.args(["sh", "-c", "while :; do :; done"]).spawn().expect("chrt(1) starts")
        };
        let cpus = wire::cpus().0;
        Hogs(cpus.iter().chain(&cpus).map(hog).collect())
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

fn run(way: &str, ms: u64) -> Row {
    let wire = Wire::lay(1500);
    let receiver = wire.start(&format!("stamps {ms}"));
    let end = monotonic_ns() + (ms + LONGER_MS) * 1_000_000;
    match way {
        "flow" | "socket" => by_handler(way == "flow", end),
        "fifo" => by_thread(end),
        _ => std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                schedule::set_ordinary().expect("the ordinary class");
                by_thread(end);
            });
            thread.join().expect("the thread ends");
        }),
    }
    let output = receiver.wait_with_output().expect("the receiver ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    let [packets, p50, p99, max] = numbers[..] else { panic!("the receiver printed {text:?}") };
    Row { packets, p50, p99, max }
}

fn by_handler(by_flow: bool, end: u64) {
    let peer = SocketAddr::from((THEIRS, PORT));
    let config = Config { cpus: vec![measured_cpu()], ..Config::default() };
    let mut runtime = Runtime::start(config).expect("a runtime");
    let is_over = Arc::new(AtomicBool::new(false));
    let done = is_over.clone();
    let need = ActivityParams::new(PERIOD, Span::from_micros(100));
    let mut send: Box<dyn FnMut() + Send> = if by_flow {
        let settings = InterfaceSettings { frames: 512, ..InterfaceSettings::default() };
        let mut interface = UdpInterface::open(INTERFACE, settings).expect("the interface");
        let local = SocketAddr::from((OURS, 0));
        let share = Share::Paced { interval: PERIOD };
        let terms = FlowTerms { local, receive: None, send: share, form: FlowForm::default() };
        let mut flow = interface.bind(terms).expect("a flow").1;
        Box::new(move || {
            let _ = flow.send(&PAYLOAD, peer).expect("a flow");
            flow.flush();
            interface.owner().output(now(), 8).expect("the interface");
        })
    } else {
        let (socket, mut batch) = connected();
        Box::new(move || {
            let _ = batch.push(&PAYLOAD);
            let _ = batch.flush(&socket);
        })
    };
    let id = runtime
        .handler("sender", need, move |batch| {
            while batch.proceed() {
                // Relaxed: it orders nothing else.
                if !done.load(Ordering::Relaxed) {
                    send();
                }
            }
        })
        .expect("a handler");
    runtime.run(id).expect("it runs");
    sleep_until_ns(end);
    is_over.store(true, Ordering::Relaxed);
    runtime.stop(|_, _| {});
}

fn by_thread(end: u64) {
    let (socket, mut batch) = connected();
    let mut wake = monotonic_ns();
    while wake < end {
        wake += PERIOD.as_nanos();
        sleep_until_ns(wake);
        let _ = batch.push(&PAYLOAD);
        let _ = batch.flush(&socket);
    }
}

fn connected() -> (UdpSocket, SendBatch) {
    let socket = UdpSocket::bind((OURS, 0).into()).expect("a socket");
    socket.connect((THEIRS, PORT).into()).expect("a peer");
    (socket, SendBatch::new(1, PAYLOAD.len()))
}

/// The role of the receiver: packets, and the 50th and 99th percentile and maximum of the error.
pub fn stamps(ms: u64) {
    let socket = UdpSocket::bind((THEIRS, PORT).into()).expect("a socket");
    let mut batch = ReceiveBatch::new(64, 256);
    let mut times = Vec::new();
    let begin = monotonic_ns();
    while monotonic_ns() < begin + (ms + LONGER_MS) * 1_000_000 {
        socket.wait_readable(100_000_000);
        batch.receive(&socket).expect("recvmmsg");
        times.extend(batch.datagrams().filter_map(|datagram| datagram.arrival_realtime_ns));
    }
    // The first ones find out the link address.
    let times = times.get(50..).unwrap_or_default();
    let mut errors: Vec<u64> =
        times.windows(2).map(|pair| (pair[1] - pair[0]).abs_diff(PERIOD.as_nanos())).collect();
    let [p50, p99] = [50.0, 99.0].map(|percent| percentile(&mut errors, percent));
    println!("{} {p50} {p99} {}", times.len(), errors.last().copied().unwrap_or(0));
}
