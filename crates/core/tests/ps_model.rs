//! Compares one account of proportional share, and the whole policy, with exact models that examine
//! every client, for any sequence of calls.

#[path = "models/ps.rs"]
mod ps;
#[path = "models/ps_instance.rs"]
mod ps_instance;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use std::cell::Cell;

fn config(cases: u32, seed: u64) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed), ..Config::default() }
}

/// Runs `compare` on drawn cases; returns how many operations were compared.
fn compared<S: Strategy>(config: Config, cases: &S, compare: impl Fn(S::Value) -> usize) -> usize {
    let compared = Cell::new(0);
    let done = TestRunner::new(config).run(cases, |case| {
        compared.set(compared.get() + compare(case));
        Ok(())
    });
    if let Err(failure) = done {
        panic!("{failure}");
    }
    compared.get()
}

mod account {
    use crate::ps_instance::{CLIENTS, Op};
    use proptest::prelude::*;

    pub fn op() -> impl Strategy<Value = Op> {
        let client = || 0..CLIENTS;
        prop_oneof![
            8 => (client(), 1u64..2_000).prop_map(|(client, ns)| Op::Request(client, ns)),
            2 => client().prop_map(Op::Retire),
            1 => client().prop_map(Op::Leave),
            1 => (client(), 1u32..=2).prop_map(|(client, weight)| Op::Join(client, weight)),
            1 => client().prop_map(Op::Forgive),
            1 => (client(), 1u32..=3).prop_map(|(client, weight)| Op::Reweigh(client, weight)),
            1 => (client(), 0u64..1_000).prop_map(|(client, ns)| Op::Inherit(client, ns)),
            10 => (0u64..2_000).prop_map(Op::Serve),
            1 => Just(Op::Settle),
        ]
    }
}

mod policy {
    use crate::ps::{COUNT, Op};
    use proptest::prelude::*;

    pub fn op() -> impl Strategy<Value = Op> {
        let number = || 0..COUNT;
        prop_oneof![
            6 => number().prop_map(Op::Release),
            1 => number().prop_map(Op::Withdraw),
            1 => number().prop_map(Op::Leave),
            2 => (number(), 0u32..3).prop_map(|(number, claim)| Op::Join(number, claim)),
            2 => (number(), 0u32..3).prop_map(|(number, claim)| Op::Reweigh(number, claim)),
            14 => (1u64..=100_000).prop_map(Op::Run),
            2 => (1u64..=300_000).prop_map(Op::Run),
            2 => (1u64..=400_000).prop_map(Op::Cut),
            2 => (1u64..=100_000, any::<bool>()).prop_map(|(ns, another)| Op::Done(ns, another)),
        ]
    }
}

/// Any sequence of operations picks the client that the model picks, and leaves the lags of the
/// model.
#[test]
fn an_account_behaves_as_the_model_does() {
    let cases = (any::<bool>(), prop::collection::vec(account::op(), 1..150));
    let count =
        compared(config(1_000, 1996), &cases, |(shares, ops)| ps_instance::compare(shares, &ops));
    assert!(count > 20_000, "the model went along for {count} operations only");
}

/// Any valid sequence of calls picks the activity that the model picks, preempts when the model
/// does, and leaves the lags of the model.
#[test]
fn the_policy_behaves_as_the_model_does() {
    let cases = prop::collection::vec(policy::op(), 1..250);
    let count = compared(config(600, 1998), &cases, |ops| ps::compare(false, &ops));
    assert!(count > 20_000, "the model went along for {count} operations only");
}

/// The same with activities in groups, and a group in a group.
#[test]
fn the_policy_with_groups_behaves_as_the_model_does() {
    let cases = prop::collection::vec(policy::op(), 1..250);
    let count = compared(config(600, 1999), &cases, |ops| ps::compare(true, &ops));
    assert!(count > 20_000, "the model went along for {count} operations only");
}
