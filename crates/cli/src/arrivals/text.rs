//! Reads one time a line: seconds as a plain number, or a duration with a unit. `#` begins a
//! comment. Lines without a time are skipped.

use super::error::{ArrivalsError, LineFault};
use super::limits::LINE_BYTES_MAX;
use super::timeline::Timeline;
use crate::spec::{parse_duration, quoted};
use std::io::{BufRead, BufReader, Read};

/// Reads the times. Returns how many lines had a time.
pub(super) fn read(input: impl Read, times: &mut Timeline) -> Result<u64, ArrivalsError> {
    let mut input = BufReader::new(input);
    let mut bytes = Vec::new();
    let mut seen = 0;
    for line in 1.. {
        bytes.clear();
        // One byte more than allowed, to detect a line that is too long.
        let mut limited = input.by_ref().take(LINE_BYTES_MAX as u64 + 1);
        limited.read_until(b'\n', &mut bytes).map_err(ArrivalsError::Io)?;
        if bytes.is_empty() {
            break;
        }
        let fault = |fault| ArrivalsError::Line { line, fault };
        if let Some(ns) = parse(&bytes, line == 1).map_err(fault)? {
            seen += 1;
            times.push(ns)?;
        }
    }
    Ok(seen)
}

/// The time in nanoseconds, or `None` for an empty line or a comment.
fn parse(bytes: &[u8], first: bool) -> Result<Option<i128>, LineFault> {
    if bytes.len() > LINE_BYTES_MAX {
        return Err(LineFault::TooLong);
    }
    let text = str::from_utf8(bytes).map_err(|_| LineFault::Encoding)?;
    let text = if first { text.trim_start_matches('\u{feff}') } else { text };
    let text = text.split('#').next().unwrap_or("").trim();
    if text.is_empty() {
        return Ok(None);
    }
    let plain = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-'));
    let parsed = if plain { parse_duration(&format!("{text} s")) } else { parse_duration(text) };
    parsed.map(|span| Some(i128::from(span.as_nanos()))).map_err(|error| LineFault::Time {
        found: quoted(text),
        expected: format!("seconds such as 0.02, or {}", error.expected()),
    })
}
