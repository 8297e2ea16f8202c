//! Admission against the scheduler: the analysis states how long a response can be; the state
//! machine in virtual time shows how long it is.
//!
//! With free hand-offs both must be equal, over all phases. With hand-offs that cost time, late
//! wake-ups and handlers that do less than declared, no response may be longer than the analysis
//! states.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use upcall_core::activity::ActivityParams;
use upcall_core::activity::Terms;
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::RMDP;
use upcall_core::time::{Instant, Span};
use virtual_time::{Conditions, IDEAL, Wakeup, observe, terms};

mod virtual_time;

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

/// The worst response of each activity by the analysis; `None` if one has no bound.
fn analysed(set: &[ActivityParams], platform: Platform) -> Option<Vec<Span>> {
    let mut reservations = Reservations::new(platform, &RMDP);
    let ids: Vec<_> = set
        .iter()
        .map(|&params| reservations.reserve_unscreened("", params, &Terms::default()).id)
        .collect();
    ids.into_iter().map(|id| reservations.response_max(id)).collect()
}

fn hyperperiod_ns(set: &[ActivityParams]) -> u64 {
    fn divisor(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    set.iter().fold(1, |lcm, params| {
        let period = params.period.as_nanos();
        lcm / divisor(lcm, period) * period
    })
}

/// The set with these offsets plus 1 ns, so that the CPU sleeps at the first release.
fn shifted(set: &[ActivityParams], offsets: &[u64]) -> Vec<ActivityParams> {
    set.iter().zip(offsets).map(|(params, &offset)| params.offset(ns(1 + offset))).collect()
}

/// Counts `offsets` up, each below its limit. Returns false after the last combination.
fn advance(offsets: &mut [u64], limits: &[u64]) -> bool {
    for (offset, &limit) in offsets.iter_mut().zip(limits) {
        *offset += 1;
        if *offset < limit {
            return true;
        }
        *offset = 0;
    }
    false
}

/// The longest possible active period, and at least two hyperperiods.
fn enough_ns(set: &[ActivityParams], wakeup: Wakeup) -> u64 {
    let (Wakeup::By(late) | Wakeup::UpTo(late)) = wakeup;
    let cycle_ns = hyperperiod_ns(set);
    let ahead_ns =
        late.as_nanos() + 2 * set.iter().map(|params| params.compute().as_nanos()).sum::<u64>();
    // Work ahead shrinks by this much every cycle. On a full CPU it never shrinks, and every cycle
    // equals the first.
    let idle_ns = cycle_ns.saturating_sub(demand_ns(set, cycle_ns)).max(1);
    (ahead_ns.div_ceil(idle_ns) + 2) * cycle_ns
}

/// The longest response of each activity over all offsets below `limits`.
fn longest(set: &[ActivityParams], limits: &[u64], conditions: Conditions) -> Vec<Span> {
    let mut offsets = vec![0; set.len()];
    let mut longest = vec![Span::ZERO; set.len()];
    loop {
        // A common shift of all releases gives no new phases.
        if offsets.contains(&0) {
            let last = offsets.iter().max().copied().unwrap_or(0);
            let until = Instant::from_nanos(1 + last + enough_ns(set, conditions.wakeup));
            let counters = observe(&shifted(set, &offsets), conditions, until);
            for (longest, counters) in longest.iter_mut().zip(counters) {
                *longest = counters.response_max.max(*longest);
            }
        }
        if !advance(&mut offsets, limits) {
            return longest;
        }
    }
}

/// How many activities, the best rank first, are done within their periods. Only there do responses
/// have to be as analysed: a budget that is not used within its period expires.
fn in_period(set: &[ActivityParams], bounds: &[Span]) -> usize {
    let kept = set.iter().zip(bounds).take_while(|(params, bound)| **bound <= params.period);
    kept.count()
}

fn periods_ns(set: &[ActivityParams]) -> Vec<u64> {
    set.iter().map(|params| params.period.as_nanos()).collect()
}

/// Every possible activity of this period, with its deadline at the end of the period.
fn all_of_period(period_ns: u64) -> impl Iterator<Item = ActivityParams> {
    (1..=period_ns).flat_map(move |cost_ns| {
        let batches = 1..=u32::try_from(period_ns / cost_ns).unwrap();
        batches.flat_map(move |batch| {
            (1..=batch).map(move |quantum| {
                ActivityParams::new(ns(period_ns), ns(cost_ns)).batch(batch).quantum(quantum)
            })
        })
    })
}

fn demand_ns(set: &[ActivityParams], cycle_ns: u64) -> u64 {
    let jobs = |params: &ActivityParams| cycle_ns / params.period.as_nanos();
    set.iter().map(|params| params.compute().as_nanos() * jobs(params)).sum()
}

fn overloaded(set: &[ActivityParams]) -> bool {
    let cycle_ns = hyperperiod_ns(set);
    demand_ns(set, cycle_ns) > cycle_ns
}

#[test]
fn the_analysis_is_exact_for_every_pair_with_periods_up_to_seven() {
    let all: Vec<_> = (1..=7).flat_map(all_of_period).collect();
    let (mut pairs, mut full) = (0, 0);
    for first in &all {
        for second in all.iter().filter(|second| second.period >= first.period) {
            let set = [*first, *second];
            let bounds = analysed(&set, platform(0, 0));
            if overloaded(&set) {
                assert_eq!(bounds, None, "{set:?}");
                continue;
            }
            let found = longest(&set, &periods_ns(&set), IDEAL);
            let bounds = bounds.unwrap();
            let kept = in_period(&set, &bounds);
            assert_eq!(bounds[..kept], found[..kept], "{set:?}");
            pairs += 1;
            if demand_ns(&set, hyperperiod_ns(&set)) == hyperperiod_ns(&set) {
                // A full CPU never makes up for a late wake-up.
                let wakeup = Wakeup::By(ns(3));
                let late = longest(&set, &periods_ns(&set), Conditions { wakeup, ..IDEAL });
                let found: Vec<_> = found.into_iter().zip(late).map(|(a, b)| a.max(b)).collect();
                let bounds = analysed(&set, platform(0, 3)).unwrap();
                let kept = in_period(&set, &bounds);
                assert_eq!(bounds[..kept], found[..kept], "{set:?}");
                full += 1;
            }
        }
    }
    // The number of pairs, and how many of them fill the CPU.
    assert_eq!((pairs, full), (970, 283));
}

/// An activity with one of these periods and about `load` percent of a CPU. Small integers provoke
/// rounding and equal instants.
fn activity(
    periods_ns: &'static [u64],
    load: core::ops::Range<u64>,
) -> impl Strategy<Value = ActivityParams> {
    (prop::sample::select(periods_ns), load, 1u32..7, any::<u32>()).prop_map(
        |(period_ns, load, batch, seed)| {
            let compute_ns = (period_ns * load / 100).max(1);
            let batch = batch.min(u32::try_from(compute_ns).unwrap());
            let cost_ns = compute_ns / u64::from(batch);
            ActivityParams::new(ns(period_ns), ns(cost_ns)).batch(batch).quantum(1 + seed % batch)
        },
    )
}

fn ranked_set(
    count: core::ops::Range<usize>,
    periods_ns: &'static [u64],
) -> impl Strategy<Value = Vec<ActivityParams>> {
    count
        .prop_flat_map(move |count| {
            let most = (180 / count as u64).min(100);
            prop::collection::vec(activity(periods_ns, 1..most), count)
        })
        .prop_map(|mut set| {
            set.sort_by_key(|params| params.period);
            set
        })
}

/// The same sets in every run.
fn cases(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1995),
        max_global_rejects: 100_000,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn the_longest_response_of_three_over_all_phases_is_the_analysed_one(
        set in ranked_set(3..4, &[3, 4, 5, 6, 8]),
    ) {
        prop_assume!(!overloaded(&set));
        let bounds = analysed(&set, platform(0, 0)).unwrap();
        let (found, kept) = (longest(&set, &periods_ns(&set), IDEAL), in_period(&set, &bounds));
        prop_assert_eq!(&found[..kept], &bounds[..kept]);
    }

    #[test]
    fn no_phase_of_three_with_hand_offs_takes_longer_than_analysed(
        set in ranked_set(3..4, &[4, 5, 6, 8, 10]),
        switch_ns in 1u64..3,
    ) {
        let Some(bounds) = analysed(&set, platform(switch_ns, 0)) else {
            return Err(TestCaseError::reject("overloaded"));
        };
        let conditions = Conditions { switch_cost: ns(switch_ns), ..IDEAL };
        let found = longest(&set, &periods_ns(&set), conditions);
        for (found, bound) in found.iter().zip(&bounds).take(in_period(&set, &bounds)) {
            prop_assert!(found <= bound, "{found} observed, {bound} analysed");
        }
    }
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// The phases of the worst case are known: one activity blocks, and the others are released a
    /// nanosecond later. So larger sets need no search over all phases to show that the bound is
    /// reached.
    #[test]
    fn the_analysed_response_is_reached_in_larger_sets_too(
        set in ranked_set(2..6, &[10, 12, 15, 20, 24, 30, 40, 60]),
        wakeup_ns in prop_oneof![Just(0u64), 1u64..12],
    ) {
        prop_assume!(!overloaded(&set));
        let bounds = analysed(&set, platform(0, wakeup_ns)).unwrap();
        let both = vec![2; set.len()];
        let punctual = longest(&set, &both, IDEAL);
        let late = Conditions { wakeup: Wakeup::By(ns(wakeup_ns)), ..IDEAL };
        let late = longest(&set, &both, late);
        let found: Vec<_> = punctual.into_iter().zip(late).map(|(a, b)| a.max(b)).collect();
        let kept = in_period(&set, &bounds);
        prop_assert_eq!(&found[..kept], &bounds[..kept]);
    }
}

/// `b` ranks behind `a`, but goes before `a` if an event waits for `b`. Then `a` ends 50 ns after
/// its release. So `b` is admitted if `a` is due at 50 ns, and refused if `a` is due at 49 ns.
#[test]
fn the_analysis_includes_activities_that_win_ties() {
    let (a, b) = (ActivityParams::new(ns(100), ns(10)), ActivityParams::new(ns(100), ns(40)));
    let eager = terms(1, 0);
    let mut reservations = Reservations::new(platform(0, 0), &RMDP);
    let first = reservations.reserve("a", a.deadline(ns(50)), &Terms::default()).unwrap();
    assert_eq!(reservations.response_max(first.id), Some(ns(10)));
    // If b does not win ties, only its quantum affects a.
    let second = reservations.clone().reserve("b", b, &Terms::default());
    assert!(second.is_ok());
    let second = reservations.reserve("b", b, &eager).unwrap();
    assert_eq!(reservations.response_max(first.id), Some(ns(50)));
    assert_eq!(reservations.response_max(second.id), Some(ns(50)));
    // If a is due by 49, only an activity that does not win ties fits.
    let mut reservations = Reservations::new(platform(0, 0), &RMDP);
    reservations.reserve("a", a.deadline(ns(49)), &Terms::default()).unwrap();
    assert!(reservations.reserve("b", b, &eager).is_err());
}

/// Periods whose hyperperiod is 7200: long enough for variety, short enough to run completely.
const PERIODS_NS: &[u64] = &[100, 120, 150, 160, 180, 200, 240, 300, 400, 600, 720, 900, 1200];

prop_compose! {
    /// An activity that may be due before the end of its period.
    fn constrained()(
        params in activity(PERIODS_NS, 1..60),
        share in prop_oneof![2 => Just(100), 1 => 40u64..100],
        offset_ns in prop_oneof![Just(0u64), Just(1u64), 0u64..1200],
    ) -> ActivityParams {
        let deadline_ns = (params.period.as_nanos() * share / 100).max(params.compute().as_nanos());
        params.deadline(ns(deadline_ns)).offset(ns(offset_ns))
    }
}

prop_compose! {
    /// An activity from a set in which many have the same period.
    fn tied()(
        params in activity(&[100, 200, 400], 1..60),
        share in prop_oneof![1 => Just(100), 2 => 40u64..100],
        offset_ns in prop_oneof![Just(0u64), Just(1u64), 0u64..400],
    ) -> ActivityParams {
        let deadline_ns = (params.period.as_nanos() * share / 100).max(params.compute().as_nanos());
        params.deadline(ns(deadline_ns)).offset(ns(offset_ns))
    }
}

/// Admits the activities of `wanted` that fit, and counts the misses in two hyperperiods.
fn admit_and_run(
    wanted: &[ActivityParams],
    switch_ns: u64,
    wakeup_ns: u64,
    (thrifty, wins_ties): (bool, u64),
    seed: u64,
) -> Result<(), TestCaseError> {
    let mut reservations = Reservations::new(platform(switch_ns, wakeup_ns), &RMDP);
    let mut set = Vec::new();
    let mut ids = Vec::new();
    for params in wanted {
        let terms = terms(wins_ties, set.len());
        if let Ok(reservation) = reservations.reserve("", *params, &terms) {
            set.push(*params);
            ids.push(reservation.id);
        }
    }
    prop_assume!(!set.is_empty());
    let conditions = Conditions {
        switch_cost: ns(switch_ns),
        wakeup: Wakeup::UpTo(ns(wakeup_ns)),
        thrifty,
        wins_ties,
        seed,
    };
    let until = Instant::from_nanos(1200 + 2 * hyperperiod_ns(&set));
    for (counters, id) in observe(&set, conditions, until).iter().zip(ids) {
        prop_assert!(counters.jobs > 0);
        prop_assert_eq!((counters.misses, counters.overruns), (0, 0));
        prop_assert!(counters.response_max <= reservations.response_max(id).unwrap());
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn admitted_sets_miss_no_deadline(
        wanted in prop::collection::vec(constrained(), 2..9),
        switch_ns in prop_oneof![Just(0u64), 1u64..12],
        wakeup_ns in prop_oneof![Just(0u64), 1u64..60],
        thrifty in prop::bool::weighted(0.25),
        seed in any::<u64>(),
    ) {
        admit_and_run(&wanted, switch_ns, wakeup_ns, (thrifty, 0), seed)?;
    }

    /// The sets have few periods, so that there are ties. Events win them all the time.
    #[test]
    fn admitted_sets_miss_no_deadline_whichever_ties_events_win(
        wanted in prop::collection::vec(tied(), 2..9),
        switch_ns in prop_oneof![Just(0u64), 1u64..12],
        wakeup_ns in prop_oneof![Just(0u64), 1u64..60],
        thrifty in prop::bool::weighted(0.25),
        wins_ties in any::<u64>(),
        seed in any::<u64>(),
    ) {
        admit_and_run(&wanted, switch_ns, wakeup_ns, (thrifty, wins_ties), seed)?;
    }
}
