//! Links in documents lead to a file of the repository, and to a heading in it.
//!
//! Links to the web are not followed. What is written as code holds no link.

use crate::workspace::Source;
use std::path::Path;

/// A line for each relative link of `document` that leads to no file of ours, or to a heading that
/// its file does not have.
pub fn dead_links(document: &Source, root: &Path) -> Vec<String> {
    let here = root.join(&document.path);
    let directory = here.parent().unwrap_or(root);
    let mut found = Vec::new();
    for (line, target) in links(&document.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let what = if path.is_empty() {
            missing_heading(&document.text, anchor)
        } else {
            // A leading slash means the root of the repository.
            let inside = path.strip_prefix('/');
            let meant = inside.map_or(directory.join(path), |inside| root.join(inside));
            match meant.canonicalize() {
                Ok(file) if !file.starts_with(root) => Some("is not in the repository"),
                Ok(file) if path.ends_with(".md") => {
                    let text = std::fs::read_to_string(file).unwrap_or_default();
                    missing_heading(&text, anchor)
                }
                Ok(_) => None,
                Err(_) => Some("does not exist"),
            }
        };
        if let Some(what) = what {
            found.push(format!("{}:{line}: link to `{target}`, which {what}", document.path));
        }
    }
    found
}

/// What is wrong if the document `text` has no heading with the anchor `anchor`.
pub fn missing_heading(text: &str, anchor: &str) -> Option<&'static str> {
    let is_there = anchor.is_empty() || anchors(text).iter().any(|found| found == anchor);
    (!is_there).then_some("is not a heading there")
}

/// The anchors of the headings of `text`, as GitHub and docs.rs make them.
fn anchors(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (_, line) in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let slug: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let slug = slug.to_lowercase();
        // The second heading of a name gets the end `-1`, the third `-2`.
        let repeats = (0..).map(|n| if n == 0 { slug.clone() } else { format!("{slug}-{n}") });
        let anchor = repeats.into_iter().find(|anchor| !found.contains(anchor));
        found.extend(anchor);
    }
    found
}

/// Line and target of each Markdown link and reference definition in `text`, outside code
/// (CommonMark 0.31 §6.3, §4.7; the target stands on the line of its link).
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(line, text)| links_of_line(text).map(move |target| (line, target)))
}

/// The lines of `text` outside fenced code, with their numbers.
pub fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence = None;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let trimmed = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (None, Some(marker)) => fence = Some(marker),
            (Some(open), Some(marker)) if open == marker => fence = None,
            (None, None) => return Some((index + 1, line)),
            _ => {}
        }
        None
    })
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

    #[test]
    fn links_are_found_outside_code() {
        let text = "See [a](a.md) and ![b](img/b.png \"B\").\n\
            `[no](no.md)` but [`code`](c.md#part)\n\
            ```text\n[no](fenced.md)\n```\n\
            [ref]: <d.md>\n";
        let found: Vec<_> = links(text).collect();
        assert_eq!(found, [(1, "a.md"), (1, "img/b.png"), (2, "c.md#part"), (6, "d.md")]);
    }

    #[test]
    fn a_link_is_dead_unless_it_leads_to_a_file_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().unwrap();
        let text = "[here](main.rs) [up](../Cargo.toml#part) [root](/src/main.rs) [part](#part)\n\
            [web](https://example.org/x) [dead](gone.md)\n\
            [out](/..)\n# Part";
        let document = Source { path: "src/a.md".to_owned(), text: text.to_owned() };
        assert_eq!(
            dead_links(&document, &root),
            [
                "src/a.md:2: link to `gone.md`, which does not exist",
                "src/a.md:3: link to `/..`, which is not in the repository",
            ]
        );
    }

    #[test]
    fn an_anchor_is_a_heading_in_small_letters_without_signs() {
        let text =
            "# The `upcall` command\n```sh\n# no heading\n```\n## 3. What's new?\n## A_b\n## A_b";
        assert_eq!(anchors(text), ["the-upcall-command", "3-whats-new", "a_b", "a_b-1"]);
        assert_eq!(missing_heading(text, "a_b-1"), None);
        assert_eq!(missing_heading(text, "no-heading"), Some("is not a heading there"));
        assert_eq!(missing_heading(text, ""), None);
    }
}
