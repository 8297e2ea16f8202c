//! What a gate is, and how a list of gates runs.
//!
//! A gate is one function. It passes, fails, or is skipped. A gate that cannot do its check is
//! never reported as passed: it returns [`Verdict::Skipped`] with the reason.

pub use crate::failure::Failure;
use crate::workspace::Workspace;
use std::time::{Duration, Instant};

/// One check of the whole project.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it checks, in one line.
    pub about: &'static str,
    /// Runs the check. Blocks until it is done, and prints its findings.
    pub run: fn(&Workspace) -> Result<Verdict, Failure>,
}

/// The result of a gate that did not fail.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gate checked everything, and all of it holds. Says what was checked.
    Passed(String),
    /// The gate could not check. Says why.
    Skipped(String),
}

/// Prints each finding. Without findings the verdict is [`Verdict::Passed`] with `looked_at`.
pub fn judge(findings: &[String], looked_at: String) -> Result<Verdict, Failure> {
    for finding in findings {
        println!("{finding}");
    }
    match findings {
        [] => Ok(Verdict::Passed(looked_at)),
        [finding] => Err(Failure(finding.clone())),
        _ => Err(Failure(format!("{} findings, listed above", findings.len()))),
    }
}

/// The result of one gate, for the table at the end.
struct Row {
    name: &'static str,
    outcome: Result<Verdict, Failure>,
    took: Duration,
}

/// Runs `gates` in order, then prints a table and the closing line. True if no gate failed.
///
/// The first failure ends the run unless `keep_going`. The gates after it count as skipped, so
/// the three numbers of the closing line always add up to the number of gates.
pub fn run(gates: &[Gate], workspace: &Workspace, keep_going: bool) -> bool {
    let mut rows: Vec<Row> = Vec::with_capacity(gates.len());
    let mut stopped_by = None;
    for (index, gate) in gates.iter().enumerate() {
        let begun = Instant::now();
        let outcome = match stopped_by {
            Some(name) => Ok(Verdict::Skipped(format!("not run: `{name}` failed before it"))),
            None => {
                println!("\n=== {} ({} of {}): {}", gate.name, index + 1, gates.len(), gate.about);
                (gate.run)(workspace)
            }
        };
        if stopped_by.is_none() {
            let (word, note) = describe(&outcome);
            println!("--- {}: {word} in {:.1} s: {note}", gate.name, begun.elapsed().as_secs_f64());
        }
        if outcome.is_err() && !keep_going {
            stopped_by = Some(gate.name);
        }
        rows.push(Row { name: gate.name, outcome, took: begun.elapsed() });
    }
    println!("\n{}", table(&rows));
    rows.iter().all(|row| row.outcome.is_ok())
}

/// The word and the note that the table shows for an outcome.
fn describe(outcome: &Result<Verdict, Failure>) -> (&'static str, &str) {
    match outcome {
        Ok(Verdict::Passed(note)) => ("ok", note),
        Ok(Verdict::Skipped(why)) => ("SKIPPED", why),
        Err(Failure(why)) => ("FAILED", why),
    }
}

/// A row for each gate, then `N passed, N failed, N skipped` alone on the last line. Other tools
/// read that line, so its form is fixed.
fn table(rows: &[Row]) -> String {
    let name_width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for row in rows {
        let (word, note) = describe(&row.outcome);
        match row.outcome {
            Ok(Verdict::Passed(_)) => passed += 1,
            Ok(Verdict::Skipped(_)) => skipped += 1,
            Err(_) => failed += 1,
        }
        let took_s = row.took.as_secs_f64();
        text += &format!("{:name_width$}  {word:7}  {took_s:7.1} s  {note}\n", row.name);
    }
    text + &format!("\n{passed} passed, {failed} failed, {skipped} skipped")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(name: &'static str, run: fn(&Workspace) -> Result<Verdict, Failure>) -> Gate {
        Gate { name, about: "a gate of the tests", run }
    }

    fn row(name: &'static str, outcome: Result<Verdict, Failure>) -> Row {
        Row { name, outcome, took: Duration::from_millis(1500) }
    }

    #[test]
    fn the_last_line_counts_every_gate() {
        let text = table(&[
            row("fmt", Ok(Verdict::Passed("3 files".into()))),
            row("loom", Ok(Verdict::Skipped("no loom tests".into()))),
            row("edges", Err(Failure("core -> sys".into()))),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "fmt    ok           1.5 s  3 files");
        assert_eq!(lines[1], "loom   SKIPPED      1.5 s  no loom tests");
        assert_eq!(lines[2], "edges  FAILED       1.5 s  core -> sys");
        assert_eq!(lines.last(), Some(&"1 passed, 1 failed, 1 skipped"));
    }

    #[test]
    fn a_failure_ends_the_run_unless_it_is_told_to_keep_going() {
        fn fails(_: &Workspace) -> Result<Verdict, Failure> {
            Err(Failure("broken".into()))
        }
        fn must_not_run(_: &Workspace) -> Result<Verdict, Failure> {
            panic!("ran after a failure");
        }
        fn skips(_: &Workspace) -> Result<Verdict, Failure> {
            Ok(Verdict::Skipped("nothing to do".into()))
        }
        let workspace = Workspace::load().unwrap();
        assert!(!run(&[gate("a", fails), gate("b", must_not_run)], &workspace, false));
        assert!(!run(&[gate("a", fails), gate("b", skips)], &workspace, true));
        assert!(run(&[gate("a", skips)], &workspace, false), "a skipped gate is no failure");
    }

    #[test]
    fn a_finding_is_a_failure() {
        assert_eq!(judge(&[], "2 files".into()), Ok(Verdict::Passed("2 files".into())));
        assert_eq!(judge(&["a".into()], String::new()), Err(Failure("a".into())));
        assert!(judge(&["a".into(), "b".into()], String::new()).is_err());
    }
}
