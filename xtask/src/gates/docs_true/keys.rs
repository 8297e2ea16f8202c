//! `docs/keys.md` has a row for every key, flag and call, with a test that shows its effect.
//!
//! The real names come from the sources (`keys/lists.rs`). A row that names nothing real is found
//! too. A row names its tests: functions with `#[test]` that are no roles of child processes
//! (`tests_named.rs`). Whether a test would fail if the key did nothing is for a reader to judge.

use crate::gate::Failure;
use crate::workspace::{Source, Workspace};
use std::collections::{BTreeMap, BTreeSet};

mod lists;

/// The document with the rows.
pub const DOCUMENT: &str = "docs/keys.md";

/// A row: its line, its names and its tests.
struct Row<'a> {
    line: usize,
    names: Vec<&'a str>,
    tests: Vec<&'a str>,
}

/// A line for each name without a row, each row without a name, and each test that is not there.
///
/// # Errors
/// A source file cannot be read or does not parse.
pub fn findings(
    workspace: &Workspace,
    document: &Source,
    tests: &BTreeSet<&str>,
) -> Result<Vec<String>, Failure> {
    let real = lists::all(workspace)?;
    Ok(compare(document, &real, &|test| tests.contains(test)))
}

fn compare(
    document: &Source,
    real: &BTreeSet<String>,
    is_test: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let (path, mut findings) = (&document.path, Vec::new());
    let mut told: BTreeMap<&str, usize> = BTreeMap::new();
    for Row { line, names, tests } in rows(&document.text) {
        if tests.is_empty() {
            findings.push(format!("{path}:{line}: names no test"));
        }
        let gone = tests.into_iter().filter(|test| !is_test(test));
        findings.extend(gone.map(|test| format!("{path}:{line}: there is no test `{test}`")));
        for name in names {
            if let Some(before) = told.insert(name, line) {
                findings.push(format!("{path}:{line}: `{name}` has a row in line {before} too"));
            }
            if !real.contains(name) {
                findings.push(format!("{path}:{line}: there is no `{name}`"));
            }
        }
    }
    let missing = real.iter().filter(|name| !told.contains_key(name.as_str()));
    findings.extend(missing.map(|name| format!("{path}: no row for `{name}`")));
    findings
}

/// The rows of all tables: names in the first cell, tests in the last.
fn rows(text: &str) -> impl Iterator<Item = Row<'_>> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
        let [first, .., last] = cells.as_slice() else { return None };
        let names = spans(first);
        (!names.is_empty()).then(|| Row { line: index + 1, names, tests: spans(last) })
    })
}

/// The code spans of a cell.
fn spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, real: &[&str]) -> Vec<String> {
        let document = Source { path: DOCUMENT.to_owned(), text: text.to_owned() };
        let real = real.iter().map(|name| (*name).to_owned()).collect();
        compare(&document, &real, &|test| test == "it_counts")
    }

    #[test]
    fn a_row_for_each_name_with_a_test_is_enough() {
        let text = "| key | effect | test |\n|---|---|---|\n| `a`, `b` | `x` | `it_counts` |\n";
        assert_eq!(found(text, &["a", "b"]), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_or_too_much_is_found() {
        let text = "| `a` | x | `it_counts` |\n| `a` | x | |\n| `gone` | x | `it_is_gone` |";
        assert_eq!(
            found(text, &["a", "new"]),
            [
                "docs/keys.md:2: names no test",
                "docs/keys.md:2: `a` has a row in line 1 too",
                "docs/keys.md:3: there is no test `it_is_gone`",
                "docs/keys.md:3: there is no `gone`",
                "docs/keys.md: no row for `new`",
            ]
        );
    }

    #[test]
    fn the_lists_are_those_of_the_sources() {
        let real = lists::all(&Workspace::load().unwrap()).unwrap();
        for name in [
            "policy",
            "[[stream]] rate",
            "sweep seed",
            "upcall run --csv",
            "upcall plot -o",
            "upcall ps --socket",
            "upcall bench livelock --flood",
            "upcall bench livelock --virtual",
            "upcalld --kill",
            "rts_create",
            "rts_attr.period_ns",
            "RTS_ABORT_PHASE",
            "Runtime::reweigh",
            "Config.trace",
            "clock::now",
        ] {
            assert!(real.contains(name), "{name}");
        }
        assert!(!real.contains("Executor::run"), "a private type");
    }
}
