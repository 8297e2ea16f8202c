//! `docs/results/README.md` says nothing that the stored files do not say.
//!
//! - Each stored file has a row: its name stands as code in the first column of a table.
//! - Each file name that stands as code anywhere in the document is a stored file.
//! - Each number in the second column of a row stands in one of the row's files. So does each
//!   number in the text below a heading that names files as code, in one of these. The numbers of
//!   a row of a table there stand in one line of one of these.
//! - Elsewhere stands no number.
//!
//! A number is digits, with `,` before thousands or a `.` among them: `1,000`, `0.75`. It must
//! stand in the file in the same digits; only the `,` may be left out. The gate does not look at:
//!
//! - text in round brackets and in code, which holds sources and commands;
//! - digits in a word (`rtu-1995`, `729b02a`) or after `§`;
//! - the number of a figure, a table or an experiment (`Figure 7`).

use super::links::prose;
use crate::workspace::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A name, and the text of a stored file.
pub type Stored = BTreeMap<String, String>;

/// A line for each thing that `readme` says and the files do not, and for each file without a row.
pub fn false_statements(readme: &Source, stored: &Stored) -> Vec<String> {
    let numbers_of: BTreeMap<&str, BTreeSet<String>> =
        stored.iter().map(|(name, text)| (name.as_str(), numbers_stored(text))).collect();
    let mut found = Vec::new();
    let mut with_row = BTreeSet::new();
    // The files that the last heading names.
    let mut section: Vec<&str> = Vec::new();
    for (line, text) in prose(&readme.text) {
        let mut say = |what: String| found.push(format!("{}:{line}: {what}", readme.path));
        let named: Vec<&str> = file_names(text).collect();
        for name in named.iter().filter(|name| !stored.contains_key(**name)) {
            say(format!("names `{name}`, which is not stored"));
        }
        if text.starts_with('#') {
            section = named;
            continue;
        }
        let mut columns = text.trim().trim_matches('|').split('|');
        let first: Vec<&str> = file_names(columns.next().unwrap_or("")).collect();
        let is_row = text.trim_start().starts_with('|') && !first.is_empty();
        let (statement, files) = match columns.next() {
            Some(second) if is_row => {
                with_row.extend(first.iter().copied());
                (second, &first)
            }
            _ => (text, &section),
        };
        let numbers = numbers_stated(statement);
        let is_in_table = !is_row && text.trim_start().starts_with('|');
        if is_in_table && !numbers.is_empty() && !files.is_empty() {
            let lines = files.iter().filter_map(|file| stored.get(*file)).flat_map(|t| t.lines());
            if !lines.map(numbers_stored).any(|line| all_in(&numbers, &line)) {
                let (row, files) = (numbers.join(", "), files.join(", "));
                say(format!("states {row} in one row, which stand in no line of {files}"));
            }
            continue;
        }
        for number in numbers {
            let is_stored = |file: &&str| {
                numbers_of.get(file).is_some_and(|stored| stored.contains(&number.replace(',', "")))
            };
            if !files.iter().any(is_stored) {
                let files =
                    if files.is_empty() { "any named file".into() } else { files.join(", ") };
                say(format!("states {number}, which does not stand in {files}"));
            }
        }
    }
    let rowless = stored.keys().filter(|name| !with_row.contains(name.as_str()));
    found.extend(rowless.map(|name| format!("{}: no row for `{name}`", readme.path)));
    found
}

/// Whether `line` has each of `numbers`.
fn all_in(numbers: &[String], line: &BTreeSet<String>) -> bool {
    numbers.iter().all(|number| line.contains(&number.replace(',', "")))
}

/// The names of text files and pictures that stand as code in `text`.
fn file_names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |code: &&str| {
        (code.ends_with(".txt") || code.ends_with(".svg")) && !code.contains([' ', '/'])
    };
    text.split('`').skip(1).step_by(2).filter(is_name)
}

/// The numbers of a stored file, those inside words as well, without the `,` of thousands.
fn numbers_stored(text: &str) -> BTreeSet<String> {
    numbers(text).map(|(at, length)| text[at..at + length].replace(',', "")).collect()
}

/// The numbers that `text` states, as written.
fn numbers_stated(text: &str) -> Vec<String> {
    let text = without_brackets_and_code(text);
    let mut found = Vec::new();
    for (at, length) in numbers(&text) {
        let (before, behind) = (&text[..at], &text[at + length..]);
        let word = before.rsplit(char::is_whitespace).next().unwrap_or("");
        let is_in_word = word.contains(|c: char| c.is_alphabetic() || c == '§' || c == '^')
            || behind.starts_with(|c: char| c.is_alphabetic() || c == '^');
        let mut previous = before[..before.len() - word.len()].split_whitespace().rev();
        let is_name = previous.next().is_some_and(|word| {
            ["Figure", "Figures", "Table", "Tables", "Experiment", "Experiments"].contains(&word)
        });
        if !is_in_word && !is_name {
            found.push(text[at..at + length].to_owned());
        }
    }
    found
}

/// `text` with a blank in the place of each character in round brackets or in code.
fn without_brackets_and_code(text: &str) -> String {
    let (mut depth, mut is_code) = (0_usize, false);
    let blank = |c: char| {
        match c {
            '`' => is_code = !is_code,
            '(' if !is_code => depth += 1,
            ')' if !is_code => depth = depth.saturating_sub(1),
            _ if depth == 0 && !is_code => return c,
            _ => {}
        }
        ' '
    };
    text.chars().map(blank).collect()
}

/// Where each number of `text` begins, and its length in bytes.
fn numbers(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let digits = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().position(u8::is_ascii_digit)?;
        let begun = at;
        at += digits(at);
        while bytes.get(at) == Some(&b',') && digits(at + 1) == 3 {
            at += 4;
        }
        if bytes.get(at) == Some(&b'.') && digits(at + 1) > 0 {
            at += 1 + digits(at + 1);
        }
        Some((begun, at - begun))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let readme = Source { path: "README.md".to_owned(), text: text.to_owned() };
        let stored = [("a.txt", "12 steps of 25.2 s, 1000000 jobs"), ("b.txt", "x=0.75\n90 ms\n")];
        let stored = stored.map(|(name, text)| (name.to_owned(), text.to_owned()));
        false_statements(&readme, &stored.into())
    }

    const ROWS: &str = "| file | shows |\n|---|---|\n\
        | `a.txt` | 1,000,000 jobs in 12 steps (3 min, Figure 9) | `run 44` |\n\
        | `b.txt` | Figure 7 of rtu-1995 §7.1 at 0.75 |\n";

    #[test]
    fn rows_that_state_what_the_files_hold_are_true() {
        assert_eq!(found(ROWS), Vec::<String>::new());
    }

    #[test]
    fn a_number_must_stand_in_the_files_of_its_row() {
        let text = ROWS.replace("12 steps", "2 steps").replace("at 0.75", "at 0.750 and 12");
        assert_eq!(
            found(&text),
            [
                "README.md:3: states 2, which does not stand in a.txt",
                "README.md:4: states 0.750, which does not stand in b.txt",
                "README.md:4: states 12, which does not stand in b.txt",
            ]
        );
    }

    #[test]
    fn a_file_without_a_row_and_a_row_without_a_file_are_found() {
        let text = ROWS.replace("`b.txt`", "`gone.txt`").replace("at 0.75", "");
        assert_eq!(
            found(&text),
            ["README.md:4: names `gone.txt`, which is not stored", "README.md: no row for `b.txt`"]
        );
    }

    #[test]
    fn the_numbers_of_a_row_below_a_heading_stand_in_one_line() {
        let below =
            |row: &str| format!("{ROWS}\n## What `a.txt` and `b.txt` say\n\n| x | y |\n{row}\n");
        assert_eq!(found(&below("| 12 | 25.2 |")), Vec::<String>::new());
        assert_eq!(
            found(&below("| 12 | 0.75 |")),
            ["README.md:9: states 12, 0.75 in one row, which stand in no line of a.txt, b.txt"]
        );
    }

    #[test]
    fn text_states_numbers_of_the_files_in_its_heading_alone() {
        let below =
            format!("{ROWS}\n## What `a.txt` says\n\nIn 25.2 s, not 90.\n\n## Rest\n\n12\n");
        assert_eq!(
            found(&below),
            [
                "README.md:8: states 90, which does not stand in a.txt",
                "README.md:12: states 12, which does not stand in any named file",
            ]
        );
    }
}
