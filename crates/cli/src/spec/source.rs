//! Positions in a spec file, and the form of an error about them.
//!
//! Each error is one line that a program can search for, followed by an excerpt for a person:
//!
//! ```text
//! spec.toml:12:8: stream "camera": rate: found "90", expected a rate such as "90/s"
//!    |
//! 12 | rate = "90"
//!    |        ^^^^ expected a rate such as "90/s"
//! ```
//!
//! The parser reports its errors in this form. Code that uses a parsed spec does so too, with
//! [`Source::error_in`] or [`Source::error_at`], if a value proves invalid later. Examples are a
//! CPU that does not exist, a port in use, and a stream without a mapping.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use core::fmt;
use std::collections::BTreeMap;
use std::ops::Range;

/// Most errors that are reported of one file.
pub const FAULTS_MAX: usize = 20;

/// Most characters of a user's text that an error repeats.
const QUOTED_MAX: usize = 60;

/// Most characters of a line that an excerpt shows before the error, and as many from it on.
const EXCERPT_MAX: usize = 100;

/// The text of a spec file, and its name.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Byte at which each line starts, ascending; the first is 0.
    line_starts: Vec<usize>,
}

/// The position of one table: the file itself, a stream, a task or a background load.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its name in errors, such as `stream "camera"`; empty for the file itself.
    pub(super) owner: String,
    /// Its header, `[[stream]]`.
    pub(super) header: Range<usize>,
    /// The value of each key that the file gives.
    pub(super) keys: BTreeMap<String, Range<usize>>,
}

/// The errors of a spec file, at least one, each with its position.
///
/// Prints the lines and excerpts shown in the module's head, without a final newline.
#[derive(Clone, Debug)]
pub struct SpecError {
    reports: Vec<Report>,
    /// Errors beyond [`FAULTS_MAX`].
    left_out: usize,
}

/// One error in printable form.
#[derive(Clone, Debug)]
struct Report {
    line: String,
    excerpt: String,
}

/// One error, not yet rendered.
#[derive(Debug)]
struct Fault {
    at: Range<usize>,
    message: String,
    label: String,
}

/// The errors of one file as they are found. It keeps the first [`FAULTS_MAX`] in the order of the
/// file and counts the rest, so a hostile file costs no memory.
#[derive(Debug, Default)]
pub(super) struct Faults {
    kept: BTreeMap<(usize, usize), Fault>,
    found: usize,
}

impl Source {
    pub(super) fn new(name: &str, text: &str) -> Self {
        let newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        Source {
            name: printable(name),
            text: text.to_string(),
            line_starts: core::iter::once(0).chain(newlines).collect(),
        }
    }

    /// The file's name in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and the column in characters of a byte position, both from 1. O(log of the number
    /// of lines + length of the line).
    pub fn position(&self, at: usize) -> (usize, usize) {
        let at = floor_char(&self.text, at);
        let (line, line_start) = self.line(at);
        (line, self.text[line_start..at].chars().count() + 1)
    }

    /// The line of a byte position, from 1, and the byte at which the line starts.
    fn line(&self, at: usize) -> (usize, usize) {
        let line = self.line_starts.partition_point(|start| *start <= at);
        (line, self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or_default())
    }

    /// An error about `key` of the table at `place`. Its position is the key's value, or the
    /// table's header if the file does not give the key.
    pub fn error_in(&self, place: &Place, key: &str, found: &str, expected: &str) -> SpecError {
        let (found, expected) = (format!("found {found}"), format!("expected {expected}"));
        let fault = Fault::new(place.of(key), &place.owner, key, &found, &expected);
        SpecError { reports: vec![self.report(&fault)], left_out: 0 }
    }

    /// As [`Source::error_in`], with a whole sentence of somebody who refused it.
    pub fn refusal_in(&self, place: &Place, key: &str, refusal: &str, label: &str) -> SpecError {
        let message = format!("{}: {key}: {refusal}", place.owner);
        let fault = Fault { at: place.of(key), message, label: label.to_owned() };
        SpecError { reports: vec![self.report(&fault)], left_out: 0 }
    }

    /// An error about `key` of the file itself, at the bytes `span` of the text. A span beyond the
    /// text is cut to it.
    pub fn error_at(
        &self,
        span: Range<usize>,
        key: &str,
        found: &str,
        expected: &str,
    ) -> SpecError {
        let (found, expected) = (format!("found {found}"), format!("expected {expected}"));
        let fault = Fault::new(span, "", key, &found, &expected);
        SpecError { reports: vec![self.report(&fault)], left_out: 0 }
    }

    /// A syntax error at `at`.
    pub(super) fn error_of_syntax(&self, at: Range<usize>, message: &str) -> SpecError {
        let fault = Fault { at, message: format!("syntax: {message}"), label: message.to_string() };
        SpecError { reports: vec![self.report(&fault)], left_out: 0 }
    }

    fn report(&self, fault: &Fault) -> Report {
        let (line, column) = self.position(fault.at.start);
        Report {
            line: format!("{}:{line}:{column}: {}", self.name, fault.message),
            excerpt: self.excerpt(fault),
        }
    }

    /// The line on which the fault starts, with a caret under it. Of a long line, the part around
    /// the fault. Empty if the line is blank.
    fn excerpt(&self, fault: &Fault) -> String {
        let at = floor_char(&self.text, fault.at.start);
        let (line_number, line_start) = self.line(at);
        let (before, after) = (&self.text[line_start..at], &self.text[at..]);
        let before = match before.char_indices().nth_back(EXCERPT_MAX) {
            Some((cut, c)) => &before[cut + c.len_utf8()..],
            None => before,
        };
        let end = |(index, c): &(usize, char)| *index >= EXCERPT_MAX || matches!(c, '\n' | '\r');
        let after_len: usize =
            after.chars().enumerate().take_while(|c| !end(c)).map(|(_, c)| c.len_utf8()).sum();
        let line = &self.text[at - before.len()..at + after_len];
        if line.trim().is_empty() {
            return String::new();
        }
        let span_end = floor_char(&self.text, fault.at.end.clamp(at, at + after_len));
        let span = before.len()..before.len() + span_end - at;
        let annotation = AnnotationKind::Primary.span(span).label(fault.label.as_str());
        let snippet = Snippet::source(line).line_start(line_number).annotation(annotation);
        let group = Group::with_level(Level::ERROR).element(snippet);
        // Wider than any excerpt, tabs and wide characters included, so that the renderer cuts
        // nothing.
        Renderer::plain().term_width(1000).render(&[group]).trim_end().to_string()
    }
}

impl Place {
    /// Bytes of the value of `key`, or of the header if the file does not give the key.
    pub fn of(&self, key: &str) -> Range<usize> {
        self.keys.get(key).unwrap_or(&self.header).clone()
    }

    /// Byte at which the table starts: orders tables as in the file.
    pub fn position(&self) -> usize {
        self.header.start
    }
}

impl SpecError {
    /// An error without a position in the file.
    pub(super) fn of_file(name: &str, message: fmt::Arguments<'_>) -> Self {
        let line = format!("{}: {message}", printable(name));
        SpecError { reports: vec![Report { line, excerpt: String::new() }], left_out: 0 }
    }

    /// The first line of each error, in the order of the file.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.reports.iter().map(|report| report.line.as_str())
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, report) in self.reports.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            f.write_str(&report.line)?;
            if !report.excerpt.is_empty() {
                write!(f, "\n{}", report.excerpt)?;
            }
        }
        match self.left_out {
            0 => Ok(()),
            1 => f.write_str("\nand 1 more error"),
            more => write!(f, "\nand {more} more errors"),
        }
    }
}

impl core::error::Error for SpecError {}

impl Fault {
    fn new(at: Range<usize>, owner: &str, key: &str, found: &str, expected: &str) -> Self {
        let mut message = String::new();
        for part in [owner, key] {
            if !part.is_empty() {
                message.push_str(part);
                message.push_str(": ");
            }
        }
        message.push_str(found);
        message.push_str(", ");
        message.push_str(expected);
        Fault { at, message, label: expected.to_string() }
    }
}

impl Faults {
    /// Adds an error. `found` and `expected` are whole phrases: `found "90"`, `expected a rate`.
    pub(super) fn push(
        &mut self,
        at: Range<usize>,
        owner: &str,
        key: &str,
        found: &str,
        expected: &str,
    ) {
        self.keep(Fault::new(at, owner, key, found, expected));
    }

    /// As [`Faults::push`], for a missing key: its position is the header of the table.
    pub(super) fn push_missing(&mut self, place: &Place, key: &str, expected: &str) {
        let mut fault = Fault::new(
            place.header.clone(),
            &place.owner,
            key,
            "missing",
            &format!("expected {expected}"),
        );
        fault.label = format!("{key} is missing");
        self.keep(fault);
    }

    /// Counts errors that were found, and that will not be shown, because [`FAULTS_MAX`] others
    /// come before them in the file.
    pub(super) fn leave_out(&mut self, count: usize) {
        self.found += count;
    }

    fn keep(&mut self, fault: Fault) {
        self.kept.insert((fault.at.start, self.found), fault);
        self.found += 1;
        if self.kept.len() > FAULTS_MAX {
            self.kept.pop_last();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found == 0
    }

    /// The errors in the order of the file.
    pub(super) fn into_error(self, source: &Source) -> SpecError {
        let reports: Vec<Report> = self.kept.values().map(|fault| source.report(fault)).collect();
        SpecError { left_out: self.found - reports.len(), reports }
    }
}

/// A user's text as an error repeats it: in quotes, escaped, and shortened.
pub fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

/// The name without characters that would break its line.
fn printable(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The last character boundary of the text at or before `at`.
fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
