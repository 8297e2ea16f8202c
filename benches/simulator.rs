//! The number of scheduling events that the simulator processes per second on one core.
//!
//! Each line has the best, the median and the worst of several runs of the same simulation. Time is
//! CPU time of the thread, because the machine may be busy otherwise. An event is one that the
//! simulator reports: release, upcall, yield, end of a job, idle, wake.

#![forbid(unsafe_code)]

use upcall::activity::ActivityParams;
use upcall::discipline::{DISCIPLINES, Discipline};
use upcall::time::Span;
use upcall_benches::{heading, smoke};
use upcall_sim::{SimActivity, SimSpec, Simulation};

fn main() {
    let events = if smoke() { 40_000 } else { 4_000_000 };
    println!("{}\n\nmillion events a second", heading("simulator"));
    println!(
        "{:>6} {:>10} {:>10} {:>9} {:>9} {:>9}",
        "policy", "activities", "events", "best", "median", "worst"
    );
    for discipline in DISCIPLINES {
        for count in [10, 100, 1_000, 10_000] {
            line(discipline, count, events);
        }
    }
}

fn line(discipline: &'static Discipline, count: u64, events: u64) {
    // A job has about four events, and a period has one job.
    let duration = Span::from_micros(events / 4 * MEAN_PERIOD_US / count);
    let mut rates: Vec<_> = (0..7)
        .map(|_| {
            let simulation = Simulation::new(spec(discipline, count)).expect("a valid spec");
            let begun_ns = upcall::thread_cpu_ns();
            let outcome = simulation.run(duration, &mut |event| {
                std::hint::black_box(event);
            });
            (
                outcome.events as f64 / (upcall::thread_cpu_ns() - begun_ns) as f64 * 1e9,
                outcome.events,
            )
        })
        .collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (best, events) = rates[0];
    println!(
        "{:>6} {count:>10} {events:>10} {:>9.2} {:>9.2} {:>9.2}",
        discipline.name,
        best / 1e6,
        rates[3].0 / 1e6,
        rates[6].0 / 1e6
    );
}

/// The mean of the periods below.
const MEAN_PERIOD_US: u64 = 65_000;

/// A set with periods from 40 to 90 ms that uses 80 % of a CPU. All periods differ up to 50,000
/// activities. A job has eight PDUs, and a quantum two.
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
