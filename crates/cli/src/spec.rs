//! The spec file: what a user wants to run (docs/spec.md).
//!
//! Read once by each command, before anything is measured or started. TOML is
//! parsed by the `toml` crate into values that know where they stand; they are
//! then walked by hand, so that every error names file, line, column, key,
//! what was found and what was expected. All errors of a file are reported
//! together, up to [`FAULTS_MAX`]. What depends on the machine or on other
//! rooms (whether a CPU exists, whether a stream has a mapping, whether a port
//! is free) is the caller's to find out, and to report at the same places
//! through [`Source::error_in`].
//!
//! | module | what it knows |
//! |---|---|
//! | `document` | the file's own keys, its entries against each other |
//! | `source` | where something stands, and how an error reads |
//! | `table` | one table: types, ranges, unknown and missing keys |
//! | `stream`, `task`, `group`, `background` | the keys of each |
//! | `units`, `endpoint` | numbers with a unit, addresses |
//! | `spelling` | which key was meant |

mod background;
mod document;
mod endpoint;
mod group;
mod source;
mod spelling;
mod stream;
pub mod sweep;
mod table;
mod task;
mod units;

#[cfg(test)]
mod tests;

pub use background::{Background, Load};
pub use group::Group;
pub(crate) use source::quoted;
pub use source::{FAULTS_MAX, Place, Source, SpecError};
pub use stream::{Direction, Stream};
pub use task::Task;
pub use units::{parse_duration, parse_share};

use document::read_document;
use source::Faults;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use toml::de::DeTable;
use upcall::discipline::Discipline;
use upcall::time::Span;

/// Largest file that is read, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Most streams and tasks together; also most background loads.
pub const ACTIVITIES_MAX: usize = 1024;

/// Largest number of a CPU.
pub const CPU_MAX: u32 = 1023;

/// A spec file, read and checked.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Who outranks whom.
    pub policy: &'static Discipline,
    /// CPUs the activities may use, in the order given, without duplicates,
    /// each at most [`CPU_MAX`]; absent: the caller's choice.
    pub cpus: Option<Vec<u32>>,
    /// Where each of `cpus` stands in the text.
    pub cpu_spans: Vec<Range<usize>>,
    /// Most CPUs the activities may use, from the first on: `1 ..= CPU_MAX + 1`; absent: all.
    pub cpu_count: Option<u32>,
    /// Most of a CPU that admission gives away, in millionths: `1 ..= 1_000_000`.
    pub cpu_limit_ppm: u32,
    /// What a hand-off is charged.
    pub switch_cost: SwitchCost,
    /// How late the kernel may wake the scheduler, as admission assumes it.
    pub wakeup_latency: Span,
    /// The longest an activity is served at a time under PS, above zero.
    pub time_quantum: Span,
    /// In the order of the file.
    pub streams: Vec<Stream>,
    /// In the order of the file.
    pub tasks: Vec<Task>,
    /// Each behind the one it is in.
    pub groups: Vec<Group>,
    /// In the order of the file.
    pub backgrounds: Vec<Background>,
    /// The text, for errors found later.
    pub source: Source,
}

/// What a hand-off from one activity to another is charged in admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchCost {
    /// What is measured at the start.
    Auto,
    /// So much.
    Fixed(Span),
}

/// An entry of the file that the policies schedule.
#[derive(Clone, Copy, Debug)]
pub enum Activity<'s> {
    /// Described by its quality of service.
    Stream(&'s Stream),
    /// Described by its numbers.
    Task(&'s Task),
}

impl Spec {
    /// Reads the file at `path`: a regular file, or a pipe until its end.
    /// Blocks as long as reading does, and never reads more than one byte
    /// beyond [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// The operating system's reason, or what [`Spec::parse`] finds.
    pub fn read(path: &Path) -> Result<Spec, SpecError> {
        let (name, bytes) = read_bytes(path)?;
        Spec::parse(&name, &bytes)
    }

    /// Reads a file's contents. `name` is what errors call it.
    ///
    /// # Errors
    /// Everything that is wrong with it, up to [`FAULTS_MAX`].
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Spec, SpecError> {
        let text = as_text(name, bytes)?;
        let source = Source::new(name, text);
        let document = DeTable::parse(text).map_err(|error| syntax_error(&source, &error))?;
        let mut faults = Faults::default();
        let spec = read_document(&source, document.get_ref(), &mut faults);
        if faults.is_empty() { Ok(spec) } else { Err(faults.into_error(&source)) }
    }

    /// Drops the streams and tasks that `names` holds. O(streams and tasks * names).
    pub fn leave_out(&mut self, names: &[String]) {
        self.streams.retain(|stream| !names.contains(&stream.name));
        self.tasks.retain(|task| !names.contains(&task.name));
    }

    /// Streams and tasks in the order in which admission takes them: first what is not optional,
    /// so that an optional one costs no other its place; among these the order of the file. Ties
    /// between activities go to the first. O(n log n), allocates the list.
    pub fn activities(&self) -> Vec<Activity<'_>> {
        let streams = self.streams.iter().map(Activity::Stream);
        let mut all: Vec<_> = streams.chain(self.tasks.iter().map(Activity::Task)).collect();
        all.sort_by_key(|activity| (activity.is_optional(), activity.place().position()));
        all
    }
}

impl<'s> Activity<'s> {
    /// Its name, unique among streams and tasks.
    pub fn name(self) -> &'s str {
        match self {
            Activity::Stream(stream) => &stream.name,
            Activity::Task(task) => &task.name,
        }
    }

    /// The process it runs in; absent: the one all such share.
    pub fn domain(self) -> Option<&'s str> {
        match self {
            Activity::Stream(stream) => stream.domain.as_deref(),
            Activity::Task(task) => task.domain.as_deref(),
        }
    }

    /// Whether a run goes on without it if admission refuses it.
    pub fn is_optional(self) -> bool {
        match self {
            Activity::Stream(stream) => stream.optional,
            Activity::Task(task) => task.optional,
        }
    }

    /// Where it stands.
    pub fn place(self) -> &'s Place {
        match self {
            Activity::Stream(stream) => &stream.place,
            Activity::Task(task) => &task.place,
        }
    }
}

/// What errors call the file, and what is in it, up to a byte too many.
fn read_bytes(path: &Path) -> Result<(String, Vec<u8>), SpecError> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    let limit = FILE_BYTES_MAX as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map_err(
        |error| {
            let hint = hint(path, &error);
            SpecError::of_file(&name, format_args!("cannot be read: {error}{hint}"))
        },
    )?;
    Ok((name, bytes))
}

/// What to do about a file that cannot be read, if something is known to help.
fn hint(path: &Path, error: &io::Error) -> String {
    let mut named = path.as_os_str().to_owned();
    named.push(".toml");
    match error.kind() {
        io::ErrorKind::NotFound if Path::new(&named).is_file() => {
            format!("; did you mean {}?", Path::new(&named).display())
        }
        io::ErrorKind::NotFound => "; expected a TOML file, as those in examples/".to_owned(),
        io::ErrorKind::IsADirectory => "; expected a TOML file".to_owned(),
        _ => String::new(),
    }
}

/// The contents as text, if they are not too long and text at all.
fn as_text<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b str, SpecError> {
    if bytes.len() > FILE_BYTES_MAX {
        let message =
            format_args!("found more than {FILE_BYTES_MAX} bytes, expected at most 1 MiB");
        return Err(SpecError::of_file(name, message));
    }
    let text = str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        let before = Source::new(name, str::from_utf8(&bytes[..offset]).unwrap_or_default());
        let (line, column) = before.position(offset);
        let byte = bytes.get(offset).copied().unwrap_or_default();
        let message =
            format_args!("found byte {byte:#04x} at offset {offset}, expected UTF-8 text");
        SpecError::of_file(&format!("{name}:{line}:{column}"), message)
    })?;
    // A byte order mark is no part of the first line.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The first error of the `toml` crate, in the form of the others.
fn syntax_error(source: &Source, error: &toml::de::Error) -> SpecError {
    match error.span() {
        // The one error that the crate gives no place.
        None if error.message() == "recursion limit" => {
            let message = format_args!("found a key of 80 parts or more, expected fewer");
            SpecError::of_file(source.name(), message)
        }
        None => SpecError::of_file(source.name(), format_args!("syntax: {}", error.message())),
        Some(at) if error.message() == "duplicate key" => {
            let key = source.text().get(at.clone()).unwrap_or_default();
            let key = table::bare(key.trim_matches(['"', '\'']));
            source.error_at(at, &key, "it a second time", "it once")
        }
        Some(at) => source.error_of_syntax(at, error.message()),
    }
}
