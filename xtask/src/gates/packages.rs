//! The programs that tests and gates call. Each comes from a package of Debian.

use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;
use std::process::Command;

/// The programs that tests and gates call are installed.
pub const GATE: Gate =
    Gate { name: "packages", about: "the programs that tests call are installed", run };

/// Each program that a test or a gate calls, and its Debian package. A test that needs the program
/// names it in its `#[ignore = "needs ..."]`.
pub const PROGRAMS: [(&str, &str); 24] = [
    ("ffmpeg", "ffmpeg"),
    ("strace", "strace"),
    ("perf", "linux-perf"),
    ("gdb", "gdb"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("setcap", "libcap2-bin"),
    ("chrt", "util-linux"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("sysctl", "procps"),
    ("tmux", "tmux"),
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("pkg-config", "pkg-config"),
    ("readelf", "binutils"),
    ("dpkg-shlibdeps", "dpkg-dev"),
    ("mmdebstrap", "mmdebstrap"),
    ("man", "man-db"),
    ("systemd-analyze", "systemd"),
    ("clang", "clang"),
    ("llvm-objdump", "llvm"),
];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(Verdict::Passed(format!("{} programs", PROGRAMS.len())));
    }
    if !child::is_root() || !child::is_installed("apt-get") {
        return cannot_install(workspace, &missing);
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    child::succeed(&mut apt_get(&["update"]))?;
    child::succeed(apt_get(&["install", "-y", "--no-install-recommends"]).args(&packages))?;
    match self::missing().as_slice() {
        [] => Ok(Verdict::Passed(format!("installed {}", packages.join(", ")))),
        [(program, package), ..] => {
            Err(Failure(format!("`{program}` is still missing after installing {package}")))
        }
    }
}

/// The programs that are not installed, with their packages.
pub fn missing() -> Vec<(&'static str, &'static str)> {
    PROGRAMS.into_iter().filter(|(program, _)| !child::is_installed(program)).collect()
}

/// Whether `program` is one of the words of `reason`.
pub fn names(reason: &str, program: &str) -> bool {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || "-+".contains(c);
    reason.split(|c| !is_of_a_name(c)).any(|word| word == program)
}

/// `apt-get` that asks no question, and waits up to 2 minutes for another `apt-get`.
fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-o", "DPkg::Lock::Timeout=120"]);
    command.args(arguments);
    command
}

/// Prints which tests will be skipped. The verdict names the missing programs.
fn cannot_install(workspace: &Workspace, missing: &[(&str, &str)]) -> Result<Verdict, Failure> {
    for source in workspace.sources(&[".rs"])? {
        for (test, reason) in ignored_tests(&source.text) {
            if missing.iter().any(|(program, _)| names(reason, program)) {
                println!("will be skipped: {} {test}: {reason}", source.path);
            }
        }
    }
    let list: Vec<String> =
        missing.iter().map(|(program, package)| format!("{program} (package {package})")).collect();
    Ok(Verdict::Skipped(format!("only root can install, with apt-get: {}", list.join(", "))))
}

/// Name and reason of each test in `text` that has an `#[ignore = "REASON"]`.
fn ignored_tests(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for (at, mark) in text.match_indices("#[ignore = \"") {
        let after = &text[at + mark.len()..];
        let Some((reason, rest)) = after.split_once('"') else { continue };
        let Some((_, rest)) = rest.split_once("fn ") else { continue };
        if let Some((name, _)) = rest.split_once('(') {
            found.push((name, reason));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_only_as_a_word() {
        assert!(names("needs SCHED_FIFO and ip", "ip"));
        assert!(!names("needs a pipe", "ip"));
        assert!(names("needs ffmpeg, as a sender", "ffmpeg"));
        assert!(names("needs g++", "g++") && !names("needs g++", "g"));
    }

    #[test]
    fn ignored_tests_are_found_with_their_reasons() {
        // In two pieces, because the gate searches this file too.
        let text = concat!(
            "#[test]\n#[ign",
            "ore = \"needs ffmpeg\"]\nfn frames_arrive() {}\n#[test]\nfn other() {}"
        );
        assert_eq!(ignored_tests(text), [("frames_arrive", "needs ffmpeg")]);
    }

    #[test]
    fn apt_asks_no_questions() {
        let command = apt_get(&["update"]);
        assert!(command.get_envs().any(|(key, _)| key == "DEBIAN_FRONTEND"));
        assert_eq!(command.get_args().last().unwrap(), "update");
    }
}
