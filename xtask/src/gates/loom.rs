//! The rings and pages of `shm` under every interleaving loom can find.

use super::test::tally;
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
    if !ours.into_iter().any(|source| speaks_of_loom(&source.text)) {
        return Ok(Verdict::Skipped("no source of shm speaks of loom".to_owned()));
    }
    // A directory of its own: other flags would rebuild all that lies in `target`.
    let target = workspace.metadata.target_directory.join("loom");
    let mut command = child::cargo(&workspace.root);
    command.env("RUSTFLAGS", "--cfg loom");
    command.args(["test", "-p", "upcall-shm", "--release", "--locked", "--tests", "--target-dir"]);
    let (status, text) = child::tee(command.arg(target))?;
    match tally(&text) {
        _ if !status.success() => Err(child::exited(&command, status)),
        tally if tally.passed == 0 => {
            Ok(Verdict::Skipped("no test of shm is built for loom".to_owned()))
        }
        tally => Ok(Verdict::Passed(format!("{} tests", tally.passed))),
    }
}

/// Whether the word `loom` stands in `text` as code.
fn speaks_of_loom(text: &str) -> bool {
    tokens(text).iter().any(|token| token.text == "loom")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loom_counts_as_code_and_not_as_a_word_about_it() {
        assert!(speaks_of_loom("#[cfg(all(test, loom))]\nmod model;"));
        assert!(!speaks_of_loom("//! Checked with loom."));
    }
}
