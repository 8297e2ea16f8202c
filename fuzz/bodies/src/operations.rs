//! Bytes as operations of each policy's model. Each kind of operation is as frequent as in the
//! property tests of `crates/core/tests`.

use crate::bytes::{Bytes, Printed};
use crate::{dwcs_model, dws_model, ps_instance, ps_model, rate_monotonic_model};
use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::discipline::{Discipline, RM, RMDP};
use upcall_core::scheduler::Outcome;
use upcall_core::time::Span;

/// The greatest number of operations of one input: the models are slow.
const OPERATIONS_MAX: usize = 1_000;

/// Fuzzes the scheduler under RMDP.
pub fn rmdp(data: &[u8]) {
    rate_monotonic(&RMDP, data);
}

/// Fuzzes the scheduler under RM.
pub fn rm(data: &[u8]) {
    rate_monotonic(&RM, data);
}

/// Fuzzes the scheduler under DWS.
pub fn dws(data: &[u8]) {
    use dws_model::{CAPACITY, Op};
    // One more than exist, so that one is out of range.
    const IDS: u32 = CAPACITY + 1;
    let ops = Bytes(data).all(OPERATIONS_MAX, |bytes| match bytes.small(32) {
        0..7 => Op::Pass(bytes.below(15)),
        7..10 => {
            let (id, params) = (bytes.small(IDS), params(bytes));
            let class = match bytes.small(4) {
                0 | 1 => WorkClass::RealTime,
                2 => WorkClass::Interactive,
                _ => WorkClass::Background,
            };
            let delay_bound = match bytes.below(20) {
                0 => None,
                ns => Some(Span::from_nanos(ns)),
            };
            let workahead_max = bytes.small(5);
            // Derived from an existing choice, so that older seeds keep their meaning.
            let on_demand = workahead_max == 4;
            Op::Create(
                id,
                params,
                Terms { class, delay_bound, workahead_max, on_demand, ..Terms::default() },
            )
        }
        10..14 => Op::Run(bytes.small(IDS), bytes.below(9)),
        14 => Op::Suspend(bytes.small(IDS)),
        15 => Op::Close(bytes.small(IDS)),
        16..18 => Op::Arrived(bytes.small(IDS), bytes.small(4)),
        18..20 => Op::Message(bytes.small(IDS), bytes.below(40), bytes.below(40)),
        20 => Op::Advance(bytes.small(IDS), bytes.below(20)),
        21..25 => Op::Boundary,
        29 => Op::PassedOver,
        30 => Op::Posted(bytes.small(IDS), bytes.below(4)),
        31 => Op::Taken(bytes.small(IDS), bytes.small(4)),
        _ => Op::Returned(bytes.small(5), outcome(bytes)),
    });
    dws_model::compare(&ops.0);
}

/// Fuzzes the policy PS.
pub fn ps(data: &[u8]) {
    ps_model::compare(false, &ps_operations(data).0);
}

/// Fuzzes the PS policy with groups.
pub fn ps_groups(data: &[u8]) {
    ps_model::compare(true, &ps_operations(data).0);
}

fn ps_operations(data: &[u8]) -> Printed<ps_model::Op> {
    use ps_model::{COUNT, Op};
    Bytes(data).all(OPERATIONS_MAX, |bytes| match bytes.small(28) {
        0..6 => Op::Release(bytes.small(COUNT)),
        // Derived from an existing choice, so that older seeds keep their meaning.
        6 => match bytes.small(4 * COUNT) {
            number @ 0..COUNT => Op::Withdraw(number),
            other => Op::Reweigh(other % COUNT, other / COUNT - 1),
        },
        7 => Op::Leave(bytes.small(COUNT)),
        8..10 => Op::Join(bytes.small(COUNT), bytes.small(3)),
        10..24 => Op::Run(1 + bytes.below(100_000)),
        24 => Op::Run(1 + bytes.below(300_000)),
        25 => Op::Cut(1 + bytes.below(300_000)),
        _ => Op::Done(1 + bytes.below(100_000), bytes.flag()),
    })
}

/// Fuzzes one account of PS, by weights or by shares.
pub fn ps_account(data: &[u8]) {
    use ps_instance::{CLIENTS, Op};
    let mut bytes = Bytes(data);
    let shares = bytes.flag();
    let ops = bytes.all(OPERATIONS_MAX, |bytes| match bytes.small(26) {
        0..8 => Op::Request(bytes.small(CLIENTS), 1 + bytes.below(2_000)),
        8..10 => Op::Retire(bytes.small(CLIENTS)),
        10 => Op::Leave(bytes.small(CLIENTS)),
        11 => Op::Join(bytes.small(CLIENTS), 1 + bytes.small(2)),
        12 => Op::Forgive(bytes.small(CLIENTS)),
        13 => Op::Reweigh(bytes.small(CLIENTS), 1 + bytes.small(3)),
        14 => Op::Inherit(bytes.small(CLIENTS), bytes.below(1_000)),
        15 => Op::Settle,
        _ => Op::Serve(bytes.below(2_000)),
    });
    ps_instance::compare(shares, &ops.0);
}

/// Fuzzes the policy DWCS.
pub fn dwcs(data: &[u8]) {
    let mut bytes = Bytes(data);
    let share = match bytes.below(1_000_001) {
        0 => None,
        ppm => u32::try_from(ppm).ok(),
    };
    let tasks: Vec<dwcs_model::Task> = (0..=bytes.small(6))
        .map(|_| {
            let (cost, batch) = (1 + bytes.below(3), 1 + bytes.small(3));
            (cost, batch, bytes.small(3), 1 + bytes.small(3), bytes.flag())
        })
        .collect();
    let operations = bytes.all(OPERATIONS_MAX, |bytes| {
        (bytes.small(dwcs_model::OPERATIONS), bytes.small(7), bytes.below(12))
    });
    dwcs_model::compare(&tasks, share, &operations.0);
}

fn rate_monotonic(discipline: &Discipline, data: &[u8]) {
    use rate_monotonic_model::{CAPACITY, Op, compare};
    const IDS: u32 = CAPACITY + 1;
    let ops = Bytes(data).all(OPERATIONS_MAX, |bytes| match bytes.small(24) {
        0..6 => Op::Pass(bytes.below(15)),
        6..9 => Op::Create(bytes.small(IDS), params(bytes)),
        9..12 => Op::Run(bytes.small(IDS), bytes.below(9)),
        12 => Op::Suspend(bytes.small(IDS)),
        13 => Op::Close(bytes.small(IDS)),
        14..18 => Op::Boundary,
        21 => Op::PassedOver,
        22 => Op::Posted(bytes.small(IDS), bytes.below(4)),
        23 => Op::Taken(bytes.small(IDS), bytes.small(4)),
        _ => Op::Returned(bytes.small(5), outcome(bytes)),
    });
    compare(discipline, &ops.0);
}

/// A small activity, so that releases and deadlines often coincide.
fn params(bytes: &mut Bytes<'_>) -> ActivityParams {
    let period = 1 + bytes.small(11);
    let batch = (1 + bytes.small(4)).min(period);
    let ns = |ns: u32| Span::from_nanos(u64::from(ns));
    ActivityParams::new(ns(period), ns(1))
        .batch(batch)
        .quantum(1 + bytes.small(batch))
        .deadline(ns(1 + bytes.small(period)))
        .offset(ns(bytes.small(15)))
}

fn outcome(bytes: &mut Bytes<'_>) -> Outcome {
    match bytes.small(3) {
        0 => Outcome::Yielded,
        1 => Outcome::Done,
        _ => Outcome::Finished,
    }
}
