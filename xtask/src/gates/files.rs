//! The size, the lines, the names and the words of files.
//!
//! - A source file has at most 1,000 lines. From 500 on the gate notes it.
//! - A line ends by column 100 (`files/lines.rs`).
//! - A file or module is named after what it holds, never `utils` and the like.
//! - No file uses a word that the glossary has replaced (`files/words.rs`).

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::tokens::tokens;
use crate::workspace::Workspace;
use std::collections::BTreeMap;
use std::path::Path;

mod lines;
mod words;

/// Files are small, their lines fit, and their names and words are the project's.
pub const GATE: Gate = Gate {
    name: "files",
    about: "files have at most 1,000 lines of 100 columns, telling names, and no replaced word",
    run,
};

/// Most lines of a source file.
const LINES_MAX: usize = 1_000;
/// A file with more lines than this is noted.
const LINES_NOTED: usize = 500;
/// Names that say nothing.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "manager", "misc"];
/// The ends of the names of source files.
const SOURCES: [&str; 7] = [".rs", ".c", ".h", ".py", ".sh", ".html", ".js"];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let findings: Vec<Finding> = findings(workspace)?;
    let looked_at = format!("{} files", workspace.files()?.len());
    judge(&findings.into_iter().map(|finding| finding.text).collect::<Vec<_>>(), looked_at)
}

/// Prints how many findings each folder has, most first.
///
/// # Errors
/// If a file cannot be read.
pub fn count_findings(workspace: &Workspace) -> Result<(), Failure> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for finding in findings(workspace)? {
        *counts.entry(folder(&finding.path)).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (folder, count) in &counts {
        println!("{count:6}  {folder}");
    }
    println!("{:6}  in all", counts.iter().map(|(_, count)| count).sum::<usize>());
    Ok(())
}

/// The first two parts of `path`, or the path if it has fewer.
fn folder(path: &str) -> String {
    path.splitn(3, '/').take(2).collect::<Vec<_>>().join("/")
}

struct Finding {
    path: String,
    text: String,
}

fn findings(workspace: &Workspace) -> Result<Vec<Finding>, Failure> {
    let mut found = Vec::new();
    for source in workspace.sources(&SOURCES)? {
        let mut texts = Vec::new();
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            texts.push(format!("{}: {lines} lines, expected at most {LINES_MAX}", source.path));
        } else if lines > LINES_NOTED {
            println!("note: {}: {lines} lines: check that it holds one idea", source.path);
        }
        if source.path.ends_with(".rs") {
            texts.extend(empty_modules(&source.text).map(|(line, name)| {
                let path = &source.path;
                format!("{path}:{line}: module `{name}`: the name does not say what it holds")
            }));
        }
        found.extend(texts.into_iter().map(|text| Finding { path: source.path.clone(), text }));
    }
    for source in workspace.sources(&lines::ENDINGS)? {
        let long = lines::too_long(&source).into_iter().map(|(line, length)| {
            format!("{}:{line}: {length} columns, expected at most 100", source.path)
        });
        let texts: Vec<String> = long.chain(words::private(&source)).collect();
        found.extend(texts.into_iter().map(|text| Finding { path: source.path.clone(), text }));
    }
    for path in workspace.files()? {
        if let Some(name) = empty_name(&path) {
            let text = format!("{path}: `{name}` does not say what it holds");
            found.push(Finding { path: path.clone(), text });
        }
    }
    Ok(found)
}

/// Lines and names of the modules in `text` whose name says nothing.
fn empty_modules(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let tokens = tokens(text);
    (1..tokens.len())
        .filter(|at| tokens[at - 1].text == "mod" && EMPTY_NAMES.contains(&tokens[*at].text))
        .map(|at| (tokens[at].line, tokens[at].text))
        .collect::<Vec<_>>()
        .into_iter()
}

/// The part of `path` (file or directory, without its ending) that says nothing.
fn empty_name(path: &str) -> Option<&str> {
    let stems = Path::new(path).iter().filter_map(|part| Path::new(part).file_stem()?.to_str());
    stems.into_iter().find(|stem| EMPTY_NAMES.contains(&stem.to_ascii_lowercase().as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_name_is_found_in_any_part_of_a_path() {
        assert_eq!(empty_name("crates/cli/src/utils.rs"), Some("utils"));
        assert_eq!(empty_name("tests/common/mod.rs"), Some("common"));
        assert_eq!(empty_name("docs/Misc.md"), Some("Misc"));
        assert_eq!(empty_name("crates/core/src/time.rs"), None);
        assert_eq!(empty_name("docs/uncommon.md"), None);
    }

    #[test]
    fn an_empty_module_name_is_found_in_code_only() {
        let found: Vec<_> = empty_modules("// mod utils;\nmod helpers {}\nmod time;").collect();
        assert_eq!(found, [(2, "helpers")]);
    }

    #[test]
    fn findings_are_counted_by_the_first_two_folders() {
        assert_eq!(folder("crates/core/src/time.rs"), "crates/core");
        assert_eq!(folder("README.md"), "README.md");
    }
}
