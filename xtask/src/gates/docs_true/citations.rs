//! What comments and documents cite is in the repository.
//!
//! - A path such as `docs/spec.md` or `docs/decisions/0008` is a file, and its `#anchor` a heading.
//! - "Decision 0008" is a file of `docs/decisions/`.
//! - `design §4` is a section of `docs/design.md`.
//! - A paper's name, such as rtu-1995, stands in the bibliography.
//!
//! In code only comments are read, so the code of a test may name what does not exist.

use super::links::missing_heading;
use crate::tokens::{Kind, pieces};
use crate::workspace::Source;
use std::collections::BTreeMap;

/// Where the papers are listed.
const BIBLIOGRAPHY: &str = "docs/bibliography.md";
/// What `design §4` is a section of.
const DESIGN: &str = "docs/design.md";

/// The files below `docs/`, with the text of those that are documents.
pub struct Cited(BTreeMap<String, String>);

impl Cited {
    /// Of all `files` of the repository and the texts of its `documents`.
    pub fn new(files: &[String], documents: &[Source]) -> Cited {
        let text = |path: &String| {
            let document = documents.iter().find(|document| document.path == *path);
            document.map(|document| document.text.clone()).unwrap_or_default()
        };
        let ours = files.iter().filter(|path| path.starts_with("docs/"));
        Cited(ours.map(|path| (path.clone(), text(path))).collect())
    }

    /// A line for each citation in `source` that leads nowhere.
    pub fn missing(&self, source: &Source) -> Vec<String> {
        let words = words(source);
        let mut found = Vec::new();
        for (index, (word, line)) in words.iter().enumerate() {
            let next = words.get(index + 1).map_or("", |(next, _)| next.as_str());
            let wrong = self.wrong_path(word).or_else(|| self.wrong_number(word, next));
            if let Some(wrong) = wrong.or_else(|| self.wrong_paper(word)) {
                found.push(format!("{}:{line}: {wrong}", source.path));
            }
        }
        found
    }

    fn wrong_path(&self, word: &str) -> Option<String> {
        let at = word.find("docs/")?;
        // `../docs/` and `example.org/docs/` are other places.
        if word[..at].ends_with(|c: char| c.is_alphanumeric() || "/.".contains(c)) {
            return None;
        }
        let is_part = |c: char| c.is_alphanumeric() || "/._-#".contains(c);
        let cited = &word[at..];
        let cited = &cited[..cited.find(|c| !is_part(c)).unwrap_or(cited.len())];
        let cited = cited.trim_end_matches(['.', '/']);
        let (path, anchor) = cited.split_once('#').unwrap_or((cited, ""));
        let Some(text) = self.0.get(path) else {
            // A folder, or a decision without the rest of its name.
            let is_begun = |file: &String| {
                file.strip_prefix(path).is_some_and(|rest| rest.starts_with(['/', '-']))
            };
            let is_there = self.0.keys().any(is_begun) || path == "docs";
            return (!is_there).then(|| format!("cites `{path}`, which does not exist"));
        };
        missing_heading(text, anchor).map(|what| format!("cites `{cited}`, which {what}"))
    }

    fn wrong_number(&self, word: &str, next: &str) -> Option<String> {
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        if word == "decision" || word == "decisions" {
            let number = next.get(..4).filter(|n| n.bytes().all(|digit| digit.is_ascii_digit()))?;
            let start = format!("docs/decisions/{number}-");
            let is_there = self.0.keys().any(|file| file.starts_with(&start));
            return (!is_there).then(|| format!("cites decision {number}, which does not exist"));
        }
        if word == "design" {
            let number = next.trim_start_matches(['`', '(']).strip_prefix('§')?;
            let number =
                &number[..number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len())];
            let heading = format!("\n## {number}.");
            let is_there = self.0.get(DESIGN).is_some_and(|text| text.contains(&heading));
            return (!is_there)
                .then(|| format!("cites section {number} of {DESIGN}: no such heading"));
        }
        None
    }

    fn wrong_paper(&self, word: &str) -> Option<String> {
        let papers = ["rtu-", "split-level-", "ecalls-", "proportional-share-"];
        let start = papers.iter().find_map(|paper| word.find(paper).map(|at| (at, paper.len())));
        let (at, length) = start?;
        let year = word[at + length..].get(..4)?;
        if !year.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let name = &word[at..at + length + 4];
        let is_listed = self.0.get(BIBLIOGRAPHY).is_some_and(|text| text.contains(name));
        (!is_listed).then(|| format!("cites `{name}`, which {BIBLIOGRAPHY} does not list"))
    }
}

/// The words of the comments of a source file, or of all of a document, with their lines.
fn words(source: &Source) -> Vec<(String, usize)> {
    let split = |text: &str, first: usize| {
        let lines = text.lines().enumerate();
        let words = lines.flat_map(|(index, line)| {
            line.split_whitespace().map(move |word| (word.to_owned(), first + index))
        });
        // The signs that begin a line of a comment part no words.
        words
            .filter(|(word, _)| !["//", "///", "//!", "*", "#"].contains(&&**word))
            .collect::<Vec<_>>()
    };
    if !source.path.ends_with(".rs") {
        return split(&source.text, 1);
    }
    let comments = pieces(&source.text).filter(|piece| piece.kind == Kind::Comment);
    comments.flat_map(|piece| split(piece.text, piece.line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(path: &str, text: &str) -> Vec<String> {
        let document =
            |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let documents = [
            document("docs/spec.md", "# Spec\n## Rate\n"),
            document(DESIGN, "# Design\n\n## 4. The core\n"),
            document(BIBLIOGRAPHY, "| rtu-1995 |"),
            document("docs/decisions/0008-hand-off.md", ""),
        ];
        let files: Vec<String> = documents.iter().map(|document| document.path.clone()).collect();
        Cited::new(&files, &documents).missing(&document(path, text))
    }

    #[test]
    fn a_comment_may_cite_what_is_in_the_repository() {
        let text = "// See docs/spec.md, (docs/spec.md#rate), docs/decisions/0008, docs/decisions/.\n\
            //! Decision\n//! 0008; decisions 0008; design §4; rtu-1995 §5.2; ../docs/x.md\n\
            /// <https://example.org/docs/x.md>";
        assert_eq!(missing("a.rs", text), Vec::<String>::new());
    }

    #[test]
    fn a_citation_that_leads_nowhere_is_found() {
        let text = "// See docs/gone.md and\n// docs/spec.md#gone,\n// (decision 0009).\n\
            // (`design §7`)\n// rtu-1996 §2\nlet x = \"docs/none.md\";";
        assert_eq!(
            missing("a.rs", text),
            [
                "a.rs:1: cites `docs/gone.md`, which does not exist",
                "a.rs:2: cites `docs/spec.md#gone`, which is not a heading there",
                "a.rs:3: cites decision 0009, which does not exist",
                "a.rs:4: cites section 7 of docs/design.md: no such heading",
                "a.rs:5: cites `rtu-1996`, which docs/bibliography.md does not list",
            ]
        );
        assert_eq!(missing("a.toml", "# docs/gone.md").len(), 1);
    }
}
