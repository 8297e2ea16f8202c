//! Builds and runs the programs of `tests/newcomer`, a crate outside the workspace like a user's.
//!
//! The programs were written from the rustdoc of the facade alone, so they use what it recommends.
//! Each program ends by itself, and fails if one of its counts is wrong. A compiler error here
//! means that the programs of users no longer compile.

use crate::child;
use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::Workspace;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The programs of a user compile, run, and find the counts that they expect.
pub const GATE: Gate = Gate {
    name: "newcomer",
    about: "the programs of a crate outside the workspace compile, run and check their counts",
    run,
};

/// The crate, relative to the root.
pub const CRATE: &str = "tests/newcomer";
/// Its programs, in the order in which they run.
const PROGRAMS: [&str; 6] =
    ["udp", "stream_between_processes", "task", "channel", "refusal", "beside_tokio"];
/// How long a program may take. Each ends within 5 s unless the machine has other work.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let target = own_target(workspace);
    build(&workspace.root.join(CRATE), &target)?;
    let folder = target.join("debug");
    let mut findings = run_each(&folder, &PROGRAMS, as_it_is, RUN_TIME_MAX);
    let without = without_rights();
    if without.is_ok() {
        findings.extend(run_each(&folder, &PROGRAMS, deprived, RUN_TIME_MAX));
    }
    let note = match without {
        Ok(()) => "once with the rights of this user, once without any".to_owned(),
        Err(why) => format!("with the rights of this user only: {why}"),
    };
    judge(&findings, format!("{} programs, {note}", PROGRAMS.len()))
}

/// The folder of the crate inside the target directory. Its features differ from those of the
/// workspace. With one folder, each build would compile the libraries of the other one again.
const CRATE_TARGET: &str = "newcomer";

fn own_target(workspace: &Workspace) -> PathBuf {
    workspace.metadata.target_directory.join(CRATE_TARGET).into_std_path_buf()
}

/// What this gate compiles, except pages.
pub fn builds(workspace: &Workspace) -> Vec<Command> {
    let (folder, target) = (workspace.root.join(CRATE), own_target(workspace));
    let tools = [CLIPPY, &["build", "--locked"]];
    let commands = tools.map(|arguments| {
        let mut command = cargo(&folder, &target);
        command.args(arguments);
        command
    });
    commands.into()
}

const CLIPPY: &[&str] = &["clippy", "--locked", "--", "-D", "warnings"];

fn build(folder: &Path, target: &Path) -> Result<(), Failure> {
    let tools: [(&str, &[&str]); 2] = [("fmt", &["fmt", "--check"]), ("clippy", CLIPPY)];
    for (tool, arguments) in tools {
        // The gates `fmt` and `clippy` report a component that is missing.
        if child::cargo_has(folder, tool) {
            child::succeed(cargo(folder, target).args(arguments))?;
        }
    }
    // The facade's pages with the features of this crate. The gate `doc` enables all features.
    let mut pages = cargo(folder, target);
    pages.env("RUSTDOCFLAGS", "-D warnings");
    child::succeed(pages.args(["doc", "-p", "upcall", "--no-deps", "--locked"]))?;
    child::succeed(cargo(folder, target).args(["build", "--locked"]))
}

fn cargo(folder: &Path, target: &Path) -> Command {
    let mut command = child::cargo(folder);
    command.env("CARGO_TARGET_DIR", target);
    command
}

/// Runs the programs in `folder` one after the other. Returns a line for each one that failed.
fn run_each(
    folder: &Path,
    programs: &[&str],
    command: fn(&OsStr) -> Command,
    time_max: Duration,
) -> Vec<String> {
    let runs = programs.iter().map(|name| {
        child::succeed_within(&mut command(folder.join(name).as_os_str()), time_max)
            .map_err(|failure| format!("{CRATE}: {failure}"))
    });
    runs.filter_map(Result::err).collect()
}

/// The program with the rights of this process.
fn as_it_is(program: &OsStr) -> Command {
    Command::new(program)
}

/// The program without capabilities and without a real-time limit, so the kernel refuses it the
/// real-time class.
fn deprived(program: &OsStr) -> Command {
    let mut command = Command::new("prlimit");
    command.args(["--rtprio=0:0", "--", "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"]);
    command.arg(program);
    command
}

/// Checks that programs can be run without rights. The error says why not.
fn without_rights() -> Result<(), String> {
    if !child::is_root() {
        return Err("only root can take rights away".to_owned());
    }
    match ["prlimit", "setpriv"].into_iter().find(|program| !child::is_installed(program)) {
        Some(program) => Err(format!("no `{program}` (util-linux)")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_or_is_missing_fails_the_gate() {
        let folder = Path::new("/bin");
        let findings = run_each(folder, &["true", "false"], as_it_is, RUN_TIME_MAX);
        assert_eq!(findings, ["tests/newcomer: `false`: exit status: 1, expected success"]);
        assert!(judge(&findings, String::new()).is_err());
        assert_eq!(run_each(folder, &["no-such-program"], as_it_is, RUN_TIME_MAX).len(), 1);
        assert!(run_each(folder, &["true"], as_it_is, RUN_TIME_MAX).is_empty());
    }

    #[test]
    fn a_program_that_does_not_end_fails_the_gate() {
        let findings = run_each(Path::new("/bin"), &["yes"], quiet, Duration::from_millis(100));
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("did not end within 0.1 s"), "{findings:?}");
    }

    fn quiet(program: &OsStr) -> Command {
        let mut command = Command::new(program);
        command.stdout(std::process::Stdio::null());
        command
    }

    #[test]
    fn the_programs_are_those_of_the_crate_which_is_outside_the_workspace() {
        let workspace = Workspace::load().unwrap();
        let files = workspace.files().unwrap();
        let folder = format!("{CRATE}/src/bin/");
        let mut found: Vec<_> = files
            .iter()
            .filter_map(|path| path.strip_prefix(&folder)?.strip_suffix(".rs"))
            .collect();
        let mut named = PROGRAMS;
        found.sort_unstable();
        named.sort_unstable();
        assert_eq!(found, named);
        let members = &workspace.metadata.packages;
        assert!(members.iter().all(|package| package.name != "newcomer"));
    }
}
