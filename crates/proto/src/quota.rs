//! Quotas: how many packets of a destination may pass, by eligible times.
//!
//! Each packet of a destination has an eligible time, an interval after that of the packet before
//! it, and each destination may have some packets that are not eligible yet
//! (proportional-share-1998 §4.5). This is the generic cell rate algorithm (ITU-T I.371), with one
//! word of state: the eligible time of the next packet. The XDP program has the same rule with a
//! compare-and-swap (decision 0024, section 1).
//!
//! ```text
//! at   = if step > 0 { now - now mod step } else { now }
//! next = max(next_eligible, at) + interval
//! pass if next <= at + depth * interval, and then next_eligible = next; else drop
//! ```
//!
//! Without a step, at most `depth + elapsed / interval` packets pass in any time `elapsed`.

use upcall_core::time::{Instant, Span};

/// One millionth, of which inflations are multiples.
const PPM: u128 = 1_000_000;

/// How many packets may pass. The quota page has the same numbers, with the product of `depth` and
/// `interval_ns` in place of `depth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// 0, or the period in nanoseconds at whose multiples packets become eligible together.
    pub step_ns: u64,
    /// The time in nanoseconds between the eligible times of two packets. 0: all pass.
    pub interval_ns: u64,
    /// How many packets may be ahead of their eligible times. 0 counts as 1.
    pub depth: u32,
    /// How many of those may be processed at once: a declared burst. The others wait for their
    /// eligible times. 0 counts as 1. Only a queue looks at it: what the rule passes may come at
    /// once in any case.
    pub at_once: u32,
}

impl Quota {
    /// The quota that passes every packet.
    pub const UNLIMITED: Quota = Quota { step_ns: 0, interval_ns: 0, depth: 1, at_once: 1 };

    /// The quota of a receiver that takes a packet each `period`. The protocol activity runs each
    /// `processing_period`.
    ///
    /// The rate is `inflation_ppm` millionths above that of the receiver
    /// (proportional-share-1998 §4.4), and the depth is the packets of a processing period and
    /// `burst` more (§4.5).
    pub fn of_receiver(
        period: Span,
        inflation_ppm: u32,
        burst: u32,
        processing_period: Span,
    ) -> Self {
        Quota {
            step_ns: 0,
            interval_ns: interval_ns(period, inflation_ppm),
            depth: entries(period, burst, processing_period),
            at_once: 1,
        }
    }

    /// The quota of a queue with `entries` places that is emptied each `period` (Table 4).
    pub fn emptied_each(period: Span, entries: u32) -> Self {
        Quota::served_each(period, entries, entries)
    }

    /// The quota of a queue with `entries` places from which `batch` packets are taken each
    /// `period` (Table 3). A `batch` of 0 counts as 1.
    pub fn served_each(period: Span, batch: u32, entries: u32) -> Self {
        let interval_ns = period.as_nanos() / u64::from(batch.max(1));
        Quota { step_ns: period.as_nanos(), interval_ns, depth: entries, at_once: 1 }
    }

    /// The next eligible time in nanoseconds after a packet at `now_ns`, or `None` if the packet
    /// must be dropped. `next_eligible_ns` is the word of state, 0 at first. Sums saturate, and
    /// nothing is dropped at the end of time. O(1).
    pub fn pass(&self, next_eligible_ns: u64, now_ns: u64) -> Option<u64> {
        if self.interval_ns == 0 {
            return Some(next_eligible_ns);
        }
        let at = if self.step_ns > 0 { now_ns - now_ns % self.step_ns } else { now_ns };
        let next = next_eligible_ns.max(at).saturating_add(self.interval_ns);
        let ahead = self.interval_ns.saturating_mul(u64::from(self.depth.max(1)));
        (next <= at.saturating_add(ahead)).then_some(next)
    }
}

/// The time in nanoseconds between two packets of a rate that is `inflation_ppm` millionths above
/// one each `period`. At least 1.
pub(crate) fn interval_ns(period: Span, inflation_ppm: u32) -> u64 {
    let interval = u128::from(period.as_nanos()) * PPM / (PPM + u128::from(inflation_ppm));
    u64::try_from(interval).unwrap_or(u64::MAX).max(1)
}

/// The places of a queue of a receiver that takes a packet each `period`: those for the packets of
/// a processing period, rounded up, and `burst` more (§4.5).
///
/// ```
/// use upcall_core::time::Span;
/// use upcall_proto::quota::entries;
///
/// // The limits of proportional-share-1998 §5: audio, video and file.
/// let processing_period = Span::from_millis(10);
/// let limits = [20_000, 11_111, 5_000]
///     .map(|period_us| entries(Span::from_micros(period_us), 1, processing_period));
/// assert_eq!(limits, [2, 2, 3]);
/// ```
pub fn entries(period: Span, burst: u32, processing_period: Span) -> u32 {
    let expected = processing_period.as_nanos().div_ceil(period.as_nanos().max(1)).max(1);
    u32::try_from(expected).unwrap_or(u32::MAX).saturating_add(burst)
}

/// A quota with its state and counts: one destination.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// The quota. The owner may change it at any time.
    pub quota: Quota,
    next_eligible_ns: u64,
    passed: u64,
    dropped: u64,
}

impl Meter {
    /// A meter that has seen no packet.
    pub fn new(quota: Quota) -> Self {
        Meter { quota, next_eligible_ns: 0, passed: 0, dropped: 0 }
    }

    /// Whether a packet at `now` passes. Counts it. O(1).
    pub fn pass(&mut self, now: Instant) -> bool {
        match self.quota.pass(self.next_eligible_ns, now.as_nanos()) {
            Some(next) => {
                self.next_eligible_ns = next;
                self.passed += 1;
                true
            }
            None => {
                self.dropped += 1;
                false
            }
        }
    }

    /// How many packets passed.
    pub fn passed(&self) -> u64 {
        self.passed
    }

    /// How many packets were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn ms(ms: u64) -> Span {
        Span::from_millis(ms)
    }

    fn passed(quota: Quota, times_ns: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut meter = Meter::new(quota);
        let pass = |at: &u64| meter.pass(Instant::from_nanos(*at));
        times_ns.into_iter().filter(pass).collect()
    }

    #[test]
    fn a_flood_passes_at_the_rate_of_the_receiver() {
        // 1000 packets a second to a receiver of 200 a second, for 60 s (Table 5).
        let quota = Quota::of_receiver(ms(5), 0, 1, ms(10));
        assert_eq!(quota, Quota { step_ns: 0, interval_ns: 5 * MS, depth: 3, at_once: 1 });
        let passed = passed(quota, (0..60_000).map(|packet| packet * MS));
        assert_eq!(passed.len(), 12_002);
    }

    #[test]
    fn a_queue_that_is_emptied_passes_its_entries_each_step() {
        // Table 4.
        let passed = passed(Quota::emptied_each(ms(10), 3), (0..60_000).map(|at| at * MS));
        assert_eq!(passed.len(), 3 * 6_000);
        assert_eq!(passed[..4], [0, MS, 2 * MS, 10 * MS]);
    }

    #[test]
    fn one_queue_passes_a_batch_each_step_once_it_is_full() {
        // Table 3: 4 packets each 10 ms, 50 entries.
        let quota = Quota::served_each(ms(10), 4, 50);
        let passed = passed(quota, (0..60_000).map(|at| at * MS));
        assert_eq!(passed.len(), 4 * 5_999 + 50);
    }

    #[test]
    fn the_inflation_raises_the_rate() {
        let quota = Quota::of_receiver(ms(5), 250_000, 1, ms(10));
        assert_eq!(quota.interval_ns, 4 * MS);
        let exact = Quota::of_receiver(Span::MAX, 0, u32::MAX, Span::MAX);
        assert_eq!((exact.interval_ns, exact.depth), (u64::MAX, u32::MAX));
    }

    #[test]
    fn a_change_of_the_quota_keeps_the_eligible_time() {
        let mut meter = Meter::new(Quota { step_ns: 0, interval_ns: 10, depth: 1, at_once: 1 });
        assert!(meter.pass(Instant::from_nanos(0)));
        meter.quota.interval_ns = 2;
        assert!(!meter.pass(Instant::from_nanos(9)));
        assert!(meter.pass(Instant::from_nanos(10)));
        assert!(meter.pass(Instant::from_nanos(12)));
        assert_eq!((meter.passed(), meter.dropped()), (3, 1));
    }

    fn any_quota() -> impl Strategy<Value = Quota> {
        (0u64..4, 1u64..50, 0u32..6).prop_map(|(step, interval_ns, depth)| Quota {
            step_ns: step * 7,
            interval_ns,
            depth,
            at_once: 1,
        })
    }

    proptest! {
        #[test]
        fn no_time_passes_more_than_depth_and_elapsed_by_interval(
            quota in any_quota(),
            gaps in prop::collection::vec(0u64..60, 1..200),
        ) {
            let times = gaps.iter().scan(0, |now, gap| { *now += gap; Some(*now) });
            let passed = passed(quota, times);
            let at = |ns: u64| if quota.step_ns > 0 { ns - ns % quota.step_ns } else { ns };
            for (first, from) in passed.iter().enumerate() {
                for (last, to) in passed.iter().enumerate().skip(first) {
                    let elapsed = at(*to) - at(*from);
                    let most = u64::from(quota.depth.max(1)) + elapsed / quota.interval_ns;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        #[test]
        fn a_sender_that_keeps_the_interval_loses_nothing(
            quota in any_quota(),
            late in prop::collection::vec(0u64..3, 1..200),
        ) {
            // Late senders are within their quota too. A step only helps if the depth has its part.
            let quota = Quota { step_ns: 0, ..quota };
            let times = late.iter().scan(0, |now, late| {
                *now += quota.interval_ns + late;
                Some(*now)
            });
            prop_assert_eq!(passed(quota, times).len(), late.len());
        }

        #[test]
        fn a_sender_that_keeps_its_burst_loses_nothing(
            quota in any_quota(),
            bursts in prop::collection::vec((1u64..6, 0u64..3), 1..100),
        ) {
            // Bursts of up to the depth, each followed by as many intervals.
            let quota = Quota { step_ns: 0, ..quota };
            let depth = u64::from(quota.depth.max(1));
            let mut now = 0;
            let mut times = Vec::new();
            for (count, late) in bursts {
                let count = count.min(depth);
                times.extend((0..count).map(|_| now));
                now += count * quota.interval_ns + late;
            }
            prop_assert_eq!(passed(quota, times.iter().copied()).len(), times.len());
        }

        #[test]
        fn no_value_panics_or_goes_back(
            (step_ns, interval_ns) in (any::<u64>(), any::<u64>()),
            depth in any::<u32>(),
            (next, now) in (any::<u64>(), any::<u64>()),
        ) {
            let quota = Quota { step_ns, interval_ns, depth, at_once: 1 };
            if let Some(after) = quota.pass(next, now) {
                prop_assert!(after >= next);
            }
            // Also after a limit that left an eligible time in the future.
            prop_assert_eq!(Quota::UNLIMITED.pass(next, now), Some(next));
        }
    }
}
