//! Lines end by column 100, in characters.
//!
//! These lines are exempt, because they cannot be broken or a break would spoil them:
//! - rows of Markdown tables, in documents and in doc comments;
//! - a line whose last word is a URL that crosses the column;
//! - in documents, blocks fenced as `text` or `console`: what a program printed;
//! - in Rust, a line on which a string reaches the column: a message stays whole for a search.
//!   `rustfmt` leaves such a line as well.

use crate::tokens::{Kind, pieces};
use crate::workspace::Source;
use std::collections::BTreeSet;

/// The endings of the files whose lines are checked. Stored results and lock files have others.
pub const ENDINGS: [&str; 7] = [".rs", ".md", ".toml", ".h", ".c", ".sh", ".yml"];

/// The last column of a line.
const COLUMN_MAX: usize = 100;

/// The lines of `source` that are too long, each with its length.
pub fn too_long(source: &Source) -> Vec<(usize, usize)> {
    let is_document = source.path.ends_with(".md");
    let mut printed = Printed::default();
    let mut found = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let is_printed = is_document && printed.takes(line);
        let length = line.chars().count();
        if length > COLUMN_MAX && !is_printed && !is_table_row(line) && !ends_in_url(line) {
            found.push((index + 1, length));
        }
    }
    if !found.is_empty() && source.path.ends_with(".rs") {
        let strings = lines_of_long_strings(&source.text);
        found.retain(|(line, _)| !strings.contains(line));
    }
    found
}

/// Whether the reader of a document is in a block of printed text.
#[derive(Default)]
struct Printed {
    /// The marker that opened the block, and whether the block holds printed text.
    fence: Option<(&'static str, bool)>,
}

impl Printed {
    /// Takes the next line of the document. Returns whether the line is printed text.
    fn takes(&mut self, line: &str) -> bool {
        let line = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| line.starts_with(marker));
        match (self.fence, marker) {
            (None, Some(marker)) => {
                let kind = line.trim_start_matches(['`', '~']).trim();
                self.fence = Some((marker, ["text", "console"].contains(&kind)));
            }
            (Some((open, _)), Some(marker)) if open == marker => self.fence = None,
            _ => {}
        }
        self.fence.is_some_and(|(_, is_printed)| is_printed)
    }
}

fn is_table_row(line: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("//!").or_else(|| line.strip_prefix("///"));
    comment.unwrap_or(line).trim_start().starts_with('|')
}

/// Whether the word that crosses the column is a URL and the last of the line.
fn ends_in_url(line: &str) -> bool {
    let last = line.split_whitespace().next_back().unwrap_or("");
    let before = line.trim_end().chars().count() - last.chars().count();
    last.contains("://") && before <= COLUMN_MAX
}

/// The lines on which a string reaches the column.
fn lines_of_long_strings(text: &str) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    // Characters of the line before the piece.
    let mut column = 0;
    for piece in pieces(text) {
        for (index, part) in piece.text.split('\n').enumerate() {
            if index > 0 {
                column = 0;
            }
            column += part.chars().count();
            if piece.kind == Kind::Literal && column >= COLUMN_MAX {
                found.insert(piece.line + index);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_found(path: &str, text: &str) -> Vec<usize> {
        let source = Source { path: path.to_owned(), text: text.to_owned() };
        too_long(&source).into_iter().map(|(line, _)| line).collect()
    }

    /// A text of `length` characters, in words.
    fn words(length: usize) -> String {
        "äbcd ".repeat(length / 5 + 1).chars().take(length).collect()
    }

    #[test]
    fn a_line_may_have_100_characters_whatever_their_bytes() {
        assert!(lines_found("a.rs", &format!("//{}", words(98))).is_empty());
        assert_eq!(lines_found("a.toml", &format!("\n#{}", words(100))), [2]);
    }

    #[test]
    fn table_rows_are_exempt_in_documents_and_comments() {
        for row in [format!("| {}", words(120)), format!("    //! | {}", words(120))] {
            assert!(lines_found("a.rs", &row).is_empty() && lines_found("a.md", &row).is_empty());
        }
        assert_eq!(lines_found("a.rs", &format!("// | {}", words(120))), [1]);
    }

    #[test]
    fn a_url_that_ends_a_line_is_exempt() {
        let url = format!("https://example.org/{}", "a".repeat(120));
        assert!(lines_found("a.md", &format!("See {url}")).is_empty());
        assert_eq!(lines_found("a.md", &format!("See {url} and more")), [1]);
        assert_eq!(lines_found("a.md", &format!("{} {url}", words(110))), [1]);
    }

    #[test]
    fn printed_text_in_a_document_is_exempt_and_code_is_not() {
        let long = words(120);
        let text = format!("```console\n{long}\n```\n{long}\n```rust\n{long}\n```\n");
        assert_eq!(lines_found("a.md", &text), [4, 6]);
    }

    #[test]
    fn a_string_that_reaches_the_column_is_exempt_and_a_comment_behind_it_is_not() {
        let long = words(110);
        let text = format!("f(\"{long}\");\nf(\"a\"); // {long}\nlet a = \"\\\n    {long}\";\n");
        assert_eq!(lines_found("a.rs", &text), [2]);
        assert_eq!(lines_found("a.c", &text), [1, 2, 4]);
    }
}
