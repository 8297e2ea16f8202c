//! Admission against an independent analysis: the crate `response-time-analysis`, whose
//! limited-preemptive bound is derived from a machine-checked proof (Bozhko and Brandenburg, ECRTS
//! 2020).
//!
//! That analysis has these conventions. An arrival at the end of a closed interval counts, as here.
//! The blocking bound is the rest of a quantum that began before: the longest quantum less one
//! tick. There are neither hand-offs nor late wake-ups, so both are zero.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use response_time_analysis::arrival::Periodic;
use response_time_analysis::demand::RBF;
use response_time_analysis::fixed_priority::limited_preemptive::{
    TaskUnderAnalysis, dedicated_uniproc_rta,
};
use response_time_analysis::time::{Duration, Service};
use response_time_analysis::wcet::Scalar;
use upcall_core::activity::ActivityParams;
use upcall_core::activity::Terms;
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;

/// The limit of a search. It is above the length up to which that crate repeats each search by
/// brute force in debug builds.
const LIMIT_TICKS: u64 = 200_000;

fn arrivals(params: &ActivityParams) -> Periodic {
    Periodic::new(Duration::from(params.period.as_nanos()))
}

fn wcet(params: &ActivityParams) -> Scalar {
    Scalar::new(Service::from(params.compute().as_nanos()))
}

/// The worst response of each activity, best rank first, by the other analysis.
fn independent(ranked: &[ActivityParams]) -> Vec<Option<u64>> {
    let response = |index: usize| {
        let own = &ranked[index];
        let better: Vec<_> =
            ranked[..index].iter().map(|other| RBF::new(arrivals(other), wcet(other))).collect();
        let longest_ns =
            ranked[index + 1..].iter().map(|other| other.quantum_cost().as_nanos()).max();
        let last_ns = own.pdu_cost.as_nanos() * u64::from(own.last_quantum());
        let under_analysis = TaskUnderAnalysis {
            wcet: wcet(own),
            arrivals: &arrivals(own),
            last_np_segment: Service::from(last_ns),
            blocking_bound: Service::from(longest_ns.map_or(0, |longest_ns| longest_ns - 1)),
        };
        let limit = Duration::from(LIMIT_TICKS);
        dedicated_uniproc_rta(&under_analysis, &better, limit).ok().map(u64::from)
    };
    (0..ranked.len()).map(response).collect()
}

fn reservations(cpu_limit: Share) -> Reservations {
    Reservations::new(
        Platform {
            cpus: vec![0],
            cpu_limit,
            switch_cost: Span::ZERO,
            wakeup_latency: Span::ZERO,
            defer_preemption: Span::ZERO,
        },
        &RMDP,
    )
}

prop_compose! {
    /// Any valid parameters, with a load of up to `load_percent`.
    fn activity(load_percent: u64)(
        period in 4u64..200,
        load in 1..=load_percent,
        batch in 1u32..8,
        quantum_seed in any::<u32>(),
        constrained in prop::bool::weighted(0.3),
        deadline_seed in any::<u64>(),
    ) -> ActivityParams {
        let pdu_cost_ns = (period * load / 100 / u64::from(batch)).max(1);
        let batch = batch.min(u32::try_from(period / pdu_cost_ns).unwrap());
        let compute_ns = pdu_cost_ns * u64::from(batch);
        let deadline_ns =
            match constrained {
                true => compute_ns + deadline_seed % (period - compute_ns + 1),
                false => period,
            };
        ActivityParams::new(Span::from_nanos(period), Span::from_nanos(pdu_cost_ns))
            .batch(batch)
            .quantum(1 + quantum_seed % batch)
            .deadline(Span::from_nanos(deadline_ns))
    }
}

/// One to eight activities in the order of their ranks. Some sets fill the CPU, many nearly.
fn ranked_set() -> impl Strategy<Value = Vec<ActivityParams>> {
    (1usize..9)
        .prop_flat_map(|count| {
            prop::collection::vec(activity((200 / count as u64).min(100)), count)
        })
        .prop_map(|mut set| {
            set.sort_by_key(|params| params.period);
            set
        })
}

proptest! {
    #![proptest_config(Config {
        cases: 4_000,
        failure_persistence: None,
        max_global_rejects: 100_000,
        rng_seed: RngSeed::Fixed(2020),
        ..Config::default()
    })]

    #[test]
    fn every_response_is_the_one_the_other_analysis_finds(set in ranked_set()) {
        let utilization: f64 = set.iter().map(ActivityParams::utilization).sum();
        // Above a utilization of 1, the other analysis searches up to its limit and finds nothing.
        prop_assume!(utilization < 0.999_999);
        let mut reservations = reservations(Share::WHOLE);
        let found: Vec<_> = set
            .iter()
            .map(|&params| reservations.reserve_unscreened("", params, &Terms::default()).id)
            .collect::<Vec<_>>()
            .into_iter()
            .map(|id| reservations.response_max(id).map(Span::as_nanos))
            .collect();
        prop_assert_eq!(found, independent(&set));
    }

    #[test]
    fn a_set_is_admitted_if_and_only_if_the_other_analysis_finds_every_deadline_kept(
        set in ranked_set(),
        shuffled in any::<prop::sample::Index>(),
    ) {
        let utilization: f64 = set.iter().map(ActivityParams::utilization).sum();
        prop_assume!(utilization < 0.999_999);
        let kept = independent(&set)
            .iter()
            .zip(&set)
            .all(|(response, params)| response.is_some_and(|ns| ns <= params.deadline.as_nanos()));
        // The order of reservation may be any that keeps the order of equal periods. Here it is a
        // rotation between two periods.
        let mut order = set.clone();
        let at = shuffled.index(set.len());
        if at > 0 && set[at - 1].period < set[at].period {
            order.rotate_left(at);
        }
        let mut reservations = reservations(Share::WHOLE);
        let mut reserve = |params| reservations.reserve("", params, &Terms::default());
        let admitted = order.iter().all(|&params| reserve(params).is_ok());
        prop_assert_eq!(admitted, kept);
    }
}
