//! Worst responses against examples worked out by hand. `tests/admission_against_*.rs` compare with
//! another analysis and with the scheduler itself.

use super::*;

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

fn task(period_ns: u64, batch: u32, quantum: u32, cost_ns: u64) -> ActivityParams {
    ActivityParams::new(ns(period_ns), ns(cost_ns)).batch(batch).quantum(quantum)
}

fn found(ranked: &[ActivityParams], platform: &Platform) -> Vec<Response> {
    responses(ranked, &[], &[], platform, &mut Steps::of_analysis()).collect()
}

fn bounded(spans_ns: &[u64]) -> Vec<Response> {
    spans_ns.iter().map(|&span_ns| Response::Bounded(ns(span_ns))).collect()
}

/// The example by which Davis, Burns, Bril and Lukkien refuted the first
/// analysis of CAN ("Controller Area Network (CAN) schedulability analysis:
/// Refuted, revisited and revised", Real-Time Systems 35, 2007): messages are
/// never preempted.
///
/// A: T = 2.5 ms, B: T = 3.5 ms, C: T = 3.5 ms, each takes 1 ms; below, 1 is
/// 0.1 ms. A waits for a message that began one tick before: 9 + 10 = 19. B for
/// the same, then for A: `W = 9 + 10`, and at 19 there is no other A: 29. C is
/// not blocked. Active period: 10+10+10 -> 20+10+10 -> 20+20+20 ->
/// 30+20+20 = 70, so two jobs. First: `W = 10 + 10`, ends at 30. Second,
/// released at 35: `W = 10 + 10 (floor(W/25)+1) + 10 (floor(W/35)+1)`: 30 -> 40
/// -> 50 -> 60, and at 60: 10 + 30 + 20. Ends at 70: 35.
#[test]
fn the_second_message_of_the_refuted_can_analysis_is_the_late_one() {
    let set = [task(25, 1, 1, 10), task(35, 1, 1, 10), task(35, 1, 1, 10)];
    assert_eq!(found(&set, &platform(0, 0)), bounded(&[19, 29, 35]));
}

/// The kind of set with which Bril, Lukkien and Verhaegh (Real-Time Systems 42,
/// 2009) show that all jobs of the active period count: T_1 = 5, C_1 = 2; T_2 =
/// 7, C_2 = 1.2 + 3, the last 3 unpreempted. Full CPU. Below, 1 is 0.1.
///
/// `W_k = 42 (k+1) - 30 + 20 (floor(W/50) + 1)`, `R_k = W_k + 30 - 70 k`: W =
/// 32, 94, 176, 238, 320; R = 62, 54, 66, 58, 70. The active period is 350,
/// five jobs.
#[test]
fn the_fifth_job_can_be_the_worst() {
    let demands = vec![
        Demand { cost_ns: 20, period_ns: 50 }, //
        Demand { cost_ns: 42, period_ns: 70 },
    ];
    let ahead = Ahead::default();
    let level = Level { blocking_ns: 0, defer_preemption_ns: 0, ahead, demands, last_ns: 30 };
    let steps = &mut Steps::of_analysis();
    assert_eq!(level.worst_response(Ordering::Equal, steps), Response::Bounded(ns(70)));
}

/// The same with two quanta of 21, which is what PDUs can express: W = 41, 123,
/// 185, 247, 329; R = 62, 74, 66, 58, 70: now the second misses. Above it: one
/// quantum less a tick, then its own, 20 + 20 = 40.
#[test]
fn the_second_job_misses_where_the_first_does_not() {
    let set = [task(50, 1, 1, 20), task(70, 2, 1, 21)];
    assert_eq!(found(&set, &platform(0, 0)), bounded(&[40, 74]));
}

/// `B` = 5 in quanta of 2: the last quantum is one PDU, the longest stretch is
/// two. Rank 1 is blocked by 2 * 7 - 1 = 13 and takes 4: 17. Rank 2: `W = 35 -
/// 7 + 4 (floor(W/30) + 1)`: 32 -> 36, ends at 43.
#[test]
fn the_last_quantum_protects_and_the_longest_one_blocks() {
    let set = [task(30, 1, 1, 4), task(100, 5, 2, 7)];
    assert_eq!(found(&set, &platform(0, 0)), bounded(&[17, 43]));
    // Quanta of 3: 3 * 7 - 1 = 20. The last is two PDUs: W = 21 + 4 = 25,
    // before 30. Ends at 39.
    let set = [set[0], set[1].quantum(3)];
    assert_eq!(found(&set, &platform(0, 0)), bounded(&[24, 39]));
}

/// S = 3. Rank 1 is blocked by 3 + 20 - 1 = 22; its hand-off and its quantum,
/// 13: 35. Rank 2 in two quanta: `W = 3 + 40 - 20 + (10 + 2*3) = 39`, ends at
/// 59: in, yield, in, return. In one quantum it never returns: rank 1 is
/// blocked by 3 + 40 - 1 and ends at 55; rank 2 begins to be handed over at `W
/// = 10 + 3`, and ends at 13 + 43 = 56.
#[test]
fn hand_offs_are_charged_to_their_cause() {
    let set = [task(100, 1, 1, 10), task(200, 2, 1, 20)];
    assert_eq!(found(&set, &platform(3, 0)), bounded(&[35, 59]));
    let set = [set[0], set[1].quantum(2)];
    assert_eq!(found(&set, &platform(3, 0)), bounded(&[55, 56]));
    // Granted: 16/100 + 43/200, and 13/100 + 43/200.
    let costs = |quantum| {
        let demands = granted(&[set[0], set[1].quantum(quantum)], &platform(3, 0));
        demands.iter().map(|demand| demand.cost_ns).collect::<Vec<_>>()
    };
    assert_eq!((costs(1), costs(2)), (vec![16, 43], vec![13, 43]));
}

/// A late wake-up replaces a shorter blocking quantum, and does not count beside a longer one.
#[test]
fn a_late_wake_up_blocks_instead_of_a_quantum() {
    let set = [task(100, 1, 1, 10), task(200, 2, 1, 20)];
    assert_eq!(found(&set, &platform(0, 0)), bounded(&[29, 50]));
    assert_eq!(found(&set, &platform(0, 19)), bounded(&[29, 69]));
    assert_eq!(found(&set, &platform(0, 50)), bounded(&[60, 100]));
}

/// On a full CPU the delay of one late wake-up is never made up, but it does
/// not grow: `W = 4 + 10 - 2 + 5 (floor(W/10) + 1)`: 17 -> 22 -> 27, ends at
/// 29, and so does the job after each hyperperiod of 20. Rank 1: 4 + 5.
#[test]
fn a_full_cpu_that_wakes_late_has_a_bound() {
    let set = [task(10, 1, 1, 5), task(20, 5, 1, 2)];
    assert_eq!(found(&set, &platform(0, 4)), bounded(&[9, 29]));
    assert_eq!(found(&set, &platform(0, 0)), bounded(&[6, 20]));
}

#[test]
fn above_the_whole_cpu_only_the_ranks_that_fit_have_a_bound() {
    let set = [task(10, 1, 1, 5), task(20, 1, 1, 5), task(40, 11, 1, 1), task(80, 1, 1, 1)];
    let responses = found(&set, &platform(0, 0));
    assert_eq!(responses[..2], bounded(&[9, 10]));
    assert_eq!(responses[2..], [Response::Unbounded; 2]);
    // 1 ns less and the CPU is full without the last.
    let set = [set[0], set[1], set[2].batch(10)];
    assert!(matches!(found(&set, &platform(0, 0))[2], Response::Bounded(_)));
}

/// Half a CPU in each of two long coprime periods: the hyperperiod has 10^9
/// jobs.
#[test]
fn a_search_that_takes_too_long_ends_with_the_known_bound() {
    let set =
        [task(2 * 998_244_353, 1, 1, 998_244_353), task(2 * 1_000_000_007, 1, 1, 1_000_000_007)];
    for wakeup_ns in [0, 1] {
        let responses = found(&set, &platform(0, wakeup_ns));
        assert_eq!(responses[0], bounded(&[1_000_000_006 + 998_244_353])[0]);
        let Response::AtLeast(known) = responses[1] else { panic!("{responses:?}") };
        assert!(known >= ns(998_244_353 + 1_000_000_007));
        assert!(!matches!(responses[1], Response::Bounded(_)));
    }
}

#[test]
fn the_longest_times_do_not_overflow() {
    let set = [task(3_600_000_000_000, 1_000_000, 1, 1_000_000), task(3_600_000_000_000, 1, 1, 1)];
    for (switch, wakeup) in [(u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX / 4, 1)]
    {
        for response in found(&set, &platform(switch, wakeup)) {
            assert!(!matches!(response, Response::Bounded(_)), "{response:?}");
        }
    }
}
