//! `upcall bench livelock`: the experiment of proportional-share-1998 §5 on this machine.
//!
//! ```text
//!   upcall bench livelock             processes of one cell
//!     (1) lay the wire                two namespaces, a pair of interfaces, RPS
//!     (2) start                 --->  quotas (3 to 5), daemon (2 to 5), receivers, background,
//!                                     senders; each says "ready"
//!     (3) begin and end         --->  all work from the one time to the other
//!     (4) collect               <---  each prints what it counted, and ends
//!     (5) remove the wire             also after Ctrl-C
//! ```
//!
//! (2) to (4) are one run of one cell: a configuration and a way of sending. A run that was killed
//! leaves its namespaces; the next one removes them.
//!
//! | module | content |
//! |---|---|
//! | [`load`] | receivers, senders and configurations |
//! | [`paper`] | the tables of the paper |
//! | [`place`] | CPUs, and what the machine must have |
//! | [`wire`] | namespaces and interfaces |
//! | [`role`] | what the processes do |
//! | [`process`] | a process of a cell, from outside |
//! | [`cell`] | one run of one cell |
//! | [`virtual_time`] | the same by the simulator |
//! | [`outcome`] | the JSON |
//! | [`table`] | the tables |
//! | [`picture`] | the picture |

use std::sync::atomic::{AtomicBool, Ordering};

use upcall_cli::standard_error::say;

use crate::args::LivelockArgs;
use crate::exit::{Exit, Failure};
use crate::plot::check_ending;
use crate::standard_output::{print, print_json};
use cell::Bench;
use load::{Config, Load};
use outcome::{Cell, Outcome};
use place::Place;

pub use role::play;

mod cell;
mod load;
mod outcome;
mod paper;
mod picture;
mod place;
mod process;
mod role;
mod table;
#[cfg(test)]
mod tests;
mod virtual_time;
mod wire;

/// Measures the cells of the command line, and prints them.
///
/// # Errors
/// The machine lacks something, a process of a cell failed, or the picture cannot be written.
pub fn livelock(args: &LivelockArgs, interrupted: &AtomicBool) -> Result<Exit, Failure> {
    if let Some(svg) = &args.svg {
        check_ending(svg)?;
    }
    let place = if args.virtual_time { None } else { Some(Place::find()?) };
    let mut outcome = Outcome::begin(args, place.as_ref());
    let bench = place.map(|place| {
        wire::remove_leftovers();
        Bench::new(place, args.duration)
    });
    let bench = bench.transpose()?;
    let cells = cells(args);
    let total = cells.len() * usize::from(args.runs);
    let mut done = 0;
    for (config, load) in cells {
        let mut cell = Cell::new(config, load);
        for run in 1..=args.runs {
            done += 1;
            let (number, name) = (config.number(), load.name());
            say(format_args!("{done} of {total}: configuration {number}, {name}, run {run}"));
            let run = match &bench {
                Some(bench) => bench.run(config, load, interrupted)?,
                None => Some(virtual_time::run(config, load, args.duration, run.into())),
            };
            match run {
                Some(run) => cell.runs.push(run),
                None => outcome.interrupted = true,
            }
            if outcome.interrupted || interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        outcome.add(cell);
        if interrupted.load(Ordering::Relaxed) {
            outcome.interrupted = true;
            say(format_args!("upcall: interrupted in run {done} of {total}"));
            break;
        }
    }
    drop(bench);
    outcome.end();
    match args.json {
        true => print_json(&outcome)?,
        false => print(&table::text(&outcome))?,
    }
    if let Some(svg) = &args.svg {
        std::fs::write(svg, picture::draw(&outcome))
            .map_err(|error| Failure::of_file(svg, error))?;
    }
    Ok(Exit::Kept)
}

/// The cells in the order of the tables.
fn cells(args: &LivelockArgs) -> Vec<(Config, Load)> {
    let loads: Vec<Load> = match args.flood.as_slice() {
        [] => args.senders.iter().map(|&senders| Load::from(senders)).collect(),
        rates => rates.iter().map(|&rate| Load::Flood(rate)).collect(),
    };
    let mut configs = args.config.clone();
    configs.sort_unstable();
    configs.dedup();
    let configs = configs.into_iter().filter_map(Config::of_number);
    configs.flat_map(|config| loads.iter().map(move |&load| (config, load))).collect()
}
