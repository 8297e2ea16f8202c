//! A message, or a moment, that a reader in another process sleeps for: what the wake costs whoever
//! runs on its CPU, and how long it takes.
//!
//! The CPU is never idle: an ordinary thread of this process runs there, and sees in the clock how
//! much time is taken from it. All of a wake is in that: interrupt, both switches, the reading, and
//! going to sleep again.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use upcall_sys::clock::{monotonic_ns, sleep_until_ns};
use upcall_sys::schedule::{pin_thread, set_timer_slack_least};

use crate::feed::Reader;
use crate::log::Log;
use crate::reader::ReaderSpec;
use crate::variant::Variant;

/// Where a message comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// An ordinary process of the reader's CPU, which it preempts.
    SameCpu,
    /// The other CPU.
    OtherCpu,
    /// A timer.
    Timer,
}

impl Cause {
    pub const ALL: [Cause; 3] = [Cause::SameCpu, Cause::OtherCpu, Cause::Timer];

    /// Who can be woken so.
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

/// What was found, in ns.
#[derive(Default)]
pub struct Wakes {
    /// Taken from who ran, for each.
    pub taken_ns: Vec<u64>,
    /// From the sending, or the moment that was due, to the reader.
    pub late_ns: Vec<u64>,
}

/// Work between two messages, so that the next is as a message is: not expected.
const PAUSE_NS: u64 = 20_000;
/// Between two from the other CPU.
const APART_NS: u64 = 100_000;
const LEAD_NS: u64 = 2_000_000;
/// Of the timer: what tokio's can do.
const PERIOD_NS: u64 = 1_000_000;
/// Less than so much is no interruption by a reader.
const GAP_MIN_NS: u64 = 250;

/// Measures so many wakes.
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
                // The reader came first, as it should.
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
            // Whoever runs there is to run by then.
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

/// Runs on `cpu` until `is_over`, by the count of what has arrived; what was taken for each.
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
