//! Compares the scheduler under RMDP and RM with a model without queues, which examines everything
//! at each call, for any sequence of inputs.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "models/rate_monotonic.rs"]
mod model;

use model::{CAPACITY, Op, compare};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use upcall_core::activity::ActivityParams;
use upcall_core::discipline::{RM, RMDP};
use upcall_core::scheduler::Outcome;
use upcall_core::time::Span;

fn op() -> impl Strategy<Value = Op> {
    let id = 0..CAPACITY + 1;
    let params =
        (1u64..12, 1u32..5, any::<u32>(), 0u64..15).prop_map(|(period, batch, seed, offset)| {
            let batch = batch.min(u32::try_from(period).unwrap());
            ActivityParams::new(Span::from_nanos(period), Span::from_nanos(1))
                .batch(batch)
                .quantum(1 + seed % batch)
                .deadline(Span::from_nanos(1 + u64::from(seed) % period))
                .offset(Span::from_nanos(offset))
        });
    let outcome = prop::sample::select(vec![Outcome::Yielded, Outcome::Done, Outcome::Finished]);
    prop_oneof![
        6 => (0u64..15).prop_map(Op::Pass),
        2 => (id.clone(), params).prop_map(|(id, params)| Op::Create(id, params)),
        3 => (id.clone(), 0u64..9).prop_map(|(id, ahead)| Op::Run(id, ahead)),
        1 => id.clone().prop_map(Op::Suspend),
        1 => id.clone().prop_map(Op::Close),
        4 => (id.clone(), 0u64..4).prop_map(|(id, rank)| Op::Posted(id, rank)),
        2 => (id, 0u32..4).prop_map(|(id, events)| Op::Taken(id, events)),
        1 => Just(Op::PassedOver),
        4 => Just(Op::Boundary),
        6 => (0u32..5, outcome).prop_map(|(pdus, outcome)| Op::Returned(pdus, outcome)),
    ]
}

proptest! {
    #![proptest_config(Config {
        cases: 1_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1996),
        ..Config::default()
    })]

    #[test]
    fn any_sequence_of_inputs_has_the_results_of_the_model(
        ops in prop::collection::vec(op(), 0..120),
    ) {
        compare(&RMDP, &ops);
        compare(&RM, &ops);
    }
}
