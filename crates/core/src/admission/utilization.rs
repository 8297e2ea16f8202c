//! Sums of shares of a CPU, compared without rounding.
//!
//! A set that asks for exactly 90 % of a CPU must pass a limit of 90 %. A set that asks for exactly
//! the whole CPU has bounded responses. A set that asks for a billionth more has none. Periods are
//! arbitrary, so the common denominator of the sum does not fit any machine integer. Therefore this
//! module multiplies numbers of any length.

use crate::share::Share;
use core::cmp::Ordering;

/// `cost_ns` of CPU time in every `period_ns`. `0 < period_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    pub cost_ns: u64,
    pub period_ns: u64,
}

/// The sum of `cost / period`, rounded. 0 of no demands: `Iterator::sum` would return -0.
pub(super) fn sum(demands: &[Demand]) -> f64 {
    let utilization = |demand: &Demand| demand.cost_ns as f64 / demand.period_ns as f64;
    demands.iter().map(utilization).fold(0.0, |sum, part| sum + part)
}

/// Compares the sum of `cost / period` with `share`, exactly. O(n^2).
pub(super) fn compare(demands: &[Demand], share: Share) -> Ordering {
    // The sum so far is numerator / denominator.
    let (mut numerator, mut denominator) = (Natural::from(0), Natural::from(1));
    for demand in demands {
        numerator.multiply(demand.period_ns);
        numerator.add_product(&denominator, demand.cost_ns);
        denominator.multiply(demand.period_ns);
    }
    numerator.multiply(u64::from(Share::WHOLE.ppm()));
    denominator.multiply(u64::from(share.ppm()));
    numerator.compare(&denominator)
}

/// A natural number of any size. Least significant limb first, no zero limb at
/// the end.
struct Natural(Vec<u64>);

impl From<u64> for Natural {
    fn from(value: u64) -> Self {
        Natural(if value == 0 { Vec::new() } else { vec![value] })
    }
}

impl Natural {
    /// `self *= factor`, for a factor above 0.
    fn multiply(&mut self, factor: u64) {
        let mut carry = 0;
        for limb in &mut self.0 {
            let product = u128::from(*limb) * u128::from(factor) + carry;
            *limb = low_limb(product);
            carry = product >> 64;
        }
        self.push(carry);
    }

    /// `self += other * factor`.
    fn add_product(&mut self, other: &Natural, factor: u64) {
        if factor == 0 {
            return;
        }
        self.0.resize(self.0.len().max(other.0.len()), 0);
        let mut carry = 0;
        for (at, limb) in self.0.iter_mut().enumerate() {
            let other = other.0.get(at).copied().unwrap_or(0);
            // Fits: (2^64-1)^2 + 2 * (2^64-1) = 2^128 - 1.
            let sum = u128::from(other) * u128::from(factor) + u128::from(*limb) + carry;
            *limb = low_limb(sum);
            carry = sum >> 64;
        }
        self.push(carry);
    }

    fn push(&mut self, carry: u128) {
        if carry != 0 {
            self.0.push(low_limb(carry));
        }
    }

    fn compare(&self, other: &Natural) -> Ordering {
        let by_limbs = || self.0.iter().rev().cmp(other.0.iter().rev());
        self.0.len().cmp(&other.0.len()).then_with(by_limbs)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low_limb(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demands(pairs: &[(u64, u64)]) -> Vec<Demand> {
        pairs.iter().map(|&(cost_ns, period_ns)| Demand { cost_ns, period_ns }).collect()
    }

    #[test]
    fn no_demands_are_zero_and_not_minus_zero() {
        assert_eq!(sum(&[]).to_bits(), 0f64.to_bits());
        assert_eq!(format!("{:.1}", sum(&[])), "0.0");
    }

    #[test]
    fn a_sum_that_is_exactly_the_limit_is_equal_to_it() {
        let share = |ppm| Share::from_ppm(ppm).unwrap();
        // 0.1 + 0.2 + 0.6 is 0.8999999999999999 in floats.
        assert_eq!(
            compare(&demands(&[(1, 10), (2, 10), (6, 10)]), share(900_000)),
            Ordering::Equal
        );
        assert_eq!(compare(&demands(&[(1, 3), (1, 3), (1, 3)]), Share::WHOLE), Ordering::Equal);
        assert_eq!(compare(&[], share(1)), Ordering::Less);
    }

    #[test]
    fn one_nanosecond_in_an_hour_is_seen_among_128_coprime_periods() {
        let hour = 3_600_000_000_000u64;
        // 1/(h-1) - 1/h telescopes: sum of 1/((h-k)(h-k-1)) is not expressible
        // in u128.
        let mut pairs: Vec<_> = (0..127).map(|k| (28_000_000_000, hour - 2 * k - 1)).collect();
        let below = compare(&demands(&pairs), Share::WHOLE);
        assert_eq!(below, Ordering::Less);
        // Fill up with one demand: the largest cost that stays below, then one more.
        let (mut fits, mut over) = (0, hour);
        while over - fits > 1 {
            let cost = fits.midpoint(over);
            pairs.push((cost, hour));
            match compare(&demands(&pairs), Share::WHOLE) {
                Ordering::Greater => over = cost,
                _ => fits = cost,
            }
            pairs.pop();
        }
        // The rest is that large in floats too, but they cannot resolve the last nanosecond.
        let rest = (1.0 - sum(&demands(&pairs))) * hour as f64;
        assert!((fits as f64 - rest).abs() < 2.0, "{fits} {rest}");
    }

    proptest! {
        #[test]
        fn agrees_with_fractions_that_fit(
            pairs in prop::collection::vec((0u64..40, 1u64..30), 0..7),
            ppm in 1u32..=1_000_000,
        ) {
            let denominator: u128 = pairs.iter().map(|&(_, period)| u128::from(period)).product();
            let numerator: u128 = pairs
                .iter()
                .map(|&(cost, period)| u128::from(cost) * denominator / u128::from(period))
                .sum();
            let expected = (numerator * 1_000_000).cmp(&(u128::from(ppm) * denominator));
            prop_assert_eq!(compare(&demands(&pairs), Share::from_ppm(ppm).unwrap()), expected);
            let whole = compare(&demands(&pairs), Share::WHOLE);
            prop_assert_eq!(whole, numerator.cmp(&denominator));
        }
    }
}
