//! `upcall exec --deadline`: a program in the kernel's class `SCHED_DEADLINE`, without a daemon.
//!
//! A thread of this class goes before all others, handlers of the real-time class included, and the
//! kernel moves it among all CPUs: it refuses the class to a thread that is pinned. So the command
//! locks all CPUs, as a daemon and a run do. While one of them has a CPU, the program is refused.
//! While the program runs, they are. The kernel's own admission decides on cost and period.

use std::fs;
use std::path::Path;

use serde::Serialize;
use upcall::clock;
use upcall::program::{Exit as End, HeldProgram, ProgramError, RefusalCause, RefusedProgram};
use upcall::time::{Instant, Span};
use upcall_cli::cpu_lock::{CpuLockError, CpuLocks};
use upcall_cli::standard_error::say;

use super::report::status_of;
use super::signals::Signals;
use super::start::{name_of, release, say_json, say_not_run};
use crate::args::ExecArgs;
use crate::exit::{Exit, Failure};
use crate::show;

/// The name of this command in the locks.
const COMMAND: &str = "upcall exec --deadline";

/// The object of `--json`. Documented in docs/contract.md.
#[derive(Debug, Serialize)]
struct Report<'r> {
    program: &'r str,
    pid: u32,
    admitted: bool,
    exit_status: u8,
    signal: Option<i32>,
    cost_ns: u64,
    period_ns: u64,
    duration_ns: u64,
    /// CPU time of the first thread. Null: the kernel does not count it.
    cpu_ns: Option<u64>,
}

/// Runs a program with a cost in each period, and reports.
///
/// # Errors
/// The locks cannot be used, or the machine has no process left. Nothing was run.
pub fn exec(args: &ExecArgs) -> Result<Exit, Failure> {
    // The command line requires both.
    let (Some(cost), Some(period)) = (args.terms.cost, args.terms.period) else {
        return Err(Failure::new("--deadline: found no cost and period, expected both"));
    };
    let name = name_of(&args.program);
    let mut signals = Signals::install()?;
    let cpus = upcall::allowed_cpus().map_err(Failure::of_error)?;
    let _locks = match CpuLocks::take(&cpus, COMMAND) {
        Ok(locks) => locks,
        Err(held @ CpuLockError::Held { .. }) => {
            let reason = format!("{held}, and SCHED_DEADLINE would go before its handlers");
            return say_not_run(args, &name, &no_room(reason));
        }
        Err(error) => return Err(Failure::of_error(error)),
    };
    let held = HeldProgram::new(&args.program).map_err(Failure::of_error)?;
    match held.set_deadline(cost, period) {
        Ok(()) => {}
        Err(ProgramError::Refused(refused)) => return say_not_run(args, &name, &refused),
        Err(error) => return Err(Failure::of_error(error)),
    }
    let begun = clock::now();
    let program = match release(held, &name, &mut signals) {
        Ok(program) => program,
        Err(exit) => return Ok(exit),
    };
    let forever = Instant::from_nanos(u64::MAX);
    signals.pass_on(&program, || program.wait_until(forever)).map_err(Failure::of_error)?;
    let duration = clock::now().since(begun);
    // Before it is reaped.
    let cpu_ns = cpu_ns_of(program.pid());
    let end = program.reap().map_err(Failure::of_error)?;
    let report = Report::new((&name, program.pid()), (cost, period), end, (duration, cpu_ns));
    match args.json {
        true => say_json(&report)?,
        false => say(report.text()),
    }
    Ok(Exit::Program(report.exit_status))
}

fn no_room(reason: String) -> RefusedProgram {
    RefusedProgram { cause: RefusalCause::NoRoom, asked_ppm: 0, fits_ppm: 0, reason }
}

/// The CPU time of the first thread of a process, also of one that was not reaped
/// (proc_pid_schedstat(5)).
fn cpu_ns_of(pid: u32) -> Option<u64> {
    let path = Path::new("/proc").join(pid.to_string()).join("schedstat");
    fs::read_to_string(path).ok()?.split_whitespace().next()?.parse().ok()
}

impl<'r> Report<'r> {
    fn new(
        (program, pid): (&'r str, u32),
        (cost, period): (Span, Span),
        end: End,
        (duration, cpu_ns): (Span, Option<u64>),
    ) -> Self {
        let (exit_status, signal) = status_of(end);
        Report {
            program,
            pid,
            admitted: true,
            exit_status,
            signal,
            cost_ns: cost.as_nanos(),
            period_ns: period.as_nanos(),
            duration_ns: duration.as_nanos(),
            cpu_ns,
        }
    }

    /// The report for people. Does not end with a line feed.
    fn text(&self) -> String {
        let Report { program, cost_ns, period_ns, duration_ns, .. } = *self;
        let end = match self.signal {
            Some(signal) => format!("was killed by signal {signal}"),
            None => format!("ended with {}", self.exit_status),
        };
        let used = self.cpu_ns.map_or("an unknown time".to_owned(), show::span);
        format!(
            "upcall: {program} {end} after {}: its first thread had up to {} of CPU in each {} \
             (SCHED_DEADLINE), and used {used}",
            show::span(duration_ns),
            show::span(cost_ns),
            show::span(period_ns)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_was_granted_and_used() {
        let times = (Span::from_millis(5), Span::from_millis(11));
        let of = |end, cpu_ns| Report::new(("player", 7), times, end, (Span::from_secs(2), cpu_ns));
        let report = of(End::Code(3), Some(900_000_000));
        assert_eq!(
            report.text(),
            "upcall: player ended with 3 after 2000 ms: its first thread had up to 5 ms of CPU in each \
             11 ms (SCHED_DEADLINE), and used 900 ms"
        );
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["admitted"], &json["cost_ns"]), (&true.into(), &5_000_000.into()));
        let killed = of(End::Signal(9), None);
        assert_eq!((killed.exit_status, killed.signal), (137, Some(9)));
        assert!(killed.text().contains("killed by signal 9") && killed.text().contains("unknown"));
    }
}
