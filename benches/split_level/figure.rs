//! Figure 9 of split-level-1991: the part of a CPU that 5 network and 3 device activities take, by
//! the rate of their messages.
//!
//! A process on the other CPU sends messages to the network activities one after the other, to each
//! in turn. A timer of the same rate clocks each device activity. The reader does nothing with a
//! message. The bench counts all CPU time of the reading process.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use upcall_benches::{percentile, smoke};
use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule::{pin_thread, set_timer_slack_least};

use crate::feed::{Output, Reader};
use crate::reader::ReaderSpec;
use crate::table::NOT_ABOVE;
use crate::variant::{AHEAD, Variant};

const NETWORKS: u32 = 5;
const DEVICES: u32 = 3;
const ACTIVITIES: u32 = NETWORKS + DEVICES;
/// Messages of each activity per second.
const RATES: [u32; 12] = [25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200];
/// Instead of a sleep shorter than this, the sender polls the clock.
const SLEEP_MIN_NS: u64 = 150_000;
/// A variant is saturated if less than this part of the messages has arrived.
const KEPT_UP: f64 = 0.97;

/// The variants and their names. The first ones are those of Upcall.
pub const VARIANTS: [(Variant, &str); 6] = [
    (Variant::Split, "split-level, B_wakeup = 1"),
    (Variant::SplitAhead, "split-level, B_wakeup = 8"),
    (Variant::ThreadPipe, "threads, read of pipes"),
    (Variant::ThreadSocket, "threads, read of UNIX sockets"),
    (Variant::Epoll, "epoll, pipes and timerfds"),
    (Variant::Tokio, "tokio, pipes and intervals"),
];
const OURS: usize = 2;

/// The measurements of one variant at one rate: medians of the blocks.
#[derive(Clone, Copy)]
pub struct Point {
    /// Messages to be sent per second.
    wanted: u32,
    /// Messages of all activities that arrived per second.
    messages: f64,
    /// Percent of the CPU.
    pub percent: f64,
    percents: [f64; 2],
    switches: f64,
    late_us: [f64; 2],
    kept_up: bool,
}

impl Point {
    /// CPU time of a message, in us.
    fn each_us(&self) -> f64 {
        self.percent * 1e4 / self.rate()
    }

    /// Messages per second. For a variant that keeps up, this is the rate sent, because a batch of
    /// each stream may not have arrived yet.
    pub fn rate(&self) -> f64 {
        if self.kept_up { f64::from(self.wanted) } else { self.messages }
    }
}

/// One variant: its name, and its points up to the rate at which it is saturated.
pub struct Curve {
    pub name: &'static str,
    pub points: Vec<Point>,
}

/// The measurements of one block.
struct Found {
    messages: f64,
    percent: f64,
    switches: f64,
    late_ns: Vec<u64>,
}

/// Measures and prints.
pub fn run(cpus: [u32; 2]) -> Vec<Curve> {
    let (blocks, millis) = if smoke() { (1, 30) } else { (3, 400) };
    let mut curves: Vec<Curve> =
        VARIANTS.iter().map(|&(_, name)| Curve { name, points: Vec::new() }).collect();
    println!(
        "\n{NETWORKS} network and {DEVICES} device activities; {blocks} blocks of {millis} ms each"
    );
    println!(
        "{:>10} {:<32} {:>8} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "messages/s",
        "",
        "% of CPU",
        "least",
        "most",
        "us each",
        "switches",
        "late us",
        "p99",
        "/threads"
    );
    let rates: &[u32] = if smoke() { &RATES[2..4] } else { &RATES };
    for &rate in rates {
        let mut found: Vec<Vec<Found>> = VARIANTS.iter().map(|_| Vec::new()).collect();
        for _ in 0..blocks {
            for (nth, &(variant, _)) in VARIANTS.iter().enumerate() {
                let saturated = curves[nth].points.last().is_some_and(|point| !point.kept_up);
                if !saturated {
                    found[nth].push(measure(variant, cpus, rate, millis));
                }
            }
        }
        for (curve, found) in curves.iter_mut().zip(found) {
            if !found.is_empty() {
                curve.points.push(point(rate, millis, found));
            }
        }
        print_rate(rate, &curves);
    }
    verdicts(&curves);
    curves
}

fn point(rate: u32, millis: u64, mut found: Vec<Found>) -> Point {
    let median = |of: &dyn Fn(&Found) -> f64| {
        let mut all: Vec<f64> = found.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        [all[0], all[all.len() / 2], all[all.len() - 1]]
    };
    let [least, percent, most] = median(&|found| found.percent);
    let [_, messages, _] = median(&|found| found.messages);
    let [_, switches, _] = median(&|found| found.switches);
    let mut late_ns: Vec<u64> =
        found.iter_mut().flat_map(|found| found.late_ns.drain(..)).collect();
    let late_us = [50.0, 99.0].map(|of| percentile(&mut late_ns, of) as f64 / 1e3);
    let wanted = rate * ACTIVITIES;
    // A batch of each stream may not have arrived yet.
    let to_come = (u64::from(NETWORKS) * AHEAD * 1_000 / millis) as f64;
    let kept_up = messages + to_come >= KEPT_UP * f64::from(wanted);
    Point { wanted, messages, percent, percents: [least, most], switches, late_us, kept_up }
}

fn measure(variant: Variant, cpus: [u32; 2], rate: u32, millis: u64) -> Found {
    let period_ns = 1_000_000_000 / u64::from(rate);
    let spec = ReaderSpec {
        variant,
        cpu: cpus[0],
        devices: DEVICES,
        period_ns,
        gap_ns: period_ns,
        inputs: Vec::new(),
    };
    let mut reader = Reader::start(spec, NETWORKS as usize);
    let over = AtomicBool::new(false);
    let mut outputs = std::mem::take(&mut reader.outputs);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| send(&mut outputs, cpus[1], period_ns / u64::from(NETWORKS), &over));
        // Waits until both processes run.
        std::thread::sleep(Duration::from_millis(10.max(millis / 10)));
        let (before, begun_ns) = (reader.usage(), monotonic_ns());
        std::thread::sleep(Duration::from_millis(millis));
        let (after, ended_ns) = (reader.usage(), monotonic_ns());
        // Relaxed: only ends a measurement.
        over.store(true, Relaxed);
        let messages = (after.messages - before.messages) as f64;
        let took_ns = (ended_ns - begun_ns) as f64;
        Found {
            messages: messages * 1e9 / took_ns,
            percent: (after.cpu_ns - before.cpu_ns) as f64 * 100.0 / took_ns,
            switches: (after.switches - before.switches) as f64 / messages.max(1.0),
            late_ns: reader.log.late_ns(before.messages),
        }
    });
    drop(outputs);
    found
}

/// Sends to each output in turn, every `apart_ns`, until `over` is set.
fn send(outputs: &mut [Output], cpu: u32, apart_ns: u64, over: &AtomicBool) {
    pin_thread(&[cpu]).expect("the CPU is allowed");
    let _ = set_timer_slack_least();
    let mut at_ns = monotonic_ns();
    loop {
        for output in outputs.iter_mut() {
            at_ns += apart_ns;
            if apart_ns >= SLEEP_MIN_NS {
                sleep_until_ns(at_ns);
            }
            while monotonic_ns() < at_ns {
                std::hint::spin_loop();
            }
            if over.load(Relaxed) {
                return;
            }
            output.send();
        }
    }
}

fn print_rate(rate: u32, curves: &[Curve]) {
    let wanted = rate * ACTIVITIES;
    let point_of =
        |curve: &Curve| curve.points.iter().find(|point| point.wanted == wanted).copied();
    // The reader of pipes, to which all others are compared.
    let base = point_of(&curves[OURS]).map(|point| point.each_us());
    for curve in curves {
        let Some(point) = point_of(curve) else { continue };
        let [least, most] = point.percents;
        let [late, p99] = point.late_us;
        print!("{wanted:>10} {:<32} {:>8.2} {least:>7.2} {most:>7.2}", curve.name, point.percent);
        print!(" {:>9.2} {:>9.3} {late:>9.1} {p99:>9.1}", point.each_us(), point.switches);
        match base {
            Some(base) => print!(" {:>9.2}", point.each_us() / base),
            None => print!(" {:>9}", "-"),
        }
        println!("{}", if point.kept_up { "" } else { "  saturated" });
    }
    println!();
}

/// Prints what must hold at all rates at which both variants keep up.
fn verdicts(curves: &[Curve]) {
    println!("overhead relative to the others, at all rates at which both keep up: least to most");
    for ours in &curves[..OURS] {
        for other in &curves[OURS..] {
            let pairs = ours.points.iter().zip(&other.points);
            let mut ratios: Vec<f64> = pairs
                .filter(|(one, other)| one.kept_up && other.kept_up)
                .map(|(one, other)| one.each_us() / other.each_us())
                .collect();
            ratios.sort_by(f64::total_cmp);
            let [Some(least), Some(most)] = [ratios.first(), ratios.last()] else { continue };
            let holds = if *most <= NOT_ABOVE { "holds" } else { "DOES NOT HOLD" };
            let pair = format!("{}, over `{}`", ours.name, other.name);
            println!("  {pair:<66} {least:.2} to {most:.2}, at most {NOT_ABOVE:.2}: {holds}");
        }
    }
    println!("\n{}", CONTENTS.replace("{AHEAD}", &AHEAD.to_string()));
}

const CONTENTS: &str = "\
what a row contains
  messages/s  of all eight activities together; the paper's figure ends at 200 of each, 1,600 in
              all
  % of CPU    CPU time of all threads of the reader, by the kernel's clock of the process. For a
              message the reader only reads the clock once and stores three words
  switches    how often the kernel switched away from a thread of the reader, for each message
  late        from the sending, or from the due time, to the reader: median and 99th percentile
  B_wakeup    with {AHEAD}, a handler is upcalled once {AHEAD} messages are there. The paper's
              network activities are ahead of their time, and no message wakes them by itself. The
              price of this is in `late`
  read        a reader of a pipe or socket reads all that is there, up to 64 messages, with one
              call
  tokio       its timers have a resolution of one millisecond; above 1,000 a second of one device
              several releases come at once
  paper       threads take 4 times as much as split-level and pure LWPs 6 times, at all rates up
              to 200 of each";
