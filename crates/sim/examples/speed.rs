//! How many scheduling events a second the simulator gets through on one core.
//!
//! `cargo run --release -p upcall-sim --example speed`. Each line is the best and
//! the median of seven runs of the same simulation, by the CPU time the thread
//! had (`/proc/thread-self/schedstat`, proc(5)): the machine may be busy otherwise.
//! An event is one that is told (release, upcall, yield, end of a job, idle, wake).

use upcall_core::activity::ActivityParams;
use upcall_core::policy::{DISCIPLINES, Discipline};
use upcall_core::time::Span;
use upcall_sim::{SimActivity, SimSpec, Simulation};

/// Told in each run, about.
const EVENTS: u64 = 4_000_000;

fn main() {
    println!("{:>6} {:>10} {:>10} {:>9} {:>9}", "policy", "activities", "events", "best", "median");
    for discipline in DISCIPLINES {
        for count in [10, 100, 1_000, 10_000] {
            line(discipline, count);
        }
    }
}

fn line(discipline: &'static Discipline, count: u64) {
    // About four events a job, a job a period.
    let duration = Span::from_micros(EVENTS / 4 * MEAN_PERIOD_US / count);
    let mut rates: Vec<_> = (0..7)
        .map(|_| {
            let simulation = Simulation::new(spec(discipline, count)).expect("a good spec");
            let begun_ns = cpu_ns();
            let outcome = simulation.run(duration, &mut |event| {
                std::hint::black_box(event);
            });
            (outcome.events as f64 / (cpu_ns() - begun_ns) as f64 * 1e9, outcome.events)
        })
        .collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (best, events) = rates[0];
    println!(
        "{:>6} {count:>10} {events:>10} {:>7.2} M {:>7.2} M",
        discipline.name,
        best / 1e6,
        rates[3].0 / 1e6
    );
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat");
    let schedstat = schedstat.expect("a Linux with schedstats");
    schedstat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("CPU time comes first")
}

/// Of the periods below.
const MEAN_PERIOD_US: u64 = 65_000;

/// Periods from 40 to 90 ms, no two alike up to 50,000, together 80 % of a CPU;
/// jobs of eight PDUs, two a quantum.
fn spec(discipline: &'static Discipline, count: u64) -> SimSpec {
    let activities = (0..count).map(|number| {
        let period = Span::from_micros(40_000 + number * 7_919 % 50_000);
        let cost_ns = period.as_nanos() * 8 / 10 / count / 8;
        let params = ActivityParams::new(period, Span::from_nanos(cost_ns.max(1))).batch(8);
        let offset = Span::from_nanos(period.as_nanos() / count * number);
        SimActivity::new("", params.quantum(2).offset(offset))
    });
    SimSpec::new(discipline, activities.collect())
}
