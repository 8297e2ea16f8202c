//! Repeats tests that failed, one at a time and beside no other test.
//!
//! Many tests measure what the machine does, and the host of a virtual machine may stop it for a
//! moment. A test that failed once runs [`REPEATS`] times more, and has to pass each time. So it
//! passes by the majority of its runs, and a test with a real fault fails again. Each such test is
//! printed and counted in the verdict of the gate. More than [`REPEATED_MAX`] at once are no
//! accident: then none is repeated.

use super::counts::{Counts, counts};
use crate::child;
use crate::gate::Failure;
use std::path::Path;

/// How often a test that failed runs again. It has to pass each time.
const REPEATS: usize = 2;
/// The most tests of one run of all tests that may be repeated.
const REPEATED_MAX: usize = 5;

/// A test program in which tests failed.
#[derive(Debug, PartialEq, Eq)]
struct Failing {
    /// The arguments by which cargo finds the program, as cargo prints them.
    target: Vec<String>,
    /// The paths of the tests.
    tests: Vec<String>,
}

/// The counts of a run with failures, without the failures if each of those tests passed each
/// repeat. They remain if a test failed again, or if they cannot be repeated: too many, or without
/// a name. `text` is what that run printed.
///
/// # Errors
/// If cargo does not start.
pub(super) fn until_clear(root: &Path, text: &str, found: Counts) -> Result<Counts, Failure> {
    let failing = failing(text);
    let tests: Vec<String> = failing.iter().flat_map(|program| program.tests.clone()).collect();
    if tests.len() != found.failed || tests.len() > REPEATED_MAX {
        return Ok(found);
    }
    for program in &failing {
        for _ in 0..REPEATS {
            if !passes(root, program)? {
                return Ok(found);
            }
        }
    }
    for test in &tests {
        println!("repeated: {test}: failed once, then passed {REPEATS} of {REPEATS} times alone");
    }
    Ok(Counts { passed: found.passed + tests.len(), failed: 0, repeated: tests, ..found })
}

/// Runs the failed tests of a program again. Whether all of them ran and passed.
fn passes(root: &Path, program: &Failing) -> Result<bool, Failure> {
    let mut command = child::cargo(root);
    command.args(["test", "--locked"]).args(&program.target);
    command.args(["--", "--include-ignored", "--test-threads=1", "--exact"]).args(&program.tests);
    let (status, text) = child::tee(&mut command)?;
    let again = counts(&text);
    let ran = again.passed == program.tests.len() && again.skipped.is_empty();
    Ok(status.success() && again.failed == 0 && ran)
}

/// The programs and tests that failed in a run of `cargo test --no-fail-fast`. A program that ended
/// without a list of failures, for example by a signal, has no tests here.
fn failing(text: &str) -> Vec<Failing> {
    let mut programs = Vec::new();
    let mut tests: Vec<String> = Vec::new();
    let mut is_in_list = false;
    for line in text.lines() {
        if line == "failures:" {
            // The list of names is the last one: another with what the tests printed is before it.
            (is_in_list, tests) = (true, Vec::new());
        } else if let Some(test) = line.strip_prefix("    ").filter(|_| is_in_list) {
            tests.push(test.to_owned());
        } else {
            is_in_list = false;
        }
        let target = line
            .strip_prefix("error: test failed, to rerun pass `")
            .and_then(|rest| rest.strip_suffix('`'));
        if let Some(target) = target {
            let target = target.split(' ').map(str::to_owned).collect();
            programs.push(Failing { target, tests: std::mem::take(&mut tests) });
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "
     Running unittests src/lib.rs (target/debug/deps/upcall_core-0)
test heap::pops ... FAILED
test heap::pushes ... ok

failures:

---- heap::pops stdout ----
    indented text of the test

failures:
    heap::pops

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out

error: test failed, to rerun pass `-p upcall-core --lib`
     Running tests/service.rs (target/debug/deps/service-0)

failures:
    starts
    units::stops

test result: FAILED. 0 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out

error: test failed, to rerun pass `-p upcall-cli --test service`
     Running tests/abort.rs (target/debug/deps/abort-0)
error: test failed, to rerun pass `-p upcall-runtime --test abort`
";

    #[test]
    fn the_failed_tests_of_each_program_are_found() {
        let program = |target: &str, tests: &[&str]| Failing {
            target: target.split(' ').map(str::to_owned).collect(),
            tests: tests.iter().map(|&test| test.to_owned()).collect(),
        };
        let expected = [
            program("-p upcall-core --lib", &["heap::pops"]),
            program("-p upcall-cli --test service", &["starts", "units::stops"]),
            program("-p upcall-runtime --test abort", &[]),
        ];
        assert_eq!(failing(PRINTED), expected);
    }

    /// A package of its own. The marks in the folder of its manifest decide which tests fail.
    const FLAKY: &str = r#"
fn has(mark: &str) -> bool {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(mark).exists()
}
#[test]
fn fails_once() {
    if !has("ran") {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/ran"), "").unwrap();
        panic!("the first run");
    }
}
#[test]
#[ignore = "needs nothing"]
fn fails_if_marked() {
    assert!(!has("fails"));
}
"#;

    #[test]
    fn a_test_that_fails_once_passes_by_its_repeats_and_a_real_fault_fails_again() {
        let root = std::env::temp_dir().join(format!("upcall-repeat-{}", std::process::id()));
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::write(root.join("src/lib.rs"), FLAKY).unwrap();
        let manifest = "[package]\nname = \"flaky\"\nedition = \"2024\"\n[workspace]\n";
        std::fs::write(root.join("Cargo.toml"), manifest).unwrap();
        let run = || {
            let mut command = child::cargo(&root);
            command.args(["test", "--offline", "--no-fail-fast", "--", "--include-ignored"]);
            let (status, text) = child::tee(&mut command).unwrap();
            assert!(!status.success(), "{text}");
            let found = counts(&text);
            until_clear(&root, &text, found)
        };
        let repeated = run().unwrap();
        assert_eq!((repeated.passed, repeated.failed), (2, 0));
        assert_eq!(repeated.repeated, ["fails_once"]);
        std::fs::write(root.join("fails"), "").unwrap();
        let failed = run().unwrap();
        assert_eq!((failed.passed, failed.failed), (1, 1));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
