//! The tests of `shm` that loom runs in every interleaving of their threads.
//!
//! The gate fails if fewer tests ran than the sources have, or than [`TESTS_MIN`]: a test that is
//! no longer compiled would go unseen.

use super::test::counts;
use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::tokens::tokens;
use crate::workspace::Workspace;
use std::process::Command;

/// The loom tests of `shm` pass.
pub const GATE: Gate =
    Gate { name: "loom", about: "the loom tests of shm pass in every interleaving", run };

/// The number of loom tests of commit 61e05a6. It grows when protocols do.
const TESTS_MIN: usize = 39;

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let sources = workspace.sources(&[".rs"])?;
    let ours = sources.iter().filter(|source| source.path.starts_with("crates/shm/"));
    let models = ours.filter(|source| source.path.ends_with("/loom_tests.rs"));
    let expected = models.map(|source| tests_in(&source.text)).sum::<usize>().max(TESTS_MIN);
    let mut command = cargo_test(workspace);
    let (status, text) = child::tee(&mut command)?;
    match counts(&text) {
        _ if !status.success() => Err(child::exited(&command, status)),
        counts if counts.passed < expected => {
            Err(Failure(format!("{} loom tests ran, expected at least {expected}", counts.passed)))
        }
        counts => Ok(Verdict::Passed(format!("{} tests", counts.passed))),
    }
}

/// Compiles and runs the tests.
fn cargo_test(workspace: &Workspace) -> Command {
    // In a folder of its own: with other flags cargo would rebuild everything in `target`.
    let target = workspace.metadata.target_directory.join("loom");
    let mut command = child::cargo(&workspace.root);
    command.env("RUSTFLAGS", "--cfg loom");
    command.args(["test", "-p", "upcall-shm", "--release", "--locked", "--tests", "--target-dir"]);
    command.arg(target);
    command
}

/// What this gate compiles.
pub fn builds(workspace: &Workspace) -> Vec<Command> {
    let mut command = cargo_test(workspace);
    command.arg("--no-run");
    vec![command]
}

/// The number of `#[test]` in the code of `text`.
fn tests_in(text: &str) -> usize {
    let tokens = tokens(text);
    tokens.windows(2).filter(|pair| pair[0].text == "[" && pair[1].text == "test").count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_count_in_code_and_not_in_comments() {
        assert_eq!(tests_in("#[test]\nfn a() {}\n// #[test]\n#[cfg(test)]\n#[test] fn b() {}"), 2);
    }

    #[test]
    fn the_sources_have_the_least_count() {
        let workspace = Workspace::load().unwrap();
        let sources = workspace.sources(&["/loom_tests.rs"]).unwrap();
        let found: usize = sources.iter().map(|source| tests_in(&source.text)).sum();
        assert!(found >= TESTS_MIN, "{found}");
    }
}
