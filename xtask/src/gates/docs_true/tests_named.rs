//! The tests that documents name exist, and check something.
//!
//! A test is a function with `#[test]` that is no role. A role is code of a child process: a test
//! starts its own program again with the name of the role. libtest calls roles as well, and there
//! they return at once. So a role proves nothing (`gates/test.rs`, [`is_role`]).

use crate::gates::test::is_role;
use crate::workspace::Source;
use std::collections::BTreeSet;

/// The document whose claims name tests, and rows of the bench `hostile`.
pub const THREAT_MODEL: &str = "docs/threat-model.md";
/// Where the rows of the bench `hostile` are.
const HOSTILE: &str = "benches/hostile/";

/// The names of all tests in the Rust files of `sources`.
pub fn names(sources: &[Source]) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".rs")) {
        let mut is_test = false;
        for line in source.text.lines().map(str::trim_start) {
            match function(line) {
                Some(name) if is_test && !is_role(name) => _ = found.insert(name),
                Some(_) => {}
                None if line == "#[test]" => is_test = true,
                None if line.starts_with("//") || line.starts_with("#[") => {}
                // The rest of an attribute of several lines.
                None if is_test && !line.ends_with(['{', '}', ';']) && !line.is_empty() => {}
                None => is_test = false,
            }
            is_test &= function(line).is_none();
        }
    }
    found
}

/// The name of the function that `line` begins.
fn function(line: &str) -> Option<&str> {
    Some(line.strip_prefix("fn ")?.split_once('(')?.0)
}

/// A line for each test and each row of `hostile` that the threat model names and that is not
/// there.
pub fn missing(document: &Source, tests: &BTreeSet<&str>, sources: &[Source]) -> Vec<String> {
    let is_row = |name: &str| {
        let code = format!("\"{name}\"");
        let mut attacks = sources.iter().filter(|source| source.path.starts_with(HOSTILE));
        attacks.any(|source| source.text.contains(&code))
    };
    let mut findings = Vec::new();
    for (index, line) in document.text.lines().enumerate() {
        let mut say =
            |what: String| findings.push(format!("{}:{}: {what}", document.path, index + 1));
        let proof = proof(line);
        for (before, name) in spans(line) {
            let is_proof = proof.is_some_and(|proof| proof.contains(&format!("`{name}`")));
            if is_test_name(name, is_proof) {
                if !tests.contains(name) {
                    say(format!("there is no test `{name}`"));
                }
            } else if is_proof
                && is_row_name(name)
                && !["module ", "target "].iter().any(|kind| before.ends_with(kind))
                && !is_row(name)
            {
                say(format!("the bench `hostile` has no row `{name}`"));
            }
        }
    }
    findings
}

/// The last cell of a row of a table of claims.
fn proof(line: &str) -> Option<&str> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').collect();
    cells.get(2).copied()
}

/// The code spans of a line, each with the text before it.
fn spans(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let parts: Vec<&str> = line.split('`').collect();
    (1..parts.len()).step_by(2).map(move |place| (parts[place - 1], parts[place]))
}

/// Whether the code `name` is that of a test. In text outside of the cells of proof it has at least
/// five words: `sched_rt_runtime_us` is none. Names of metrics begin with `upcall_`.
fn is_test_name(name: &str, is_proof: bool) -> bool {
    let is_snake = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let joints = name.matches('_').count();
    is_snake && joints >= if is_proof { 2 } else { 4 } && !name.starts_with("upcall_")
}

/// Whether the code `name` in a cell of proof is that of a row of the bench: words of letters.
fn is_row_name(name: &str) -> bool {
    !name.contains(['_', '/']) && name.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn sources() -> [Source; 2] {
        let tests = "fn helper() {}\n\
                     /// What it shows.\n#[test]\n#[ignore = \"root\"]\nfn it_holds_here() {\n}\n\
                     #[test]\nfn as_a_child() {}\n#[test]\nfn child() {}\n\
                     #[test]\n#[cfg_attr(\n    miri,\n    ignore\n)]\nfn it_has_long_attributes() {}\n\
                     fn later(\n";
        [source("a.rs", tests), source("benches/hostile/a.rs", "name: \"no turn\",")]
    }

    #[test]
    fn a_test_has_its_attribute_and_is_no_role() {
        let sources = sources();
        let expected = BTreeSet::from(["it_has_long_attributes", "it_holds_here"]);
        assert_eq!(names(&sources), expected);
    }

    #[test]
    fn tests_and_rows_that_the_threat_model_names_must_exist() {
        let sources = sources();
        let text = "It holds (`it_holds_here`, `a_b_c_d_e`), see `sched_rt_runtime_us`.\n\
                    | it cannot | because `--x` | test |\n\
                    | x | y | `no turn`, `gone`; `it_holds_here`, `a_b_c`, module `turns` |\n";
        let document = source(THREAT_MODEL, text);
        assert_eq!(
            missing(&document, &names(&sources), &sources),
            [
                "docs/threat-model.md:1: there is no test `a_b_c_d_e`",
                "docs/threat-model.md:3: the bench `hostile` has no row `gone`",
                "docs/threat-model.md:3: there is no test `a_b_c`",
            ]
        );
    }
}
