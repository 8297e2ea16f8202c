//! Every bench still runs. Its figures are not judged: a shared machine proves nothing.

use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;
use std::process::{Child, Command, Stdio};

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

/// Begins to build all benches, silently, in the scheduling class for idle CPUs. The gate `benches`
/// builds the rest and reports failures. Returns nothing if `chrt` cannot be started.
pub fn build_when_idle(workspace: &Workspace) -> Option<Child> {
    let cargo = child::cargo(&workspace.root);
    let mut command = Command::new("chrt");
    command.current_dir(&workspace.root).args(["--idle", "0"]).arg(cargo.get_program());
    command.args(arguments(&names(workspace))).arg("--no-run");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
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
    ["bench", "-p", "upcall-benches", "--locked"].into_iter().chain(named).collect()
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
