//! Runs every test, and names each test that cannot run here.
//!
//! A test that needs a right or a program carries `#[ignore = "needs ..."]`. The first run leaves
//! these tests out and lists them. If the class `SCHED_FIFO` is granted, a second run takes them
//! one at a time. These tests measure time, so two at once would disturb each other.
//!
//! A test that finds out while it runs that it cannot check prints `skipped: TEST: WHY` and
//! returns. libtest counts it as passed. This gate counts it as skipped, and lists it with the
//! others.
//!
//! A role is code of a child process that a test starts. libtest calls it too, and there it returns
//! at once. This gate leaves roles out of its counts ([`counts::is_role`]).
//!
//! A test that fails runs again, alone ([`repeat`]). The verdict counts tests that passed so. The
//! second run takes place even if a test of the first failed, so that one call shows all failures.
//!
//! The tests of the first run sleep most of the time, so what later gates need is compiled
//! meanwhile ([`ahead`]). The second run begins when that is done.

use super::{ahead, packages};
use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;

mod counts;
mod repeat;

pub use counts::{Counts, counts, is_role};

use counts::Ignored;

/// Every test passes. A test that needs a right runs where the right is granted.
pub const GATE: Gate = Gate {
    name: "test",
    about: "every test passes; a test that needs a right runs where the right is granted",
    run,
};

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let mut build = child::cargo(&workspace.root);
    child::succeed(build.args(["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    let ahead = ahead::begin(workspace);
    let open = run_tests(workspace, &[], &[]);
    ahead.wait();
    let open = open?;
    let verdict = match child::realtime() {
        Ok(()) => with_rights(workspace, &open)?,
        Err(why) => {
            open.all_passed(&Counts::default())?;
            println!("no right to SCHED_FIFO: {why}");
            let ignored: Vec<&Ignored> =
                open.ignored.iter().filter(|test| test.is_test()).collect();
            for test in &ignored {
                print_skipped(test, "no right to SCHED_FIFO");
            }
            print_unchecked(&open.skipped);
            let (passed, skipped) = (open.kept(), ignored.len() + open.skipped.len());
            let repeated = after_repeats(open.repeated.len());
            format!("{passed} passed{repeated}, {skipped} skipped: no right to SCHED_FIFO")
        }
    };
    Ok(Verdict::Passed(verdict))
}

/// Runs the tests that the `open` run left out, except those that need a missing program or
/// another missing right.
fn with_rights(workspace: &Workspace, open: &Counts) -> Result<String, Failure> {
    let missing = packages::missing();
    let rights = [
        ("root", child::is_root()),
        ("CAP_NET_ADMIN", child::is_net_admin()),
        ("CAP_SYS_RESOURCE", child::may_raise_limits()),
    ];
    let lacks = |test: &Ignored| {
        let program = missing.iter().find(|(program, _)| packages::names(&test.reason, program));
        program
            .map(|(program, _)| format!("no `{program}` here"))
            .or_else(|| missing_right(&test.reason, &rights))
    };
    let mut choice = vec!["--ignored", "--test-threads=1", "--exact"];
    let mut expected = 0;
    let mut left_out = Vec::new();
    for test in &open.ignored {
        if !test.is_test() {
            choice.extend(["--skip", &test.name]);
        } else if test.is_in_documentation() {
            left_out.push((test, "an example marked `ignore`".to_owned()));
        } else if let Some(why) = lacks(test) {
            choice.extend(["--skip", &test.name]);
            left_out.push((test, why));
        } else {
            expected += 1;
        }
    }
    let with_rights = match expected {
        0 => Counts::default(),
        _ => run_tests(workspace, &["--tests"], &choice)?,
    };
    with_rights.all_passed(open)?;
    if with_rights.passed != expected {
        let passed = with_rights.passed;
        let found = format!("{passed} tests that need rights ran, expected {expected}");
        return Err(Failure(found));
    }
    for (test, why) in &left_out {
        print_skipped(test, why);
    }
    let unchecked: Vec<String> = [&open.skipped[..], &with_rights.skipped].concat();
    print_unchecked(&unchecked);
    let (passed, skipped) = (with_rights.kept(), left_out.len() + unchecked.len());
    let total = open.kept() + passed;
    let repeated = after_repeats(open.repeated.len() + with_rights.repeated.len());
    Ok(format!("{total} passed ({passed} of them with rights){repeated}, {skipped} skipped"))
}

/// What the verdict says of tests that passed only when they ran again.
pub fn after_repeats(tests: usize) -> String {
    match tests {
        0 => String::new(),
        _ => format!(", {tests} of them only when repeated, listed above"),
    }
}

/// Prints the checks that could not be made, which ran beside others long before.
fn print_unchecked(lines: &[String]) {
    for line in lines {
        println!("skipped: {line}");
    }
}

/// Why a test with this `reason` cannot run: it names one of the `rights` that is not granted.
fn missing_right(reason: &str, rights: &[(&str, bool)]) -> Option<String> {
    let is_named = |right: &str| {
        reason.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|word| word == right)
    };
    let lacking = rights.iter().find(|(right, granted)| !granted && is_named(right));
    lacking.map(|(right, _)| format!("no {right} here"))
}

fn print_skipped(test: &Ignored, why: &str) {
    let reason = if test.reason.is_empty() { "does not say what it needs" } else { &test.reason };
    println!("skipped: {}: {reason} ({why})", test.name);
}

/// Runs `cargo test` over the workspace. Later test programs run even if one fails. Tests that
/// failed are then repeated. [`Counts::failed`] are those that failed again.
pub fn run_tests(
    workspace: &Workspace,
    targets: &[&str],
    choice: &[&str],
) -> Result<Counts, Failure> {
    let mut command = child::cargo(&workspace.root);
    command.args(["test", "--workspace", "--locked", "--no-fail-fast"]).args(targets);
    if !choice.is_empty() {
        command.arg("--").args(choice);
    }
    let (status, text) = child::tee(&mut command)?;
    let counts = counts(&text);
    match counts.failed {
        0 if status.success() => Ok(counts),
        0 => Err(child::exited(&command, status)),
        _ => repeat::until_clear(&workspace.root, &text, counts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_names_a_missing_right_is_left_out() {
        let rights = [("root", false), ("CAP_NET_ADMIN", true)];
        let why = missing_right("needs setpriv and root", &rights);
        assert_eq!(why.as_deref(), Some("no root here"));
        assert_eq!(missing_right("needs CAP_NET_ADMIN: run by xtask", &rights), None);
        assert_eq!(missing_right("needs a rootless_tool", &rights), None);
    }
}
