//! One instance by itself: a schedule worked out by hand, and each rule of joining and leaving.
//! `tests/ps_model.rs` compares every operation with a model.

use super::*;
use core::cell::Cell;
thread_local! {
    /// Comparisons of virtual times by this thread.
    pub(super) static COMPARISONS: Cell<u64> = const { Cell::new(0) };
}

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn lag(instance: &Instance, client: u32) -> i64 {
    instance.lag_ns(client, None, Span::ZERO).unwrap()
}

/// Serves the next client for `used`, and leaves it picked.
fn serve(instance: &mut Instance, used: Span) -> u32 {
    let client = instance.pick().unwrap();
    instance.charge(client, used);
    client
}

/// The example with which Stoica et al. (1996) introduce the algorithm: two clients of weight 2,
/// quanta of 1. Client 1 is active from 0 and requests 2 at a time; client 2 is active from 1 and
/// requests 1. Worked out by hand:
///
/// ```text
/// t    V      client 1: s, d   client 2: s, d   served
/// 0    0      0,   1           -                1
/// 1    1/2    1/2, 1           1/2, 1           2   (a tie)
/// 2    3/4    1/2, 1           1,   3/2         1   (2 is ahead)
/// 3    1      1,   2           1,   3/2         2
/// 4    5/4    1,   2           3/2, 2           1   (2 is ahead)
/// 5    3/2    3/2, 2           3/2, 2           2   (a tie)
/// 6    7/4    3/2, 2           2,   5/2         1
/// 7    2      2,   3           2,   5/2         2
/// ```
#[test]
fn the_example_of_the_literature_is_scheduled_as_published() {
    let mut instance = Instance::of_weights(3);
    instance.join(1, 2, 1);
    instance.join(2, 2, 0);
    let lags = |instance: &Instance| [lag(instance, 1), lag(instance, 2)];
    let half = 500_000;
    instance.request(1, ms(2));
    let mut schedule = Vec::new();
    // One quantum of a request of two is left after the first.
    let mut left_of_1 = 2;
    let mut seen = Vec::new();
    for time in 0..8 {
        if time == 1 {
            instance.request(2, ms(1));
        }
        seen.push(lags(&instance));
        let served = serve(&mut instance, ms(1));
        schedule.push(served);
        if served == 1 {
            left_of_1 = if left_of_1 == 1 { 2 } else { 1 };
            instance.request(1, ms(left_of_1));
        } else {
            instance.request(2, ms(1));
        }
    }
    assert_eq!(schedule, [1, 2, 1, 2, 1, 2, 1, 2]);
    // w (V - s) from the table.
    let (even, ahead) = ([0, 0], [half, -half]);
    assert_eq!(seen, [even, even, ahead, even, ahead, even, ahead, even]);
}

#[test]
fn service_is_in_proportion_to_weight() {
    let mut instance = Instance::of_weights(3);
    for (client, weight) in [(0, 1), (1, 2), (2, 5)] {
        instance.join(client, weight, client);
        instance.request(client, ms(1));
    }
    let mut quanta = [0; 3];
    for _ in 0..800 {
        let client = serve(&mut instance, ms(1));
        quanta[client as usize] += 1;
        instance.request(client, ms(1));
    }
    assert_eq!(quanta, [100, 200, 500]);
}

/// A client that blocks as soon as it has been served gets no more than one that does not block,
/// because it returns as far ahead as it left.
#[test]
fn blocking_for_a_moment_gains_nothing() {
    let mut instance = Instance::of_weights(2);
    let mut quanta = [0; 2];
    for client in 0..2 {
        instance.join(client, 1, client);
        instance.request(client, ms(1));
    }
    for _ in 0..1_000 {
        let client = serve(&mut instance, ms(1));
        quanta[client as usize] += 1;
        if client == 0 {
            instance.retire(0);
            assert!(lag(&instance, 0) <= 0);
        }
        instance.request(client, ms(1));
    }
    assert_eq!(quanta, [500, 500]);
}

#[test]
fn a_client_that_is_ahead_counts_until_its_lag_is_0() {
    let mut instance = Instance::of_weights(3);
    for client in 0..3 {
        instance.join(client, 1, client);
        instance.request(client, ms(3));
    }
    assert_eq!(serve(&mut instance, ms(3)), 0);
    instance.retire(0);
    // The client was due 1 ms of 3, but had all 3.
    assert_eq!([0, 1, 2].map(|client| lag(&instance, client)), [-2_000_000, 1_000_000, 1_000_000]);
    // After 6 ms more the service due to it equals the service that it had. From then on only the
    // others share.
    assert_eq!(serve(&mut instance, ms(3)), 1);
    assert_eq!(lag(&instance, 0), -1_000_000);
    instance.request(1, ms(3));
    assert_eq!(serve(&mut instance, ms(3)), 2);
    assert_eq!([0, 1, 2].map(|client| lag(&instance, client)), [0, 0, 0]);
    instance.request(2, ms(3));
    assert_eq!(serve(&mut instance, ms(3)), 1);
    assert_eq!([0, 1, 2].map(|client| lag(&instance, client)), [0, -1_500_000, 1_500_000]);
}

#[test]
fn a_client_that_leaves_forfeits_its_lag_and_changes_no_other() {
    let mut instance = Instance::of_weights(2);
    for client in 0..2 {
        instance.join(client, 1, client);
        instance.request(client, ms(2));
    }
    assert_eq!(serve(&mut instance, ms(2)), 0);
    instance.request(0, ms(2));
    assert_eq!([0, 1].map(|client| lag(&instance, client)), [-1_000_000, 1_000_000]);
    instance.retire(1);
    assert_eq!([0, 1].map(|client| lag(&instance, client)), [-1_000_000, 0]);
    // Only this client is ready. So it is served although it is ahead, and its debt is written off.
    assert_eq!(instance.peek(), Some(0));
    assert_eq!(lag(&instance, 0), 0);
    instance.request(1, ms(2));
    assert_eq!(lag(&instance, 1), 0);
}

#[test]
fn a_new_job_at_the_moment_the_last_one_ended_keeps_the_lag() {
    let mut instance = Instance::of_weights(2);
    for client in 0..2 {
        instance.join(client, 1, client);
        instance.request(client, ms(2));
    }
    serve(&mut instance, ms(2));
    instance.request(0, ms(2));
    // Client 1 ends its job early and has another.
    assert_eq!(serve(&mut instance, Span::from_micros(200)), 1);
    let behind = lag(&instance, 1);
    assert_eq!(behind, 900_000);
    instance.retire(1);
    instance.request(1, ms(2));
    assert_eq!(lag(&instance, 1), behind);
}

#[test]
fn without_requests_all_debts_are_forgiven() {
    for mut instance in [Instance::of_weights(2), Instance::of_shares(2)] {
        for client in 0..2 {
            instance.join(client, 1, client);
            instance.request(client, ms(1));
        }
        assert_eq!(serve(&mut instance, ms(1)), 0);
        instance.settle();
        assert_eq!(lag(&instance, 0), -500_000, "one client is picked and ready");
        instance.retire(0);
        assert_eq!(serve(&mut instance, Span::from_micros(10)), 1);
        instance.retire(1);
        instance.settle();
        assert_eq!([0, 1].map(|client| lag(&instance, client)), [0, 0]);
        for client in 0..2 {
            instance.request(client, ms(1));
        }
        assert_eq!([0, 1].map(|client| lag(&instance, client)), [0, 0]);
    }
}

#[test]
fn a_new_weight_changes_no_lag() {
    let mut instance = Instance::of_weights(3);
    for (client, weight) in [(0, 3), (1, 7), (2, 11)] {
        instance.join(client, weight, client);
        instance.request(client, ms(1));
    }
    let client = serve(&mut instance, ms(1));
    instance.request(client, ms(1));
    for weight in [1, 5, u32::MAX, 1_000_003, 2] {
        let before = [0, 1, 2].map(|client| lag(&instance, client));
        for client in 0..3 {
            instance.reweigh(client, weight);
        }
        let after = [0, 1, 2].map(|client| lag(&instance, client));
        for (before, after) in before.into_iter().zip(after) {
            assert!((0..=1).contains(&(after - before)), "{before} became {after}");
        }
    }
    // All weigh the same now.
    let mut quanta = [0; 3];
    for _ in 0..300 {
        let client = serve(&mut instance, ms(1));
        quanta[client as usize] += 1;
        instance.request(client, ms(1));
    }
    assert!(quanta.iter().all(|count| (99..=101).contains(count)), "{quanta:?}");
}

#[test]
fn a_share_does_not_change_when_other_clients_come() {
    let mut instance = Instance::of_shares(4);
    for (client, weight) in [(0, 25), (1, 25), (2, 40), (3, 10)] {
        instance.join(client, weight, client);
    }
    instance.request(0, ms(1));
    instance.request(1, ms(1));
    serve(&mut instance, ms(1));
    // Each is due a quarter, although only half of the shares exist.
    assert_eq!([0, 1].map(|client| lag(&instance, client)), [-750_000, 250_000]);
    instance.request(0, ms(1));
    assert_eq!(serve(&mut instance, ms(1)), 1);
    instance.request(1, ms(1));
    // No client is eligible, so the virtual time jumps to where one is.
    assert_eq!(instance.peek(), Some(0));
    assert_eq!([0, 1].map(|client| lag(&instance, client)), [0, 0]);
    instance.forgive(1);
    assert_eq!(lag(&instance, 1), 0);
}

/// proportional-share-1998 §4.5: an activity that divides its own quanta. Each flow gets its part
/// of the activity's part.
#[test]
fn an_instance_can_be_a_client_of_another() {
    const STACK: u32 = 0;
    let mut cpu = Instance::of_weights(2);
    cpu.join(STACK, 3, 0);
    cpu.join(1, 2, 1);
    let mut stack = Instance::of_weights(2);
    stack.join(0, 1, 0);
    stack.join(1, 2, 1);
    let mut flows = [0; 2];
    for client in 0..2 {
        cpu.request(client, ms(1));
        stack.request(client, ms(1));
    }
    for _ in 0..1_500 {
        let client = serve(&mut cpu, ms(1));
        if client == STACK {
            let flow = serve(&mut stack, ms(1));
            flows[flow as usize] += 1;
            stack.request(flow, ms(1));
        }
        cpu.request(client, ms(1));
        for flow in 0..2 {
            assert!(lag(&stack, flow).abs() <= 1_000_000);
        }
    }
    assert_eq!(flows, [300, 600]);
}

/// Found by fuzzing: starts are rounded where a weight is no power of 2, and the one that was
/// rounded down further came first.
#[test]
fn starts_that_differ_by_rounding_only_are_a_tie_when_the_clock_jumps() {
    let mut instance = Instance::of_shares(3);
    (0..3).for_each(|client| instance.join(client, 1, client));
    // The third is idle: the other two are ahead after one service each.
    for _ in 0..10 {
        for client in [0, 1] {
            instance.request(client, ms(1));
        }
        // The weight changes and changes back, so the start is rounded down twice.
        instance.reweigh(1, 7);
        instance.reweigh(1, 1);
        assert_eq!([serve(&mut instance, ms(1)), serve(&mut instance, ms(1))], [0, 1]);
    }
}

#[test]
fn numbers_that_do_not_exist_do_nothing() {
    let mut instance = Instance::of_weights(2);
    instance.join(7, 1, 0);
    instance.request(7, ms(1));
    instance.request(0, ms(1));
    instance.charge(1, ms(1));
    instance.reweigh(1, 4);
    instance.leave(0);
    assert_eq!(instance.pick(), None);
    assert_eq!(instance.lag_ns(0, None, Span::ZERO), None);
    // A number is free for another client once its client left, even if that lingers.
    instance.join(0, 2, 0);
    instance.join(1, 1, 1);
    instance.request(0, ms(1));
    instance.request(1, ms(1));
    assert_eq!(serve(&mut instance, ms(1)), 0);
    instance.leave(0);
    assert_eq!(instance.lag_ns(0, None, Span::ZERO), None);
    assert_eq!(serve(&mut instance, ms(1)), 1);
    instance.join(0, 2, 0);
    assert_eq!(lag(&instance, 0), 0);
    instance.request(1, ms(1));
    assert_eq!(serve(&mut instance, ms(1)), 1);
    assert_eq!(lag(&instance, 1), 0, "alone, it is due all it gets");
}

#[test]
fn the_heaviest_and_the_longest_do_not_overflow() {
    let mut instance = Instance::of_weights(1_000);
    for client in 0..1_000 {
        instance.join(client, if client % 2 == 0 { u32::MAX } else { 1 }, client);
        instance.request(client, Span::MAX);
    }
    for step in 0..5_000 {
        let client = serve(&mut instance, Span::from_secs(3600 * 24 * 365));
        if step % 3 == 0 {
            instance.retire(client);
            instance.reweigh(client, u32::MAX / 3);
        }
        instance.request(client, Span::from_nanos(1));
    }
}

/// Comparisons of virtual times in a quantum (serve, then request), on average.
fn comparisons_a_quantum(count: u32) -> f64 {
    let mut instance = Instance::of_weights(count);
    for client in 0..count {
        instance.join(client, 1 + client % 17, client);
        instance.request(client, ms(1));
    }
    let quanta = 4 * count;
    let mut quantum = |blocks: bool| {
        let client = serve(&mut instance, ms(1));
        if blocks {
            instance.retire(client);
        }
        instance.request(client, ms(1));
    };
    for step in 0..quanta {
        quantum(step % 3 == 0);
    }
    COMPARISONS.with(|count| count.set(0));
    for step in 0..quanta {
        quantum(step % 3 == 0);
    }
    COMPARISONS.with(Cell::get) as f64 / f64::from(quanta)
}

#[test]
fn a_pick_costs_at_most_the_logarithm_of_the_number_of_clients() {
    let small = comparisons_a_quantum(16);
    let large = comparisons_a_quantum(4 * 1024);
    // log 16 = 4, log 4096 = 12: the count may grow by that ratio, and no more.
    assert!(large <= small * 12.0 / 4.0, "{small} comparisons became {large}");
    assert!(large < 20.0 * 12.0, "{large}");
}
