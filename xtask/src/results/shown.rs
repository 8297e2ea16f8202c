//! What documents show of stored results: pictures with the head of their run, and the table of the
//! README, which is a copy of lines of the result [`RESULT`].
//!
//! `cargo xtask results` writes both, and the gate `docs-true` compares them.

use std::ops::Range;

/// The result that the README shows.
pub const RESULT: &str = "conference";
/// The document with the table.
pub const README: &str = "README.md";
/// The picture of the README, which [`RESULT`] draws.
pub const PICTURE: &str = "docs/run.svg";
/// How the first and the last line of the table begin.
const FIRST: &str = "activity measured ";
const LAST: &str = "kernel switches: upcall ";

/// Where the table is in `text`, with its last line's end.
fn place(text: &str) -> Option<Range<usize>> {
    let mut begin = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with(FIRST) {
            begin = Some(at);
        }
        at += line.len();
        if let Some(begin) = begin
            && line.starts_with(LAST)
        {
            return Some(begin..at);
        }
    }
    None
}

/// The table in `text`, without blanks at the ends of lines.
fn table(text: &str) -> Option<String> {
    let lines = text[place(text)?].lines().map(|line| format!("{}\n", line.trim_end()));
    Some(lines.collect())
}

/// `readme` with the table of `stored`. `None` if one of them has no table.
pub fn with_table(readme: &str, stored: &str) -> Option<String> {
    let (place, table) = (place(readme)?, table(stored)?);
    Some(format!("{}{table}{}", &readme[..place.start], &readme[place.end..]))
}

/// `picture`, which was just drawn, with `head` before its end. `None` if it is no picture, or has
/// a head: an earlier run drew it.
pub fn with_head(picture: &str, head: &str) -> Option<String> {
    let drawn = picture.trim_end().strip_suffix("</svg>")?;
    let head = head.trim_end().replace('&', "&amp;").replace('<', "&lt;");
    (!drawn.contains("<metadata>"))
        .then(|| format!("{drawn}<metadata>\n{head}\n</metadata>\n</svg>\n"))
}

/// What `readme` and `picture` show that is not of the run in `stored`.
pub fn not_of_the_run(readme: &str, picture: &str, stored: &str) -> Vec<String> {
    let again = format!("`cargo xtask results {RESULT}` writes both");
    let mut found = Vec::new();
    match (table(readme), table(stored)) {
        (Some(shown), Some(stored)) if shown == stored => {}
        _ => found.push(format!("{README}: its table is not that of {RESULT}.txt; {again}")),
    }
    let date = |text: &str| text.lines().find(|line| line.starts_with("date:")).map(str::to_owned);
    if date(picture).is_none() || date(picture) != date(stored) {
        found.push(format!("{PICTURE}: it is not of the run in {RESULT}.txt; {again}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "date:    2026\ncommit:  12\ncommand: a -- b <c> & d\n";
    const TABLE: &str = "activity measured  upcall \naudio  0 of 5 \n\nkernel switches: upcall 3\n";

    fn stored() -> String {
        format!("{HEAD}\nactivity domain\n{TABLE}behind\n")
    }

    #[test]
    fn the_readme_gets_the_table_of_the_run() {
        let readme =
            "# A\n\n```text\nactivity measured x\nold\nkernel switches: upcall 9\n```\nb\n";
        let shown = with_table(readme, &stored()).unwrap();
        assert_eq!(
            shown,
            "# A\n\n```text\nactivity measured  upcall\naudio  0 of 5\n\n\
             kernel switches: upcall 3\n```\nb\n"
        );
        assert_eq!(with_table(&shown, &stored()).unwrap(), shown);
        assert_eq!(with_table("# A\n", &stored()), None);
    }

    #[test]
    fn a_picture_gets_the_head_of_the_run_that_drew_it() {
        let picture = with_head("<svg>\n<g/>\n</svg>\n", HEAD).unwrap();
        assert!(picture.contains("\ncommit:  12\ncommand: a -- b &lt;c> &amp; d\n</metadata>"));
        assert_eq!(with_head(&picture, HEAD), None, "no run drew it again");
    }

    #[test]
    fn a_table_or_a_picture_of_another_run_is_found() {
        let picture = with_head("<svg></svg>", HEAD).unwrap();
        let shown = format!("```text\n{TABLE}```\n");
        assert_eq!(not_of_the_run(&shown, &picture, &stored()), Vec::<String>::new());
        let found = not_of_the_run(
            &shown.replace("0 of 5", "0 of 6"),
            &picture.replace("2026", "2025"),
            &stored(),
        );
        assert!(found[0].starts_with("README.md: its table is not that"), "{found:?}");
        assert!(found[1].starts_with("docs/run.svg: it is not of the run"), "{found:?}");
        assert_eq!(not_of_the_run("", "<svg></svg>", &stored()).len(), 2);
    }
}
