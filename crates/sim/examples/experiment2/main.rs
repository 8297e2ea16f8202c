//! Prints what rtu-1995 §7.2 measured, from virtual time: switches and worst
//! slack with immediate and with delayed preemption, and how much load each
//! can take.
//!
//! `cargo run --release -p upcall-sim --example experiment2`

use set::{BATCH, PERIODS_MS, SWITCH_COST, all_misses, late_handlers, run, slack_ns_min};
use upcall_core::policy::Discipline;
use upcall_core::policy::rm::RM;
use upcall_core::policy::rmdp::RMDP;

mod set;

fn main() {
    println!("16 domains x 6 handlers, periods 40..90 ms, batch {BATCH}, hand-off {SWITCH_COST}");
    for utilization_ppm in [700_000, 800_000, 850_000, 860_000, 870_000, 880_000, 900_000] {
        table(utilization_ppm);
    }
    println!("\nmost load without a miss, in steps of 0.5 %, hand-offs not counted");
    for (name, discipline, quantum) in columns() {
        let most = (1..=200)
            .map(|step| step * 5_000)
            .take_while(|&ppm| all_misses(&run(discipline, quantum, ppm)) == 0);
        println!("{name:>12}  {:>6.1} %", most.last().unwrap_or(0) as f64 / 1e4);
    }
}

fn columns() -> Vec<(String, &'static Discipline, u32)> {
    let delayed = [1, 2, 4, 8].map(|quantum| (format!("rmdp b={quantum}"), &RMDP, quantum));
    let mut columns = vec![("rm".to_owned(), &RM, BATCH)];
    columns.extend(delayed);
    columns
}

/// One row a policy and quantum.
fn table(utilization_ppm: u64) {
    println!("\nutilization {:.1} %", utilization_ppm as f64 / 1e4);
    print!("{:>12} {:>9} {:>7} {:>9} {:>7} {:>6}", "", "switches", "", "domain", "busy", "misses");
    PERIODS_MS.iter().for_each(|period_ms| print!(" {:>14}", format!("slack {period_ms} ms")));
    println!();
    let mut immediate = 0;
    for (name, discipline, quantum) in columns() {
        let outcome = run(discipline, quantum, utilization_ppm);
        let cpu = outcome.cpus[0];
        immediate = if immediate == 0 { cpu.switches } else { immediate };
        let change = 100.0 * (cpu.switches as f64 / immediate as f64 - 1.0);
        let busy = 100.0 * cpu.busy.as_secs_f64() / outcome.end.as_nanos() as f64 * 1e9;
        print!(
            "{name:>12} {:>9} {change:>+6.1}% {:>9} {busy:>6.1}% {:>6}",
            cpu.switches,
            cpu.domain_switches,
            all_misses(&outcome)
        );
        for period_ms in PERIODS_MS {
            let slack_ms = slack_ns_min(&outcome, period_ms) as f64 / 1e6;
            print!(" {slack_ms:>8.3} ({:>2})", late_handlers(&outcome, period_ms));
        }
        println!();
    }
}
