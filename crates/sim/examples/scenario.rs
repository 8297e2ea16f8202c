//! Prints the scenario of one seed of `upcall sim --vopr`, its events, and the result of every
//! checker.
//!
//! `cargo run --release -p upcall-sim --example scenario -- rmdp 70`

use std::process::ExitCode;
use upcall_core::discipline::{Discipline, by_name};
use upcall_sim::Simulation;
use upcall_sim::vopr::{check, scenario};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [policy, seed] = arguments.as_slice() else { return usage() };
    match (by_name(policy), seed.parse()) {
        (Some(discipline), Ok(seed)) => one(discipline, seed),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: scenario POLICY SEED");
    ExitCode::from(2)
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
