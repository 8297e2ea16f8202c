//! Repeats the measurement of rtu-1995 §7.2 in virtual time. Prints switches and worst slack with
//! immediate and with delayed preemption, and the largest load of each.
//!
//! ```sh
//! cargo run --release -p upcall-sim --example experiment2   # 1 min
//! ```

use set::{BATCH, PERIODS_MS, Trial, all_misses, late_handlers, run, slack_ns_min};
use upcall_core::discipline::RM;
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;

mod set;

fn main() {
    println!("rtu-1995 Experiment 2: 16 domains x 6 handlers, periods 40..90 ms, batch {BATCH}");
    for utilization_ppm in [700_000, 800_000, 860_000, 880_000] {
        table(utilization_ppm);
    }
    over_phases();
    most_load();
}

/// Immediate preemption, and preemption delayed by each quantum.
fn columns() -> [(&'static str, Trial); 5] {
    let trial = |discipline, quantum| Trial {
        discipline,
        quantum,
        utilization_ppm: 860_000,
        switch_cost: Span::from_micros(50),
        phases: 1995,
    };
    [
        ("rm", trial(&RM, BATCH)),
        ("rmdp b=1", trial(&RMDP, 1)),
        ("rmdp b=2", trial(&RMDP, 2)),
        ("rmdp b=4", trial(&RMDP, 4)),
        ("rmdp b=8", trial(&RMDP, 8)),
    ]
}

/// Prints one row per policy and quantum. The brackets show how many of the 16 handlers missed.
fn table(utilization_ppm: u64) {
    println!("\nutilization {:.1} %, hand-off 50 us", utilization_ppm as f64 / 1e4);
    print!("{:>10} {:>9} {:>7} {:>9} {:>7} {:>6}", "", "switches", "", "domain", "busy", "misses");
    PERIODS_MS.iter().for_each(|period_ms| print!(" {:>14}", format!("slack {period_ms} ms")));
    println!();
    let mut immediate = None;
    for (name, trial) in columns() {
        let outcome = run(Trial { utilization_ppm, ..trial });
        let cpu = outcome.cpus[0];
        let immediate = *immediate.get_or_insert(cpu.switches);
        let change = 100.0 * (cpu.switches as f64 / immediate as f64 - 1.0);
        let busy = 1e11 * cpu.busy.as_secs_f64() / outcome.end.as_nanos() as f64;
        let misses = all_misses(&outcome);
        print!("{name:>10} {:>9} {change:>+6.1}% {:>9}", cpu.switches, cpu.domain_switches);
        print!(" {busy:>6.1}% {misses:>6}");
        for period_ms in PERIODS_MS {
            let slack_ms = slack_ns_min(&outcome, period_ms) as f64 / 1e6;
            print!(" {slack_ms:>9.3} ({:>2})", late_handlers(&outcome, period_ms));
        }
        println!();
    }
}

/// Prints the influence of the first releases.
fn over_phases() {
    println!("\nutilization 86.0 %, hand-off 50 us, over 20 sets of first releases");
    let phases = 1..=20;
    let immediate: Vec<_> =
        phases.clone().map(|phases| run(Trial { phases, ..columns()[0].1 })).collect();
    for (name, trial) in columns() {
        let runs = phases.clone().map(|phases| run(Trial { phases, ..trial }));
        let pairs = runs.zip(&immediate).map(|(run, immediate)| {
            let fewer = 1.0 - run.cpus[0].switches as f64 / immediate.cpus[0].switches as f64;
            (100.0 * fewer, all_misses(&run))
        });
        let (fewer, misses): (Vec<_>, Vec<_>) = pairs.unzip();
        let least = fewer.iter().copied().fold(f64::INFINITY, f64::min);
        let most = fewer.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let without = misses.iter().filter(|&&misses| misses == 0).count();
        println!(
            "{name:>10}  {least:.1} to {most:.1} % fewer switches, {without:>2} without a miss"
        );
    }
}

/// Prints the gain in useful utilization, as in the paper.
fn most_load() {
    println!("\nmost utilization without a miss, in steps of 0.5 %, hand-offs not counted");
    for switch_us in [20, 50, 100] {
        print!("hand-off {switch_us:>3} us:");
        for (name, trial) in columns() {
            let switch_cost = Span::from_micros(switch_us);
            let most = (100..=200u64).map(|step| step * 5_000).take_while(|&utilization_ppm| {
                all_misses(&run(Trial { utilization_ppm, switch_cost, ..trial })) == 0
            });
            print!("  {name} {:.1} %", most.last().unwrap_or(0) as f64 / 1e4);
        }
        println!();
    }
}
