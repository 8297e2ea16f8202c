//! Compares the simulator with SimSo 0.8.5 (PyPI `simso`) on the same sets. Both must find the same
//! number of jobs and the same worst responses where all deadlines are kept. Then the bench
//! compares their speed. SimSo is written in Python, so the ratio compares two languages as well as
//! two simulators; agreement is the point.
//!
//! Where a deadline is missed, Upcall differs on purpose: late work of an activity runs below all
//! that keep their reservation (docs/decisions/0016). SimSo's schedulers have no such rule. There a
//! task that misses nothing in SimSo must miss nothing in Upcall, and the rest is printed only.
//!
//! The sets run under rate monotonic and earliest deadline first. They are fully preemptive, have
//! implicit deadlines, are released together, and load the CPU up to and beyond 100 %. EDF is DWS
//! here, with critical activities only. DWS preempts at the end of a quantum. So periods and costs
//! are whole milliseconds and a quantum takes one millisecond: releases fall on the ends of quanta,
//! and both simulators may preempt at the same times. SimSo's own schedulers resolve ties in favour
//! of the job that was ready first. SimSo therefore runs two schedulers of this bench
//! (`simulate.py`), which favour the task that comes first in the set, as Upcall does.
//!
//! The bench ends with an error if one of these does not hold. It installs SimSo into
//! `target/simso` with pip. Without Python, venv or PyPI it prints that it was skipped.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};
use upcall::activity::ActivityParams;
use upcall::discipline::{DWS, RM};
use upcall::time::Span;
use upcall_benches::{heading, percentile, smoke};
use upcall_sim::{EventKind, SimActivity, SimSpec, Simulation};

const VERSION: &str = "0.8.5";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/simso/simulate.py");
/// Runs of each set in Upcall, of which the median counts. One run is too short to time.
const RUNS: usize = 15;

#[derive(Clone, Serialize)]
struct Set {
    policy: &'static str,
    duration_ms: u64,
    /// Period and cost, in milliseconds.
    tasks: Vec<(u64, u64)>,
}

/// Number of jobs that ended, number of late jobs, and the longest response in nanoseconds.
type Summary = (u64, u64, u64);

#[derive(Deserialize)]
struct Answer {
    seconds: f64,
    tasks: Vec<Summary>,
}

fn main() -> ExitCode {
    println!("{}\n", heading("simso"));
    let sets = sets(if smoke() { 2 } else { 20 }, if smoke() { 1_000 } else { 20_000 });
    let answers = match python().and_then(|python| ask_simso(&python, &sets)) {
        Ok(answers) => answers,
        Err(reason) => {
            println!("skipped: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    println!(
        "{:>6} {:>5} {:>6} {:>8} {:>13} {:>14} {:>15} {:>15} {:>9}",
        "policy",
        "tasks",
        "load",
        "jobs",
        "SimSo missed",
        "Upcall missed",
        "SimSo/Python ms",
        "Upcall/Rust ms",
        "ratio"
    );
    let mut ratios: Vec<u64> = Vec::new();
    let (mut kept, mut differ, mut harmed) = (0, 0, 0);
    for (set, answer) in sets.iter().zip(&answers) {
        let (seconds, tasks) = run_here(set);
        let is_kept = missed(&answer.tasks) == 0;
        let is_harmed =
            answer.tasks.iter().zip(&tasks).any(|(simso, upcall)| simso.1 < upcall.1.min(1));
        kept += u64::from(is_kept);
        differ += u64::from(is_kept && tasks != answer.tasks);
        harmed += u64::from(is_harmed);
        if is_kept && tasks != answer.tasks || is_harmed {
            println!("DIFFERENT {:?}\n  SimSo  {:?}\n  Upcall {tasks:?}", set.tasks, answer.tasks);
        }
        let ratio = answer.seconds / seconds;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some hundreds"
        )]
        ratios.push(ratio.round() as u64);
        let load: f64 = set.tasks.iter().map(|&(t, c)| c as f64 / t as f64).sum();
        println!(
            "{:>6} {:>5} {load:>6.3} {:>8} {:>13} {:>14} {:>15.1} {:>15.3} {ratio:>9.0}",
            set.policy,
            set.tasks.len(),
            tasks.iter().map(|task| task.0).sum::<u64>(),
            missed(&answer.tasks),
            missed(&tasks),
            answer.seconds * 1e3,
            seconds * 1e3,
        );
    }
    println!(
        "\n{} sets. In {kept} of them SimSo finds no miss: {differ} differ in the number of jobs, in \
         misses or in a worst response.\nIn the others late work runs below the rest in Upcall: in \
         {harmed} a task misses deadlines that it keeps in SimSo.",
        sets.len()
    );
    if differ + harmed > 0 {
        println!("DOES NOT HOLD: the simulators differ");
    }
    println!(
        "CPU time of SimSo, which is Python, / of Upcall, which is Rust: p10 {}, median {}, p90 {}",
        percentile(&mut ratios, 10.0),
        percentile(&mut ratios, 50.0),
        percentile(&mut ratios, 90.0)
    );
    if differ + harmed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn missed(tasks: &[Summary]) -> u64 {
    tasks.iter().map(|task| task.1).sum()
}

/// `count` random sets for each policy, the same in every run. Loads are around 0.5 to 1.1, and the
/// periods are all different, from 5 to 100 ms.
fn sets(count: u64, duration_ms: u64) -> Vec<Set> {
    let mut sets = Vec::new();
    let mut state = 0x5157_1995_u64;
    let mut draw = |below: u64| {
        // splitmix64 (Steele et al., OOPSLA 2014).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    };
    for policy in ["rm", "edf"] {
        for number in 0..count {
            let load = 0.5 + 0.6 * number as f64 / count.max(2) as f64;
            let wanted = 3 + draw(8);
            let mut tasks: Vec<(u64, u64)> = Vec::new();
            while (tasks.len() as u64) < wanted {
                let period = 5 + draw(96);
                if tasks.iter().all(|task| task.0 != period) {
                    let weight = 50 + draw(101);
                    let cost = load / wanted as f64 * period as f64 * weight as f64 / 100.0;
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "at most a period"
                    )]
                    tasks.push((period, (cost.round() as u64).clamp(1, period)));
                }
            }
            sets.push(Set { policy, duration_ms, tasks });
        }
    }
    sets
}

/// The path of a Python that has SimSo, or the reason why there is none.
fn python() -> Result<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/simso");
    let python = folder.join("bin/python").display().to_string();
    let has_simso = |python: &str| {
        let check = format!(
            "from importlib.metadata import version; assert version('simso') == '{VERSION}'"
        );
        quietly(Command::new(python).args(["-c", &check])).is_ok()
    };
    if !has_simso(&python) {
        quietly(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
        let simso = format!("simso=={VERSION}");
        quietly(Command::new(&python).args(["-m", "pip", "install", "--quiet", &simso]))?;
    }
    Ok(python)
}

fn quietly(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().last().unwrap_or("it failed");
    if output.status.success() { Ok(()) } else { Err(format!("{name}: {last}")) }
}

fn ask_simso(python: &str, sets: &[Set]) -> Result<Vec<Answer>, String> {
    let failure = |error: &dyn std::fmt::Display| format!("simulate.py: {error}");
    let mut child = Command::new(python)
        .arg(SCRIPT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failure(&error))?;
    let question = serde_json::to_vec(sets).map_err(|error| failure(&error))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(&question).map_err(|error| failure(&error))?;
    }
    let output = child.wait_with_output().map_err(|error| failure(&error))?;
    serde_json::from_slice(&output.stdout).map_err(|error| failure(&error))
}

/// The median CPU seconds of a run in Upcall, and its results.
fn run_here(set: &Set) -> (f64, Vec<Summary>) {
    let mut times_ns = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..RUNS {
        tasks = vec![(0, 0, 0); set.tasks.len()];
        let simulation = Simulation::new(spec(set)).expect("a valid spec");
        let begun_ns = upcall::thread_cpu_ns();
        simulation.run(Span::from_millis(set.duration_ms), &mut |event| {
            if let EventKind::JobDone(record) = event.kind
                && record.completed
            {
                let task: &mut Summary = &mut tasks[record.id.0 as usize];
                task.0 += 1;
                task.1 += u64::from(record.missed());
                task.2 = task.2.max(record.response().as_nanos());
            }
        });
        times_ns.push(upcall::thread_cpu_ns() - begun_ns);
    }
    (percentile(&mut times_ns, 50.0) as f64 / 1e9, tasks)
}

fn spec(set: &Set) -> SimSpec {
    let discipline = if set.policy == "rm" { &RM } else { &DWS };
    let activities = set.tasks.iter().map(|&(period_ms, cost_ms)| {
        let cost_ms = u32::try_from(cost_ms).unwrap_or(u32::MAX);
        let params = ActivityParams::new(Span::from_millis(period_ms), Span::from_millis(1));
        SimActivity::new("", params.batch(cost_ms))
    });
    SimSpec::new(discipline, activities.collect())
}
