//! The quick part of the gate `test`, for `cargo xtask check`.

use super::test;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;
use std::collections::BTreeSet;

/// The unit tests of every crate and the quick test programs of command and runtime pass.
pub const GATE: Gate = Gate {
    name: "quick",
    about: "the quick part of `test`: every unit test, and test programs of command and runtime",
    run,
};

/// The crates whose test programs are quick: those of the first run the command.
const PACKAGES: [&str; 2] = ["upcall-cli", "upcall-runtime"];
/// Test programs of the command that take half a minute each. Only the gate `test` runs them, and
/// programs of the runtime that have the same name.
const LONG: [&str; 3] = ["domains", "figures", "streams"];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    // One call of cargo without `-p`, which would choose other features and build everything again.
    let mut targets = vec!["--lib", "--bins"];
    let mut programs = test_programs(workspace, &PACKAGES);
    programs.retain(|name| !LONG.contains(name));
    targets.extend(programs.iter().flat_map(|name| ["--test", name]));
    let counts = test::run_tests(workspace, &targets, &[])?;
    counts.all_passed(&test::Counts::default())?;
    let ignored = counts.ignored.len();
    let long = LONG.join(", ");
    let left = format!("{ignored} and the programs {long} left to `test`");
    let (kept, repeated) = (counts.kept(), test::after_repeats(counts.repeated.len()));
    let skipped = counts.skipped.len();
    Ok(Verdict::Passed(format!("{kept} passed{repeated}, {skipped} skipped, {left}")))
}

/// Names of the test programs of the crates `packages`.
fn test_programs<'a>(workspace: &'a Workspace, packages: &[&str]) -> BTreeSet<&'a str> {
    let is_named = |name: &str| packages.contains(&name);
    let packages = workspace.metadata.packages.iter().filter(|found| is_named(&found.name));
    let targets = packages.flat_map(|package| &package.targets);
    targets.filter(|target| target.is_test()).map(|target| target.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_command_and_runtime_are_found() {
        let workspace = Workspace::load().unwrap();
        let programs = test_programs(&workspace, &PACKAGES);
        assert!(programs.contains("plan") && programs.contains("life_cycle"), "{programs:?}");
        assert!(LONG.iter().all(|name| programs.contains(name)), "{programs:?}");
        assert!(!programs.contains("ps_model"), "a test of core: {programs:?}");
    }
}
