//! Runs a block until its end says something, and judges that end.

use super::commands::{Block, Ending};
use super::reader::{Reader, was_interrupted, was_killed};
use crate::child;
use crate::gate::Failure;
use crate::gates::packages;
use std::process::{Command, ExitStatus};
use std::time::Duration;

#[cfg(test)]
mod tests;

/// A command of which the document says nothing else ends within this time, building included.
const LIMIT: Duration = Duration::from_secs(900);
/// A command that ends by an interrupt, or takes minutes, gets it after this time.
const INTERRUPT_AFTER: Duration = Duration::from_secs(10);
/// Commands in another shell begin so long after the first one.
const BESIDE_AFTER: Duration = Duration::from_secs(5);
/// Runs with a broken promise that are too many, and runs in all.
const BROKEN_MAX: u32 = 2;
const ATTEMPTS_MAX: u32 = 4;
/// Exit status of the command `upcall` when a promise was broken (the contract).
const PROMISE_BROKEN: i32 = 4;
/// Gives a `sudo` to a shell that has the rights already.
const SUDO: &str = "sudo() { \"$@\"; }\n";

/// What became of a block that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran, and ended as the document says; what else is to be said.
    Ran(&'static str),
    /// It did not run; why.
    Skipped(String),
}

/// Runs `block`, and `beside` in other shells.
///
/// # Errors
/// If a command ends in another way than the document says.
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
    let rights = Rights { realtime: reader.is_realtime(), stolen: &stolen_ticks };
    attempts(block, &rights, || once(reader, block, beside))
}

/// Runs `block` once, and `beside` in other shells. The first status that is not as the
/// document says is returned, else that of `block`.
fn once(reader: &Reader, block: &Block, beside: &[Block]) -> Result<ExitStatus, Failure> {
    let limit = match block.ending {
        Ending::Itself(_) => LIMIT,
        Ending::Interrupted | Ending::NotRun => INTERRUPT_AFTER,
    };
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
        others.push((other, start(reader.shell(&other.script, INTERRUPT_AFTER))?));
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

/// What a broken promise depends on.
struct Rights<'a> {
    /// Whether the reader's programs may have the class `SCHED_FIFO`.
    realtime: bool,
    /// Ticks that the host has taken from the CPU so far.
    stolen: &'a dyn Fn() -> u64,
}

/// Runs by `once` until the block ends as the document says. Without the right to `SCHED_FIFO`
/// no wake-up time is promised, and a broken promise is no failure. With it, two attempts are
/// held against us. An attempt in which the host took the CPU away says nothing: no
/// scheduler inside can help it.
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

/// Whether `status` is the end of which the document speaks.
fn judge(
    block: &Block,
    status: ExitStatus,
    note: Option<&'static str>,
) -> Result<Outcome, Failure> {
    let place = &block.place;
    let found = match block.ending {
        _ if was_killed(status) => "did not end at an interrupt, and was killed".to_owned(),
        Ending::Itself(code) if status.code() == Some(code) => {
            return Ok(Outcome::Ran(note.unwrap_or_default()));
        }
        Ending::Itself(_) if was_interrupted(status) => {
            format!("did not end in {} s, nor says `# 2 min` or the like", LIMIT.as_secs())
        }
        Ending::Itself(code) => format!("{status}, expected {code}"),
        Ending::Interrupted if was_interrupted(status) => {
            return Ok(Outcome::Ran("interrupted after 10 s"));
        }
        Ending::Interrupted if status.success() => {
            return Ok(Outcome::Ran(note.unwrap_or_default()));
        }
        Ending::Interrupted => format!("{status}, expected 0, or an interrupt"),
        Ending::NotRun => "it ran, and is marked `console`".to_owned(),
    };
    Err(Failure(format!("{place}: {found}")))
}

/// Why a block is not run on this machine, if so.
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
        return Some("`sudo` changes the machine; only `sudo setcap` is run".to_owned());
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

/// The command that only builds what `script` runs: its few seconds are for the run.
fn build_of(script: &str) -> Option<String> {
    let arguments = script.strip_prefix("cargo run ")?;
    let arguments = arguments.split_once(" # ").map_or(arguments, |(arguments, _)| arguments);
    let of_cargo = format!(" {arguments} ");
    let of_cargo = of_cargo.split_once(" -- ").map_or(&*of_cargo, |(of_cargo, _)| of_cargo);
    Some(format!("cargo build {}", of_cargo.trim()))
}

/// Ticks in which the host ran something else on the CPU that handlers use by
/// default, the first after CPU 0 (proc_stat(5), `steal`); 0 where it does not
/// tell.
fn stolen_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    steal_in(&stat).unwrap_or(0)
}

/// The same, of what `/proc/stat` says.
fn steal_in(stat: &str) -> Option<u64> {
    let of = |cpu: &str| stat.lines().find(|line| line.split_whitespace().next() == Some(cpu));
    // user nice system idle iowait irq softirq steal
    of("cpu1").or_else(|| of("cpu0"))?.split_whitespace().nth(8)?.parse().ok()
}
