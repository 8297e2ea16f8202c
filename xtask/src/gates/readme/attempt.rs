//! Runs a block of commands, and decides whether it ended as the document says.
//!
//! A broken promise is tried again if the host took the CPU away meanwhile.

use super::commands::{Block, Ending};
use super::reader::{Reader, was_interrupted, was_killed};
use crate::child;
use crate::gate::Failure;
use crate::gates::packages;
use crate::steal::steal_ms;
use std::process::{Command, ExitStatus};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A command ends within this time, building included, unless the document says that it lasts.
const LIMIT: Duration = Duration::from_secs(900);
/// A command that lasts until an interrupt, or for minutes, is interrupted after this time.
const INTERRUPT_AFTER: Duration = Duration::from_secs(5);
/// The same for a command in another shell.
const INTERRUPT_BESIDE_AFTER: Duration = Duration::from_secs(10);
/// Commands in another shell begin this long after the first one.
const BESIDE_AFTER: Duration = Duration::from_secs(5);
/// The block fails after this many runs with a broken promise, and runs this often at most.
const BROKEN_MAX: u32 = 2;
const ATTEMPTS_MAX: u32 = 4;
/// The exit status of `upcall` after a broken promise (docs/contract.md).
const PROMISE_BROKEN: i32 = 4;
/// Defines `sudo` for a shell that has the rights already.
const SUDO: &str = "sudo() { \"$@\"; }\n";

/// The result of a block that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran and ended as the document says. Holds a note for the report.
    Ran(&'static str),
    /// It did not run. Says why.
    Skipped(String),
}

/// Runs `block`, and `beside` in other shells.
///
/// # Errors
/// If a command does not end as the document says.
pub fn run(reader: &Reader, block: &Block, beside: &[Block]) -> Result<Outcome, Failure> {
    if let Some(why) = not_run(block, beside) {
        return Ok(Outcome::Skipped(why));
    }
    println!("{} by {}:\n{}", block.place, reader.account.name(), block.script);
    if names_sudo(block) {
        let script = format!("{SUDO}{}", block.script);
        let status = child::status_silent(&mut reader.shell_of_root(&script, LIMIT))?;
        return judge(block, status, None);
    }
    if let (Ending::Interrupted, Some(build)) = (block.ending, build_of(&block.script)) {
        let status = child::status_silent(&mut reader.shell(&build, LIMIT))?;
        if !status.success() {
            return Err(Failure(format!("{}: `{build}`: {status}", block.place)));
        }
    }
    let rights = Rights { realtime: reader.is_realtime(), stolen: &stolen_ms };
    attempts(block, &rights, || once(reader, block, beside))
}

/// After which time `block` is interrupted. The commands of `beside` have their time too.
fn limit(block: &Block, beside: &[Block]) -> Duration {
    match block.ending {
        Ending::Itself(_) => LIMIT,
        _ if beside.is_empty() => INTERRUPT_AFTER,
        Ending::Interrupted | Ending::NotRun => BESIDE_AFTER + INTERRUPT_AFTER,
    }
}

/// Runs `block` once, and `beside` in other shells. Returns the exit status of `block`, or an error
/// if a command beside it failed.
fn once(reader: &Reader, block: &Block, beside: &[Block]) -> Result<ExitStatus, Failure> {
    let limit = limit(block, beside);
    if beside.is_empty() {
        return child::status_silent(&mut reader.shell(&block.script, limit));
    }
    let start = |mut command: Command| {
        command.spawn().map_err(|error| Failure(format!("{}: {error}", block.place)))
    };
    let mut first = start(reader.shell(&block.script, limit))?;
    std::thread::sleep(BESIDE_AFTER);
    let mut others = Vec::new();
    for other in beside {
        println!("{} beside it:\n{}", other.place, other.script);
        others.push((other, start(reader.shell(&other.script, INTERRUPT_BESIDE_AFTER))?));
    }
    let wait = |child: &mut std::process::Child| {
        child.wait().map_err(|error| Failure(format!("{}: {error}", block.place)))
    };
    let status = wait(&mut first);
    let mut findings = Vec::new();
    for (other, mut child) in others {
        let status = wait(&mut child)?;
        if !status.success() && !was_interrupted(status) {
            findings.push(format!("{}: {status}", other.place));
        }
    }
    if findings.is_empty() { status } else { Err(Failure(findings.join("; "))) }
}

/// The facts that decide whether a broken promise counts.
struct Rights<'a> {
    /// Whether the reader's programs may have the class `SCHED_FIFO`.
    realtime: bool,
    /// The time that the host has taken from the CPU since the machine started.
    stolen: &'a dyn Fn() -> u64,
}

/// Calls `once` until the block ends as the document says, and judges the end.
///
/// Without the right to `SCHED_FIFO` nothing is promised about wake-up times, so a broken promise
/// is not a failure. With the right, the second broken promise is one. An attempt in which the
/// host took the CPU away does not count, because no scheduler in this machine can prevent that.
fn attempts(
    block: &Block,
    rights: &Rights<'_>,
    mut once: impl FnMut() -> Result<ExitStatus, Failure>,
) -> Result<Outcome, Failure> {
    let mut broken = 0;
    for attempt in 0..ATTEMPTS_MAX {
        let stolen_before = (rights.stolen)();
        let status = once()?;
        let is_broken =
            status.code() == Some(PROMISE_BROKEN) && block.ending != Ending::Itself(PROMISE_BROKEN);
        if !is_broken {
            let later = (attempt > 0).then_some("at a later attempt: a promise was broken before");
            return judge(block, status, later);
        }
        if !rights.realtime {
            return Ok(Outcome::Ran("a promise was broken, without the right to SCHED_FIFO"));
        }
        if (rights.stolen)() > stolen_before {
            println!("a promise was broken, but the host took the CPU away meanwhile");
            continue;
        }
        println!("a promise was broken, in spite of SCHED_FIFO");
        broken += 1;
        if broken == BROKEN_MAX {
            let found = format!("{}: broke a promise twice, in spite of SCHED_FIFO", block.place);
            return Err(Failure(found));
        }
    }
    Ok(Outcome::Ran("promises not judged: the host took the CPU away in nearly every attempt"))
}

/// Checks that `status` is the end that the document names.
fn judge(
    block: &Block,
    status: ExitStatus,
    note: Option<&'static str>,
) -> Result<Outcome, Failure> {
    let place = &block.place;
    let found = match block.ending {
        _ if was_killed(status) => "did not end after an interrupt, and was killed".to_owned(),
        Ending::Itself(code) if status.code() == Some(code) => {
            return Ok(Outcome::Ran(note.unwrap_or_default()));
        }
        Ending::Itself(_) if was_interrupted(status) => {
            format!("did not end in {} s, and has no comment such as `# 2 min`", LIMIT.as_secs())
        }
        Ending::Itself(code) => format!("{status}, expected {code}"),
        Ending::Interrupted if was_interrupted(status) => {
            return Ok(Outcome::Ran("interrupted"));
        }
        Ending::Interrupted if status.success() => {
            return Ok(Outcome::Ran(note.unwrap_or_default()));
        }
        Ending::Interrupted => format!("{status}, expected 0, or an interrupt"),
        Ending::NotRun => "it ran although it is marked `console`".to_owned(),
    };
    Err(Failure(format!("{place}: {found}")))
}

/// Why a block cannot run on this machine, if it cannot.
fn not_run(block: &Block, beside: &[Block]) -> Option<String> {
    if block.ending == Ending::NotRun {
        return Some("it changes the machine (`console`)".to_owned());
    }
    if let Some(task) = task_of_gates(&block.script) {
        return Some(format!("`cargo xtask {task}` is the program that runs this gate"));
    }
    let mut scripts = std::iter::once(block).chain(beside).map(|block| &block.script);
    let missing = packages::missing();
    let program = scripts.find_map(|script| {
        missing.iter().map(|(program, _)| *program).find(|program| packages::names(script, program))
    });
    if let Some(program) = program {
        return Some(format!("no `{program}` here"));
    }
    if !names_sudo(block) {
        return None;
    }
    if !block.script.lines().all(|line| line.trim_start().starts_with("sudo setcap ")) {
        return Some("`sudo` changes the machine; the gate runs only `sudo setcap`".to_owned());
    }
    if !child::is_root() {
        return Some("`sudo` needs root".to_owned());
    }
    (!child::is_installed("setcap")).then(|| "no `setcap` here".to_owned())
}

/// Whether `block` needs the rights of root.
pub fn names_sudo(block: &Block) -> bool {
    packages::names(&block.script, "sudo")
}

/// NAME of the first `cargo xtask NAME` in `script`.
pub fn task_of_gates(script: &str) -> Option<&str> {
    script.lines().find_map(|line| line.trim().strip_prefix("cargo xtask ")?.split(' ').next())
}

/// The command that only builds the program of `script`, so that the time until the interrupt is
/// left for the run.
fn build_of(script: &str) -> Option<String> {
    let arguments = script.strip_prefix("cargo run ")?;
    let arguments = arguments.split_once(" # ").map_or(arguments, |(arguments, _)| arguments);
    let of_cargo = format!(" {arguments} ");
    let of_cargo = of_cargo.split_once(" -- ").map_or(&*of_cargo, |(of_cargo, _)| of_cargo);
    Some(format!("cargo build {}", of_cargo.trim()))
}

/// The time for which the host ran something else on the CPU that handlers use by default, the
/// first after CPU 0. 0 if the kernel does not tell.
fn stolen_ms() -> u64 {
    steal_ms("cpu1").or_else(|| steal_ms("cpu0")).unwrap_or(0)
}
