//! The part of `test` that a developer waits for.

use super::test;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;

/// Unit tests pass.
pub const GATE: Gate = Gate { name: "quick", about: "the quick part of `test`: unit tests", run };

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let tally = test::run_tests(workspace, &["--lib", "--bins"], &[])?;
    Ok(Verdict::Passed(format!("{} passed", tally.passed)))
}
