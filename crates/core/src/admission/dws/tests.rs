//! Verdicts worked out by hand, and properties that the two analyses have in common.
//! `tests/dws_admission.rs` compares with another analysis and with the scheduler itself.

use super::*;
use crate::admission::utilization;
use crate::admission::{Hint, Reason, Reservations};
use crate::discipline::DWS;
use crate::policy::dws::delay_bound;
use core::cmp::Ordering;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

type Set = Vec<(ActivityParams, Terms)>;

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

fn platform(switch_ns: u64, wakeup_ns: u64) -> Platform {
    Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: ns(switch_ns),
        wakeup_latency: ns(wakeup_ns),
        defer_preemption: Span::ZERO,
    }
}

fn stream(period_ns: u64, batch: u32, quantum: u32, cost_ns: u64) -> (ActivityParams, Terms) {
    let params = ActivityParams::new(ns(period_ns), ns(cost_ns)).batch(batch).quantum(quantum);
    (params, Terms::default())
}

fn due((params, terms): (ActivityParams, Terms), bound_ns: u64) -> (ActivityParams, Terms) {
    (params, Terms { delay_bound: Some(ns(bound_ns)), ..terms })
}

fn class((params, terms): (ActivityParams, Terms), class: WorkClass) -> (ActivityParams, Terms) {
    (params, Terms { class, ..terms })
}

fn judged(set: &[(ActivityParams, Terms)], platform: &Platform) -> Verdict {
    verdict(0, (set, Users::ONE), platform, &mut Steps::of_analysis())
}

fn bounded(spans_ns: &[u64]) -> Vec<Response> {
    spans_ns.iter().map(|&span_ns| Response::Bounded(ns(span_ns))).collect()
}

/// `B(20) = 4 - 1`. First: `a = 0`: `W = 3 + 3 - 1`, ends at 6; `a = 10`, due with the
/// second: `W = 0 + 3 - 1 + 8`, ends at 11: 1. Second: `a = 0`: `W = 0 + 8 - 4 + 3 = 7`,
/// ends at 11; `a = 10`, due at 40: the same, 1.
///
/// S = 1: the first is charged a return, 5; the second 9. `B(20) = 1 + 4 - 1`. First: `W =
/// 4 + 5 - 1`, ends at 9. Second: `W = 9 - 4 + 5 = 10`, ends at 14.
///
/// A late wake-up of 7 blocks both: `7 + 5` and `7 + 9 + 5`, which is past 20, but the
/// second job of the first is due after 30. An interactive quantum of 6 blocks both as
/// long as one less than it and its hand-off, 6: 11 and 20.
#[test]
fn responses_as_worked_by_hand() {
    let mut set = vec![stream(20, 3, 1, 1), stream(30, 2, 1, 4)];
    assert_eq!(judged(&set, &platform(0, 0)).responses, bounded(&[6, 11]));
    assert_eq!(judged(&set, &platform(1, 0)).responses, bounded(&[9, 14]));
    assert_eq!(judged(&set, &platform(1, 7)).responses, bounded(&[12, 21]));
    set.push(class(stream(1000, 1, 1, 6), WorkClass::Interactive));
    let mut expected = bounded(&[11, 20]);
    expected.push(Response::AtLeast(Span::ZERO));
    let verdict = judged(&set, &platform(1, 0));
    assert_eq!((verdict.responses, verdict.failure), (expected, None));
    // 5/20 + 9/30: nothing is granted to the third.
    assert!((verdict.utilization - 0.55).abs() < 1e-12);
}

/// A hand-off to an only quantum is not preempted either. S = 1: the first is charged
/// 4, the second 5. Second: `W = 5 - 5 + 4`, before the first comes again at 5, ends at
/// 9. First: `B(9) = 1 + 4 - 1`, `W = 4 + 4 - 4`, ends at 8.
#[test]
fn a_hand_off_to_the_only_quantum_protects_like_it() {
    let set = [due(stream(5, 1, 1, 3), 9), stream(30, 1, 1, 4)];
    assert_eq!(judged(&set, &platform(1, 0)).responses, bounded(&[8, 9]));
}

/// The names of the tests are part of the contract. One test decides, and each result is
/// consistent.
#[test]
fn exactly_one_test_is_marked_as_deciding() {
    let names = |verdict: &Verdict| {
        for test in &verdict.tests {
            assert_eq!(test.passed, test.value <= test.bound, "{test:?}");
        }
        let deciding = verdict.tests.iter().filter(|test| test.deciding);
        assert_eq!(
            verdict.tests.iter().map(|test| test.name).collect::<Vec<_>>(),
            ["demand-bound", "utilization", "cpu-limit"]
        );
        deciding.map(|test| (test.name, test.passed)).collect::<Vec<_>>()
    };
    let half = stream(20, 1, 1, 10);
    let fits = judged(&[half, half], &platform(0, 0));
    assert_eq!((names(&fits), fits.failure), (vec![("demand-bound", true)], None));
    assert!((fits.tests[0].value - 1.0).abs() < f64::EPSILON);
    let limit = Share::from_ppm(999_999).unwrap();
    let limited = judged(&[half, half], &Platform { cpu_limit: limit, ..platform(0, 0) });
    assert_eq!(names(&limited), [("cpu-limit", false)]);
    assert_eq!(limited.failure, Some(Failure::OverLimit));
    let above = judged(&[half, half, stream(1_000_000, 1, 1, 1)], &platform(0, 0));
    assert_eq!(names(&above), [("demand-bound", false)]);
    assert_eq!(above.failure, Some(Failure::FallsBehind { index: 0 }));
    assert!(!above.tests[1].passed && !above.tests[2].passed);
    // Two quanta of 10 in 15.
    let late = judged(&[due(half, 15), due(half, 15)], &platform(0, 0));
    assert_eq!(names(&late), [("demand-bound", false)]);
    let (response, deadline) = (ns(20), ns(15));
    let misses = Failure::Misses { index: 1, response, deadline, exact: true };
    assert_eq!(late.failure, Some(misses));
    assert!(judged(&[], &platform(0, 0)).tests.is_empty());
    assert_eq!(judged(&[], &platform(0, 0)).failure, None);
    let empty = judged(&[class(half, WorkClass::Background)], &platform(0, 0));
    assert_eq!((names(&empty), empty.failure), (vec![("demand-bound", true)], None));
}

/// On a full CPU, delay bounds beyond the next message make up for permanent blocking: 20 due in
/// 20, and 5 of the background before.
#[test]
fn a_full_cpu_with_background_quanta_needs_longer_delay_bounds() {
    let background = class(stream(20, 1, 1, 6), WorkClass::Background);
    let set =
        |bound_ns| [due(stream(20, 10, 1, 1), bound_ns), due(stream(20, 10, 1, 1), 25), background];
    assert_eq!(judged(&set(25), &platform(0, 0)).failure, None);
    assert_eq!(judged(&set(25), &platform(0, 0)).responses[..2], bounded(&[25, 25]));
    assert!(judged(&set(25), &platform(0, 1)).failure.is_none());
    assert!(judged(&set(25), &platform(0, 6)).failure.is_some());
    assert_eq!(judged(&set(15), &platform(0, 0)).failure, None);
    assert!(judged(&set(14), &platform(0, 0)).failure.is_some());
}

#[test]
fn a_refusal_names_the_late_activity_and_a_change_that_fits() {
    let mut reservations = Reservations::new(platform(0, 0), &DWS);
    let (params, terms) = stream(100, 1, 1, 20);
    reservations.reserve("a", params.deadline(ns(30)), &terms).unwrap();
    let refusal = reservations.reserve("b", params.deadline(ns(35)), &terms).unwrap_err();
    // Both at once; `b` comes second. But a `b` that begins 1 ns before delays `a` more: 19 + 20 of
    // 30, where `b` ends at 40 of 35.
    let Reason::MissesDeadline { ref victim, response, deadline, exact, .. } = refusal.reason
    else {
        panic!("{refusal}")
    };
    assert_eq!((victim.as_str(), response, deadline, exact), ("a", ns(39), ns(30), true));
    // No deadline of `b` would help `a`, and `b` has no shorter quantum.
    assert!(matches!(refusal.hint, Some(Hint::PduCost { to, .. }) if to == ns(11)), "{refusal}");
}

#[test]
fn the_longest_times_do_not_overflow() {
    let hour_ns = 3_600_000_000_000;
    let set = vec![
        due(stream(hour_ns, 1_000_000, 1, 1_000_000), u64::MAX),
        due(stream(hour_ns, 1, 1, 1), u64::MAX - 1),
        due(stream(hour_ns - 1, 1, 1, 1), 0),
        class(stream(hour_ns, 1, 1, hour_ns), WorkClass::Background),
    ];
    for switch_ns in [0, 1, u64::MAX / 4, u64::MAX] {
        for wakeup_ns in [0, 1, u64::MAX] {
            let platform = platform(switch_ns, wakeup_ns);
            assert!(judged(&set, &platform).failure.is_some());
            assert!(judged(&set[3..], &platform).failure.is_none());
            for index in 0..5 {
                let _ = delay_bound_offered(&set, index, &platform);
            }
        }
    }
    let broken = [stream(0, 1, 1, 1)];
    assert_eq!(delay_bound_offered(&broken, 0, &platform(0, 0)), None);
    // Longer than any user could wait, and still kept.
    assert_eq!(judged(&set[..2], &platform(0, 0)).failure, None);
}

/// A nearly full CPU whose periods have a hyperperiod of 10^18: the horizon is far.
#[test]
fn a_search_that_would_take_too_long_is_given_up_and_the_set_refused() {
    let set = [
        due(stream(2 * 998_244_353, 1, 1, 998_244_353), 4_000_000_000),
        due(stream(2 * 1_000_000_007, 1, 1, 1_000_000_007), 4_000_000_000),
    ];
    let verdict = judged(&set, &platform(0, 1));
    assert_eq!(verdict.failure, Some(Failure::Undecided { index: 0 }));
    assert!(verdict.responses.iter().all(|found| matches!(found, Response::AtLeast(_))));
    assert!(!verdict.tests[0].passed && verdict.tests[0].deciding);
    assert_eq!(delay_bound_offered(&set, 0, &platform(0, 1)), None);
}

/// Where the test passes but the worst responses take too long to compute, the delay bounds replace
/// them.
#[test]
fn a_response_that_is_not_found_is_bounded_by_the_delay_bound() {
    let set: Set = (0..200).map(|k| stream(100_003 + 37 * k, 1, 1, 480)).collect();
    let verdict = judged(&set, &platform(0, 0));
    assert_eq!(verdict.failure, None);
    let found = |index: usize| verdict.responses[index];
    assert!(matches!(found(0), Response::Bounded(span) if span < set[0].0.deadline));
    assert_eq!(verdict_with(&set, 100_000).responses[199], Response::Bounded(set[199].0.deadline));
    // A late set is refused even if its worst responses are unknown.
    let late: Set = set.iter().map(|&(params, terms)| due((params, terms), 90_000)).collect();
    let verdict = verdict_with(&late, 30_000);
    assert!(matches!(verdict.failure, Some(Failure::Misses { .. })), "{:?}", verdict.failure);
}

fn verdict_with(set: &[(ActivityParams, Terms)], steps: u64) -> Verdict {
    let all = &mut Steps::of_analysis();
    let mut some = all.take_part(10_000_000 / steps);
    verdict(0, (set, Users::ONE), &platform(0, 0), &mut some)
}

prop_compose! {
    fn any_activity(load: core::ops::Range<u64>)(
        period_ns in prop::sample::select(&[4u64, 5, 6, 8, 10, 12, 15, 20, 24, 30][..]),
        load in load,
        batch in 1u32..5,
        seed in any::<u32>(),
        bound_percent in prop_oneof![Just(100), 30u64..100, 100u64..250],
        workahead_max in 0u32..3,
        other in prop::bool::weighted(0.1),
    ) -> (ActivityParams, Terms) {
        let compute_ns = (period_ns * load / 100).max(1);
        let batch = batch.min(u32::try_from(compute_ns).unwrap());
        let (params, terms) =
            stream(period_ns, batch, 1 + seed % batch, compute_ns / u64::from(batch));
        let bound_ns = (period_ns * bound_percent / 100).max(1);
        let class = if other { WorkClass::Interactive } else { WorkClass::RealTime };
        (params, Terms { delay_bound: Some(ns(bound_ns)), class, workahead_max, ..terms })
    }
}

fn set() -> impl Strategy<Value = Set> {
    (1usize..7).prop_flat_map(|count| {
        prop::collection::vec(any_activity(1..(180 / count as u64).min(90)), count)
    })
}

fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(2009), ..Config::default() }
}

proptest! {
    #![proptest_config(cases(1_500))]

    /// The demand and the responses give the same answer, with all costs.
    #[test]
    fn the_test_passes_if_and_only_if_no_response_is_longer_than_its_delay_bound(
        set in set(),
        switch_ns in 0u64..3,
        wakeup_ns in prop_oneof![Just(0u64), 0u64..6],
    ) {
        let platform = platform(switch_ns, wakeup_ns);
        let verdict = judged(&set, &platform);
        let kept = set.iter().zip(&verdict.responses).all(|((params, terms), response)| {
            terms.class != WorkClass::RealTime
                || matches!(
                    response,
                    Response::Bounded(span) if *span <= delay_bound(params, terms)
                )
        });
        prop_assert_eq!(verdict.failure.is_none(), kept);
        // The examination of every interval, one by one, gives the same answer.
        let load = Load::of(&set, Users::ONE, &platform);
        let (outcome, _) = load.decide(&mut Steps::of_analysis());
        let late = (1..3_000).any(|length_ns| {
            let demands = load.streams.iter().map(|stream| stream.demand(length_ns).unwrap());
            let due: u64 = demands.sum();
            due > 0 && due + load.blocking(length_ns) > length_ns
        });
        match outcome {
            Outcome::Kept => prop_assert!(!late),
            Outcome::Late { .. } => prop_assert!(late),
            Outcome::Overloaded => {
                let demands = load.demands();
                prop_assert_eq!(utilization::compare(&demands, Share::WHOLE), Ordering::Greater);
            }
            Outcome::Undecided => prop_assert!(false, "so small a set is decided"),
        }
    }

}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn the_delay_bound_offered_is_the_shortest_that_passes(
        set in set(),
        at in any::<prop::sample::Index>(),
        wakeup_ns in prop_oneof![Just(0u64), 0u64..6],
    ) {
        let (index, platform) = (at.index(set.len()), platform(0, wakeup_ns));
        let fits = |bound_ns| {
            let mut trial = set.clone();
            trial[index] = due(trial[index], bound_ns);
            Load::of(&trial, Users::ONE, &platform).decide(&mut Steps::of_analysis()).0 ==
            Outcome::Kept
        };
        let offered = delay_bound_offered(&set, index, &platform);
        if set[index].1.class != WorkClass::RealTime {
            prop_assert_eq!(offered, None);
        } else if let Some(bound) = offered {
            let bound_ns = bound.as_nanos();
            prop_assert!(fits(bound_ns));
            prop_assert!((1..bound_ns).all(|shorter_ns| !fits(shorter_ns)));
        } else {
            prop_assert!((1..400).all(|bound_ns| !fits(bound_ns)));
        }
    }
}
