//! Compares the scheduler under DWS with a model without heaps, queues or events, which examines
//! all messages at each call, for any sequence of inputs.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "models/dws.rs"]
mod model;

use model::{CAPACITY, Op, compare};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::scheduler::Outcome;
use upcall_core::time::Span;

const fn ns(ns: u64) -> Span {
    Span::from_nanos(ns)
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..CAPACITY + 1;
    let class = prop::sample::select(vec![
        WorkClass::RealTime,
        WorkClass::RealTime,
        WorkClass::Interactive,
        WorkClass::Background,
    ]);
    let activity = (1u64..12, 1u32..5, any::<u32>(), 0u64..15, class, prop::option::of(1u64..20));
    let activity = (activity, any::<bool>());
    let activity = activity.prop_map(|((period, batch, seed, offset, class, bound), on_demand)| {
        let batch = batch.min(u32::try_from(period).unwrap());
        let params = ActivityParams::new(ns(period), ns(1))
            .batch(batch)
            .quantum(1 + seed % batch)
            .deadline(ns(1 + u64::from(seed) % period))
            .offset(ns(offset));
        let delay_bound = bound.map(ns);
        let workahead_max = seed % 5;
        (params, Terms { class, delay_bound, workahead_max, on_demand, ..Terms::default() })
    });
    let outcome = prop::sample::select(vec![Outcome::Yielded, Outcome::Done, Outcome::Finished]);
    prop_oneof![
        7 => (0u64..15).prop_map(Op::Pass),
        2 => (id.clone(), activity).prop_map(|(id, (params, terms))| Op::Create(id, params, terms)),
        3 => (id.clone(), 0u64..9).prop_map(|(id, ahead)| Op::Run(id, ahead)),
        1 => id.clone().prop_map(Op::Suspend),
        1 => id.clone().prop_map(Op::Close),
        4 => (id.clone(), 0u32..4).prop_map(|(id, messages)| Op::Arrived(id, messages)),
        1 => (id.clone(), 0u64..20).prop_map(|(id, ahead)| Op::Advance(id, ahead)),
        6 => (id.clone(), 0u64..40, 0u64..40)
            .prop_map(|(id, at, before)| Op::Message(id, at, before)),
        4 => (id.clone(), 0u64..4).prop_map(|(id, rank)| Op::Posted(id, rank)),
        2 => (id, 0u32..4).prop_map(|(id, events)| Op::Taken(id, events)),
        1 => Just(Op::PassedOver),
        4 => Just(Op::Boundary),
        7 => (0u32..5, outcome).prop_map(|(pdus, outcome)| Op::Returned(pdus, outcome)),
    ]
}

proptest! {
    #![proptest_config(Config {
        cases: 700,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1991),
        ..Config::default()
    })]

    #[test]
    fn any_sequence_of_inputs_has_the_results_of_the_model(
        ops in prop::collection::vec(op(), 0..120),
    ) {
        compare(&ops);
    }
}
