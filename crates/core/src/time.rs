//! Instants and lengths of time, in integer nanoseconds.
//!
//! Every crate uses them. An instant has no epoch of its own: the driver picks one
//! (`CLOCK_MONOTONIC` in the runtime, zero in a simulation). Nothing here reads a clock.

use core::fmt;
use core::ops::{Add, AddAssign, Div, Mul, Sub};

/// A point in time, in nanoseconds. In a program it is a time of `CLOCK_MONOTONIC`, as `clock::now`
/// returns it. In a simulation it counts from zero.
///
/// An instant and a [`Span`] add up to an instant, and [`Instant::since`] gives the span between
/// two. Sums saturate.
///
/// ```
/// # extern crate upcall_core as upcall;
/// use upcall::time::{Instant, Span};
///
/// let release = Instant::from_nanos(1_000);
/// let deadline = release + Span::from_micros(5);
/// assert_eq!(deadline.since(release), Span::from_nanos(5_000));
/// assert_eq!(release.since(deadline), Span::ZERO); // never negative
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A length of time in nanoseconds, never negative. Converts from and to
/// [`Duration`](core::time::Duration), and prints in the unit a reader expects.
///
/// ```
/// # extern crate upcall_core as upcall;
/// use std::time::Duration;
/// use upcall::time::Span;
///
/// let period = Span::from_millis(20);
/// assert_eq!(Span::from(Duration::from_millis(20)), period);
/// assert_eq!((period / 8).to_string(), "2.5 ms");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Instant {
    /// The driver's epoch.
    pub const ZERO: Instant = Instant(0);
    /// Later than any instant that occurs.
    pub const FAR: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Self {
        Instant(ns)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`; zero if `earlier` is later than this instant.
    pub const fn since(self, earlier: Instant) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// `self - other` in nanoseconds, negative if `other` is later. Saturates.
    pub const fn signed_since(self, other: Instant) -> i64 {
        if self.0 >= other.0 {
            let ahead = self.0 - other.0;
            if ahead > i64::MAX as u64 { i64::MAX } else { ahead as i64 }
        } else {
            let behind = other.0 - self.0;
            if behind > i64::MAX as u64 { i64::MIN } else { -(behind as i64) }
        }
    }
}

impl Span {
    /// A span of zero.
    pub const ZERO: Span = Span(0);
    /// The longest span; stands for "without end".
    pub const MAX: Span = Span(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Span(ns)
    }

    /// `us` microseconds; saturates.
    pub const fn from_micros(us: u64) -> Self {
        Span(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds; saturates.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds; saturates.
    pub const fn from_secs(s: u64) -> Self {
        Span(s.saturating_mul(1_000_000_000))
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The length in seconds, rounded to the precision of `f64`.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Whether the span is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self - other`, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    /// `self * n`, or [`Span::MAX`] on overflow.
    pub const fn saturating_mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }

    /// How many times `period` fits into the span. `period` is not zero. The usual cases, less than
    /// twice, need no division.
    #[inline]
    pub(crate) const fn whole(self, period: Span) -> u64 {
        if self.0 < period.0 {
            0
        } else if self.0 - period.0 < period.0 {
            1
        } else {
            self.0 / period.0
        }
    }

    /// `self * n`, or `None` on overflow.
    pub const fn checked_mul(self, n: u64) -> Option<Span> {
        match self.0.checked_mul(n) {
            Some(ns) => Some(Span(ns)),
            None => None,
        }
    }
}

impl From<core::time::Duration> for Span {
    /// Saturates at [`Span::MAX`] (584 years).
    fn from(duration: core::time::Duration) -> Self {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> Self {
        core::time::Duration::from_nanos(span.0)
    }
}

impl Add<Span> for Instant {
    type Output = Instant;
    /// Saturates at [`Instant::FAR`].
    fn add(self, span: Span) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Instant {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Instant {
    type Output = Instant;
    /// Saturates at [`Instant::ZERO`].
    fn sub(self, span: Span) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    /// Saturates at [`Span::MAX`].
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Mul<u32> for Span {
    type Output = Span;
    /// Saturates at [`Span::MAX`].
    fn mul(self, n: u32) -> Span {
        self.saturating_mul(u64::from(n))
    }
}

impl Div<u32> for Span {
    type Output = Span;
    fn div(self, n: u32) -> Span {
        Span(self.0 / u64::from(n))
    }
}

impl core::iter::Sum for Span {
    fn sum<I: Iterator<Item = Span>>(spans: I) -> Span {
        spans.fold(Span::ZERO, Add::add)
    }
}

impl fmt::Display for Span {
    /// Prints in `s` from 10 s on, in `ms` from 1 ms on, in `us` from 1 us on, and in `ns` below.
    /// Rounds to three decimal places and drops trailing zeros: `11.111 ms`, `250 us`. Zero prints
    /// as `0 ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit_ns, unit) = match self.0 {
            0 => return f.pad("0 ms"),
            ns if ns >= 10_000_000_000 => (1_000_000_000, "s"),
            ns if ns >= 1_000_000 => (1_000_000, "ms"),
            ns if ns >= 1_000 => (1_000, "us"),
            _ => (1, "ns"),
        };
        let milli_units = (u128::from(self.0) * 1000 + unit_ns / 2) / unit_ns;
        let (whole, fraction) = (milli_units / 1000, milli_units % 1000);
        let text = if fraction == 0 {
            format!("{whole} {unit}")
        } else {
            let fraction = format!("{fraction:03}");
            format!("{whole}.{} {unit}", fraction.trim_end_matches('0'))
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_print_in_the_unit_a_reader_expects() {
        for (ns, text) in [
            (0, "0 ms"),
            (1, "1 ns"),
            (1_500, "1.5 us"),
            (11_111_111, "11.111 ms"),
            (2_000_000_000, "2000 ms"),
            (25_200_000_000, "25.2 s"),
        ] {
            assert_eq!(Span::from_nanos(ns).to_string(), text);
        }
    }

    #[test]
    fn signed_difference_has_the_sign_of_the_later() {
        let (a, b) = (Instant::from_nanos(5), Instant::from_nanos(8));
        assert_eq!(a.signed_since(b), -3);
        assert_eq!(b.signed_since(a), 3);
        assert_eq!(Instant::FAR.signed_since(Instant::ZERO), i64::MAX);
        assert_eq!(Instant::ZERO.signed_since(Instant::FAR), i64::MIN);
    }
}
