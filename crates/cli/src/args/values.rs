//! Parsers of values with a unit on the command line.

use upcall::admission::Share;
use upcall::time::Span;

use crate::spec;

/// 10 ms to 7 days.
pub fn duration(text: &str) -> Result<Span, String> {
    let span = spec::parse_duration(text).map_err(|error| error.to_string())?;
    let longest = Span::from_secs(7 * 24 * 3600);
    if span < Span::from_millis(10) || span > longest {
        return Err(format!("{span} is outside 10 ms to 7 days"));
    }
    Ok(span)
}

/// Any time.
pub fn short_duration(text: &str) -> Result<Span, String> {
    spec::parse_duration(text).map_err(|error| error.to_string())
}

/// More than 0 %, and at most 100 %.
pub fn share(text: &str) -> Result<Share, String> {
    let ppm = spec::parse_share(text).map_err(|error| error.to_string())?;
    Share::from_ppm(ppm).ok_or_else(|| "found 0 %, expected more".to_owned())
}
