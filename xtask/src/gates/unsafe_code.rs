//! Where `unsafe` may stand (docs/ARCHITECTURE.md), and what may stand nowhere.

use crate::gate::{Failure, Gate, Verdict, judge};
use crate::tokens::{Token, starts_with, tokens};
use crate::workspace::{Source, Workspace};

/// `unsafe` stays in its rooms.
pub const GATE: Gate = Gate {
    name: "unsafe",
    about: "unsafe code only in shm, sys and capi; no static mut, no #![allow(...)]",
    run,
};

/// The rooms that may hold `unsafe`. The design lets in the task cells of
/// `runtime` as well; today it has none, so it is not here.
const ROOMS: [&str; 3] = ["capi", "shm", "sys"];

fn run(workspace: &Workspace) -> Result<Verdict, Failure> {
    let mut findings = Vec::new();
    for (room, package) in workspace.crates().filter(|(room, _)| !ROOMS.contains(room)) {
        // Tests, examples and benches of a room are held by the word alone.
        for target in package.targets.iter().filter(|target| target.is_lib() || target.is_bin()) {
            let relative =
                target.src_path.strip_prefix(&workspace.root).unwrap_or(&target.src_path);
            if !forbids_unsafe(&tokens(&workspace.read(relative.to_string())?.text)) {
                findings.push(format!(
                    "{relative}: no `#![forbid(unsafe_code)]`, which room {room} needs"
                ));
            }
        }
    }
    let sources = workspace.sources(&[".rs"])?;
    findings
        .extend(sources.iter().flat_map(|source| forbidden(source, may_be_unsafe(&source.path))));
    judge(&findings, format!("{} files", sources.len()))
}

/// Whether the file at `path` belongs to a room that may hold `unsafe`.
fn may_be_unsafe(path: &str) -> bool {
    ROOMS.iter().any(|room| path.starts_with(&format!("crates/{room}/")))
}

fn forbids_unsafe(tokens: &[Token<'_>]) -> bool {
    inner_attributes(tokens).any(|(_, words)| {
        starts_with(words, &["forbid", "("]) && words.iter().any(|t| t.text == "unsafe_code")
    })
}

/// A line for each thing in `source` that may not stand there.
fn forbidden(source: &Source, unsafe_allowed: bool) -> Vec<String> {
    let tokens = tokens(&source.text);
    let mut found = Vec::new();
    let mut find = |line: usize, what: &str| found.push(format!("{}:{line}: {what}", source.path));
    for (index, token) in tokens.iter().enumerate() {
        if token.text == "unsafe" && !unsafe_allowed {
            find(
                token.line,
                &format!("`unsafe`, which only the rooms {} may hold", ROOMS.join(", ")),
            );
        }
        if starts_with(&tokens[index..], &["static", "mut"]) {
            find(token.line, "`static mut`: use an atomic, a lock or an owner");
        }
    }
    for (line, words) in inner_attributes(&tokens) {
        if words.iter().any(|word| word.text == "allow") {
            find(
                line,
                "`#![allow(...)]` for all that follows: allow it on one item, with a reason",
            );
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
    fn unsafe_as_code_is_found_and_in_words_about_it_is_not() {
        let text = "// unsafe\nlet a = \"unsafe\";\n#![forbid(unsafe_code)]\nunsafe { f() }";
        assert_eq!(lines_found(text, false), ["4"]);
        assert!(lines_found(text, true).is_empty());
    }

    #[test]
    fn static_mut_is_found_even_where_unsafe_is_allowed() {
        assert_eq!(lines_found("static mut A: u8 = 0;\nfn f(a: &'static mut u8) {}", true), ["1"]);
    }

    #[test]
    fn an_allow_for_a_whole_module_is_found_in_any_dress() {
        let text = "#![allow(dead_code)]\n#[allow(dead_code)]\n#![cfg_attr(loom, allow(unused))]";
        assert_eq!(lines_found(text, false), ["1", "3"]);
    }

    #[test]
    fn only_a_forbid_forbids() {
        assert!(forbids_unsafe(&tokens("//! A room.\n#![forbid(unsafe_code)]")));
        assert!(forbids_unsafe(&tokens("#![forbid(missing_docs, unsafe_code)]")));
        assert!(!forbids_unsafe(&tokens("// #![forbid(unsafe_code)]")));
        assert!(!forbids_unsafe(&tokens("#![deny(unsafe_code)]\n#![forbid(missing_docs)]")));
        assert!(!forbids_unsafe(&tokens("#[forbid(unsafe_code)] mod a {}")));
    }

    #[test]
    fn only_three_rooms_may_hold_it() {
        assert!(may_be_unsafe("crates/shm/src/ring.rs") && may_be_unsafe("crates/capi/src/abi.rs"));
        assert!(!may_be_unsafe("crates/shmem/src/lib.rs") && !may_be_unsafe("xtask/src/main.rs"));
    }
}
