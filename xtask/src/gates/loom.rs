//! The tests of `shm` that loom runs in every interleaving of their threads.

use super::test::counts;
use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::tokens::tokens;
use crate::workspace::Workspace;

/// The loom tests of `shm` pass.
pub const GATE: Gate =
    Gate { name: "loom", about: "the loom tests of shm pass in every interleaving", run };

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let sources = workspace.sources(&[".rs"])?;
    let ours = sources.iter().filter(|source| source.path.starts_with("crates/shm/"));
    if !ours.into_iter().any(|source| uses_loom(&source.text)) {
        return Ok(Verdict::Skipped("no source of shm uses loom".to_owned()));
    }
    // In a folder of its own: with other flags cargo would rebuild everything in `target`.
    let target = workspace.metadata.target_directory.join("loom");
    let mut command = child::cargo(&workspace.root);
    command.env("RUSTFLAGS", "--cfg loom");
    command.args(["test", "-p", "upcall-shm", "--release", "--locked", "--tests", "--target-dir"]);
    let (status, text) = child::tee(command.arg(target))?;
    match counts(&text) {
        _ if !status.success() => Err(child::exited(&command, status)),
        counts if counts.passed == 0 => {
            Ok(Verdict::Skipped("no test of shm is built for loom".to_owned()))
        }
        counts => Ok(Verdict::Passed(format!("{} tests", counts.passed))),
    }
}

/// Whether the word `loom` is in the code of `text`.
fn uses_loom(text: &str) -> bool {
    tokens(text).iter().any(|token| token.text == "loom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loom_counts_in_code_and_not_in_comments() {
        assert!(uses_loom("#[cfg(all(test, loom))]\nmod model;"));
        assert!(!uses_loom("//! Checked with loom."));
    }
}
