//! Recorded arrivals: the times of PDUs, read from recordings.
//!
//! `upcall sim --arrivals` and the fuzz targets call this module. The files are untrusted: no input
//! makes a reader panic. Captures and texts are read as streams. The module keeps eight bytes an
//! arrival, or sixteen with timestamps, for [`ARRIVALS_MAX`] arrivals at most. It neither simulates
//! nor prints.
//!
//! The first bytes of a file tell its kind:
//!
//! | kind | begins with | an arrival is |
//! |---|---|---|
//! | pcap | `a1b2c3d4` or `a1b23c4d`, either byte order | a packet; times count from the first selected one |
//! | pcapng | `0a0d0d0a` | the same |
//! | trace of `upcall run` or `sim` | `0a`, then bytes that no text has | each PDU of a job, at the job's release; times count from the first |
//! | text | no control character except white space | a line, with its time as written |
//!
//! Arrivals that go back in time (several interfaces or queues in one capture) are sorted. A
//! [`Note`] reports this.

use core::fmt;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use upcall::time::Instant;
use upcall::work::MediaClock;

mod block_type;
mod capture;
mod error;
mod kind;
mod limits;
mod note;
mod packet;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod trace;

pub use error::{ArrivalsError, CaptureFault, LineFault};
pub use kind::Kind;
pub use limits::{ARRIVALS_MAX, BLOCK_BYTES_MAX, LINE_BYTES_MAX, TRACE_BYTES_MAX};
pub use note::Note;

use timeline::Timeline;

/// How many first bytes tell a file's kind.
const HEAD_BYTES: u64 = 512;

/// An argument of the command line: `NAME=FILE` or `NAME=FILE:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// The name of a stream or a task.
    pub name: String,
    /// The recording.
    pub path: PathBuf,
    /// Take only UDP datagrams to this port of a capture.
    pub port: Option<u16>,
}

/// The arrivals in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// In order, at least one.
    pub at: Vec<Instant>,
    /// If timestamps were asked for and the file is a capture: when each of these packets arrives
    /// logically.
    pub logical: Option<Vec<Instant>>,
    /// What a user should know of the file.
    pub notes: Vec<Note>,
}

/// Why an argument is no [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordingError {
    /// It has no `=`, or nothing before or after it.
    Form,
    /// The name is not UTF-8 text.
    Name,
    /// The port is no valid port number.
    Port,
}

impl Recording {
    /// Reads `NAME=FILE[:PORT]`. A number after the last colon is a port; any other text there
    /// belongs to the path. A path that itself ends in a colon and a number takes one more colon:
    /// `NAME=call:5004:` is the file `call:5004`.
    ///
    /// # Errors
    /// See [`RecordingError`].
    pub fn parse(text: &OsStr) -> Result<Recording, RecordingError> {
        let bytes = text.as_bytes();
        let equals = bytes.iter().position(|&byte| byte == b'=').ok_or(RecordingError::Form)?;
        let (name, file) = (&bytes[..equals], &bytes[equals + 1..]);
        let name = str::from_utf8(name).map_err(|_| RecordingError::Name)?.to_owned();
        let (path, port) = match file.iter().rposition(|&byte| byte == b':') {
            Some(colon) if file[colon + 1..].iter().all(u8::is_ascii_digit) => {
                (&file[..colon], &file[colon + 1..])
            }
            _ => (file, &[][..]),
        };
        if name.is_empty() || path.is_empty() {
            return Err(RecordingError::Form);
        }
        let port = match str::from_utf8(port) {
            Ok("") | Err(_) => None,
            Ok(digits) => match digits.parse() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err(RecordingError::Port),
            },
        };
        Ok(Recording { name, path: OsStr::from_bytes(path).into(), port })
    }

    /// Opens the file and reads it to its end. Blocks as long as reading does. `clock` reads
    /// the RTP timestamps in its packets, if they have any.
    ///
    /// # Errors
    /// See [`ArrivalsError`].
    pub fn read(&self, clock: Option<MediaClock>) -> Result<Arrived, ArrivalsError> {
        let file = File::open(&self.path).map_err(ArrivalsError::Io)?;
        read_media(BufReader::with_capacity(1 << 16, file), &self.name, self.port, clock)
    }
}

/// Reads the arrivals of `name`, which matters for traces only. Of a capture it takes UDP datagrams
/// to `port`, or every packet. O(n), and O(n log n) if they are out of order.
///
/// # Errors
/// See [`ArrivalsError`].
pub fn read(input: impl Read, name: &str, port: Option<u16>) -> Result<Arrived, ArrivalsError> {
    read_media(input, name, port, None)
}

/// As [`read`], with the RTP timestamps of a capture.
fn read_media(
    mut input: impl Read,
    name: &str,
    port: Option<u16>,
    clock: Option<MediaClock>,
) -> Result<Arrived, ArrivalsError> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(ArrivalsError::Io)?;
    let kind = Kind::of(&head).ok_or(ArrivalsError::Kind)?;
    let input = io::Cursor::new(head).chain(input);
    let is_capture = matches!(kind, Kind::Pcap | Kind::PcapNg);
    let mut times = Timeline::new(clock.filter(|_| is_capture));
    let mut notes = Vec::new();
    let seen = match (kind, port) {
        (Kind::Pcap | Kind::PcapNg, _) => capture::read(input, kind, port, &mut times, &mut notes)?,
        (_, Some(_)) => return Err(ArrivalsError::Port(kind)),
        (Kind::Trace, None) => trace::read(input, name, &mut times, &mut notes)?,
        (Kind::Text, None) => text::read(input, &mut times)?,
    };
    let link = notes.iter().find_map(|note| match note {
        Note::UnknownLink { link, .. } => Some(*link),
        _ => None,
    });
    // A text has absolute times; captures and traces count from their first arrival.
    let (at, logical) = times.finish(kind != Kind::Text, &mut notes);
    if at.is_empty() {
        return Err(ArrivalsError::Nothing { kind, seen, port, link });
    }
    Ok(Arrived { at, logical, notes })
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordingError::Form => "expected NAME=FILE or NAME=FILE:PORT",
            RecordingError::Name => "the name is no UTF-8 text",
            RecordingError::Port => {
                "the port is not from 1 to 65535 (a path that ends in a colon and a number is \
                 written with one more colon)"
            }
        })
    }
}

impl core::error::Error for RecordingError {}
