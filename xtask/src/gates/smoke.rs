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
    let note = promises_kept(run, child::realtime().is_ok())?;
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

/// Runs until the promises are kept: once, and once more with the right to
/// `SCHED_FIFO`, since a neighbour on the machine may have had the CPU. Without
/// that right no wake-up time is promised, and a broken one is no failure.
fn promises_kept(command: impl Fn() -> Command, realtime: bool) -> Result<&'static str, Failure> {
    for note in ["every promise kept", "every promise kept at the second attempt"] {
        let mut attempt = command();
        let status = child::status(&mut attempt)?;
        match status.code() {
            Some(0) => return Ok(note),
            Some(PROMISE_BROKEN) if !realtime => {
                return Ok("a promise broken, but there is no right to SCHED_FIFO");
            }
            Some(PROMISE_BROKEN) => println!("a promise was broken, in spite of SCHED_FIFO"),
            _ => return Err(child::exited(&attempt, status)),
        }
    }
    Err(Failure("`upcall run --compare` broke a promise twice, in spite of SCHED_FIFO".to_owned()))
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
        assert!(promises_kept(exits_with(4), true).is_err());
        assert!(promises_kept(exits_with(4), false).is_ok());
        assert!(promises_kept(exits_with(0), true).is_ok());
        assert!(promises_kept(exits_with(2), false).is_err(), "a bad spec is never right");
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
