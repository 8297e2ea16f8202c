//! What a gate is, and the running of some in order.
//!
//! Called by `main` with the gates that were asked for. A gate is one function
//! that ends in one of three ways, and a gate that could not look is never
//! reported as passed: it says [`Verdict::Skipped`] and why.

use crate::workspace::Workspace;
use std::fmt;
use std::time::{Duration, Instant};

/// One check of the whole project.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Its subcommand.
    pub name: &'static str,
    /// What it demands, in one line.
    pub about: &'static str,
    /// Does it. Blocks until done; prints what it finds as it goes.
    pub run: fn(&Workspace) -> Result<Verdict, Failure>,
}

/// How a gate that did not fail ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything it demands was looked at and holds; what was looked at.
    Passed(String),
    /// It could not look; why.
    Skipped(String),
}

/// Why a gate failed, in one line. The details were printed before.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Prints each finding; no finding means [`Verdict::Passed`] with `looked_at`.
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

/// What became of one gate.
struct Row {
    name: &'static str,
    outcome: Result<Verdict, Failure>,
    took: Duration,
}

/// Runs `gates` in order, up to the first that fails unless `keep_going`, then
/// prints the table and the closing line. True if none failed.
///
/// Gates left out after a failure count as skipped, so that the three numbers
/// always add up to the number of gates.
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

/// The word of the table for an outcome, and its note.
fn describe(outcome: &Result<Verdict, Failure>) -> (&'static str, &str) {
    match outcome {
        Ok(Verdict::Passed(note)) => ("ok", note),
        Ok(Verdict::Skipped(why)) => ("SKIPPED", why),
        Err(Failure(why)) => ("FAILED", why),
    }
}

/// A row a gate, then `N passed, N failed, N skipped` alone on the last line:
/// tools outside read that line, so its form is fixed.
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
    fn the_closing_line_stands_alone_and_counts_every_gate() {
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
    fn a_failure_stops_the_gates_behind_it_unless_told_to_keep_going() {
        fn fails(_: &Workspace) -> Result<Verdict, Failure> {
            Err(Failure("broken".into()))
        }
        fn must_not_run(_: &Workspace) -> Result<Verdict, Failure> {
            panic!("ran behind a failure");
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
    fn any_finding_is_a_failure() {
        assert_eq!(judge(&[], "2 files".into()), Ok(Verdict::Passed("2 files".into())));
        assert_eq!(judge(&["a".into()], String::new()), Err(Failure("a".into())));
        assert!(judge(&["a".into(), "b".into()], String::new()).is_err());
    }
}
