//! Background load, and the CPUs of the command's own helper processes.

use upcall::clock;
use upcall::load::BackgroundLoad;
use upcall::time::Instant;

use crate::exit::Failure;
use crate::output;
use crate::spec::{Load, Spec};

/// A running background load.
pub struct Running {
    name: String,
    load: BackgroundLoad,
    since: Instant,
}

/// Starts every background load of the spec on `cpus`, where the activities run.
///
/// # Errors
/// A command cannot be started. Those started before it are ended.
pub fn start(spec: &Spec, cpus: &[u32]) -> Result<Vec<Running>, Failure> {
    spec.backgrounds
        .iter()
        .map(|background| {
            let command = match &background.load {
                Load::Command(command) => command.clone(),
                Load::Spin(threads) => {
                    let mut command = own_command(crate::args::SPIN_COMMAND)?;
                    command.push(threads.to_string());
                    command
                }
            };
            // Taken before the process starts, so that its CPU time lies within its lifetime.
            let since = clock::now();
            let load = BackgroundLoad::start(&command, cpus).map_err(|error| {
                Failure::new(spec.source.error_in(
                    &background.place,
                    "command",
                    &error.to_string(),
                    "a program that can be started",
                ))
                .because(error)
            })?;
            Ok(Running { name: background.name.clone(), load, since })
        })
        .collect()
}

/// Ends the loads. Returns the CPU time and the lifetime of each.
pub fn stop(loads: Vec<Running>) -> Vec<output::Background> {
    let stopped = loads.into_iter().map(|Running { name, load, since }| {
        let cpu_ns = load.stop().as_nanos();
        output::Background { name, cpu_ns, lifetime_ns: clock::now().since(since).as_nanos() }
    });
    stopped.collect()
}

/// The command line that starts this program again with a hidden command.
///
/// # Errors
/// The system does not say where this program is.
pub fn own_command(command: &str) -> Result<Vec<String>, Failure> {
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(format_args!("cannot find this program: {error}")).because(error)
    })?;
    let program = program.to_str().ok_or_else(|| {
        Failure::new(format_args!("this program's path is not UTF-8: {}", program.display()))
    })?;
    Ok(vec![program.to_owned(), command.to_owned()])
}

/// CPUs this process may use other than `cpus`, or `cpus` if there are no others.
///
/// # Errors
/// The system does not name the allowed CPUs.
pub fn other_cpus(cpus: &[u32]) -> Result<Vec<u32>, Failure> {
    let allowed = upcall::allowed_cpus().map_err(Failure::of_error)?;
    let others: Vec<u32> = allowed.iter().copied().filter(|cpu| !cpus.contains(cpu)).collect();
    Ok(if others.is_empty() { allowed } else { others })
}
