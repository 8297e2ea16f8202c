//! The hard variant of DWS against the scheduler in virtual time, and against an independent
//! analysis: the crate `response-time-analysis`, whose bound for earliest deadline first with
//! limited preemption is derived from a machine-checked proof (Bozhko and Brandenburg, ECRTS 2020).
//!
//! That analysis has neither hand-offs nor late wake-ups.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use dws_driver::{Activity, Conditions, IDEAL, Lead, observe};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use response_time_analysis::arrival::Periodic;
use response_time_analysis::demand::RBF;
use response_time_analysis::edf::limited_preemptive::{
    InterferingTask, TaskUnderAnalysis, dedicated_uniproc_rta,
};
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;
use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::DWS;
use upcall_core::time::Span;

#[allow(dead_code, reason = "each test file uses its part")]
mod dws_driver;

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

/// The same sets in every run.
fn cases(cases: u32) -> Config {
    Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1991),
        max_global_rejects: 100_000,
        ..Config::default()
    }
}

fn reservations(switch_ns: u64, wakeup_ns: u64) -> Reservations {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: ns(switch_ns),
        wakeup_latency: ns(wakeup_ns),
        defer_preemption: Span::ZERO,
    };
    Reservations::new(platform, &DWS)
}

/// Whether all activities of the set are admitted, one after the other.
fn admitted(set: &[Activity]) -> bool {
    let mut reservations = reservations(0, 0);
    set.iter().all(|(params, terms)| reservations.reserve("", *params, terms).is_ok())
}

fn hyperperiod_ns(set: &[Activity]) -> u64 {
    fn divisor(a: u64, b: u64) -> u64 {
        if b == 0 { a } else { divisor(b, a % b) }
    }
    set.iter().fold(1, |lcm, (params, _)| {
        let period = params.period.as_nanos();
        lcm / divisor(lcm, period) * period
    })
}

/// Small periods provoke rounding and equal instants. Their hyperperiod is 240.
const PERIODS_NS: &[u64] = &[4, 5, 6, 8, 10, 12, 15, 16, 20, 24, 30, 40, 48, 60, 80];

prop_compose! {
    /// A real-time activity with a delay bound before or after the next message.
    fn stream(load: core::ops::Range<u64>)(
        period_ns in prop::sample::select(PERIODS_NS),
        load in load,
        batch in 1u32..7,
        seed in any::<u32>(),
        bound_percent in prop_oneof![3 => Just(100), 2 => 30u64..100, 1 => 100u64..250],
        offset_ns in prop_oneof![Just(0u64), Just(1u64), 0u64..80],
        workahead_max in prop_oneof![1 => Just(0u32), 2 => 1u32..5],
    ) -> Activity {
        let compute_ns = (period_ns * load / 100).max(1);
        let batch = batch.min(u32::try_from(compute_ns).unwrap());
        let cost_ns = compute_ns / u64::from(batch);
        let params = ActivityParams::new(ns(period_ns), ns(cost_ns))
            .batch(batch)
            .quantum(1 + seed % batch)
            .offset(ns(offset_ns));
        let bound = ns((period_ns * bound_percent / 100).max(params.compute().as_nanos()));
        match bound <= params.period {
            true => (params.deadline(bound), Terms { workahead_max, ..Terms::default() }),
            false => {
                let delay_bound = Some(bound);
                (params, Terms { workahead_max, delay_bound, ..Terms::default() })
            }
        }
    }
}

/// An activity without a promise, with any demand.
fn other() -> impl Strategy<Value = Activity> {
    let class = prop_oneof![Just(WorkClass::Interactive), Just(WorkClass::Background)];
    (stream(1..60), class).prop_map(|((params, terms), class)| (params, Terms { class, ..terms }))
}

fn wanted() -> impl Strategy<Value = Vec<Activity>> {
    let any = (2usize..9).prop_flat_map(|count| {
        let load = 1..(220 / count as u64).min(90);
        prop::collection::vec(prop_oneof![8 => stream(load), 1 => other()], count)
    });
    any.prop_shuffle()
}

fn lead() -> impl Strategy<Value = Lead> {
    prop_oneof![1 => Just(Lead::None), 2 => Just(Lead::Most), 4 => Just(Lead::Random)]
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn admitted_sets_miss_no_deadline_however_early_messages_and_events_come(
        wanted in wanted(),
        switch_ns in prop_oneof![3 => Just(0u64), 1 => 1u64..4],
        wakeup_ns in prop_oneof![3 => Just(0u64), 1 => 1u64..12],
        thrifty in prop::bool::weighted(0.25),
        lead in lead(),
        events in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut reservations = reservations(switch_ns, wakeup_ns);
        let (mut set, mut ids) = (Vec::new(), Vec::new());
        for (params, terms) in wanted {
            if let Ok(reservation) = reservations.reserve("", params, &terms) {
                set.push((params, terms));
                ids.push(reservation.id);
            }
        }
        prop_assume!(!set.is_empty());
        let (switch_cost, wakeup_latency) = (ns(switch_ns), ns(wakeup_ns));
        let conditions = Conditions { switch_cost, wakeup_latency, thrifty, lead, events, seed };
        let until = 80 + 2 * hyperperiod_ns(&set);
        for (counters, ((_, terms), id)) in
            observe(&set, conditions, until).iter().zip(set.iter().zip(ids))
        {
            prop_assert!(counters.jobs > 0);
            if terms.class == WorkClass::RealTime {
                prop_assert_eq!(counters.misses, 0);
                prop_assert!(counters.response_max <= reservations.response_max(id).unwrap());
            } else {
                prop_assert_eq!(reservations.response_max(id), None);
            }
        }
    }
}

/// Every activity with this period that fits in its delay bound, for bounds up to a nanosecond
/// after the next message.
fn all_of_period(period_ns: u64) -> impl Iterator<Item = Activity> {
    let shape = move |cost_ns: u64| {
        let batches = 1..=u32::try_from(period_ns / cost_ns).unwrap();
        batches.flat_map(move |batch| (1..=batch).map(move |quantum| (cost_ns, batch, quantum)))
    };
    (1..=period_ns).flat_map(shape).flat_map(move |(cost_ns, batch, quantum)| {
        let params = ActivityParams::new(ns(period_ns), ns(cost_ns)).batch(batch).quantum(quantum);
        let bounds = params.compute().as_nanos()..=period_ns + 1;
        bounds.map(move |bound_ns| {
            (params, Terms { delay_bound: Some(ns(bound_ns)), ..Terms::default() })
        })
    })
}

/// Whether a deadline is missed in some phases.
fn misses(set: [Activity; 2], conditions: Conditions) -> bool {
    let [first, second] = set;
    let cycle_ns = hyperperiod_ns(&set);
    (0..first.0.period.as_nanos()).any(|a| {
        (0..second.0.period.as_nanos()).any(|b| {
            let shift = |(params, terms): Activity, by| (params.offset(ns(1 + by)), terms);
            let set = [shift(first, a), shift(second, b)];
            let counters = observe(&set, conditions, 2 * cycle_ns + 10);
            (a == 0 || b == 0) && counters.iter().any(|counters| counters.misses > 0)
        })
    })
}

#[test]
fn exactly_the_pairs_that_can_miss_are_refused_for_periods_up_to_five() {
    let all: Vec<_> = (1..=5).flat_map(all_of_period).collect();
    let (mut kept, mut refused) = (0, 0);
    for (at, first) in all.iter().enumerate() {
        for second in &all[at..] {
            let set = [*first, *second];
            let utilization: f64 = set.iter().map(|(params, _)| params.utilization()).sum();
            if utilization > 1.0 {
                assert!(!admitted(&set));
                continue;
            }
            let fits = admitted(&set);
            assert_eq!(fits, !misses(set, IDEAL), "{set:?}");
            *(if fits { &mut kept } else { &mut refused }) += 1;
        }
    }
    // The number of sets that do not overfill the CPU and are kept, and the number refused.
    assert_eq!((kept, refused), (1326, 582));
}

/// The worst response of each activity by the other analysis.
fn independent(set: &[Activity]) -> Vec<Option<u64>> {
    let arrivals = |(params, _): &Activity| Periodic::new(Duration::from(params.period.as_nanos()));
    let wcet = |(params, _): &Activity| Scalar::new(Service::from(params.compute().as_nanos()));
    let deadline = |(params, terms): &Activity| {
        Duration::from(terms.delay_bound.unwrap_or(params.deadline).as_nanos())
    };
    let demands: Vec<_> = set.iter().map(|own| RBF::new(arrivals(own), wcet(own))).collect();
    let response = |index: usize| {
        let own = &set[index];
        let last_ns = own.0.pdu_cost.as_nanos() * u64::from(own.0.last_quantum());
        let under_analysis = TaskUnderAnalysis {
            wcet: wcet(own),
            arrivals: &arrivals(own),
            deadline: deadline(own),
            last_np_segment: Service::from(last_ns),
        };
        let others: Vec<_> = (0..set.len())
            .filter(|&other| other != index)
            .map(|other| InterferingTask {
                rbf: &demands[other],
                deadline: deadline(&set[other]),
                max_np_segment: Service::from(set[other].0.quantum_cost().as_nanos()),
            })
            .collect();
        // Above the length up to which that crate repeats each search by brute force in debug
        // builds.
        let limit = Duration::from(200_000);
        dedicated_uniproc_rta(&under_analysis, &others, limit).ok().map(u64::from)
    };
    (0..set.len()).map(response).collect()
}

fn streams() -> impl Strategy<Value = Vec<Activity>> {
    (1usize..8).prop_flat_map(|count| {
        prop::collection::vec(stream(1..(200 / count as u64).min(100)), count)
    })
}

fn overloaded(set: &[Activity]) -> bool {
    let cycle_ns = hyperperiod_ns(set);
    let demand = |(params, _): &Activity| {
        params.compute().as_nanos() * (cycle_ns / params.period.as_nanos())
    };
    set.iter().map(demand).sum::<u64>() > cycle_ns
}

proptest! {
    #![proptest_config(cases(1_000))]

    #[test]
    fn every_response_is_the_one_the_other_analysis_finds(set in streams()) {
        prop_assume!(!overloaded(&set));
        let mut reservations = reservations(0, 0);
        let ids: Vec<_> = set
            .iter()
            .map(|(params, terms)| reservations.reserve_unscreened("", *params, terms).id)
            .collect();
        let found = ids.into_iter().map(|id| reservations.response_max(id).map(Span::as_nanos));
        let expected = independent(&set);
        prop_assert_eq!(found.collect::<Vec<_>>(), &expected[..]);
        let kept = expected.iter().zip(&set).all(|(response, (params, terms))| {
            let bound = terms.delay_bound.unwrap_or(params.deadline);
            response.is_some_and(|response_ns| response_ns <= bound.as_nanos())
        });
        prop_assert_eq!(admitted(&set), kept);
    }

    /// The CPU limit changes no verdict while hand-offs are free.
    #[test]
    fn working_ahead_costs_the_others_nothing(
        wanted in wanted(),
        limits in prop::array::uniform8(0u32..9),
    ) {
        let changed: Vec<_> = wanted
            .iter()
            .zip(limits)
            .map(|((params, terms), workahead_max)| (*params, Terms { workahead_max, ..*terms }))
            .collect();
        prop_assert_eq!(admitted(&wanted), admitted(&changed));
    }

    /// With deadlines at the next messages: `h(t) <= U t`, and blocking is `max b c - 1` in the
    /// shortest interval.
    #[test]
    fn utilization_up_to_one_minus_blocking_is_admitted(
        set in streams(),
        fine in any::<bool>(),
    ) {
        let set: Vec<Activity> = set
            .into_iter()
            .map(|(params, terms)| {
                let params = params.deadline(params.period);
                let batch = u32::try_from(params.compute().as_nanos()).unwrap();
                let params = match fine {
                    true => ActivityParams { pdu_cost: ns(1), batch, quantum: 1, ..params },
                    false => params,
                };
                (params, Terms { delay_bound: None, ..terms })
            })
            .collect();
        let blocking_ns = set.iter().map(|(params, _)| params.quantum_cost().as_nanos() - 1).max();
        let shortest_ns = set.iter().map(|(params, _)| params.period.as_nanos()).min();
        let (blocking_ns, shortest_ns) = (blocking_ns.unwrap(), shortest_ns.unwrap());
        // `U + blocking / shortest <= 1`, in whole numbers.
        let cycle_ns = hyperperiod_ns(&set);
        let demand_ns: u64 = set
            .iter()
            .map(|(params, _)| params.compute().as_nanos() * (cycle_ns / params.period.as_nanos()))
            .sum();
        if demand_ns + blocking_ns * (cycle_ns / shortest_ns) <= cycle_ns {
            prop_assert!(admitted(&set));
        }
        if demand_ns > cycle_ns {
            prop_assert!(!admitted(&set));
        }
    }
}

/// S = 10. B comes at 100, due at 130. A, of 105 and due at 131, begins ahead at 99, gives way at
/// 110, and continues at 125: it ends at 136. If it never worked ahead, it would end by then at the
/// latest: 12 and 15 are charged, and 27 is less than 30.
#[test]
fn work_ahead_costs_only_the_hand_off_to_it() {
    let bound = |bound_ns| Some(ns(bound_ns));
    let a = ActivityParams::new(ns(200), ns(1)).batch(2).offset(ns(105));
    let b = ActivityParams::new(ns(200), ns(5)).offset(ns(100));
    let set = |workahead_max| {
        [
            (a, Terms { delay_bound: bound(26), workahead_max, ..Terms::default() }),
            (b, Terms { delay_bound: bound(30), ..Terms::default() }),
        ]
    };
    let admitted = |set: [Activity; 2]| {
        let mut reservations = reservations(10, 0);
        set.iter().all(|(params, terms)| reservations.reserve("", *params, terms).is_ok())
    };
    assert_eq!((admitted(set(0)), admitted(set(1))), (true, false));
    let misses = |workahead_max| {
        let conditions =
            |seed| Conditions { switch_cost: ns(10), lead: Lead::Random, seed, ..IDEAL };
        let runs = (0..2_000).map(|seed| observe(&set(workahead_max), conditions(seed), 200));
        runs.filter(|counters| counters[0].misses > 0).count()
    };
    assert_eq!(misses(0), 0);
    assert!(misses(1) > 0);
}

/// A CPU can be granted to the last nanosecond, and is used to the last.
#[test]
fn a_full_cpu_in_quanta_of_a_nanosecond_is_admitted_and_keeps_every_deadline() {
    let task = |period_ns, cost: u32| {
        let params = ActivityParams::new(ns(period_ns), ns(1)).batch(cost);
        (params, Terms { workahead_max: 3, ..Terms::default() })
    };
    let mut set = vec![task(6, 2), task(8, 2), task(12, 3), task(24, 4)];
    assert!(admitted(&set));
    for lead in [Lead::None, Lead::Most, Lead::Random] {
        let counters = observe(&set, Conditions { lead, ..IDEAL }, 240);
        assert!(counters.iter().all(|counters| counters.misses == 0));
    }
    set.push(task(1_000_000_000, 1));
    assert!(!admitted(&set));
}
