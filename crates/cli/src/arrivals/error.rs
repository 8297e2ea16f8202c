//! The errors of the readers.

use super::block_type::SIMPLE_PACKET;
use super::kind::Kind;
use super::limits::{
    ARRIVALS_MAX, BLOCK_BYTES_MAX, INTERFACES_MAX, LINE_BYTES_MAX, TRACE_BYTES_MAX,
};
use core::fmt;
use std::io;
use upcall_sim::trace::ReadError;

/// Why a file gives no arrivals.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrivalsError {
    /// The system's error.
    Io(io::Error),
    /// The file is of no known [`Kind`].
    Kind,
    /// A port was given for a file without packets.
    Port(Kind),
    /// An invalid capture.
    Capture {
        /// Whole packets before the fault.
        packets: u64,
        /// The fault.
        fault: CaptureFault,
    },
    /// An invalid line.
    Line {
        /// From 1.
        line: u64,
        /// The fault.
        fault: LineFault,
    },
    /// An invalid trace.
    Trace(ReadError),
    /// A trace longer than [`TRACE_BYTES_MAX`].
    TraceTooLong,
    /// The trace has no activity of that name.
    NoActivity {
        /// Its activities, at most eight.
        known: Vec<String>,
    },
    /// More than [`ARRIVALS_MAX`].
    TooMany,
    /// Two arrivals are more than 2^63 ns (292 years) apart, or one lies beyond that.
    TooFar,
    /// The file has no arrival.
    Nothing {
        /// The kind of the file.
        kind: Kind,
        /// Packets, jobs or lines that were read.
        seen: u64,
        /// The requested port.
        port: Option<u16>,
        /// An unknown link type of a packet.
        link: Option<u32>,
    },
}

/// What is wrong with a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureFault {
    /// The file ends inside its first header.
    NoHeader,
    /// An unknown major version of the format.
    Version(u16),
    /// An impossible length of a packet or a block.
    Length(u32),
    /// A section whose byte-order mark is not 1a2b3c4d.
    ByteOrder,
    /// An inconsistent block.
    Malformed {
        /// The type of the block.
        block: u32,
    },
    /// A packet of an interface without a description.
    Interface(u32),
    /// More interfaces than are accepted.
    Interfaces,
    /// A time resolution that does not fit 64 bits.
    Resolution(u8),
    /// Packets in a block type without a time, or one whose time is not read.
    Timeless {
        /// Type of the block, 2 or 3.
        block: u32,
    },
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineFault {
    /// Longer than [`LINE_BYTES_MAX`].
    TooLong,
    /// The line is not UTF-8.
    Encoding,
    /// The line has no valid time.
    Time {
        /// The text of the line, shortened.
        found: String,
        /// What is valid there.
        expected: String,
    },
}

impl fmt::Display for ArrivalsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArrivalsError::Io(error) => error.fmt(f),
            ArrivalsError::Kind => f.write_str(
                "found another kind of file, expected a capture (pcap, pcapng), a trace of upcall or \
                 a time a line, not compressed",
            ),
            ArrivalsError::Port(kind) => {
                write!(f, "found {kind}, expected a capture: a port selects its packets")
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
                    Kind::Trace => "jobs with PDUs",
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
            ArrivalsError::Capture { fault, .. } => Some(fault),
            ArrivalsError::Line { fault, .. } => Some(fault),
            _ => None,
        }
    }
}

impl fmt::Display for CaptureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureFault::NoHeader => f.write_str("the file ends inside the capture's header"),
            CaptureFault::Version(found) => {
                write!(f, "found version {found} of the capture's format, expected 2 (pcap) or 1")
            }
            CaptureFault::Length(found) => write!(
                f,
                "found a packet or block of {found} bytes, expected at most {BLOCK_BYTES_MAX} \
                 and what its format allows"
            ),
            CaptureFault::ByteOrder => {
                f.write_str("found a section without a byte order, expected 1a2b3c4d")
            }
            CaptureFault::Malformed { block } => {
                write!(f, "found a block of type {block} that contradicts itself")
            }
            CaptureFault::Interface(found) => {
                write!(f, "found a packet of interface {found}, which is not described")
            }
            CaptureFault::Interfaces => {
                write!(f, "found more than {INTERFACES_MAX} interfaces, expected at most that")
            }
            CaptureFault::Resolution(found) => {
                write!(f, "found if_tsresol {found:#04x}, expected one that fits 64 bits")
            }
            CaptureFault::Timeless { block } => {
                let kind = if *block == SIMPLE_PACKET { "simple" } else { "obsolete" };
                write!(
                    f,
                    "found a packet block of the {kind} kind, expected enhanced ones, with times"
                )
            }
        }
    }
}

impl core::error::Error for CaptureFault {}

impl fmt::Display for LineFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LineFault::TooLong => {
                write!(f, "found more than {LINE_BYTES_MAX} bytes, expected at most that")
            }
            LineFault::Encoding => f.write_str("found bytes that are no text, expected UTF-8"),
            LineFault::Time { found, expected } => write!(f, "found {found}, expected {expected}"),
        }
    }
}

impl core::error::Error for LineFault {}
