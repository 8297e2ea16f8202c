//! Compares DWCS with a model without queues, which examines everything at each call, for any
//! sequence of operations.

#[path = "models/dwcs.rs"]
mod model;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

proptest! {
    #![proptest_config(Config {
        cases: 1_000,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(2001),
        ..Config::default()
    })]

    #[test]
    fn any_operations_have_the_results_of_the_model(
        tasks in prop::collection::vec((1u64..4, 1u32..4, 0u32..3, 1u32..4, any::<bool>()), 1..7),
        share in prop::option::of(1u32..=1_000_000),
        operations in prop::collection::vec((0..model::OPERATIONS, 0u32..7, 0u64..12), 1..120),
    ) {
        model::compare(&tasks, share, &operations);
    }
}
