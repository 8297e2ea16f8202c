//! Recorded arrivals: when PDUs came, read from what somebody recorded.
//!
//! Called by `upcall sim --arrivals` and by the fuzz targets. Files come from strangers:
//! no input makes a reader panic, a capture or a text is read as a stream, and what is
//! kept of it is eight bytes an arrival, [`ARRIVALS_MAX`] at most. Nothing here
//! simulates or prints.
//!
//! What a file is, is told by how it begins:
//!
//! | kind | begins with | an arrival is |
//! |---|---|---|
//! | pcap | `a1b2c3d4` or `a1b23c4d`, either byte order | a packet, counted from the first that is selected |
//! | pcapng | `0a0d0d0a` | the same |
//! | trace of `upcall run` or `sim` | `0a`, then what no text holds | each PDU of a job, at the job's release, counted from the first |
//! | text | no control character but white space | a line, as it stands |
//!
//! What goes back in time (several interfaces or queues in one capture) is sorted, and
//! said: see [`Note`].

use core::fmt;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use upcall::time::{Instant, Span};
use upcall_sim::trace::ReadError;

mod capture;
mod packet;
#[cfg(test)]
mod tests;
mod text;
mod timeline;
mod trace;

pub use capture::{BLOCK_BYTES_MAX, CaptureFault};
pub use text::{LINE_BYTES_MAX, LineFault};
pub use trace::TRACE_BYTES_MAX;

use timeline::Timeline;

/// Most arrivals that are taken from one file.
pub const ARRIVALS_MAX: usize = 10_000_000;

/// How much of a file's beginning tells what it is.
const HEAD_BYTES: u64 = 512;

/// What was typed: `NAME=FILE` or `NAME=FILE:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Of a stream or a task.
    pub name: String,
    /// Where it was recorded.
    pub path: PathBuf,
    /// Of a capture only UDP datagrams to this port.
    pub port: Option<u16>,
}

/// What a file held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// In order, at least one.
    pub at: Vec<Instant>,
    /// What a user should know of it.
    pub notes: Vec<Note>,
}

/// Something to be said of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// So many came earlier than one before them, by at most `back`; they were sorted.
    Sorted {
        /// How many.
        count: u64,
        /// The longest way back.
        back: Span,
    },
    /// The capture ends inside a packet or a block; what stands before it was taken.
    Truncated {
        /// Whole packets, selected or not.
        packets: u64,
    },
    /// Packets in which no port can be found.
    UnknownLink {
        /// The link type, as <https://www.tcpdump.org/linktypes.html> numbers them.
        link: u32,
        /// How many there were of all such link types.
        packets: u64,
    },
    /// The trace has gaps.
    Lost {
        /// Records that are not in it.
        records: u64,
    },
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Packets, in the old format.
    Pcap,
    /// Packets, in the new one.
    PcapNg,
    /// Of `upcall run --trace` or `upcall sim --trace`.
    Trace,
    /// A time a line.
    Text,
}

/// Why a file gives no arrivals.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrivalsError {
    /// The system's reason.
    Io(io::Error),
    /// It is none of [`Kind`].
    Kind,
    /// A port was asked for where there are no packets.
    Port(Kind),
    /// Something is wrong with a capture.
    Capture {
        /// Whole packets before.
        packets: u64,
        /// What it is.
        fault: CaptureFault,
    },
    /// Something is wrong with a line.
    Line {
        /// From 1.
        line: u64,
        /// What it is.
        fault: LineFault,
    },
    /// Something is wrong with a trace.
    Trace(ReadError),
    /// A trace longer than [`TRACE_BYTES_MAX`].
    TraceTooLong,
    /// The trace has no activity of that name.
    NoActivity {
        /// Those that it has, at most eight.
        known: Vec<String>,
    },
    /// More than [`ARRIVALS_MAX`].
    TooMany,
    /// Two are further apart than 2^63 ns (292 years), or one lies beyond that.
    TooFar,
    /// Nothing arrived.
    Nothing {
        /// What it was read as.
        kind: Kind,
        /// Packets, jobs or lines that were looked at.
        seen: u64,
        /// The port asked for.
        port: Option<u16>,
        /// A link type that was not understood.
        link: Option<u32>,
    },
}

/// Why what was typed is no [`Recording`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordingError {
    /// No `=`, or nothing before or behind it.
    Form,
    /// The name is no UTF-8 text.
    Name,
    /// A number that is no port.
    Port,
}

impl Recording {
    /// Reads `NAME=FILE[:PORT]`. What stands behind the last colon is a port if it is a
    /// number, and else belongs to the path. A path that itself ends so is written with
    /// one more colon: `NAME=call:5004:` is the file `call:5004`.
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

    /// Opens the file and reads it to its end. Blocks as long as that takes.
    ///
    /// # Errors
    /// See [`ArrivalsError`].
    pub fn read(&self) -> Result<Arrived, ArrivalsError> {
        let file = File::open(&self.path).map_err(ArrivalsError::Io)?;
        read(BufReader::with_capacity(1 << 16, file), &self.name, self.port)
    }
}

/// Reads the arrivals of `name` (which only a trace looks at): of a capture those of
/// UDP datagrams to `port`, or of every packet. O(n), and O(n log n) where they are out
/// of order.
///
/// # Errors
/// See [`ArrivalsError`].
pub fn read(mut input: impl Read, name: &str, port: Option<u16>) -> Result<Arrived, ArrivalsError> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(ArrivalsError::Io)?;
    let kind = Kind::of(&head).ok_or(ArrivalsError::Kind)?;
    let input = io::Cursor::new(head).chain(input);
    let mut times = Timeline::default();
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
    // A line says when; what a machine recorded counts from its first.
    let at = times.finish(kind != Kind::Text, &mut notes);
    if at.is_empty() {
        return Err(ArrivalsError::Nothing { kind, seen, port, link });
    }
    Ok(Arrived { at, notes })
}

impl Kind {
    fn of(head: &[u8]) -> Option<Kind> {
        let white = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c);
        match head {
            [0xd4, 0xc3, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0xc3, 0xd4, ..] => Some(Kind::Pcap),
            [0x4d, 0x3c, 0xb2, 0xa1, ..] | [0xa1, 0xb2, 0x3c, 0x4d, ..] => Some(Kind::Pcap),
            [0x0a, 0x0d, 0x0d, 0x0a, ..] => Some(Kind::PcapNg),
            _ if head.iter().all(|byte| white(byte) || !byte.is_ascii_control()) => {
                Some(Kind::Text)
            }
            [0x0a, ..] => Some(Kind::Trace),
            _ => None,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Pcap | Kind::PcapNg => "a capture",
            Kind::Trace => "a trace",
            Kind::Text => "a text",
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::Sorted { count, back } => {
                write!(f, "{count} arrivals were out of order, by up to {back}; sorted")
            }
            Note::Truncated { packets } => {
                write!(f, "the capture is cut off; the {packets} whole packets of it were read")
            }
            Note::UnknownLink { link, packets } => {
                write!(f, "{packets} packets have no port that is found: link type {link}")
            }
            Note::Lost { records } => {
                write!(f, "{records} records were lost when the trace was written")
            }
        }
    }
}

impl fmt::Display for ArrivalsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrivalsError::Io(error) => error.fmt(f),
            ArrivalsError::Kind => f.write_str(
                "found something else, expected a capture (pcap, pcapng), a trace of upcall or \
                 a time a line, not compressed",
            ),
            ArrivalsError::Port(kind) => {
                write!(f, "found {kind}, expected a capture, of which a port selects packets")
            }
            ArrivalsError::Capture { packets, fault } => {
                write!(f, "{fault}, after {packets} packets")
            }
            ArrivalsError::Line { line, fault } => write!(f, "line {line}: {fault}"),
            ArrivalsError::Trace(error) => error.fmt(f),
            ArrivalsError::TraceTooLong => {
                write!(
                    f,
                    "found a trace of more than {TRACE_BYTES_MAX} bytes, expected at most that"
                )
            }
            ArrivalsError::NoActivity { known } => {
                write!(f, "found no activity of that name in the trace")?;
                let known: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
                write!(f, ", expected one of {}", known.join(", "))
            }
            ArrivalsError::TooMany => {
                write!(f, "found more than {ARRIVALS_MAX} arrivals, expected at most that")
            }
            ArrivalsError::TooFar => {
                f.write_str("found an arrival more than 292 years away, expected less")
            }
            ArrivalsError::Nothing { kind, seen, port, link } => {
                let seen_as = match kind {
                    Kind::Pcap | Kind::PcapNg => "packets",
                    Kind::Trace => "jobs that did something",
                    Kind::Text => "lines with a time",
                };
                match port {
                    Some(port) => {
                        write!(f, "found none of {seen} packets sent to UDP port {port}")?;
                    }
                    None => write!(f, "found no {seen_as}")?,
                }
                write!(f, ", expected at least one")?;
                match link {
                    Some(link) => write!(f, " (no port is found in packets of link type {link})"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl core::error::Error for ArrivalsError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            ArrivalsError::Io(error) => Some(error),
            ArrivalsError::Trace(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecordingError::Form => "expected NAME=FILE or NAME=FILE:PORT",
            RecordingError::Name => "the name is no UTF-8 text",
            RecordingError::Port => {
                "the port is none of 1 to 65535 (a path that ends in a colon and a number is \
                 written with one more colon)"
            }
        })
    }
}

impl core::error::Error for RecordingError {}
