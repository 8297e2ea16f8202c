//! The observed cost of a PDU: a smoothed mean and a smoothed deviation.
//!
//! The runtime adds one sample a job and compares the result with the declared cost. The filter is
//! the one that TCP uses for round-trip times (RFC 6298 §2.3, gains 1/8 and 1/4). The filter is
//! cheap and uses integers. It is slow enough that one page fault does not look like a new cost. A
//! sample is wall time inside the handler, so it includes interrupts. Therefore a declaration is
//! compared with the mean and not with the worst sample.

use crate::time::Span;

/// The smoothed cost of one PDU. All operations are O(1) and allocate nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CostEstimate {
    /// Mean scaled by 8, so that the gain of 1/8 loses no bits.
    mean_ns_x8: u64,
    /// The mean deviation scaled by 4.
    deviation_ns_x4: u64,
    samples: u64,
    max_ns: u64,
}

impl CostEstimate {
    /// Adds a sample: `pdus` PDUs took `run` together. No effect if `pdus` is 0.
    pub fn observe(&mut self, run: Span, pdus: u32) {
        if pdus == 0 {
            return;
        }
        // No valid PDU costs more than one hour (activity::PERIOD_MAX).
        let sample_ns = (run.as_nanos() / u64::from(pdus)).min(3_600_000_000_000);
        if self.samples == 0 {
            self.mean_ns_x8 = sample_ns * 8;
            self.deviation_ns_x4 = sample_ns * 2;
        } else {
            let error_ns = sample_ns.abs_diff(self.mean_ns_x8 / 8);
            self.deviation_ns_x4 = self.deviation_ns_x4 - self.deviation_ns_x4 / 4 + error_ns;
            self.mean_ns_x8 = self.mean_ns_x8 - self.mean_ns_x8 / 8 + sample_ns;
        }
        self.samples += 1;
        self.max_ns = self.max_ns.max(sample_ns);
    }

    /// The smoothed cost of a PDU; `None` before the first sample.
    pub fn mean(&self) -> Option<Span> {
        (self.samples > 0).then(|| Span::from_nanos(self.mean_ns_x8 / 8))
    }

    /// The smoothed mean deviation; zero before the first sample.
    pub fn deviation(&self) -> Span {
        Span::from_nanos(self.deviation_ns_x4 / 4)
    }

    /// The largest sample so far. A sample is the mean over the PDUs of a job.
    pub fn max(&self) -> Span {
        Span::from_nanos(self.max_ns)
    }

    /// How many jobs were observed.
    pub fn samples(&self) -> u64 {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_cost_is_found_exactly_and_a_new_one_gradually() {
        let mut estimate = CostEstimate::default();
        assert_eq!(estimate.mean(), None);
        for _ in 0..50 {
            estimate.observe(Span::from_micros(80), 8);
        }
        assert_eq!(estimate.mean(), Some(Span::from_micros(10)));
        assert!(estimate.deviation() < Span::from_nanos(10));
        for _ in 0..50 {
            estimate.observe(Span::from_micros(20), 1);
        }
        let mean_ns = estimate.mean().unwrap().as_nanos();
        assert!((19_900..=20_000).contains(&mean_ns), "{mean_ns}");
    }

    #[test]
    fn a_job_without_pdus_adds_no_sample() {
        let mut estimate = CostEstimate::default();
        estimate.observe(Span::from_millis(3), 0);
        assert_eq!(estimate.samples(), 0);
    }
}
