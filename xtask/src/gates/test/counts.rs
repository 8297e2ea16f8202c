//! What a run of `cargo test` printed: results, tests that did not run, and those that could not
//! check.

use crate::gate::Failure;

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
    /// Tests that failed once, and then passed each repeat.
    pub repeated: Vec<String>,
}

impl Counts {
    /// Tests that passed and checked what they promise.
    pub fn kept(&self) -> usize {
        let whole = self.skipped.iter().filter(|line| is_whole_test(line));
        self.passed.saturating_sub(self.roles + whole.count())
    }

    /// # Errors
    /// If a test of this run, or of a run `before`, failed.
    pub fn all_passed(&self, before: &Counts) -> Result<(), Failure> {
        let failed = before.failed + self.failed;
        match failed {
            0 => Ok(()),
            _ => Err(Failure(format!("{failed} failed, {} passed", before.passed + self.passed))),
        }
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
    pub fn is_in_documentation(&self) -> bool {
        self.name.contains(" (line ")
    }

    /// Whether it is a test that a run with more rights may take.
    pub fn is_test(&self) -> bool {
        !is_role(&self.name)
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
    fn an_ignored_test_keeps_its_name_and_reason() {
        let ignored = counts(PRINTED).ignored;
        assert_eq!(ignored[0].name, "fifo::a_hog_is_demoted");
        assert_eq!(ignored[0].reason, "needs SCHED_FIFO");
        assert_eq!((ignored[1].name.as_str(), ignored[1].reason.as_str()), ("never_overflows", ""));
        assert!(ignored[3].is_in_documentation() && !ignored[0].is_in_documentation());
    }
}
