//! The command as a user gets it: built for release and run on an example.

use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;
use serde_json::Value;
use std::process::Command;

/// The release build plans and runs an example.
pub const GATE: Gate =
    Gate { name: "smoke", about: "the release build plans and runs examples/conference.toml", run };

const SPEC: &str = "examples/conference.toml";
/// Runs with a broken promise that are too many, and runs in all.
const BROKEN_MAX: u32 = 2;
const ATTEMPTS_MAX: u32 = 6;
/// Exit code of `upcall run` when a promise was broken (the contract).
const PROMISE_BROKEN: i32 = 4;

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    child::succeed(child::cargo(&workspace.root).args(["build", "--release", "--locked"]))?;
    let upcall = |arguments: &[&str]| {
        let mut command = Command::new(workspace.metadata.target_directory.join("release/upcall"));
        command.current_dir(&workspace.root).args(arguments);
        command
    };
    child::succeed(&mut upcall(&["plan", SPEC]))?;
    plan_in_json(upcall(&["plan", "--json", SPEC]))?;
    let run = || upcall(&["run", SPEC, "--duration", "3s", "--compare"]);
    let note = promises_kept(run, child::realtime().is_ok(), stolen_ticks)?;
    Ok(Verdict::Passed(format!("plan, plan --json, run --compare: {note}")))
}

/// The plan is one JSON object that says the set was admitted.
fn plan_in_json(mut command: Command) -> Result<(), Failure> {
    let output = child::output(&mut command)?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(child::exited(&command, output.status));
    }
    admitted(&output.stdout).map_err(|found| Failure(format!("`upcall plan --json`: {found}")))
}

/// Whether `json` is a plan that was admitted; if not, what it is.
fn admitted(json: &[u8]) -> Result<(), String> {
    let plan: Value = serde_json::from_slice(json).map_err(|error| format!("no JSON: {error}"))?;
    match plan.get("admitted") {
        Some(Value::Bool(true)) => Ok(()),
        found => Err(format!("`admitted` is {found:?}, expected true")),
    }
}

/// Runs until the promises are kept. Without the right to `SCHED_FIFO` no
/// wake-up time is promised, and a broken one is no failure. With it, two
/// attempts are held against us; one during which the host took the CPU away,
/// by the count of `stolen`, says nothing, as no scheduler inside can help it.
fn promises_kept(
    command: impl Fn() -> Command,
    realtime: bool,
    stolen: impl Fn() -> u64,
) -> Result<&'static str, Failure> {
    let mut broken = 0;
    for attempt in 0..ATTEMPTS_MAX {
        let stolen_before = stolen();
        let mut command = command();
        let status = child::status(&mut command)?;
        match status.code() {
            Some(0) if attempt == 0 => return Ok("every promise kept"),
            Some(0) => return Ok("every promise kept at a later attempt"),
            Some(PROMISE_BROKEN) if !realtime => {
                return Ok("a promise broken, but there is no right to SCHED_FIFO");
            }
            Some(PROMISE_BROKEN) if stolen() > stolen_before => {
                println!("a promise was broken, but the host took the CPU away meanwhile");
            }
            Some(PROMISE_BROKEN) => {
                println!("a promise was broken, in spite of SCHED_FIFO");
                broken += 1;
            }
            _ => return Err(child::exited(&command, status)),
        }
        if broken == BROKEN_MAX {
            let found = "`upcall run --compare` broke a promise twice, in spite of SCHED_FIFO";
            return Err(Failure(found.to_owned()));
        }
    }
    Ok("promises skipped: the host took the CPU away in nearly every attempt")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn exits_with(code: i32) -> impl Fn() -> Command {
        move || {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("exit {code}")]);
            command
        }
    }

    #[test]
    fn a_broken_promise_fails_only_where_one_was_given() {
        let quiet = || 7;
        assert!(promises_kept(exits_with(4), true, quiet).is_err());
        assert!(promises_kept(exits_with(4), false, quiet).is_ok());
        assert!(promises_kept(exits_with(0), true, quiet).is_ok());
        assert!(promises_kept(exits_with(2), false, quiet).is_err(), "a bad spec is never right");
    }

    #[test]
    fn what_the_host_took_is_not_held_against_us_and_nothing_else_is_let_off() {
        let ticks = std::cell::Cell::new(0);
        let busy = || ticks.replace(ticks.get() + 1);
        let note = promises_kept(exits_with(4), true, busy).unwrap();
        assert!(note.contains("skipped"), "{note}");
        assert!(promises_kept(exits_with(2), true, busy).is_err());
    }

    #[test]
    fn steal_is_that_of_the_cpu_in_use() {
        let two =
            "cpu  1 2 3 4 5 6 7 30 0 0\ncpu0 1 2 3 4 5 6 7 10 0 0\ncpu1 1 2 3 4 5 6 7 20 0 0\n";
        assert_eq!(steal_in(two), Some(20));
        assert_eq!(steal_in(&two[..52]), Some(10));
        assert_eq!(steal_in("intr 1 2\n"), None);
    }

    #[test]
    fn a_plan_is_an_object_that_admits() {
        assert_eq!(admitted(br#"{"admitted": true, "policy": "rmdp"}"#), Ok(()));
        assert!(admitted(br#"{"admitted": false}"#).is_err());
        assert!(
            admitted(b"plan: admitted").is_err()
                && admitted(b"").is_err()
                && admitted(b"[]").is_err()
        );
    }
}
