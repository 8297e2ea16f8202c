//! The cost of a wake. A reader in another process sleeps for a message or for a time. The bench
//! measures the time that its wake takes from the thread that runs on its CPU, and the latency of
//! the wake.
//!
//! The CPU is never idle: an ordinary thread of this process runs there. It reads the clock and so
//! sees the time that it loses. This time contains the whole wake: interrupt, both switches, the
//! reading, and going to sleep again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule::{pin_thread, set_timer_slack_least};

use crate::feed::Reader;
use crate::log::Log;
use crate::reader::ReaderSpec;
use crate::variant::Variant;

/// The source of a wake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// An ordinary process on the reader's CPU. The reader preempts it.
    SameCpu,
    /// The other CPU.
    OtherCpu,
    /// A timer.
    Timer,
}

impl Cause {
    pub const ALL: [Cause; 3] = [Cause::SameCpu, Cause::OtherCpu, Cause::Timer];

    /// The variants that this cause can wake.
    pub fn variants(self) -> &'static [Variant] {
        match self {
            Cause::Timer => &[
                Variant::Split,
                Variant::Task,
                Variant::ThreadPipe,
                Variant::ThreadRanked,
                Variant::Epoll,
                Variant::EpollRanked,
                Variant::Tokio,
            ],
            _ => &[
                Variant::Split,
                Variant::ThreadPipe,
                Variant::ThreadRanked,
                Variant::ThreadSocket,
                Variant::Epoll,
                Variant::EpollRanked,
                Variant::Tokio,
            ],
        }
    }
}

/// Measurements in ns.
#[derive(Default)]
pub struct Wakes {
    /// Time taken from the running thread by each wake.
    pub taken_ns: Vec<u64>,
    /// Time from the sending, or from the due time, to the reader.
    pub late_ns: Vec<u64>,
}

/// Work between two messages, so that the reader does not expect the next.
const PAUSE_NS: u64 = 20_000;
/// Interval between two messages from the other CPU.
const APART_NS: u64 = 100_000;
const LEAD_NS: u64 = 2_000_000;
/// Period of the timer, as short as tokio's timers allow.
const PERIOD_NS: u64 = 1_000_000;
/// A gap shorter than this is no interruption by a reader.
const GAP_MIN_NS: u64 = 250;

/// Measures `wakes` wakes.
pub fn measure(cause: Cause, variant: Variant, cpus: [u32; 2], wakes: u64) -> Wakes {
    let timer = cause == Cause::Timer;
    let spec = ReaderSpec {
        variant,
        cpu: cpus[0],
        devices: u32::from(timer),
        period_ns: PERIOD_NS,
        gap_ns: 1_600,
        inputs: Vec::new(),
    };
    let mut reader = Reader::start(spec, usize::from(!timer));
    let taken_ns = match cause {
        Cause::SameCpu => interrupted_sender(&mut reader, cpus[0], wakes),
        Cause::OtherCpu => sent_from(&mut reader, cpus, wakes),
        Cause::Timer => interrupted(&reader.log, cpus[0], |count| count >= wakes),
    };
    Wakes { taken_ns, late_ns: reader.log.late_ns(0) }
}

fn interrupted_sender(reader: &mut Reader, cpu: u32, wakes: u64) -> Vec<u64> {
    let Reader { log, outputs, .. } = reader;
    let output = &mut outputs[0];
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            pin_thread(&[cpu]).expect("the CPU is allowed");
            let mut taken_ns = Vec::new();
            for _ in 0..wakes {
                let until_ns = monotonic_ns() + PAUSE_NS;
                while monotonic_ns() < until_ns {}
                let (seen, begun_ns) = (log.count(), monotonic_ns());
                output.send();
                let took_ns = monotonic_ns() - begun_ns;
                // The reader ran before the sender continued, as it should.
                if log.count() > seen {
                    taken_ns.push(took_ns);
                }
            }
            taken_ns
        });
        sender.join().expect("no measurement panics")
    })
}

fn sent_from(reader: &mut Reader, [cpu, other]: [u32; 2], wakes: u64) -> Vec<u64> {
    let Reader { log, outputs, .. } = reader;
    let output = &mut outputs[0];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin_thread(&[other]).expect("the CPU is allowed");
            let _ = set_timer_slack_least();
            // The thread on the reader's CPU runs by then.
            let mut at_ns = monotonic_ns() + LEAD_NS;
            for _ in 0..wakes {
                at_ns += APART_NS;
                sleep_until_ns(at_ns);
                output.send();
            }
            sleep_until_ns(at_ns + APART_NS);
            // Relaxed: only ends a measurement.
            over.store(true, Relaxed);
        });
        interrupted(log, cpu, |_| over.load(Relaxed))
    })
}

/// Runs on `cpu` until `is_over` accepts the count of arrivals. Returns the time taken by each.
fn interrupted(log: &Log, cpu: u32, is_over: impl Fn(u64) -> bool + Sync) -> Vec<u64> {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            pin_thread(&[cpu]).expect("the CPU is allowed");
            let mut taken_ns = Vec::new();
            let (mut seen, mut last_ns) = (log.count(), monotonic_ns());
            while !is_over(seen) {
                let now_ns = monotonic_ns();
                if now_ns - last_ns > GAP_MIN_NS {
                    let count = log.count();
                    if count == seen + 1 {
                        taken_ns.push(now_ns - last_ns);
                    }
                    seen = count;
                    last_ns = monotonic_ns();
                } else {
                    last_ns = now_ns;
                }
            }
            taken_ns
        });
        running.join().expect("no measurement panics")
    })
}
