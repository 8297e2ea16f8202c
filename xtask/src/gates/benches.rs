//! Every bench still runs. Its figures are not judged: a shared machine proves nothing.

use super::deb;
use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;
use std::process::Command;

/// Every bench runs to its end in its short form, `--smoke`.
pub const GATE: Gate =
    Gate { name: "benches", about: "every bench runs to its end with --smoke (not judged)", run };

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let benches = names(workspace);
    if benches.is_empty() {
        return Ok(Verdict::Skipped("upcall-benches has no bench target".to_owned()));
    }
    let mut command = child::cargo(&workspace.root);
    command.args(arguments(&benches));
    let (status, text) = child::tee(command.args(["--", "--smoke"]))?;
    if !status.success() {
        return Err(child::exited(&command, status));
    }
    let skipped: Vec<&str> = skipped(&text).collect();
    let mut verdict = benches.join(", ");
    if !skipped.is_empty() {
        verdict += &format!("; skipped: {}", skipped.join("; "));
    }
    Ok(Verdict::Passed(verdict))
}

/// What benches could not compare, because its peer is missing: a program or a feature.
fn skipped(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("skipped: ").or_else(|| line.strip_prefix("SKIPPED: "))
    })
}

/// What this gate compiles.
pub fn builds(workspace: &Workspace) -> Vec<Command> {
    let mut command = child::cargo(&workspace.root);
    command.args(arguments(&names(workspace))).arg("--no-run");
    vec![command]
}

/// The names of the benches.
fn names(workspace: &Workspace) -> Vec<&str> {
    let packages = workspace.metadata.packages.iter();
    packages
        .filter(|package| package.name.as_str() == "upcall-benches")
        .flat_map(|package| &package.targets)
        .filter(|target| target.is_bench())
        .map(|target| target.name.as_str())
        .collect()
}

/// The arguments with which cargo builds and runs `benches`.
fn arguments<'a>(benches: &[&'a str]) -> Vec<&'a str> {
    // By name: the library beside them has tests, which do not know `--smoke`.
    let named = benches.iter().flat_map(|bench| ["--bench", bench]);
    // With the packages of the gate `deb`, which have no benches: cargo then enables the features
    // of both, and compiles each library once.
    let packages = std::iter::once("upcall-benches").chain(deb::PACKAGES);
    let packages = packages.flat_map(|package| ["-p", package]);
    ["bench", "--locked"].into_iter().chain(packages).chain(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bench_without_its_peer_is_named() {
        let text = "skipped: no pictures: no ffmpeg\n  SKIPPED: iceoryx2\nframes skipped: 3\n";
        assert_eq!(skipped(text).collect::<Vec<_>>(), ["no pictures: no ffmpeg", "iceoryx2"]);
    }

    #[test]
    fn every_bench_is_built_by_its_name() {
        let workspace = Workspace::load().unwrap();
        let names = names(&workspace);
        assert!(names.contains(&"price") && !names.contains(&"soak"), "{names:?}");
        let arguments = arguments(&names);
        for name in names {
            assert!(arguments.windows(2).any(|pair| pair == ["--bench", name]), "{name}");
        }
    }
}
