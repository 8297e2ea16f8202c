//! Whether the machine's timers come in time: a thread that only sleeps and looks at the clock.
//!
//! [`Calm::runs`](super::Calm::runs) starts a [`Probe`] beside a run whose rule limits the lateness
//! of timers. The probe is a thread of this process, in the class FIFO at the highest priority
//! (sched(7)). It stays on one CPU, sleeps until the next moment of a grid of [`PERIOD_NS`], and
//! notes how long after that moment it runs. It may not do anything else. Each wake takes some
//! microseconds, one or two percent of the CPU, from the run. It also keeps the CPU from deep idle
//! states, so runs with a probe may have fewer late timers than others.
//!
//! No thread of Upcall's priorities and no ordinary program can delay the probe. What can:
//!
//! - The host, which delivers the timer interrupt late or resumes an idle CPU late. Neither need
//!   count as steal time. On an idle CPU of one virtual machine some timers came 1 ms to 9 ms late
//!   for minutes, at a steal time of 0.
//! - The kernel: interrupts, and sections that run with interrupts or preemption off. A kernel
//!   without preemption (`dmesg` says "Dynamic Preempt: none") finishes its work for any thread.
//! - A thread of the same priority, of the class DEADLINE, or a stopper thread of the kernel.
//! - The limit for all real-time threads together (`sched_rt_runtime_us`).
//!
//! A row whose attacker can cause one of the last three, for example by long system calls, may not
//! use such a rule: the attacker would excuse itself. The probe proves that a timer was late, and
//! never that all were in time: a delay between two moments of the grid stays unseen.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

use upcall_sys::{clock, schedule};

/// The distance of two wakes. A delay of at least this plus the limit of a rule is always seen: it
/// begins at most one period before a moment of the grid. So the sum must be less than the delay
/// that makes a job of the run late.
const PERIOD_NS: u64 = 250_000;
/// The highest priority of the class FIFO.
const PRIORITY: u8 = 99;

/// What a probe found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timers {
    /// The wakes of the probe. 0: there was no probe, because this process has no right to the
    /// highest priority.
    pub wakes: u64,
    /// The wakes that came later than the limit.
    pub late: u64,
    /// The largest lateness of a wake.
    pub worst_ns: u64,
}

impl Timers {
    /// Ends the probes. What they found together. Blocks until the next wake of each.
    ///
    /// # Panics
    /// If a probe panicked.
    pub(super) fn of_all(probes: Vec<Probe>) -> Timers {
        let sum = |sum: Timers, one: Timers| Timers {
            wakes: sum.wakes + one.wakes,
            late: sum.late + one.late,
            worst_ns: sum.worst_ns.max(one.worst_ns),
        };
        probes.into_iter().map(Probe::stop).fold(Timers::default(), sum)
    }

    /// Counts a wake that came so much after its moment.
    fn add(&mut self, late_ns: u64, late_ns_max: u64) {
        self.wakes += 1;
        self.late += u64::from(late_ns > late_ns_max);
        self.worst_ns = self.worst_ns.max(late_ns);
    }
}

impl fmt::Display for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Timers { wakes: 0, .. } => f.pad("no probe"),
            Timers { late, worst_ns, .. } => {
                f.pad(&format!("{late}, {:.2} ms", *worst_ns as f64 / 1e6))
            }
        }
    }
}

/// A probe that runs.
#[derive(Debug)]
pub(super) struct Probe {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Timers>,
}

impl Probe {
    /// Starts a probe on `cpu`. A wake that comes more than `late_ns_max` after its moment is late.
    pub(super) fn start(cpu: u32, late_ns_max: u64) -> Probe {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = std::thread::spawn({
            let ends = Arc::clone(&ends);
            move || watch(cpu, late_ns_max, &ends)
        });
        Probe { ends, thread }
    }

    /// Ends the probe. Blocks until its next wake.
    ///
    /// # Panics
    /// If the probe panicked.
    fn stop(self) -> Timers {
        // Relaxed: pairs with the load in `watch`, and orders no other memory.
        self.ends.store(true, Relaxed);
        self.thread.join().expect("the probe does not panic")
    }
}

/// The thread of the probe.
fn watch(cpu: u32, late_ns_max: u64, ends: &AtomicBool) -> Timers {
    let mut timers = Timers::default();
    if schedule::pin_thread(&[cpu]).is_err() || schedule::set_fifo(PRIORITY).is_err() {
        return timers;
    }
    let mut moment_ns = clock::monotonic_ns();
    // Relaxed: pairs with the store in `Probe::stop`.
    while !ends.load(Relaxed) {
        moment_ns = next_moment_ns(moment_ns, clock::monotonic_ns());
        clock::sleep_until_ns(moment_ns);
        timers.add(clock::monotonic_ns() - moment_ns, late_ns_max);
    }
    timers
}

/// The first moment of the grid after `now_ns`: one delay is one late wake.
fn next_moment_ns(moment_ns: u64, now_ns: u64) -> u64 {
    moment_ns + ((now_ns - moment_ns) / PERIOD_NS + 1) * PERIOD_NS
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wake_beyond_the_limit_is_late_and_the_worst_is_kept() {
        let mut timers = Timers::default();
        assert_eq!(timers.to_string(), "no probe");
        for late_ns in [90_000, 2_410_000, 250_001, 250_000] {
            timers.add(late_ns, 250_000);
        }
        assert_eq!(timers, Timers { wakes: 4, late: 2, worst_ns: 2_410_000 });
        assert_eq!(timers.to_string(), "2, 2.41 ms");
    }

    #[test]
    fn a_delay_over_several_moments_is_one_late_wake() {
        assert_eq!(next_moment_ns(1_000, 1_000), 1_000 + PERIOD_NS);
        assert_eq!(next_moment_ns(1_000, 999 + PERIOD_NS), 1_000 + PERIOD_NS);
        assert_eq!(next_moment_ns(1_000, 1_000 + 3 * PERIOD_NS), 1_000 + 4 * PERIOD_NS);
    }

    #[test]
    fn a_probe_counts_its_wakes_if_it_has_the_right() {
        let found = |late_ns_max| {
            let probe = Probe::start(crate::measured_cpu(), late_ns_max);
            std::thread::sleep(Duration::from_millis(20));
            probe.stop()
        };
        let timers = found(u64::MAX);
        assert_eq!(timers.late, 0, "{timers:?}");
        assert_eq!(timers.wakes > 0, schedule::fifo_permission(PRIORITY).is_ok(), "{timers:?}");
        let timers = found(0);
        assert_eq!(timers.late, timers.wakes, "no wake comes at its very moment: {timers:?}");
    }
}
