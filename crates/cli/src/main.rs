//! The `upcall` command: parses arguments, calls a command, prints its result.
//!
//! This file decides nothing. The library beside it reads specs ([`spec`]), [`plan`] maps and
//! admits them, and [`run`] runs them.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod background;
mod csv;
mod exec;
mod exit;
mod live;
mod log_file;
mod measured;
mod net;
mod outcome;
mod output;
mod own_daemon;
mod plan;
mod plot;
mod program_request;
mod ps;
mod run;
mod share;
mod show;
mod sim;
mod standard_output;
mod stream;
mod sweep;
mod top;
mod trace;
mod vopr;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory, Parser};
use upcall::Mode;

use args::{Args, Command, PlanArgs, ProgramArg, PsArgs, RunArgs, SimArgs, SweepArgs};
use exit::{Exit, Failure};
use measured::RunOptions;
use plan::PlanOptions;
use standard_output::{print, print_json};
use upcall_cli::daemon::Program;
use upcall_cli::spec;
use upcall_cli::standard_error::say;

fn main() -> ExitCode {
    if let Some(exit) = upcall_cli::daemon::supervise_if_asked() {
        return exit;
    }
    let done = match Args::parse().command {
        Command::Plan(args) => plan_command(&args),
        Command::Run(args) => run_command(&args),
        Command::Sim(args) => sim_command(&args),
        Command::Sweep(args) => sweep_command(&args),
        Command::Plot(args) => {
            let window = plot::Window { from: args.from, to: args.to };
            plot::plot(&args.file, &args.output, window).map(|()| Exit::Kept)
        }
        Command::Daemon(args) => {
            upcall_cli::daemon::serve(&args).map(|()| Exit::Kept).map_err(Failure::of_error)
        }
        Command::Top(args) => interruption().and_then(|interrupted| {
            let socket = ps::socket(args.daemon.socket.as_deref())?;
            top::top(&socket, args.interval.into(), &interrupted).map(|()| Exit::Kept)
        }),
        Command::Ps(args) => ps_command(&args),
        Command::Net(args) => net::net(&args).map(|()| Exit::Kept),
        Command::Exec(args) => exec::exec(&args),
        Command::Share(args) => share::share(&args),
        Command::Adopt(args) => share::adopt(&args),
        Command::Completions { shell, program } => {
            // Into memory first, because the generator panics where it cannot write.
            let mut script = Vec::new();
            let (mut command, name) = match program {
                ProgramArg::Upcall => (args::visible(), "upcall"),
                ProgramArg::Upcalld => (Program::command(), "upcalld"),
            };
            clap_complete::generate(shell, &mut command, name, &mut script);
            print(&String::from_utf8_lossy(&script)).map(|()| Exit::Kept)
        }
        Command::Man { folder } => std::fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(Args::command(), &folder))
            .and_then(|()| daemon_page().generate_to(&folder))
            .map(|_| Exit::Kept)
            .map_err(|error| Failure::of_file(&folder, error)),
        Command::Domain => run::domain::serve().map(|()| Exit::Kept),
        Command::Send { streams } => send_command(&streams),
        Command::Spin { threads } => {
            upcall::load::spin(threads);
            Ok(Exit::Kept)
        }
    };
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            say(&failure);
            if failure.refusal().is_some() { Exit::Refused } else { Exit::BadInput }.into()
        }
    }
}

/// The manual page of `upcalld`, in the section of system programs.
fn daemon_page() -> clap_mangen::Man {
    clap_mangen::Man::new(Program::command()).section("8")
}

fn plan_command(args: &PlanArgs) -> Result<Exit, Failure> {
    let spec = spec::Spec::read(&args.spec).map_err(Failure::of_error)?;
    let plan = plan::plan(&spec, PlanOptions::default())?;
    if args.json {
        print_json(&plan.output)?;
    } else {
        print(&show::plan(&plan.output))?;
    }
    Ok(if plan.output.admitted { Exit::Kept } else { Exit::Refused })
}

fn run_command(args: &RunArgs) -> Result<Exit, Failure> {
    let spec = spec::Spec::read(&args.spec).map_err(Failure::of_error)?;
    let mut plan = plan::plan(&spec, PlanOptions { soft: args.soft, ..PlanOptions::default() })?;
    if !plan.output.admitted && !args.soft {
        if args.json {
            print_json(&plan.output)?;
        } else {
            print(&show::plan(&plan.output))?;
        }
        say("upcall: refused, nothing was run (--soft runs it anyway)");
        return Ok(Exit::Refused);
    }
    let open_log =
        |path| csv::JobLog::open(path, args.compare).map_err(|error| Failure::of_file(path, error));
    let mut log = args.csv.as_deref().map(open_log).transpose()?;
    if args.trace.is_some() && !matches!(args.mode, args::ModeArg::Upcall) {
        let found = Mode::from(args.mode).name();
        return Err(Failure::new(format_args!(
            "--trace: found mode {found}, where the kernel decides; expected mode upcall"
        )));
    }
    let mut trace = args.trace.as_deref().map(trace::TraceFile::open).transpose()?;
    let runs = match run_modes(args, &spec, &plan, &mut log, &mut trace) {
        Err(failure) if args.json => {
            if let Some(refusal) = failure.refusal() {
                plan.output.refuse(refusal);
                print_json(&plan.output)?;
            }
            return Err(failure);
        }
        runs => runs?,
    };
    let logged = log.map_or(Ok(()), csv::JobLog::finish);
    let traced = trace.map_or(Ok(()), trace::TraceFile::finish);
    let kept = runs.first().is_none_or(|run| run.kept);
    match (args.compare, args.json) {
        (true, true) => print_json(&output::Comparison { runs })?,
        (true, false) => print(&format!("\n{}", show::comparison(&runs)))?,
        (false, true) => print_json(&runs[0])?,
        (false, false) => {}
    }
    // The outcome is printed first: a full disk costs the log, not the outcome.
    logged.map_err(|error| {
        Failure::new(format_args!("the job log is incomplete: {error}")).because(error)
    })?;
    traced?;
    Ok(if kept { Exit::Kept } else { Exit::Broken })
}

fn sim_command(args: &SimArgs) -> Result<Exit, Failure> {
    if let Some(count) = args.vopr {
        return vopr_command(args, count);
    }
    let path = match (&args.replay, &args.spec) {
        (Some(file), _) => return replay_command(file, args.json),
        (None, Some(path)) => path,
        (None, None) => return Err(Failure::new("found no spec file, expected one")),
    };
    let spec = spec::Spec::read(path).map_err(Failure::of_error)?;
    let recorded = sim::recorded(&spec, &args.arrivals, args.duration)?;
    let defer_preemption = args.defer_preemption;
    let options =
        PlanOptions { soft: args.soft, policy: args.policy, virtual_time: true, defer_preemption };
    let plan = plan::plan(&spec, options)?;
    if !plan.output.admitted && !args.soft {
        if args.json {
            print_json(&plan.output)?;
        } else {
            print(&show::plan(&plan.output))?;
        }
        say("upcall: refused, nothing was simulated (--soft simulates it anyway)");
        return Ok(Exit::Refused);
    }
    let mut trace = args.trace.as_deref().map(trace::TraceFile::open).transpose()?;
    let admitted = if args.soft { None } else { Some(plan.without_refused()) };
    let run = sim::simulate(
        admitted.as_ref().unwrap_or(&plan),
        args.duration,
        args.seed,
        &recorded,
        &mut trace,
    )?;
    if args.json {
        print_json(&run)?;
    } else {
        print(&format!("{}\n{}", show::plan(&plan.output), show::run(&run)))?;
    }
    trace.map_or(Ok(()), trace::TraceFile::finish)?;
    Ok(if run.kept { Exit::Kept } else { Exit::Broken })
}

fn sweep_command(args: &SweepArgs) -> Result<Exit, Failure> {
    let definition = spec::sweep::Sweep::read(&args.file).map_err(Failure::of_error)?;
    let threads = match args.threads {
        Some(threads) => threads.into(),
        None => std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
    };
    let interrupted = interruption()?;
    let done = sweep::sweep(&definition, &args.output, threads, &interrupted)?;
    if args.json {
        print_json(&done)?;
    } else {
        print(&show::sweep(&done))?;
    }
    if done.done < done.sets {
        say(format_args!(
            "upcall: interrupted after {} of {} sets, the same command continues",
            done.done, done.sets
        ));
    }
    Ok(Exit::Kept)
}

fn vopr_command(args: &SimArgs, count: u64) -> Result<Exit, Failure> {
    let vopr = vopr::check(count, args.seed, args.policy);
    if args.json {
        print_json(&vopr)?;
    } else {
        print(&show::vopr(&vopr))?;
    }
    Ok(if vopr.failed.is_none() { Exit::Kept } else { Exit::Broken })
}

fn replay_command(file: &std::path::Path, json: bool) -> Result<Exit, Failure> {
    let replay = trace::replay(file)?;
    if json {
        print_json(&replay)?;
    } else {
        print(&show::replay(&replay))?;
    }
    if replay.divergence.is_some() {
        return Ok(Exit::Broken);
    }
    if replay.lost > 0 {
        let lost = replay.lost;
        return Err(Failure::new(format_args!(
            "{}: {lost} records were lost when it was written; the commands up to there are the \
             same",
            file.display()
        )));
    }
    Ok(Exit::Kept)
}

fn ps_command(args: &PsArgs) -> Result<Exit, Failure> {
    let status = ps::fetch_status(&ps::socket(args.daemon.socket.as_deref())?)?;
    match args.json {
        true => print_json(&ps::Output::of(&status))?,
        false => print(&ps::tables(&status))?,
    }
    Ok(Exit::Kept)
}

/// Runs each requested mode, and prints each outcome as soon as it is known.
fn run_modes(
    args: &RunArgs,
    spec: &spec::Spec,
    plan: &plan::Plan<'_>,
    log: &mut Option<csv::JobLog>,
    trace: &mut Option<trace::TraceFile>,
) -> Result<Vec<output::Run>, Failure> {
    let interrupted = interruption()?;
    let modes = if args.compare { Mode::ALL.to_vec() } else { vec![args.mode.into()] };
    let mut runs: Vec<output::Run> = Vec::new();
    let admitted = (!args.soft).then(|| plan.without_refused());
    for mode in modes {
        // The baseline modes have no admission: they run the whole set.
        let (plan, soft) = match (mode, &admitted) {
            (Mode::Upcall, Some(admitted)) => (admitted, false),
            _ => (plan, args.soft || !plan.output.refusals.is_empty()),
        };
        let options = RunOptions { mode, duration: args.duration, soft };
        let first = runs.is_empty();
        // Prints the plan when everything is set up. Before that, only a failure is printed.
        let started = || match first && !args.json {
            true => print(&show::plan(&plan.output)),
            false => Ok(()),
        };
        let run = run::run(spec, plan, options, (log, trace), &interrupted, started)?;
        if !args.json {
            print(&format!("\n{}", show::run(&run)))?;
        }
        let is_interrupted = run.interrupted;
        runs.push(run);
        if is_interrupted {
            break;
        }
    }
    Ok(runs)
}

/// A flag that Ctrl-C and SIGTERM set. A second signal ends the program at once.
fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: at the first signal the flag is still clear, so the signal only sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, interrupted.clone())
            .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
            .map_err(Failure::of_error)?;
    }
    Ok(interrupted)
}

/// The process of the embedded senders.
fn send_command(streams: &[String]) -> Result<Exit, Failure> {
    let plans = streams
        .iter()
        .map(|text| text.parse::<upcall::load::SenderPlan>().map_err(Failure::of_error))
        .collect::<Result<Vec<_>, _>>()?;
    let kinds = plans
        .iter()
        .map(|plan| plan.work.parse::<upcall::work::WorkKind>().map_err(Failure::of_error))
        .collect::<Result<Vec<_>, _>>()?;
    let fill = |stream: usize, sequence: u32, payload: &mut [u8]| {
        upcall::work::sample_payload(kinds[stream], plans[stream].pdu_bytes, sequence, payload)
    };
    upcall::load::serve(&plans, fill).map_err(Failure::of_error)?;
    Ok(Exit::Kept)
}
