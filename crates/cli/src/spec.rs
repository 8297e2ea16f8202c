//! The spec file: what a user wants to run (docs/spec.md).
//!
//! Each command reads it once, before anything is measured or started. The crate `toml` parses the
//! text into values with positions. The modules below then walk the values by hand, so that every
//! error names file, line, column, key, what was found and what was expected. All errors of a file
//! are reported together, up to [`FAULTS_MAX`]. Checks that depend on the machine or on other
//! crates are the caller's: whether a CPU exists, a stream has a mapping, a port is free. The
//! caller reports them at the same places through [`Source::error_in`].
//!
//! | module | content |
//! |---|---|
//! | `contents` | the content of a file, as data |
//! | `document` | the file's own keys; checks of entries against each other |
//! | `source` | positions in the file, and the form of an error |
//! | `table` | one table: types, ranges, unknown and missing keys |
//! | `stream`, `task`, `group`, `background` | the keys of each table |
//! | `same_cpu` | entries that name others for their CPU |
//! | `units`, `endpoint` | numbers with a unit, addresses |
//! | `spelling` | the key that a misspelt one stands for |

mod background;
mod contents;
mod document;
mod endpoint;
mod group;
mod same_cpu;
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
pub use contents::{ACTIVITIES_MAX, Activity, CPU_MAX, Spec, SwitchCost};
pub use endpoint::Address;
pub use group::Group;
pub(crate) use source::quoted;
pub use source::{FAULTS_MAX, Place, Source, SpecError};
pub use stream::{Direction, Stream};
pub use task::Task;
pub use units::{parse_duration, parse_packet_period, parse_share};

use document::read_document;
use source::Faults;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use toml::de::DeTable;

/// Largest accepted file, in bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

impl Spec {
    /// Reads the file at `path`: a regular file, or a pipe until its end. Blocks as long as reading
    /// does. Reads at most one byte more than [`FILE_BYTES_MAX`].
    ///
    /// # Errors
    /// The system's error, or the errors of [`Spec::parse`].
    pub fn read(path: &Path) -> Result<Spec, SpecError> {
        let (name, bytes) = read_bytes(path)?;
        Spec::parse(&name, &bytes)
    }

    /// Reads the content of a file. `name` is the file's name in errors.
    ///
    /// # Errors
    /// Every error in the file, up to [`FAULTS_MAX`].
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Spec, SpecError> {
        let text = as_text(name, bytes)?;
        let source = Source::new(name, text);
        let document = DeTable::parse(text).map_err(|error| syntax_error(&source, &error))?;
        let mut faults = Faults::default();
        let spec = read_document(&source, document.get_ref(), &mut faults);
        if faults.is_empty() { Ok(spec) } else { Err(faults.into_error(&source)) }
    }
}

/// The file's name in errors, and its content, at most one byte over the limit.
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

/// A remedy for a file that cannot be read, if one is known.
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

/// The content as text, unless it is too long or not UTF-8.
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
    // A byte order mark does not belong to the first line.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The first error of the crate `toml`, in the form of the other errors.
fn syntax_error(source: &Source, error: &toml::de::Error) -> SpecError {
    match error.span() {
        // The only error without a position.
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
