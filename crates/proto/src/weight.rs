//! What the protocol activity needs of the CPU, by the receivers that are bound.
//!
//! A receiver with the period `d` takes one packet each `d`, so it adds `c / d` to the share of the
//! activity, where `c` is the cost of a packet. The sum is inflated for packets that nobody asked
//! for, such as those of ARP (proportional-share-1998 §4.4).
//!
//! ```text
//! rate   = (1 + inflation) * sum of 1 / d
//! period = min(longest period, packets of a quantum / rate)
//! batch  = rate * period, rounded up
//! share  = batch * c / period
//! ```
//!
//! A batch fits into a quantum, so the activity is never preempted while it has a lock (§4.2).

use crate::quota::{Quota, interval_ns};
use std::collections::BTreeMap;
use upcall_core::activity::ActivityParams;
use upcall_core::time::Span;

/// Packets per this many nanoseconds are the unit of rates: 10^18 keeps twelve digits of a rate of
/// one packet a millisecond.
const RATE_NS: u128 = 1_000_000_000_000_000_000;
const PPM: u128 = 1_000_000;

/// What does not depend on the receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolSettings {
    /// The CPU time of one packet, at least 1 ns.
    pub packet_cost: Span,
    /// How much the rate is inflated, in millionths.
    pub inflation_ppm: u32,
    /// The longest time for which the activity keeps the CPU.
    pub quantum: Span,
    /// The longest period, which is what the activity adds to the delay of a packet. At least 1 ns.
    pub period_max: Span,
}

/// What the protocol activity needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtocolNeed {
    /// How often it runs.
    pub period: Span,
    /// The most packets each time, at least 1.
    pub batch: u32,
    /// Its share of the CPU in millionths. Above a million if no CPU suffices.
    pub share_ppm: u64,
    packet_cost: Span,
}

impl ProtocolNeed {
    /// The parameters of the activity for the core. It gives way at the end of a batch.
    pub fn params(&self) -> ActivityParams {
        ActivityParams::new(self.period, self.packet_cost).batch(self.batch).quantum(self.batch)
    }
}

/// The receivers that are bound, and what they need together.
#[derive(Clone, Debug)]
pub struct ProtocolWeight {
    settings: ProtocolSettings,
    /// Periods by slot.
    periods: BTreeMap<u32, Span>,
    /// The sum of the rates, in packets per [`RATE_NS`].
    rate: u128,
}

impl ProtocolWeight {
    /// No receiver yet.
    pub fn new(settings: ProtocolSettings) -> Self {
        ProtocolWeight { settings, periods: BTreeMap::new(), rate: 0 }
    }

    /// A receiver that takes a packet each `period` is bound to `slot`, or has another period from
    /// now on. O(log n).
    pub fn bind(&mut self, slot: u32, period: Span) {
        self.unbind(slot);
        self.rate += rate(period);
        self.periods.insert(slot, period);
    }

    /// The receiver of `slot` is gone. O(log n).
    pub fn unbind(&mut self, slot: u32) {
        if let Some(period) = self.periods.remove(&slot) {
            self.rate -= rate(period);
        }
    }

    /// What the activity needs; `None` without receivers. O(1).
    pub fn need(&self) -> Option<ProtocolNeed> {
        if self.rate == 0 {
            return None;
        }
        let ProtocolSettings { packet_cost, inflation_ppm, quantum, period_max } = self.settings;
        let cost_ns = u128::from(packet_cost.as_nanos().max(1));
        let rate = (self.rate * (PPM + u128::from(inflation_ppm))).div_ceil(PPM);
        let batch_max = (u128::from(quantum.as_nanos()) / cost_ns).max(1);
        let period_max_ns = u128::from(period_max.as_nanos().max(1));
        let period_ns = (batch_max * RATE_NS / rate).clamp(1, period_max_ns);
        let batch = (rate * period_ns).div_ceil(RATE_NS).clamp(1, batch_max);
        let share = (batch * cost_ns * PPM).div_ceil(period_ns);
        Some(ProtocolNeed {
            period: Span::from_nanos(u64::try_from(period_ns).unwrap_or(u64::MAX)),
            batch: u32::try_from(batch).unwrap_or(u32::MAX),
            share_ppm: u64::try_from(share).unwrap_or(u64::MAX),
            packet_cost,
        })
    }

    /// The quota of the receiver of `slot`, whose rate is inflated by `inflation_ppm` and that may
    /// be sent `burst` packets ahead. `None` if nothing is bound there. O(log n).
    pub fn quota(&self, slot: u32, inflation_ppm: u32, burst: u32) -> Option<Quota> {
        let period = *self.periods.get(&slot)?;
        Some(Quota::of_receiver(period, inflation_ppm, burst, self.need()?.period))
    }
}

/// The rate of one packet each `period`, in packets per [`RATE_NS`].
fn rate(period: Span) -> u128 {
    RATE_NS / u128::from(interval_ns(period, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SETTINGS: ProtocolSettings = ProtocolSettings {
        packet_cost: Span::from_micros(25),
        inflation_ppm: 100_000,
        quantum: Span::from_millis(1),
        period_max: Span::from_millis(10),
    };

    fn of_paper() -> ProtocolWeight {
        let mut weight = ProtocolWeight::new(SETTINGS);
        for (slot, per_second) in [(0, 50), (1, 90), (2, 200)] {
            weight.bind(slot, Span::from_secs(1) / per_second);
        }
        weight
    }

    #[test]
    fn the_receivers_of_the_paper_need_4_packets_each_10_ms() {
        let need = of_paper().need().unwrap();
        assert_eq!((need.period, need.batch), (Span::from_millis(10), 4));
        assert_eq!(need.share_ppm, 10_000);
        assert_eq!(need.params().compute(), Span::from_micros(100));
        let depths = [0, 1, 2].map(|slot| of_paper().quota(slot, 0, 1).unwrap().depth);
        assert_eq!(depths, [2, 2, 3]);
    }

    #[test]
    fn the_need_follows_bind_change_and_unbind() {
        let mut weight = of_paper();
        weight.bind(2, Span::from_millis(1));
        // 1140 a second and 10 % more.
        assert_eq!(weight.need().unwrap().batch, 13);
        for slot in 0..3 {
            weight.unbind(slot);
            weight.unbind(slot);
        }
        assert_eq!((weight.need(), weight.quota(0, 0, 1)), (None, None));
    }

    #[test]
    fn a_batch_fits_into_a_quantum() {
        let mut weight = ProtocolWeight::new(SETTINGS);
        weight.bind(0, Span::from_micros(20));
        let need = weight.need().unwrap();
        // 40 packets of 25 us; they arrive in 727 us, so the CPU does not suffice.
        assert_eq!(need.batch, 40);
        assert!(need.share_ppm > 1_000_000);
    }

    proptest! {
        #[test]
        fn the_share_covers_each_receiver(
            periods in prop::collection::vec(1u64..1_000_000_000, 1..20),
            cost_ns in 1u64..100_000,
            inflation_ppm in 0u32..1_000_000,
        ) {
            let packet_cost = Span::from_nanos(cost_ns);
            let settings = ProtocolSettings { packet_cost, inflation_ppm, ..SETTINGS };
            let mut weight = ProtocolWeight::new(settings);
            for (slot, period_ns) in (0..).zip(&periods) {
                weight.bind(slot, Span::from_nanos(*period_ns));
            }
            let need = weight.need().unwrap();
            let rate: f64 = periods.iter().map(|period_ns| 1.0 / *period_ns as f64).sum();
            let rate = rate * (1.0 + f64::from(inflation_ppm) / 1e6);
            let of_batch = f64::from(need.batch) / need.period.as_nanos() as f64;
            prop_assert!(of_batch >= rate * (1.0 - 1e-6), "{of_batch} for {rate}");
            prop_assert!(need.share_ppm as f64 >= rate * cost_ns as f64 * 1e6 * (1.0 - 1e-6));
            prop_assert!(need.period <= SETTINGS.period_max);
            prop_assert!(packet_cost * need.batch <= SETTINGS.quantum.max(packet_cost));
        }
    }
}
