//! Numbers with a unit as a user writes them: `"1.5 ms"`, `"8 KiB"`, `"90/s"`.
//!
//! The reader of spec files and the command line (`--duration 10s`) call it. The arithmetic is
//! exact and decimal, without floating point. A number that is no whole multiple of the stored unit
//! is refused. Rates are the exception: a fraction such as `30000/1001` has no exact value and is
//! rounded up to the next millionth a second. White space around the number and the unit is free.
//! Only errors allocate. The caller checks ranges that depend on the key.

use core::fmt;
use upcall::packet_quota::{RECEIVE_PERIOD_MAX, RECEIVE_PERIOD_MIN};
use upcall::qos::Rate;
use upcall::time::Span;

#[cfg(test)]
mod tests;

/// Fastest accepted rate, 10^9 a second. Above it, the time between two PDUs is less than a
/// nanosecond.
pub const RATE_MAX: Rate = Rate::from_hertz(1_000_000_000);

/// The whole, in millionths.
pub const SHARE_PPM_MAX: u32 = 1_000_000;

/// Most decimal places of a number, after trailing zeros. This is enough for every unit here, and
/// keeps the products below well within 128 bits.
const PLACES_MAX: usize = 18;

/// Largest whole part of the number in a rate, before it is divided.
const RATE_NUMBER_MAX: u64 = 1_000_000_000_000;

/// The kind of quantity that a text must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A length of time, kept in nanoseconds.
    Duration,
    /// An amount of data, kept in bytes.
    Size,
    /// Data per time, kept in bits a second.
    Bandwidth,
    /// Events per time, kept in millionths a second.
    Rate,
    /// A part of a whole, kept in millionths.
    Share,
}

/// Why a text is not the expected quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// No number, no unit, or not a decimal number.
    Malformed,
    /// The number has a unit that this quantity does not know.
    Unit,
    /// The number is negative.
    Negative,
    /// The number is no whole multiple of the stored unit.
    TooFine,
    /// The number is too large to store.
    TooLarge,
}

/// A text that is not the expected quantity: the user's mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    /// The expected quantity.
    pub quantity: Quantity,
    /// The reason.
    pub reason: Reason,
    found: String,
}

/// A length of time: `ns`, `us` (or `µs`), `ms`, `s`, `min`.
///
/// # Errors
/// The text is no non-negative number of whole nanoseconds below 2^64.
pub fn parse_duration(text: &str) -> Result<Span, UnitError> {
    exact(Quantity::Duration, text).map(Span::from_nanos)
}

/// Bytes: `B`; decimal `kB`, `MB`, `GB`; binary `KiB`, `MiB`, `GiB`.
///
/// # Errors
/// The text is no non-negative number of whole bytes below 2^64.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    exact(Quantity::Size, text)
}

/// Bits a second: `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`, all decimal.
///
/// # Errors
/// The text is no non-negative number of whole bits a second below 2^64.
pub fn parse_bandwidth(text: &str) -> Result<u64, UnitError> {
    exact(Quantity::Bandwidth, text)
}

/// Millionths of a whole: `%`.
///
/// # Errors
/// The text is not 0 to 100 % in steps of 0.0001 %.
pub fn parse_share(text: &str) -> Result<u32, UnitError> {
    let error = |reason| UnitError::new(Quantity::Share, reason, text);
    match u32::try_from(exact(Quantity::Share, text)?) {
        Ok(ppm) if ppm <= SHARE_PPM_MAX => Ok(ppm),
        _ => Err(error(Reason::TooLarge)),
    }
}

/// The time between two packets of a rate: from one packet an hour to 10,000,000 a second. Rounds
/// down, so that a limit is never smaller than asked for.
///
/// # Errors
/// The text is no such rate: as one line.
pub fn parse_packet_period(text: &str) -> Result<Span, String> {
    let micro_hertz = parse_rate(text).map_err(|error| error.to_string())?.as_micro_hertz();
    let period_ns = 1_000_000_000_000_000_u64.checked_div(micro_hertz);
    let period = Span::from_nanos(period_ns.unwrap_or(u64::MAX));
    match period < RECEIVE_PERIOD_MIN || period > RECEIVE_PERIOD_MAX {
        true => Err(format!("found {text}, expected 1 packet an hour to 10,000,000 a second")),
        false => Ok(period),
    }
}

/// Events a second or a minute: `90/s`, `50 Hz`, `48 kHz`, `29.97/s`, `30000/1001/s`, `3/min`.
/// Rounds up to a millionth a second, so that a reservation is never smaller than requested.
///
/// # Errors
/// The text is not a rate of 0 to a billion a second.
pub fn parse_rate(text: &str) -> Result<Rate, UnitError> {
    let error = |reason| UnitError::new(Quantity::Rate, reason, text);
    let in_number = |c: char| matches!(c, '0'..='9' | '.' | '-' | '+' | '/') || c.is_whitespace();
    let unit_at = text.find(|c| !in_number(c)).ok_or_else(|| error(Reason::Malformed))?;
    let (number, unit) = text.split_at(unit_at);
    let (number, is_per) = match number.trim_end().strip_suffix('/') {
        Some(number) => (number, true),
        None => (number, false),
    };
    let (number, divisor) = match number.split_once('/') {
        Some((number, divisor)) => (number, divisor.trim()),
        None => (number, "1"),
    };
    let number = Decimal::parse(number.trim()).map_err(error)?;
    let divisor = match divisor.parse::<u32>() {
        Ok(divisor) if divisor > 0 && !text.contains('+') => divisor,
        _ => return Err(error(Reason::Malformed)),
    };
    // There is no mHz, which reads like MHz; slow rates are written as `3/min`.
    let (events, seconds) = match (is_per, unit.trim_end()) {
        (true, "s") | (false, "Hz") => (1, 1),
        (true, "min") => (1, 60),
        (false, "kHz") => (1_000, 1),
        _ => return Err(error(Reason::Unit)),
    };
    if number.whole > RATE_NUMBER_MAX / events {
        return Err(error(Reason::TooLarge));
    }
    // The products are below 10^12 * 10^18 * 10^6 and 10^18 * 2^32 * 60, so both fit.
    let scale = 10_u128.pow(number.places);
    let number = u128::from(number.whole) * scale + u128::from(number.fraction);
    let millionths = number * u128::from(events) * 1_000_000;
    let micro_hertz = millionths.div_ceil(scale * u128::from(divisor) * seconds);
    match u64::try_from(micro_hertz).map(Rate::from_micro_hertz) {
        Ok(rate) if rate <= RATE_MAX => Ok(rate),
        _ => Err(error(Reason::TooLarge)),
    }
}

impl Quantity {
    /// A valid text, as an example in errors.
    pub const fn example(self) -> &'static str {
        match self {
            Quantity::Duration => "a duration such as \"20 ms\"",
            Quantity::Size => "a size such as \"1470 B\"",
            Quantity::Bandwidth => "a bandwidth such as \"1.5 Mbit/s\"",
            Quantity::Rate => "a rate such as \"90/s\"",
            Quantity::Share => "a share such as \"45 %\"",
        }
    }

    /// The accepted units, each with its size in the stored unit.
    const fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            // Both code points that print as the micro sign.
            Quantity::Duration => &[
                ("ns", 1),
                ("us", 1_000),
                ("ms", 1_000_000),
                ("s", 1_000_000_000),
                ("min", 60_000_000_000),
                ("\u{b5}s", 1_000),
                ("\u{3bc}s", 1_000),
            ],
            Quantity::Size => &[
                ("B", 1),
                ("kB", 1_000),
                ("MB", 1_000_000),
                ("GB", 1_000_000_000),
                ("KiB", 1 << 10),
                ("MiB", 1 << 20),
                ("GiB", 1 << 30),
            ],
            Quantity::Bandwidth => {
                &[("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)]
            }
            Quantity::Rate => &[],
            Quantity::Share => &[("%", 10_000)],
        }
    }

    const fn unit_names(self) -> &'static str {
        match self {
            Quantity::Duration => "ns, us, ms, s or min",
            Quantity::Size => "B, kB, MB, GB, KiB, MiB or GiB",
            Quantity::Bandwidth => "bit/s, kbit/s, Mbit/s or Gbit/s",
            Quantity::Rate => "/s, /min, Hz or kHz",
            Quantity::Share => "%",
        }
    }

    const fn finest(self) -> &'static str {
        match self {
            Quantity::Duration => "whole nanoseconds",
            Quantity::Size => "whole bytes",
            Quantity::Bandwidth => "whole bits a second",
            Quantity::Rate => "at most 18 decimal places",
            Quantity::Share => "steps of 0.0001 %",
        }
    }

    const fn most(self) -> &'static str {
        match self {
            Quantity::Duration => "a duration of at most 18446744073 s",
            Quantity::Size => "a size of at most 18446744073 GB",
            Quantity::Bandwidth => "a bandwidth of at most 18446744073 Gbit/s",
            Quantity::Rate => "a rate of at most 1000000000/s",
            Quantity::Share => "a share of at most 100 %",
        }
    }
}

impl UnitError {
    fn new(quantity: Quantity, reason: Reason, found: &str) -> Self {
        UnitError { quantity, reason, found: super::source::quoted(found) }
    }

    /// What was expected, without what was found.
    pub fn expected(&self) -> String {
        let example = self.quantity.example();
        match self.reason {
            Reason::Malformed => example.to_string(),
            Reason::Unit => format!("{example}, in {}", self.quantity.unit_names()),
            Reason::Negative => format!("{example}, not negative"),
            Reason::TooFine => format!("{example}, in {}", self.quantity.finest()),
            Reason::TooLarge => self.quantity.most().to_string(),
        }
    }
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "found {}, expected {}", self.found, self.expected())
    }
}

impl core::error::Error for UnitError {}

/// A non-negative decimal number, `whole + fraction / 10^places`.
#[derive(Clone, Copy)]
struct Decimal {
    whole: u64,
    fraction: u64,
    /// At most [`PLACES_MAX`].
    places: u32,
}

impl Decimal {
    /// Digits, and optionally a point and more digits.
    fn parse(text: &str) -> Result<Decimal, Reason> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(Reason::Malformed);
        }
        if unsigned.len() < text.len() {
            return Err(Reason::Negative);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > PLACES_MAX {
            return Err(Reason::TooFine);
        }
        Ok(Decimal {
            // There are only digits, so parsing fails only if the number is too large.
            whole: whole.parse().map_err(|_| Reason::TooLarge)?,
            fraction: if fraction.is_empty() { Ok(0) } else { fraction.parse() }
                .map_err(|_| Reason::TooFine)?,
            places: u32::try_from(fraction.len()).map_err(|_| Reason::TooFine)?,
        })
    }

    /// `self * unit`, if the product is a whole number that fits.
    fn times(self, unit: u64) -> Result<u64, Reason> {
        let scale = 10_u128.pow(self.places);
        let fraction = u128::from(self.fraction) * u128::from(unit);
        if fraction % scale != 0 {
            return Err(Reason::TooFine);
        }
        let value = u128::from(self.whole) * u128::from(unit) + fraction / scale;
        u64::try_from(value).map_err(|_| Reason::TooLarge)
    }
}

/// A number and one of the quantity's units, in the stored unit.
fn exact(quantity: Quantity, text: &str) -> Result<u64, UnitError> {
    let error = |reason| UnitError::new(quantity, reason, text);
    let trimmed = text.trim();
    let end = trimmed
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '-'))
        .ok_or_else(|| error(Reason::Malformed))?;
    let (number, unit) = trimmed.split_at(end);
    let number = Decimal::parse(number).map_err(error)?;
    let unit = unit.trim_start();
    match quantity.units().iter().find(|(name, _)| *name == unit) {
        Some(&(_, size)) => number.times(size).map_err(error),
        None => Err(error(Reason::Unit)),
    }
}
