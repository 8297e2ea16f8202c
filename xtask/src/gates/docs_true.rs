//! What the documents say of the tree holds: files, rooms, examples, commands.
//!
//! The Rust in the README is compiled by the `test` gate, as a doctest.

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::workspace::{Source, Workspace};
use std::collections::BTreeSet;
use std::path::Path;

/// The documents do not speak of what is not there, nor leave out what is.
pub const GATE: Gate = Gate {
    name: "docs-true",
    about: "links in the documents hold; rooms, examples and libraries are written about",
    run,
};

/// What a reader of the README is told to type.
const README_COMMANDS: [&str; 2] = ["cargo run --release", "cargo xtask ci"];
/// Where each crate of others that we depend on has a row.
const LIBRARIES: &str = "docs/decisions/0002-libraries.md";

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let is_document = |source: &Source| {
        source.path == "README.md"
            || source.path == "CHANGELOG.md"
            || source.path.starts_with("docs/")
    };
    let mut documents = workspace.sources(&[".md"])?;
    documents.retain(is_document);
    let mut findings = Vec::new();
    for name in ["README.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", LIBRARIES] {
        if !documents.iter().any(|document| document.path == name) {
            findings.push(format!("{name}: does not exist"));
        }
    }
    for document in &documents {
        findings.extend(dead_links(document, &workspace.root));
        match document.path.as_str() {
            "README.md" => findings.extend(commands_left_out(document)),
            "docs/ARCHITECTURE.md" => {
                let rooms =
                    workspace.crates().filter(|(room, _)| !writes_of_room(&document.text, room));
                findings.extend(
                    rooms.map(|(room, _)| format!("{}: no word on crates/{room}", document.path)),
                );
            }
            LIBRARIES => {
                let libraries = direct_libraries(workspace);
                let missing =
                    libraries.iter().filter(|name| !document.text.contains(&row_of(name)));
                findings.extend(missing.map(|name| format!("{LIBRARIES}: no row for `{name}`")));
            }
            _ => {}
        }
    }
    findings.extend(examples_left_out(&workspace.files()?, &documents));
    judge(&findings, format!("{} documents", documents.len()))
}

fn commands_left_out(readme: &Source) -> impl Iterator<Item = String> {
    let missing = README_COMMANDS.iter().filter(|command| !readme.text.contains(**command));
    missing.map(|command| format!("{}: does not tell to type `{command}`", readme.path))
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

/// Whether `text` names the room as a path, as code, or as a line of a tree.
fn writes_of_room(text: &str, room: &str) -> bool {
    [format!("crates/{room}"), format!("`{room}`")].iter().any(|name| text.contains(name))
        || text.lines().any(|line| line.split_whitespace().next() == Some(room))
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

/// A line for each relative link of `document` that leads to no file of ours.
fn dead_links(document: &Source, root: &Path) -> Vec<String> {
    let here = root.join(&document.path);
    let directory = here.parent().unwrap_or(root);
    let mut found = Vec::new();
    for (line, target) in links(&document.text) {
        let path = target.split(['#', '?']).next().unwrap_or(target);
        if path.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        // A leading slash means the root of the repository.
        let meant = path.strip_prefix('/').map_or(directory.join(path), |inside| root.join(inside));
        let what = match meant.canonicalize() {
            Ok(file) if file.starts_with(root) => continue,
            Ok(_) => "is not in the repository",
            Err(_) => "does not exist",
        };
        found.push(format!("{}:{line}: link to `{target}`, which {what}", document.path));
    }
    found
}

/// Line and target of each Markdown link and reference definition in `text`,
/// outside code (CommonMark 0.31 §6.3, §4.7; targets on the line of their link).
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (None, Some(marker)) => fence = Some(marker),
            (Some(open), Some(marker)) if open == marker => fence = None,
            (None, None) => found.extend(links_of_line(line).map(|target| (index + 1, target))),
            _ => {}
        }
    }
    found
}

/// Targets in one line: every second piece between backticks is code.
fn links_of_line(line: &str) -> impl Iterator<Item = &str> {
    let definition = line.strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    let inline = line.split('`').step_by(2).flat_map(|prose| prose.split("](").skip(1));
    // A link whose text ends in code has its target at the start of a piece.
    inline
        .filter_map(|rest| rest.split_once(')'))
        .chain(definition.map(|(_, target)| (target, "")))
        .filter_map(|(target, _)| target.split_whitespace().next())
        .map(|target| target.trim_matches(['<', '>']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn links_are_found_outside_code() {
        let text = "See [a](a.md) and ![b](img/b.png \"B\").\n\
            `[no](no.md)` but [`code`](c.md#part)\n\
            ```text\n[no](fenced.md)\n```\n\
            [ref]: <d.md>\n";
        assert_eq!(links(text), [(1, "a.md"), (1, "img/b.png"), (2, "c.md#part"), (6, "d.md")]);
    }

    #[test]
    fn a_link_is_dead_unless_it_leads_to_a_file_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
        let text = "[here](main.rs) [up](../Cargo.toml#part) [root](/src/main.rs) [part](#part)\n\
            [web](https://example.org/x) [dead](gone.md)\n\
            [out](/..)";
        assert_eq!(
            dead_links(&document("src/a.md", text), &root),
            [
                "src/a.md:2: link to `gone.md`, which does not exist",
                "src/a.md:3: link to `/..`, which is not in the repository",
            ]
        );
    }

    #[test]
    fn a_room_is_written_about_as_a_path_as_code_or_in_a_tree() {
        assert!(writes_of_room("in `crates/core`", "core"));
        assert!(writes_of_room("the room `core`", "core"));
        assert!(writes_of_room("crates/\n  core   pure", "core"));
        assert!(!writes_of_room("at the core of it", "core"));
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
    fn the_readme_must_tell_both_commands() {
        let readme = document("README.md", "`cargo run --release -- plan`");
        let missing: Vec<_> = commands_left_out(&readme).collect();
        assert_eq!(missing, ["README.md: does not tell to type `cargo xtask ci`"]);
    }
}
