//! Properties of every specification that has a mapping, and of every one that has none.

use super::simulation::{SLOWEST, Service, Source, present_max, serve, wait_max};
use super::*;
use proptest::prelude::*;

fn rate(micro_hertz: core::ops::Range<u64>) -> impl Strategy<Value = Rate> {
    micro_hertz.prop_map(Rate::from_micro_hertz)
}

fn flow() -> impl Strategy<Value = Flow> {
    prop_oneof![
        rate(100_000..5_000_000_000).prop_map(Flow::PduRate),
        (1_000..100_000_000_u64).prop_map(|bits_per_second| Flow::Bandwidth { bits_per_second }),
        (rate(100_000..200_000_000), 1..30_000_u64)
            .prop_map(|(frame_rate, frame_bytes)| Flow::Frames { frame_rate, frame_bytes }),
        (1..100_000_000_u64, 1_000_000..100_000_000_000_u64).prop_map(|(bytes, within)| {
            Flow::Transfer { bytes, within: Span::from_nanos(within) }
        }),
    ]
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![
        flow().prop_map(Class::ContinuousMedia),
        flow().prop_map(Class::Bulk),
        (rate(100_000..1_000_000_000), 1..60_u32)
            .prop_map(|(rate, burst)| Class::Transaction { rate, burst }),
        (rate(100_000..100_000_000), 1..60_000_u64).prop_map(|(message_rate, message_bytes)| {
            Class::MessageStream { message_rate, message_bytes }
        }),
    ]
}

/// Specifications as they might be in a spec file. The delay is given in intervals of the stream,
/// so that short, long and whole multiples all occur. The cost is given in thousandths of what the
/// stream's rate leaves, so that about half of them fit.
fn plausible() -> impl Strategy<Value = StreamSpec> {
    let delay_milli_intervals = prop_oneof![1..6_000_u64, (1..40_u64).prop_map(|n| n * 1_000)];
    (class(), 1_000..2_000_u32, delay_milli_intervals, 1..1_200_u64).prop_map(
        |(class, pdu_bytes, delay_milli_intervals, cost_milli)| {
            let free = StreamSpec { class, pdu_bytes, delay: None, pdu_cost: ms(1), quantum: None };
            let source = Source::of(&free);
            let ns = |milli: u64, of: u128| {
                let ns = u128::from(milli) * of / (1000 * source.parts);
                Span::from_nanos(u64::try_from(ns).unwrap().max(2))
            };
            StreamSpec {
                delay: Some(ns(delay_milli_intervals, source.interval)),
                pdu_cost: ns(cost_milli, source.interval / u128::from(source.unit_pdus)),
                ..free
            }
        },
    )
}

/// The specification with a cost of 1 ns, which nearly always fits.
fn cheap() -> impl Strategy<Value = (StreamSpec, Mapping)> {
    plausible().prop_filter_map("no mapping", |spec| {
        let spec = StreamSpec { pdu_cost: Span::from_nanos(1), ..spec };
        map(&spec, SWITCH).ok().map(|mapping| (spec, mapping))
    })
}

fn service() -> impl Strategy<Value = Service> {
    prop_oneof![
        2 => Just(SLOWEST),
        1 => (0..=1000_u128, 0..=1000_u128)
            .prop_map(|(looks_at, ends_at)| Service { looks_at, ends_at }),
    ]
}

/// Mostly as soon as permitted; some a little late; some so late that the bucket fills.
fn slack() -> impl Strategy<Value = u128> {
    prop_oneof![6 => Just(0), 2 => 0..2_000_u128, 1 => 0..100_000_u128]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_mapping_is_valid_and_keeps_the_delay_and_the_rate((spec, mapping) in cheap()) {
        let params = mapping.params;
        prop_assert_eq!(params.validated(), Ok(params));
        prop_assert_eq!(mapping.delay_max, params.period + params.deadline);
        prop_assert!(mapping.delay_max <= spec.delay.unwrap());
        let source = Source::of(&spec);
        let capacity = u128::from(params.batch) * source.interval;
        prop_assert!(capacity >= u128::from(source.unit_pdus) * source.parts_of(params.period));
        prop_assert!(mapping.buffers >= params.batch);
        let payload_max = mapping.pdu_interval.as_nanos() * mapping.bandwidth_bps;
        prop_assert!(payload_max / 8_000_000_000 <= u64::from(spec.pdu_bytes));
    }

    /// A paced job has the PDUs of at most a millisecond, at the reserved rate. Its PDUs are made
    /// at its release, so the deadline keeps the delay.
    #[test]
    fn a_paced_mapping_sends_at_the_reserved_rate_and_little_at_once((spec, mapping) in cheap()) {
        let (before, after) = (mapping.params, mapping.paced().params);
        prop_assert_eq!(after.validated(), Ok(after));
        prop_assert!(after.batch <= before.batch && after.quantum <= before.quantum);
        prop_assert!(after.deadline <= before.deadline);
        prop_assert!(mapping.paced().delay_max <= spec.delay.unwrap());
        let interval = mapping.pdu_interval;
        if !interval.is_zero() && after != before {
            prop_assert_eq!(after.period, interval * after.batch);
            prop_assert!(after.batch == 1 || after.period <= Span::from_millis(1));
        }
    }

    #[test]
    fn no_pdu_waits_longer_and_no_buffer_is_missing(
        (spec, mapping) in cheap(),
        phase in 0..=1000_u128,
        slacks in prop::collection::vec(slack(), 40..400),
        services in prop::collection::vec(service(), 1..100),
    ) {
        let source = Source::of(&spec);
        // At least one part of a nanosecond after a release, or exactly at it.
        let phase = (source.parts_of(mapping.params.period) * phase / 1000).max(phase.min(1));
        let mut next = slacks.iter().copied();
        let arrivals = source.arrivals(phase, slacks.len(), || next.next().unwrap());
        prop_assert_eq!(&source.logical(&arrivals), &arrivals, "the source breaks its promise");
        let mut next = services.iter().copied().cycle();
        let done = serve(&source, &mapping, &arrivals, || next.next().unwrap());
        prop_assert!(wait_max(&arrivals, &done) <= source.parts_of(mapping.delay_max));
        prop_assert!(present_max(&arrivals, &done) <= mapping.buffers as usize);
    }

    #[test]
    fn an_early_pdu_is_in_time_counted_from_its_logical_arrival(
        (spec, mapping) in cheap(),
        early in prop::collection::vec(0..3_000_u128, 40..200),
        services in prop::collection::vec(service(), 1..100),
    ) {
        let source = Source::of(&spec);
        let due = source.arrivals(1, early.len(), || 0);
        let mut last = 0;
        let arrivals: Vec<u128> = due
            .iter()
            .enumerate()
            .map(|(pdu, due)| {
                let early = early[pdu / source.unit_pdus as usize] * source.interval / 1000;
                last = due.saturating_sub(early).max(last);
                last
            })
            .collect();
        let due = source.logical(&arrivals);
        let mut next = services.iter().copied().cycle();
        let done = serve(&source, &mapping, &arrivals, || next.next().unwrap());
        prop_assert!(wait_max(&due, &done) <= source.parts_of(mapping.delay_max));
        // The present PDUs that are not due.
        let by = |times: &[u128], at: u128| times.partition_point(|&time| time <= at);
        let ahead = |pdu: usize| by(&arrivals, arrivals[pdu]) - by(&due, arrivals[pdu]);
        let ahead_max = (0..arrivals.len()).map(ahead).max().unwrap();
        prop_assert!(present_max(&arrivals, &done) <= mapping.buffers as usize + ahead_max);
    }

    #[test]
    fn a_longer_delay_costs_no_more_cpu_and_no_more_jobs(
        (spec, mapping) in cheap(),
        longer_ns in prop_oneof![1..1_000_u64, 1..10_000_000_000_u64],
    ) {
        let delay = spec.delay.unwrap() + Span::from_nanos(longer_ns);
        let longer = map(&StreamSpec { delay: Some(delay), ..spec }, SWITCH).unwrap();
        let (short, long) = (mapping.params, longer.params);
        prop_assert!(long.period >= short.period);
        // Rounding shortened the longer period by less than 1 ns.
        let long_ns = u128::from(long.period.as_nanos()) + 1;
        prop_assert!(
            u128::from(long.batch) * u128::from(short.period.as_nanos())
                <= u128::from(short.batch) * long_ns
        );
    }

    #[test]
    fn the_remedies_for_a_cost_are_exact(spec in plausible(), longer_ns in 0..5_000_000_000_u64) {
        let mapped = map(&spec, SWITCH);
        let Err(MapError::Cost { pdu_cost_max, delay_min, .. }) = mapped else {
            prop_assert!(mapped.is_ok(), "{mapped:?}");
            return Ok(());
        };
        let costing = |pdu_cost| map(&StreamSpec { pdu_cost, ..spec }, SWITCH).is_ok();
        if let Some(cost) = pdu_cost_max {
            prop_assert!(costing(cost));
        }
        prop_assert!(!costing(pdu_cost_max.unwrap_or_default() + Span::from_nanos(1)));
        let within = |delay| map(&StreamSpec { delay: Some(delay), ..spec }, SWITCH).is_ok();
        match delay_min {
            Some(delay) => {
                prop_assert!(within(delay));
                prop_assert!(within(delay + Span::from_nanos(longer_ns)), "every longer one");
                prop_assert!(!within(delay.saturating_sub(Span::from_nanos(1))));
            }
            None => prop_assert!(!within(spec.delay.unwrap() + Span::from_nanos(longer_ns))),
        }
    }

    #[test]
    fn no_specification_makes_the_mapping_panic(
        kind in 0..6_u8,
        one in extreme(),
        other in extreme(),
        pdu in extreme(),
        delay in prop::option::of(extreme()),
        cost in extreme(),
        quantum in prop::option::weighted(0.2, any::<u32>()),
        switch in extreme(),
    ) {
        let rate = Rate::from_micro_hertz(one);
        let narrow = |wide| u32::try_from(wide).unwrap_or(u32::MAX);
        let class = match kind {
            0 => Class::ContinuousMedia(Flow::PduRate(rate)),
            1 => Class::Bulk(Flow::Bandwidth { bits_per_second: one }),
            2 => Class::ContinuousMedia(Flow::Frames { frame_rate: rate, frame_bytes: other }),
            3 => Class::Bulk(Flow::Transfer { bytes: one, within: Span::from_nanos(other) }),
            4 => Class::Transaction { rate, burst: narrow(other) },
            _ => Class::MessageStream { message_rate: rate, message_bytes: other },
        };
        let spec = StreamSpec {
            class,
            pdu_bytes: narrow(pdu),
            delay: delay.map(Span::from_nanos),
            pdu_cost: Span::from_nanos(cost),
            quantum,
        };
        match map(&spec, Span::from_nanos(switch)) {
            Ok(mapping) => prop_assert_eq!(mapping.params.validated(), Ok(mapping.params)),
            Err(error) => prop_assert!(error.to_string().contains(error.key())),
        }
    }
}

/// Numbers of any size equally often, and the ends of the range.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0),
        1 => Just(u64::MAX),
        12 => (any::<u64>(), 0..64_u32).prop_map(|(bits, shift)| bits >> shift),
    ]
}
