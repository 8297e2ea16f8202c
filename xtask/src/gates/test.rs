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
//! at once. This gate leaves roles out of its counts ([`is_role`]).
//!
//! The tests of the first run sleep most of the time, so the benches are built meanwhile. The
//! second run begins when that build is done.

use super::{benches, packages};
use crate::child;
use crate::gate::{Failure, Gate, Verdict};
use crate::workspace::Workspace;

/// Every test passes. A test that needs a right runs where the right is granted.
pub const GATE: Gate = Gate {
    name: "test",
    about: "every test passes; a test that needs a right runs where the right is granted",
    run,
};

/// The results of a run of `cargo test`, summed over its test programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed, and roles.
    pub passed: usize,
    /// Roles among them.
    pub roles: usize,
    /// Tests that failed.
    pub failed: usize,
    /// Tests that did not run.
    pub ignored: Vec<Ignored>,
    /// Lines of tests, or of parts of tests, that could not check: `TEST: WHY`.
    pub skipped: Vec<String>,
}

impl Counts {
    /// Tests that passed and checked what they promise.
    pub fn kept(&self) -> usize {
        let whole = self.skipped.iter().filter(|line| is_whole_test(line));
        self.passed.saturating_sub(self.roles + whole.count())
    }
}

/// Whether a function with `#[test]` is a role of a child process: it is called `child` or
/// `as_...`.
pub fn is_role(path: &str) -> bool {
    let name = path.rsplit("::").next().unwrap_or(path);
    name == "child" || name.starts_with("as_")
}

/// Whether the line of a skipped check names a test, whose name is one word. Else it names a part.
fn is_whole_test(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(test, _)| !test.contains(' '))
}

/// A test that did not run.
#[derive(Debug, PartialEq, Eq)]
pub struct Ignored {
    /// Its path in its test program.
    pub name: String,
    /// The text of its `#[ignore = "..."]`, or nothing.
    pub reason: String,
}

impl Ignored {
    /// Whether it is an example in a doc comment that is marked `ignore`. libtest names these by
    /// file and line. They are not meant to run.
    fn is_in_documentation(&self) -> bool {
        self.name.contains(" (line ")
    }

    /// Whether it is a test that a run with more rights may take.
    fn is_test(&self) -> bool {
        !is_role(&self.name)
    }
}

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let mut build = child::cargo(&workspace.root);
    child::succeed(build.args(["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    let benches = benches::build_when_idle(workspace);
    let open = run_tests(workspace, &[], &[]);
    if let Some(mut benches) = benches {
        // The gate `benches` builds again and reports failures.
        let _ = benches.wait();
    }
    let open = open?;
    let verdict = match child::realtime() {
        Ok(()) => with_rights(workspace, &open)?,
        Err(why) => {
            println!("no right to SCHED_FIFO: {why}");
            let ignored: Vec<&Ignored> =
                open.ignored.iter().filter(|test| test.is_test()).collect();
            for test in &ignored {
                print_skipped(test, "no right to SCHED_FIFO");
            }
            print_unchecked(&open.skipped);
            let (passed, skipped) = (open.kept(), ignored.len() + open.skipped.len());
            format!("{passed} passed, {skipped} skipped: no right to SCHED_FIFO")
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
    Ok(format!("{total} passed ({passed} of them with rights), {skipped} skipped"))
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

/// Runs `cargo test` over the workspace. Later test programs run even if one fails.
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
        failed => Err(Failure(format!("{failed} failed, {} passed", counts.passed))),
    }
}

/// Adds up the results that libtest printed.
pub fn counts(text: &str) -> Counts {
    let mut sum = Counts::default();
    // The test that libtest has announced and not yet judged: it runs tests one at a time then.
    let mut running = None;
    for line in text.lines() {
        if let Some((before, what)) = line.split_once("skipped: ") {
            let announced = announced(before).map(|(test, _)| test);
            let what = what.strip_prefix("main: ").map_or_else(
                || what.to_owned(),
                // One test at a time runs on the main thread, whose name is not the test's.
                |why| format!("{}: {why}", announced.or(running).unwrap_or("main")),
            );
            if before.is_empty() || before.ends_with("... ") {
                sum.skipped.push(what);
            }
        }
        if let Some((test, end)) = announced(line) {
            running = Some(test);
            sum.roles += usize::from(is_role(test) && !end.starts_with("ignored"));
        }
        // A child of a test may have written to the start of this line.
        if let Some((_, counts)) = line.split_once("test result: ") {
            sum.passed += count(counts, "passed");
            sum.failed += count(counts, "failed");
        } else if let Some((name, reason)) =
            line.strip_prefix("test ").and_then(|test| test.split_once(" ... ignored"))
        {
            sum.ignored.push(Ignored {
                name: name.trim_end_matches(" - should panic").to_owned(),
                reason: reason.trim_start_matches(", ").to_owned(),
            });
        }
    }
    sum
}

/// The test that libtest announces in `line`, and the text behind.
fn announced(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

/// The number before `word` in `5 passed; 0 failed; ...`.
fn count(counts: &str, word: &str) -> usize {
    let words: Vec<&str> = counts.split([' ', ';']).filter(|word| !word.is_empty()).collect();
    words.windows(2).find(|pair| pair[1] == word).and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "
running 3 tests
test fifo::a_hog_is_demoted ... ignored, needs SCHED_FIFO
test time::spans_print ... ok
test never_overflows - should panic ... ignored
test as_a_child ... ignored, not a test
test result: ok. 1 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.00s

left by a child: test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out

running 2 tests
test c::compiles ... skipped: main: no `gcc` here
skipped: main: the host took the CPU
ok
test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out
skipped: udp::both: no `g++` here
skipped: the IPv6 part of a test: refused
a test says it was skipped: not by itself

running 2 tests
test wakes::child ... ok
test as_the_reader ... ok
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out

running 1 test
test crates/upcall/src/lib.rs - (line 7) ... ignored
test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn the_results_of_all_test_programs_add_up() {
        let counts = counts(PRINTED);
        assert_eq!((counts.passed, counts.failed, counts.ignored.len()), (7, 2, 4));
    }

    #[test]
    fn a_test_that_could_not_check_is_counted_as_skipped_and_not_as_passed() {
        let counts = counts(PRINTED);
        assert_eq!(
            counts.skipped,
            [
                "c::compiles: no `gcc` here",
                "c::compiles: the host took the CPU",
                "udp::both: no `g++` here",
                "the IPv6 part of a test: refused",
            ]
        );
        // The part of a test does not make the test one that did not pass.
        assert_eq!(counts.kept(), 2);
    }

    #[test]
    fn a_role_of_a_child_process_is_neither_passed_nor_skipped() {
        let counts = counts(PRINTED);
        assert_eq!((counts.roles, counts.kept()), (2, 2));
        assert!(!counts.ignored[2].is_test() && counts.ignored[1].is_test());
    }

    #[test]
    fn a_test_that_names_a_missing_right_is_left_out() {
        let rights = [("root", false), ("CAP_NET_ADMIN", true)];
        let why = missing_right("needs setpriv and root", &rights);
        assert_eq!(why.as_deref(), Some("no root here"));
        assert_eq!(missing_right("needs CAP_NET_ADMIN: run by xtask", &rights), None);
        assert_eq!(missing_right("needs a rootless_tool", &rights), None);
    }

    #[test]
    fn an_ignored_test_keeps_its_name_and_reason() {
        let ignored = counts(PRINTED).ignored;
        assert_eq!(ignored[0].name, "fifo::a_hog_is_demoted");
        assert_eq!(ignored[0].reason, "needs SCHED_FIFO");
        assert_eq!((ignored[1].name.as_str(), ignored[1].reason.as_str()), ("never_overflows", ""));
        assert!(ignored[3].is_in_documentation() && !ignored[0].is_in_documentation());
    }
}
