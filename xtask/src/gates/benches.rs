//! The benches still run. They are not judged: a shared machine proves nothing.

use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;

/// Every bench runs to its end in its short form.
pub const GATE: Gate =
    Gate { name: "benches", about: "every bench runs to its end with --smoke (not judged)", run };

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let benches: Vec<&str> = workspace
        .metadata
        .packages
        .iter()
        .filter(|package| package.name.as_str() == "upcall-benches")
        .flat_map(|package| &package.targets)
        .filter(|target| target.is_bench())
        .map(|target| target.name.as_str())
        .collect();
    if benches.is_empty() {
        return Ok(Verdict::Skipped("upcall-benches has no bench target".to_owned()));
    }
    let mut command = child::cargo(&workspace.root);
    command.args(["bench", "-p", "upcall-benches", "--locked"]);
    for bench in &benches {
        // By name: the library beside them has tests, which know no `--smoke`.
        command.args(["--bench", bench]);
    }
    child::succeed(command.args(["--", "--smoke"]))?;
    Ok(Verdict::Passed(benches.join(", ")))
}
