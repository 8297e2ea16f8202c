//! A distribution of times: two significant digits, and the exact maximum.
//!
//! Executors use it on their hot path, and statistics elsewhere. It takes all its memory at
//! creation (some 50 KB). Observing is O(1) and allocates nothing.

use hdrhistogram::Histogram;
use upcall_core::time::Span;

/// The longest time that percentiles show: an hour.
const TIME_NS_MAX: u64 = 3_600_000_000_000;

/// A distribution of times: how many, the exact maximum, and percentiles to two significant digits.
///
/// Part of [`Statistics`](crate::Statistics) and [`Report`](crate::Report). Times above an hour
/// count as an hour in percentiles. It takes some 50 KB at creation, and no more memory later.
///
/// ```
/// # extern crate upcall_runtime as upcall;
/// use upcall::time::Span;
/// use upcall::Latency;
///
/// let nothing_yet = Latency::default();
/// assert_eq!((nothing_yet.count(), nothing_yet.percentile(99.9)), (0, Span::ZERO));
/// ```
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    max: Span,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, TIME_NS_MAX, 2).expect("bounds and digits are valid");
        Latency { histogram, max: Span::ZERO }
    }
}

impl Latency {
    pub(crate) fn observe(&mut self, time: Span) {
        self.histogram.saturating_record(time.as_nanos());
        self.max = self.max.max(time);
    }

    /// Adds the observations of `other`.
    pub(crate) fn merge(&mut self, other: &Latency) {
        // Cannot fail: all have the same bounds.
        let _ = self.histogram.add(&other.histogram);
        self.max = self.max.max(other.max);
    }

    /// The time that `percent` (0 to 100) of the observed times did not exceed; zero if there are
    /// none.
    pub fn percentile(&self, percent: f64) -> Span {
        Span::from_nanos(self.histogram.value_at_percentile(percent)).min(self.max)
    }

    /// The longest observed time.
    pub fn max(&self) -> Span {
        self.max
    }

    /// The number of observed times.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Latency;
    use upcall_core::time::Span;

    #[test]
    fn percentiles_never_exceed_the_maximum_and_merge() {
        let mut first = Latency::default();
        assert_eq!((first.max(), first.percentile(99.0)), (Span::ZERO, Span::ZERO));
        for us in 1..=100 {
            first.observe(Span::from_micros(us));
        }
        assert_eq!(first.max(), Span::from_micros(100));
        assert_eq!(first.percentile(100.0), Span::from_micros(100));
        let median_us = first.percentile(50.0).as_nanos() / 1_000;
        assert!((49..=51).contains(&median_us), "{median_us}");
        let mut second = Latency::default();
        second.observe(Span::from_secs(7200));
        second.merge(&first);
        assert_eq!((second.count(), second.max()), (101, Span::from_secs(7200)));
    }
}
