//! Words that this project once used privately and has since replaced (docs/GLOSSARY.md).
//!
//! A word counts wherever it stands: in identifiers (`DomainHall`, `usher_run`), file names,
//! comments, strings and documents. The list holds only words that have no ordinary meaning in
//! this project, so that a word which is found is always a mistake.

use crate::workspace::Source;

/// Each word that is gone, and the field's word for it.
const GONE: [(&str, &str); 40] = [
    ("bell", "wake word"),
    ("bury", "reap"),
    ("buried", "reaped"),
    ("buries", "reaps"),
    ("desk", "event dispatcher"),
    ("door", "stream listener"),
    ("doorbell", "notifier"),
    ("doze", "prepare to wait"),
    ("dozes", "prepares to wait"),
    ("dozing", "asleep"),
    ("executive", "executor"),
    ("fate", "exit state"),
    ("guardian", "watchdog"),
    ("hall", "domain group"),
    ("hear", "poll"),
    ("heed", "drain the controls"),
    ("holdings", "attach state"),
    ("idler", "idle holder"),
    ("inlet", "stream reader"),
    ("junior", "lower-ranked"),
    ("liar", "domain with a false rank"),
    ("neighbour", "peer domain"),
    ("obeyed", "drained"),
    ("outlet", "stream writer"),
    ("party", "registrant"),
    ("patience", "deferred preemption"),
    ("porter", "I/O pump or liveness monitor"),
    ("recheck", "need_resched"),
    ("rouse", "cancel the wait"),
    ("rouses", "cancels the wait"),
    ("scribbler", "domain with invalid memory"),
    ("seat", "virtual processor"),
    ("sentry", "liveness monitor"),
    ("staffed", "with its thread"),
    ("stir", "cancel the wait"),
    ("stranger", "unknown process"),
    ("tally", "counts"),
    ("usher", "reaper or controller"),
    ("ward", "watch entry"),
    ("whoever", "the subject's name"),
];

/// Files that may name them: the history, the glossary, and this one.
const EXEMPT: [&str; 3] = ["CHANGELOG.md", "docs/GLOSSARY.md", "xtask/src/gates/files/words.rs"];

/// A line for each word of `source`, or of its path, that is gone.
pub fn private(source: &Source) -> Vec<String> {
    if EXEMPT.contains(&source.path.as_str()) {
        return Vec::new();
    }
    let in_path = words(&source.path).filter_map(gone).map(|(word, instead)| {
        format!("{}: its name says `{word}`, expected {instead}", source.path)
    });
    let lines = source.text.lines().enumerate();
    let in_text = lines.flat_map(|(index, line)| {
        words(line).filter_map(gone).map(move |(word, instead)| {
            format!("{}:{}: `{word}`, expected {instead}", source.path, index + 1)
        })
    });
    in_path.chain(in_text).collect()
}

/// The row of the list that `word` is, in any case, one or many.
fn gone(word: &str) -> Option<&'static (&'static str, &'static str)> {
    let is = |row: &str, word: &str| row.eq_ignore_ascii_case(word);
    let one = word.strip_suffix(['s', 'S']).unwrap_or(word);
    GONE.iter().find(|(row, _)| is(row, word) || is(row, one))
}

/// The words of `text`; an identifier gives each word it is made of.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphabetic()).flat_map(|word| {
        let mut rest = word;
        std::iter::from_fn(move || {
            // A word ends before a capital that follows a small letter.
            let mut was_small = false;
            let end = rest.char_indices().find(|(_, c)| {
                let ends = was_small && c.is_uppercase();
                was_small = c.is_lowercase();
                ends
            });
            let (first, behind) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
            rest = behind;
            (!first.is_empty()).then_some(first)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        private(&Source { path: path.to_owned(), text: text.to_owned() })
    }

    #[test]
    fn a_word_that_is_gone_is_found_in_prose_and_in_identifiers() {
        let text = "The Hall.\nstruct AsyncInlet;\nlet x = usher_run(\"bells\");\nDOORBELL";
        let found = found("a.rs", text);
        let lines: Vec<_> = found.iter().map(|line| line.split('`').nth(1).unwrap()).collect();
        assert_eq!(lines, ["hall", "inlet", "usher", "bell", "doorbell"]);
        assert_eq!(found[1], "a.rs:2: `inlet`, expected stream reader");
    }

    #[test]
    fn a_longer_word_is_another_word() {
        assert!(found("a.rs", "marshall towards forward indoor reportern seated").is_empty());
    }

    #[test]
    fn a_word_in_a_path_is_found() {
        assert_eq!(found("src/hall.rs", "").len(), 1);
    }

    #[test]
    fn the_glossary_may_name_them() {
        assert!(found("docs/GLOSSARY.md", "hall: domain group").is_empty());
    }
}
