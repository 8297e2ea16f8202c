//! What the documents and comments say of the project holds.
//!
//! - Links in documents lead to a file and a heading (`docs_true/links.rs`).
//! - What comments and documents cite is in the repository (`docs_true/citations.rs`).
//! - `docs/results/README.md` states what the stored results say (`docs_true/results.rs`).
//! - `docs/keys.md` has each key, flag and call with a test (`docs_true/keys.rs`).
//! - Tests and rows that `docs/threat-model.md` names exist (`docs_true/tests_named.rs`).
//! - Each crate, each example and each library that we depend on is written about.
//! - The README names the commands that a reader starts with. Its table and its picture are of the
//!   stored result `conference` (`results/shown.rs`).
//!
//! The gate `test` compiles the Rust in the README, as a doctest.

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::results::shown;
use crate::workspace::{Source, Workspace};
use citations::Cited;
use results::{Stored, false_statements};
use std::collections::BTreeSet;

mod citations;
mod keys;
mod links;
mod results;
mod tests_named;

/// What the documents say is true, and they leave nothing out.
pub const GATE: Gate = Gate {
    name: "docs-true",
    about: "links, citations and stated results hold; each crate, example and library is described",
    run,
};

/// Commands that the README names.
const README_COMMANDS: [&str; 3] = ["cargo run --release", "cargo xtask check", "cargo xtask ci"];
/// Has a row for each crate of others that we depend on.
const LIBRARIES: &str = "docs/decisions/0002-libraries.md";
/// Has a row for each stored result.
const RESULTS: &str = "docs/results/README.md";
/// Documents that must exist.
const NEEDED: [&str; 7] = [
    "README.md",
    "CHANGELOG.md",
    "docs/ARCHITECTURE.md",
    LIBRARIES,
    RESULTS,
    keys::DOCUMENT,
    tests_named::THREAT_MODEL,
];
/// Files whose comments, or whole text, may cite documents.
const CITING: [&str; 7] = [".rs", ".md", ".toml", ".c", ".h", ".sh", ".py"];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let files = workspace.files()?;
    let documents = workspace.sources(&[".md"])?;
    let code = workspace.sources(&[".rs"])?;
    let tests = tests_named::names(&code);
    let mut findings = Vec::new();
    for name in NEEDED {
        if !documents.iter().any(|document| document.path == name) {
            findings.push(format!("{name}: does not exist"));
        }
    }
    for document in &documents {
        findings.extend(links::dead_links(document, &workspace.root));
        match document.path.as_str() {
            shown::README => {
                findings.extend(commands_left_out(document));
                let of_run = format!("docs/results/{}.txt", shown::RESULT);
                let [picture, of_run] =
                    [shown::PICTURE.to_owned(), of_run].map(|path| workspace.read(path));
                let (picture, of_run) = (picture?.text, of_run?.text);
                findings.extend(shown::not_of_the_run(&document.text, &picture, &of_run));
            }
            "docs/ARCHITECTURE.md" => findings.extend(crates_left_out(workspace, document)),
            LIBRARIES => findings.extend(libraries_left_out(workspace, document)),
            keys::DOCUMENT => findings.extend(keys::findings(workspace, document, &tests)?),
            tests_named::THREAT_MODEL => {
                findings.extend(tests_named::missing(document, &tests, &code));
            }
            RESULTS => findings.extend(false_statements(document, &stored(workspace, &files)?)),
            _ => {}
        }
    }
    findings.extend(examples_left_out(&files, &documents));
    let cited = Cited::new(&files, &documents);
    for source in workspace.sources(&CITING)? {
        // The history may cite what is gone.
        if source.path != "CHANGELOG.md" {
            findings.extend(cited.missing(&source));
        }
    }
    judge(&findings, format!("{} documents", documents.len()))
}

/// The stored results: each file beside their README.
fn stored(workspace: &Workspace, files: &[String]) -> Result<Stored, Failure> {
    let folder = RESULTS.trim_end_matches("README.md");
    let names = files.iter().filter_map(|path| path.strip_prefix(folder));
    let names = names.filter(|name| *name != "README.md");
    names
        .map(|name| Ok((name.to_owned(), workspace.read(format!("{folder}{name}"))?.text)))
        .collect()
}

fn commands_left_out(readme: &Source) -> impl Iterator<Item = String> {
    let missing = README_COMMANDS.iter().filter(|command| !readme.text.contains(**command));
    missing.map(|command| format!("{}: does not name `{command}`", readme.path))
}

fn crates_left_out(workspace: &Workspace, document: &Source) -> Vec<String> {
    let missing = workspace.crates().filter(|(name, _)| !names_crate(&document.text, name));
    missing.map(|(name, _)| format!("{}: no word on crates/{name}", document.path)).collect()
}

fn libraries_left_out(workspace: &Workspace, document: &Source) -> Vec<String> {
    let libraries = direct_libraries(workspace);
    let missing = libraries.iter().filter(|name| !document.text.contains(&row_of(name)));
    missing.map(|name| format!("{LIBRARIES}: no row for `{name}`")).collect()
}

/// Names of the crates of others that some crate of ours depends on.
fn direct_libraries(workspace: &Workspace) -> BTreeSet<&str> {
    let used = workspace.metadata.packages.iter().flat_map(|package| &package.dependencies);
    used.filter(|used| used.path.is_none()).map(|used| used.name.as_str()).collect()
}

/// How the row of a library begins.
fn row_of(library: &str) -> String {
    format!("\n| `{library}` |")
}

/// Whether `text` names the crate as a path, as code, or as a line of a tree.
fn names_crate(text: &str, name: &str) -> bool {
    [format!("crates/{name}"), format!("`{name}`")].iter().any(|form| text.contains(form))
        || text.lines().any(|line| line.split_whitespace().next() == Some(name))
}

/// Files below an `examples` directory whose name stands in no document.
fn examples_left_out(files: &[String], documents: &[Source]) -> Vec<String> {
    let is_example = |path: &&String| path.starts_with("examples/") || path.contains("/examples/");
    files
        .iter()
        .filter(is_example)
        .filter(|path| {
            let name = path.rsplit('/').next().unwrap_or(path);
            !documents.iter().any(|document| document.text.contains(name))
        })
        .map(|path| format!("{path}: no document names this example"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_crate_is_named_as_a_path_as_code_or_in_a_tree() {
        assert!(names_crate("in `crates/core`", "core"));
        assert!(names_crate("the crate `core`", "core"));
        assert!(names_crate("crates/\n  core   pure", "core"));
        assert!(!names_crate("at the core of it", "core"));
    }

    #[test]
    fn the_libraries_are_those_of_others_that_we_name() {
        let workspace = Workspace::load().unwrap();
        let libraries = direct_libraries(&workspace);
        assert!(
            libraries.contains("cargo_metadata") && libraries.contains("loom"),
            "{libraries:?}"
        );
        assert!(!libraries.contains("upcall-core") && !libraries.contains("semver"));
    }

    #[test]
    fn an_example_no_document_names_is_found() {
        let files: Vec<String> =
            ["examples/conference.toml", "crates/upcall/examples/tone.rs", "src/main.rs"]
                .map(Into::into)
                .into();
        let left_out =
            examples_left_out(&files, &[document("README.md", "try examples/conference.toml")]);
        assert_eq!(left_out, ["crates/upcall/examples/tone.rs: no document names this example"]);
    }

    #[test]
    fn the_readme_must_name_the_commands_to_begin_with() {
        let readme = document("README.md", "`cargo run --release -- plan`, `cargo xtask check`");
        let missing: Vec<_> = commands_left_out(&readme).collect();
        assert_eq!(missing, ["README.md: does not name `cargo xtask ci`"]);
    }
}
