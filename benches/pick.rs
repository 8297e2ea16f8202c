//! The cost of one scheduling decision in sets of 10, 1,000 and 100,000 activities, under every
//! policy.
//!
//! A *cycle* is the work of a driver for one job: it passes the release to the scheduler, picks the
//! next activity and reports its return. There are two cases. In the first, activities are released
//! one after another: the set is large and the ready queue is short. In the second, all are
//! released at once: the ready queue holds them all, and picks empty it. Times are CPU time of the
//! thread, so other programs only cost cache misses.
//!
//! The bench asserts nothing. With 100,000 activities the state (some 20 MB) is larger than the
//! caches. A cycle then costs a few more cache misses under every policy. The last column divides
//! this growth by the growth of log2 n.

#![forbid(unsafe_code)]

use std::hint::black_box;

use upcall::activity::{ActivityId, ActivityParams, Terms};
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall::scheduler::{Command, Input, Outcome, Scheduler};
use upcall::time::{Instant, Span};
use upcall_benches::{heading, percentile, smoke};

const SIZES: [u32; 3] = [10, 1_000, 100_000];
/// Cycles of one sample. In a larger set a sample has one cycle for each activity, which is a whole
/// period.
const CYCLES: u32 = 10_000;
const PERIOD: Span = Span::from_secs(1);

fn main() {
    let samples = if smoke() { 2 } else { 41 };
    println!("{}\n", heading("pick"));
    println!(
        "{:>6} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8} {:>12}",
        "policy", "released", "activities", "p10 ns", "median ns", "p90 ns", "/ 10", "/ log2 n"
    );
    for discipline in DISCIPLINES {
        for together in [false, true] {
            let mut least: Option<f64> = None;
            for size in SIZES {
                let mut set = Set::new(discipline, size, together);
                let mut each_ps: Vec<u64> = (0..samples).map(|_| set.sample_ps()).collect();
                let ns = |ps: u64| ps as f64 / 1_000.0;
                let median = ns(percentile(&mut each_ps, 50.0));
                let base = *least.get_or_insert(median);
                let (low, high) = (percentile(&mut each_ps, 10.0), percentile(&mut each_ps, 90.0));
                let logs = f64::from(size).log2() / f64::from(SIZES[0]).log2();
                println!(
                    "{:>6} {:>12} {size:>10} {:>10.1} {median:>10.1} {:>10.1} {:>8.2} {:>12.2}",
                    discipline.name,
                    if together { "all at once" } else { "one by one" },
                    ns(low),
                    ns(high),
                    median / base,
                    median / base / logs,
                );
            }
        }
    }
}

/// A scheduler with a given number of active activities.
struct Set {
    scheduler: Scheduler,
    now: Instant,
    cycles: u32,
}

impl Set {
    fn new(discipline: &'static Discipline, size: u32, together: bool) -> Self {
        let mut scheduler = Scheduler::new(size, discipline);
        let cost = PERIOD / (size * 2);
        for number in 0..size {
            let id = ActivityId(number);
            let offset = if together { Span::ZERO } else { (PERIOD / size) * number };
            let params = ActivityParams::new(PERIOD, cost).offset(offset);
            for input in [
                Input::Create { id, params, terms: Terms::default() },
                Input::Run { id, at: Instant::ZERO + PERIOD },
            ] {
                scheduler.handle(Instant::ZERO, input).expect("a new number");
                while scheduler.poll_notice().is_some() {}
            }
        }
        Set { scheduler, now: Instant::ZERO, cycles: CYCLES.max(size) }
    }

    /// Picoseconds of a cycle, as the mean of `cycles` cycles.
    fn sample_ps(&mut self) -> u64 {
        let begun_ns = upcall::thread_cpu_ns();
        for _ in 0..self.cycles {
            self.cycle();
        }
        (upcall::thread_cpu_ns() - begun_ns) * 1_000 / u64::from(self.cycles)
    }

    fn cycle(&mut self) {
        let next = self.scheduler.next_deadline().expect("all are active");
        if next > self.now {
            self.now = next;
            self.scheduler.handle(self.now, Input::Tick).expect("time passed");
        }
        loop {
            match self.scheduler.poll_command(self.now) {
                Some(Command::Upcall { pdus_max, .. }) => {
                    self.now += Span::from_nanos(100);
                    let returned = Input::Returned { pdus: pdus_max, outcome: Outcome::Done };
                    self.scheduler.handle(self.now, returned).expect("it runs");
                    while let Some(notice) = self.scheduler.poll_notice() {
                        black_box(notice);
                    }
                    return;
                }
                Some(other) => {
                    black_box(other);
                }
                None => return,
            }
        }
    }
}
