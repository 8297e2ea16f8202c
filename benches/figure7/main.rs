//! Ability to meet deadlines (rtu-1995 §7.1, Figure 7).
//!
//! Twelve handlers, two of each period from 40 to 90 ms, share one CPU in equal parts. Total
//! utilization goes from 0.5 to 0.95. Each step runs for the least common multiple of the periods,
//! 25.2 s. It runs once on an idle machine and once beside programs that compete for the machine.
//! As in the paper, the handlers are divided among two processes: domains under one daemon.
//!
//! ```text
//! cargo bench -p upcall-benches --bench figure7 [-- OPTIONS]
//!   --smoke             two steps of 1.3 s, to see that it works
//!   --utilization U     this step only, 0 < U <= 1
//!   --seconds S         the length of a step
//! ```
//!
//! The bench asserts nothing. If the host takes the CPU away, no scheduler in the guest can keep a
//! promise. The bench prints each miss with the evidence about the host during that job.

#![forbid(unsafe_code)]

mod competitors;
mod domain;
mod evidence;
mod set;
mod step;
mod table;

use std::path::Path;
use std::process::ExitCode;

use competitors::Competitors;
use set::Set;
use step::Step;
use upcall::time::Span;
use upcall_benches::{heading, smoke};
use upcall_daemon::server::{self, Daemon, DaemonEvent};

/// Steps of the figure, in percent of the CPU.
const UTILIZATIONS_PERCENT: [f64; 10] =
    [50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0];
/// Least common multiple of 40, 50, 60, 70, 80 and 90 ms. After this time the pattern repeats.
const HYPERPERIOD: Span = Span::from_millis(25_200);

/// The steps to run.
struct Options {
    utilizations_percent: Vec<f64>,
    duration: Span,
}

fn main() -> ExitCode {
    if let Ok(role) = std::env::var(domain::ROLE) {
        let parts: Vec<&str> = role.split('|').collect();
        let &[name, socket, percent, unscreened] = parts.as_slice() else {
            panic!("unknown role {role}")
        };
        let percent = percent.parse().expect("a number");
        domain::run(name, Path::new(socket), percent, unscreened == "true");
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let Some(threads) = competitors::spin_threads(&arguments) {
        upcall::load::spin(threads);
        return ExitCode::SUCCESS;
    }
    let options = match options(&arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("figure7: {error}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figure7: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options =
        Options { utilizations_percent: UTILIZATIONS_PERCENT.to_vec(), duration: HYPERPERIOD };
    if smoke() {
        options.utilizations_percent = vec![50.0, 80.0];
        options.duration = Span::from_millis(1_300);
    }
    let mut arguments = arguments.iter();
    while let Some(option) = arguments.next() {
        let mut number = |most: f64| {
            let text = arguments.next().ok_or_else(|| format!("{option} wants a number"))?;
            let number: Option<f64> = text.parse().ok();
            number
                .filter(|&number| number > 0.0 && number <= most)
                .ok_or_else(|| format!("{option}: found {text}, expected above 0 to {most}"))
        };
        match option.as_str() {
            "--smoke" => {}
            "--utilization" => options.utilizations_percent = vec![number(1.0)? * 100.0],
            "--seconds" => {
                let seconds = std::time::Duration::from_secs_f64(number(3600.0)?);
                options.duration = Span::from(seconds);
            }
            other => return Err(format!("no option {other}")),
        }
    }
    Ok(options)
}

fn run(options: &Options) -> Result<(), String> {
    let cpus = upcall::default_cpus().map_err(|error| error.to_string())?;
    let cpu = cpus.last().copied().unwrap_or_default();
    let socket = std::env::temp_dir().join(format!("upcall-figure7-{}", std::process::id()));
    let config = server::Config::new(socket.clone(), vec![cpu]);
    let daemon = Daemon::start(config).map_err(|error| error.to_string())?;
    let (switch_cost, stopper) = (daemon.switch_cost(), daemon.stopper());
    let serving = std::thread::spawn(move || {
        daemon.run(|event, _| {
            if let DaemonEvent::Offence { .. } | DaemonEvent::Trouble(_) = event {
                println!("{event:?}");
            }
        });
    });
    print_setup(options, cpu, switch_cost);
    let steps = run_steps(options, &socket, cpu, switch_cost);
    stopper.stop();
    serving.join().map_err(|_| "the daemon panicked".to_owned())?;
    table::print(&steps?);
    Ok(())
}

/// Runs every step, idle and loaded.
fn run_steps(
    options: &Options,
    socket: &Path,
    cpu: u32,
    switch_cost: Span,
) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for &percent in &options.utilizations_percent {
        let set = Set::new(percent, cpu, switch_cost);
        for loaded in [false, true] {
            let load = if loaded { "loaded" } else { "idle" };
            eprint!("figure7: utilization {:.2} {load} ... ", percent / 100.0);
            let step = Step::run(&set, socket, options.duration, || {
                loaded.then(|| Competitors::start(cpu)).transpose()
            })?;
            eprintln!("{} jobs, {} missed", step.jobs, step.misses());
            if steps.is_empty() {
                step.notices.iter().for_each(|notice| println!("{notice}"));
            }
            steps.push(step);
        }
    }
    Ok(steps)
}

fn print_setup(options: &Options, cpu: u32, switch_cost: Span) {
    println!("{}", heading("figure7"));
    println!(
        "set:     a40..a90 and b40..b90 in a process each on CPU {cpu}, released in phase; batch {}, quantum 1; a handler burns",
        set::BATCH
    );
    println!("         98 % of its cost in CPU time, the rest is for upcalls and accounting");
    println!("length:  {} a step", options.duration);
    println!(
        "admits:  by response times with a hand-off of {switch_cost} (measured), up to 90 % of the CPU"
    );
    if let Some(limit) = upcall_sys::schedule::rt_runtime() {
        let runtime = limit.runtime_us.map_or("all".to_owned(), |us| format!("{us} us"));
        println!("kernel lets real-time classes have {runtime} of each {} us", limit.period_us);
    }
    println!("loaded:  {}", competitors::DESCRIPTION);
}
