//! Which crates may hold `unsafe` (docs/ARCHITECTURE.md), and what no file may hold.

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::tokens::{Token, starts_with, tokens};
use crate::workspace::{Source, Workspace};

/// `unsafe` code is only in the crates that may hold it.
pub const GATE: Gate = Gate {
    name: "unsafe",
    about: "unsafe code only in shm, sys and capi; no static mut, no #![allow(...)]",
    run,
};

/// The crates that may hold `unsafe`.
const CRATES: [&str; 3] = ["capi", "shm", "sys"];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let mut findings = Vec::new();
    for (name, package) in workspace.crates().filter(|(name, _)| !CRATES.contains(name)) {
        // Tests, examples and benches need no `forbid`: the search for the word covers them.
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let relative =
                target.src_path.strip_prefix(&workspace.root).unwrap_or(&target.src_path);
            if !forbids_unsafe(&tokens(&workspace.read(relative.to_string())?.text)) {
                findings.push(format!(
                    "{relative}: no `#![forbid(unsafe_code)]`, which crate {name} needs"
                ));
            }
        }
    }
    let sources = workspace.sources(&[".rs"])?;
    findings
        .extend(sources.iter().flat_map(|source| forbidden(source, may_be_unsafe(&source.path))));
    judge(&findings, format!("{} files", sources.len()))
}

/// Whether the file at `path` belongs to a crate that may hold `unsafe`.
fn may_be_unsafe(path: &str) -> bool {
    CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/")))
}

fn forbids_unsafe(tokens: &[Token<'_>]) -> bool {
    inner_attributes(tokens).any(|(_, words)| {
        starts_with(words, &["forbid", "("]) && words.iter().any(|t| t.text == "unsafe_code")
    })
}

/// A line for each thing in `source` that it may not hold.
fn forbidden(source: &Source, unsafe_allowed: bool) -> Vec<String> {
    let tokens = tokens(&source.text);
    let mut found = Vec::new();
    let mut find = |line: usize, what: &str| found.push(format!("{}:{line}: {what}", source.path));
    for (index, token) in tokens.iter().enumerate() {
        if token.text == "unsafe" && !unsafe_allowed {
            find(
                token.line,
                &format!("`unsafe`, which only the crates {} may hold", CRATES.join(", ")),
            );
        }
        if starts_with(&tokens[index..], &["static", "mut"]) {
            find(token.line, "`static mut`: use an atomic, a lock or an owner");
        }
    }
    for (line, words) in inner_attributes(&tokens) {
        if words.iter().any(|word| word.text == "allow") {
            find(line, "`#![allow(...)]` for a whole module: allow it on one item, with a reason");
        }
    }
    found
}

/// Line and words of each `#![...]`.
fn inner_attributes<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = (usize, &'a [Token<'a>])> {
    (0..tokens.len()).filter(|at| starts_with(&tokens[*at..], &["#", "!", "["])).map(|at| {
        let words = &tokens[at + 3..];
        let mut depth = 1_usize;
        let end = words.iter().position(|word| {
            match word.text {
                "[" => depth += 1,
                "]" => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        (tokens[at].line, &words[..end.unwrap_or(words.len())])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_found(text: &str, unsafe_allowed: bool) -> Vec<String> {
        let source = Source { path: "x.rs".to_owned(), text: text.to_owned() };
        forbidden(&source, unsafe_allowed)
            .iter()
            .filter_map(|finding| Some(finding.split(':').nth(1)?.to_owned()))
            .collect()
    }

    #[test]
    fn unsafe_is_found_in_code_and_not_in_comments() {
        let text = "// unsafe\nlet a = \"unsafe\";\n#![forbid(unsafe_code)]\nunsafe { f() }";
        assert_eq!(lines_found(text, false), ["4"]);
        assert!(lines_found(text, true).is_empty());
    }

    #[test]
    fn static_mut_is_found_even_where_unsafe_is_allowed() {
        assert_eq!(lines_found("static mut A: u8 = 0;\nfn f(a: &'static mut u8) {}", true), ["1"]);
    }

    #[test]
    fn an_allow_for_a_whole_module_is_found_in_each_form() {
        let text = "#![allow(dead_code)]\n#[allow(dead_code)]\n#![cfg_attr(loom, allow(unused))]";
        assert_eq!(lines_found(text, false), ["1", "3"]);
    }

    #[test]
    fn only_a_forbid_for_the_whole_crate_counts() {
        assert!(forbids_unsafe(&tokens("//! A crate.\n#![forbid(unsafe_code)]")));
        assert!(forbids_unsafe(&tokens("#![forbid(missing_docs, unsafe_code)]")));
        assert!(!forbids_unsafe(&tokens("// #![forbid(unsafe_code)]")));
        assert!(!forbids_unsafe(&tokens("#![deny(unsafe_code)]\n#![forbid(missing_docs)]")));
        assert!(!forbids_unsafe(&tokens("#[forbid(unsafe_code)] mod a {}")));
    }

    #[test]
    fn only_three_crates_may_hold_unsafe() {
        assert!(may_be_unsafe("crates/shm/src/ring.rs") && may_be_unsafe("crates/capi/src/abi.rs"));
        assert!(!may_be_unsafe("crates/shmem/src/lib.rs") && !may_be_unsafe("xtask/src/main.rs"));
    }
}
