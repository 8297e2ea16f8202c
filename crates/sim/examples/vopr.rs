//! Random seeds under every checker, or one seed's events.
//!
//! `cargo run --release -p upcall-sim --example vopr -- rmdp 0..10000` tells the first
//! seed that fails; `... -- rmdp 70` prints what seed 70 makes, and its events.

use std::process::ExitCode;
use upcall_core::policy::{Discipline, discipline};
use upcall_sim::Simulation;
use upcall_sim::vopr::{check, scenario, vopr};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [policy, seeds] = arguments.as_slice() else { return usage() };
    let Some(discipline) = discipline(policy) else { return usage() };
    match seeds.split_once("..") {
        Some((from, until)) => match (from.parse(), until.parse()) {
            (Ok(from), Ok(until)) => many(discipline, from, until),
            _ => usage(),
        },
        None => seeds.parse().map_or_else(|_| usage(), |seed| one(discipline, seed)),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: vopr POLICY (SEED | FROM..UNTIL)");
    ExitCode::from(2)
}

fn many(discipline: &'static Discipline, from: u64, until: u64) -> ExitCode {
    match vopr(discipline, from..until) {
        Ok(tally) => {
            println!("{} seeds, {} jobs, {} events", tally.seeds, tally.jobs, tally.events);
            ExitCode::SUCCESS
        }
        Err(failed) => {
            println!("{failed}");
            ExitCode::FAILURE
        }
    }
}

fn one(discipline: &'static Discipline, seed: u64) -> ExitCode {
    let scenario = scenario(discipline, seed);
    println!("{scenario:#?}");
    match Simulation::new(scenario.spec.clone()) {
        Ok(simulation) => {
            simulation.run(scenario.duration, &mut |event| println!("{event}"));
        }
        Err(error) => println!("{error}"),
    }
    match check(scenario) {
        Ok(_) => ExitCode::SUCCESS,
        Err(violation) => {
            println!("{violation}");
            ExitCode::FAILURE
        }
    }
}
