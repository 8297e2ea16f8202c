//! The size and the names of files and modules.

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::tokens::tokens;
use crate::workspace::Workspace;
use std::path::Path;

/// Files stay small and say in their name what they hold.
pub const GATE: Gate = Gate {
    name: "files",
    about: "no source file over 1,000 lines, no file or module named utils and the like",
    run,
};

/// Most lines of a source file.
const LINES_MAX: usize = 1_000;
/// From here on a file is listed, to be looked at again.
const LINES_NOTED: usize = 500;
/// Names that say nothing.
const EMPTY_NAMES: [&str; 5] = ["utils", "common", "helpers", "manager", "misc"];
/// What counts as source.
const ENDINGS: [&str; 7] = [".rs", ".c", ".h", ".py", ".sh", ".html", ".js"];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let sources = workspace.sources(&ENDINGS)?;
    let mut findings = Vec::new();
    for source in &sources {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            findings.push(format!("{}: {lines} lines, expected at most {LINES_MAX}", source.path));
        } else if lines > LINES_NOTED {
            println!("note: {}: {lines} lines, look whether it holds one idea", source.path);
        }
        if source.path.ends_with(".rs") {
            findings.extend(empty_modules(&source.text).map(|(line, name)| {
                format!(
                    "{}:{line}: module `{name}`: the name does not say what it holds",
                    source.path
                )
            }));
        }
    }
    for path in workspace.files()? {
        if let Some(name) = empty_name(&path) {
            findings.push(format!("{path}: `{name}` does not say what it holds"));
        }
    }
    judge(&findings, format!("{} source files", sources.len()))
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
}
