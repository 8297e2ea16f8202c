//! Reserving, releasing, refusing, and the text of a refusal. `response_time/tests.rs` and
//! `tests/admission_against_*.rs` test the numbers.

use super::*;
use crate::activity::{ActivityParams, Terms};
use crate::discipline::RMDP;
use crate::time::Span;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn platform(cpus: &[u32]) -> Platform {
    Platform {
        cpus: cpus.to_vec(),
        cpu_limit: Share::CPU_LIMIT_DEFAULT,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    }
}

/// `cost_ms` in every `period_ms`, in one piece.
fn task(period_ms: u64, cost_ms: u64) -> ActivityParams {
    ActivityParams::new(ms(period_ms), ms(cost_ms))
}

fn deciding(tests: &[TestResult]) -> Vec<(u32, &'static str, bool)> {
    let marked = tests.iter().filter(|test| test.deciding);
    marked.map(|test| (test.cpu, test.name, test.passed)).collect()
}

#[test]
fn each_goes_to_the_first_cpu_where_all_fit() {
    let mut reservations = Reservations::new(platform(&[3, 1, 3]), &RMDP);
    let cpus: Vec<_> = [(10, 5), (10, 4), (20, 8), (20, 1), (40, 10)]
        .iter()
        .map(|&(period, cost)| {
            reservations.reserve("t", task(period, cost), &Terms::default()).unwrap().cpu
        })
        .collect();
    // 50 + 40 % fill CPU 3; the others are on CPU 1, which is listed twice and counts once.
    assert_eq!(cpus, [3, 3, 1, 1, 1]);
    let load: Vec<_> =
        reservations.load().iter().map(|load| (load.cpu, load.utilization, load.limit)).collect();
    assert_eq!(load, [(3, 0.9, 0.9), (1, 0.7, 0.9)]);
    assert_eq!(
        deciding(&reservations.tests()),
        [(3, "response-time", true), (1, "response-time", true)]
    );
}

#[test]
fn without_a_list_cpu_0_is_used() {
    let mut reservations = Reservations::new(platform(&[]), &RMDP);
    assert_eq!(reservations.tests(), []);
    assert_eq!(reservations.reserve("t", task(10, 1), &Terms::default()).unwrap().cpu, 0);
}

#[test]
fn exactly_the_limit_is_within_it_and_a_nanosecond_more_is_not() {
    let mut reservations = Reservations::new(platform(&[0]), &RMDP);
    // In floats 0.1 + 0.2 + 0.6 is less than 0.9, and 0.3 + 0.6 is not.
    for (period, pdus) in [(10, 1), (20, 4), (40, 24)] {
        reservations.reserve("t", task(period, 1).batch(pdus), &Terms::default()).unwrap();
    }
    let one = ActivityParams::new(Span::from_secs(3600), Span::from_nanos(1));
    let refusal = reservations.reserve("one", one, &Terms::default()).unwrap_err();
    let Reason::OverLimit { cpu: 0, utilization, limit } = refusal.reason else {
        panic!("{refusal}")
    };
    assert!(utilization > 0.9 && limit == Share::CPU_LIMIT_DEFAULT);
    assert_eq!(deciding(&refusal.tests), [(0, "cpu-limit", false)]);
    let response_time = refusal.tests.iter().find(|test| test.name == "response-time").unwrap();
    assert!(response_time.passed);
    assert_eq!(
        refusal.to_string(),
        "`one` is refused: with it, 90.1 % of CPU 0 would be reserved, more than the limit \
         of 90 %; a cpu_limit of 90.1 % instead of 90 % would fit"
    );
}

#[test]
fn a_refusal_names_the_activity_that_would_miss_and_its_lateness() {
    let mut reservations = Reservations::new(platform(&[1]), &RMDP);
    let audio = task(20, 2).deadline(ms(10));
    let id = reservations.reserve("audio", audio, &Terms::default()).unwrap().id;
    assert_eq!(reservations.response_max(id), Some(ms(2)));
    // Blocked by 12 ms less a nanosecond, then 2 ms.
    let video = ActivityParams::new(ms(40), ms(3)).batch(4).quantum(4);
    let refusal = reservations.reserve("video", video, &Terms::default()).unwrap_err();
    assert_eq!(
        refusal.reason,
        Reason::MissesDeadline {
            cpu: 1,
            victim: "audio".to_owned(),
            response: Span::from_nanos(13_999_999),
            deadline: ms(10),
            exact: true,
            by_users: false,
        }
    );
    assert_eq!(
        refusal.to_string(),
        "`video` is refused: with it on CPU 1, `audio` would end 4 ms after its deadline of \
         10 ms (worst response 14 ms); a quantum of 2 PDUs instead of 4 would fit"
    );
    // No test of whole periods applies, and nothing changed.
    let names: Vec<_> = refusal.tests.iter().map(|test| test.name).collect();
    assert_eq!(names, ["response-time", "cpu-limit"]);
    assert_eq!(deciding(&refusal.tests), [(1, "response-time", false)]);
    assert_eq!(reservations.response_max(id), Some(ms(2)));
    reservations.reserve("video", video.quantum(2), &Terms::default()).unwrap();
    assert_eq!(reservations.response_max(id), Some(Span::from_nanos(7_999_999)));
}

#[test]
fn a_refusal_describes_the_cpu_that_came_nearest() {
    let mut reservations = Reservations::new(platform(&[0, 1, 2]), &RMDP);
    for cost in [9, 8, 9] {
        reservations.reserve("t", task(10, cost), &Terms::default()).unwrap();
    }
    let refusal = reservations.reserve("late", task(10, 3), &Terms::default()).unwrap_err();
    let Reason::FallsBehind { cpu: 1, victim, .. } = &refusal.reason else { panic!("{refusal}") };
    assert_eq!(victim, "late");
    assert!(refusal.tests.iter().all(|test| test.cpu == 1));
    assert_eq!(deciding(&refusal.tests), [(1, "response-time", false)]);
    assert_eq!(
        refusal.reason.to_string(),
        "with it, 110 % of CPU 1 would be asked for, and `late` would fall further behind with \
         every period"
    );
}

/// The two fill the CPU and shift against each other by two nanoseconds a period. The first job
/// ends a nanosecond before its deadline, and each later one a nanosecond earlier. After 166
/// million of them the last quantum waits for one more half second.
#[test]
fn an_undecided_set_is_refused() {
    let whole = Platform { cpu_limit: Share::WHOLE, ..platform(&[0]) };
    let mut reservations = Reservations::new(whole, &RMDP);
    reservations.reserve("second", task(1_000, 500), &Terms::default()).unwrap();
    let cost = Span::from_nanos(166_666_667);
    let long = ActivityParams::new(Span::from_nanos(1_000_000_002), cost).batch(3);
    let refusal = reservations.reserve("long", long, &Terms::default()).unwrap_err();
    assert_eq!(refusal.reason, Reason::Undecided { cpu: 0, victim: "long".to_owned() });
    assert_eq!(deciding(&refusal.tests), [(0, "response-time", false)]);
    assert_eq!(
        refusal.reason.to_string(),
        "with it, CPU 0 would be so nearly full that the worst response of `long` was not found \
         within the step limit"
    );
}

#[test]
fn a_lower_step_limit_refuses_what_needs_more_and_releases_all_at_once() {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut reservations = Reservations::new(platform, &RMDP);
    let need = |ms: u64| ActivityParams::new(Span::from_millis(ms), Span::from_millis(1));
    let reserve = |of: &mut Reservations, ms: u64| of.reserve("x", need(ms), &Terms::default());
    let ids = [10, 20, 30].map(|ms| reserve(&mut reservations, ms).unwrap().id);
    let mut limited = reservations.clone();
    limited.limit_steps(1);
    let refusal = reserve(&mut limited, 40).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Undecided { .. }), "{refusal}");
    let mut one_by_one = reservations.clone();
    ids[..2].iter().for_each(|&id| one_by_one.release(id));
    reservations.release_all(&ids[..2]);
    assert_eq!(reservations.load(), one_by_one.load());
    assert!(reservations.response_max(ids[0]).is_none());
    assert_eq!(reservations.response_max(ids[2]), one_by_one.response_max(ids[2]));
}

#[test]
fn parameters_out_of_range_are_refused_before_any_test() {
    let mut reservations = Reservations::new(platform(&[0]), &RMDP);
    let refusal = reservations.reserve("bad", task(0, 1), &Terms::default()).unwrap_err();
    assert!(matches!(refusal.reason, Reason::Params(_)) && refusal.tests.is_empty());
    assert_eq!(
        refusal.to_string(),
        "`bad` is refused: the period is 0 ms, expected 1 ns to 3600 s"
    );
}

#[test]
fn unscreened_activities_go_to_the_least_utilized_cpu_and_show_in_the_tests() {
    let mut reservations = Reservations::new(platform(&[0, 1]), &RMDP);
    let first = reservations.reserve("first", task(10, 5), &Terms::default()).unwrap();
    let soft = reservations.reserve_unscreened("soft", task(10, 9), &Terms::default());
    let softer = reservations.reserve_unscreened("softer", task(10, 6), &Terms::default());
    assert_eq!((first.cpu, soft.cpu, softer.cpu), (0, 1, 0));
    assert_eq!(reservations.response_max(softer.id), None);
    assert_eq!(reservations.response_max(soft.id), Some(ms(9)));
    let tests = reservations.tests();
    assert_eq!(deciding(&tests), [(0, "response-time", false), (1, "response-time", true)]);
    let infinite = tests.iter().find(|test| test.name == "response-time").unwrap();
    assert!(infinite.value.is_infinite());
    // 5 ms + 5 ms fill the CPU: 10 ms is the deadline, and only the limit is exceeded.
    reservations.release(softer.id);
    reservations.reserve_unscreened("full", task(10, 5), &Terms::default());
    assert_eq!(deciding(&reservations.tests())[0], (0, "cpu-limit", false));
}

#[test]
fn a_released_reservation_is_free_again() {
    let mut reservations = Reservations::new(platform(&[0]), &RMDP);
    let big = reservations.reserve("big", task(10, 8), &Terms::default()).unwrap();
    reservations.reserve("next", task(10, 5), &Terms::default()).unwrap_err();
    reservations.release(big.id);
    reservations.release(big.id);
    assert_eq!(reservations.response_max(big.id), None);
    assert_eq!(reservations.load()[0].utilization, 0.0);
    assert_eq!(reservations.tests(), []);
    let next = reservations.reserve("next", task(10, 5), &Terms::default()).unwrap();
    assert!(next.id != big.id);
}

/// The scheduler orders equal periods by creation, whatever the number of an activity. So a new
/// activity ranks behind all present ones.
#[test]
fn equal_periods_rank_in_the_order_of_reservation() {
    let mut reservations = Reservations::new(platform(&[0]), &RMDP);
    let [first, second, third] = ["first", "second", "third"]
        .map(|name| reservations.reserve(name, task(20, 3), &Terms::default()).unwrap());
    let responses = |reservations: &Reservations, places: [Reservation; 3]| {
        places.map(|place| reservations.response_max(place.id).unwrap().as_nanos())
    };
    // One quantum blocks all but the last.
    assert_eq!(responses(&reservations, [first, second, third]), [5_999_999, 8_999_999, 9_000_000]);
    reservations.release(first.id);
    let fourth = reservations.reserve("fourth", task(20, 3), &Terms::default()).unwrap();
    assert_eq!(
        responses(&reservations, [second, third, fourth]),
        [5_999_999, 8_999_999, 9_000_000]
    );
}

/// `asked` and `platform`, changed as the hint says.
fn apply(hint: Hint, asked: ActivityParams, platform: &mut Platform) -> ActivityParams {
    match hint {
        Hint::Quantum { from, to } => {
            assert_eq!(from, asked.quantum);
            asked.quantum(to)
        }
        Hint::Deadline { from, to } => {
            assert_eq!(from, asked.deadline);
            asked.deadline(to)
        }
        Hint::PduCost { from, to } => {
            assert_eq!(from, asked.pdu_cost);
            assert!(to < from && to.as_nanos() * 10 >= from.as_nanos());
            ActivityParams { pdu_cost: to, ..asked }
        }
        Hint::Period { from, to, with_deadline } => {
            assert_eq!(from, asked.period);
            let deadline = if with_deadline { to } else { asked.deadline };
            ActivityParams { period: to, deadline, ..asked }
        }
        Hint::CpuLimit { from, to } => {
            assert_eq!(from, platform.cpu_limit);
            platform.cpu_limit = to;
            asked
        }
        Hint::DelayBound { .. } => unreachable!("no set here is of DWS"),
        Hint::Share { .. } => unreachable!("no activity here has a share"),
    }
}

#[test]
fn each_kind_of_hint_is_given_where_it_is_the_first_that_helps() {
    let expect = |others: &[ActivityParams], asked: ActivityParams, hint: &str| {
        let mut reservations = Reservations::new(platform(&[0]), &RMDP);
        for &params in others {
            reservations.reserve("other", params, &Terms::default()).unwrap();
        }
        let refusal = reservations.reserve("asked", asked, &Terms::default()).unwrap_err();
        assert_eq!(refusal.hint.map(|hint| hint.to_string()).as_deref(), Some(hint), "{refusal}");
    };
    // The last PDU waits for the second job of the other activity. Within a longer quantum it does
    // not wait.
    let often = task(10, 5).quantum(1);
    let interrupted = ActivityParams::new(ms(40), ms(1)).batch(6).deadline(ms(11));
    expect(&[often], interrupted, "a quantum of 2 PDUs instead of 1 would fit");
    // Rank 1 twice, itself once: 18 ms.
    expect(&[often], task(40, 4).deadline(ms(8)), "a deadline of 9 ms instead of 8 ms would fit");
    // The job is too long for the other one, but it can be cut.
    let short = task(10, 2).deadline(ms(5));
    let chunks = ActivityParams::new(ms(100), ms(1)).batch(40).quantum(20);
    expect(&[short], chunks, "a quantum of 3 PDUs instead of 20 would fit");
    // The job cannot be cut: a PDU of 3 ms and a nanosecond blocks for 3 ms.
    expect(&[short], task(100, 6), "a cost of 3 ms per PDU instead of 6 ms would fit");
    // Whatever the cost of the activity, it would be blocked for 12 ms.
    let piece = task(100, 12);
    expect(&[piece], task(10, 1), "a period and deadline of 13 ms instead of 10 ms would fit");
    // Only the limit is exceeded, and the rest up to 95 % suffices.
    expect(&[task(10, 8)], task(100, 1).batch(12), "a cpu_limit of 92 % instead of 90 % would fit");
    // More than 95 % is suggested only if nothing else fits.
    let eighth = ActivityParams { pdu_cost: Span::from_micros(200), ..task(10, 1) };
    let cheaper = "a cost of 125 us per PDU instead of 200 us would fit";
    expect(&[task(10, 8)], eighth.batch(8), cheaper);
    expect(&[task(10, 9)], eighth.batch(4), "a cpu_limit of 98 % instead of 90 % would fit");
}

#[test]
fn there_is_no_hint_where_nothing_fits() {
    let mut reservations = Reservations::new(platform(&[0]), &RMDP);
    reservations.reserve_unscreened("soft", task(10, 9), &Terms::default());
    reservations.reserve_unscreened("soft", task(10, 9), &Terms::default());
    let refusal = reservations.reserve("asked", task(10, 1), &Terms::default()).unwrap_err();
    assert_eq!(refusal.hint, None);
}

#[test]
fn utilization_prints_to_a_tenth_of_a_percent_and_above_the_limit() {
    let refused = |utilization, limit_ppm| {
        let limit = Share::from_ppm(limit_ppm).unwrap();
        let said = Reason::OverLimit { cpu: 0, utilization, limit }.to_string();
        said.strip_prefix("with it, ")
            .and_then(|rest| rest.split(" of CPU").next())
            .map(str::to_owned)
    };
    for (utilization, limit_ppm, text) in [
        (0.920_027_6, 900_000, "92.1 %"),
        (0.925, 900_000, "92.5 %"),
        (0.900_000_001, 900_000, "90.1 %"),
        (0.9, 900_000, "90.1 %"),
        (0.900_6, 900_500, "90.1 %"),
    ] {
        assert_eq!(refused(utilization, limit_ppm).as_deref(), Some(text), "{utilization}");
    }
    let victim = "v".to_owned();
    let behind = Reason::FallsBehind { cpu: 1, victim, utilization: 1.200_276 };
    assert!(behind.to_string().starts_with("with it, 120.1 % of CPU 1 "), "{behind}");
}

#[test]
fn shares_print_in_percent() {
    for (ppm, text) in
        [(900_000, "90 %"), (333_333, "33.3333 %"), (1, "0.0001 %"), (925_000, "92.5 %")]
    {
        assert_eq!(Share::from_ppm(ppm).unwrap().to_string(), text);
    }
    assert_eq!((Share::from_ppm(0), Share::from_ppm(1_000_001)), (None, None));
}

/// What a reader understands: the span that the text names.
fn read_back(text: &str) -> Span {
    let (number, unit) = text.split_once(' ').unwrap();
    let unit_ns = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        _ => 1_000_000_000,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let milli: u64 = format!("{fraction:0<3}").parse().unwrap();
    let whole: u64 = whole.parse().unwrap();
    Span::from_nanos(whole * unit_ns + milli * unit_ns / 1000)
}

prop_compose! {
    fn wanted()(
        period_us in prop_oneof![1u64..100, 1_000u64..100_000, Just(20_000u64)],
        load in 1u64..70,
        batch in 1u32..9,
        quantum_seed in any::<u32>(),
        share in prop_oneof![3 => Just(100u64), 1 => 30u64..100],
    ) -> ActivityParams {
        let period_ns = period_us * 1_000;
        let pdu_cost = Span::from_nanos((period_ns * load / 100 / u64::from(batch)).max(1));
        let params = ActivityParams::new(Span::from_nanos(period_ns), pdu_cost)
            .batch(batch)
            .quantum(1 + quantum_seed % batch);
        let deadline_ns = (period_ns * share / 100).max(params.compute().as_nanos());
        params.deadline(Span::from_nanos(deadline_ns))
    }
}

proptest! {
    #![proptest_config(Config {
        cases: 1_500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1995),
        ..Config::default()
    })]

    /// Properties of every set: one test a CPU decides, and its result is the decision. The two
    /// sufficient tests that include blocking never pass a set that the exact test refuses. A hint
    /// fits.
    #[test]
    fn the_deciding_test_agrees_with_the_decision_and_hints_fit(
        wanted in prop::collection::vec(wanted(), 1..7),
        cpus in 1u32..3,
        switch_us in prop_oneof![Just(0u64), 1u64..20],
        wakeup_us in prop_oneof![Just(0u64), 1u64..200],
        limit_ppm in prop_oneof![Just(900_000u32), Just(1_000_000u32), 300_000u32..1_000_000],
    ) {
        let platform = Platform {
            cpus: (0..cpus).collect(),
            cpu_limit: Share::from_ppm(limit_ppm).unwrap(),
            switch_cost: Span::from_micros(switch_us),
            wakeup_latency: Span::from_micros(wakeup_us),
            defer_preemption: Span::ZERO,
        };
        let mut reservations = Reservations::new(platform.clone(), &RMDP);
        let mut admitted: Vec<ActivityParams> = Vec::new();
        for params in wanted {
            match reservations.reserve("t", params, &Terms::default()) {
                Ok(_) => admitted.push(params),
                Err(refusal) => {
                    prop_assert!(matches!(deciding(&refusal.tests)[..], [(_, _, false)]));
                    consistent(&refusal.tests)?;
                    if let Some(hint) = refusal.hint {
                        let mut platform = platform.clone();
                        let changed = apply(hint, params, &mut platform);
                        let mut again = Reservations::new(platform, &RMDP);
                        for &params in &admitted {
                            again.reserve("t", params, &Terms::default()).unwrap();
                        }
                        let again = again.reserve("t", changed, &Terms::default());
                        prop_assert!(again.is_ok(), "{refusal}");
                        if let Hint::Deadline { to, .. }
                        | Hint::PduCost { to, .. }
                        | Hint::Period { to, .. } = hint
                        {
                            prop_assert!(read_back(&to.to_string()) == to || to == params.period);
                        }
                    }
                }
            }
            let tests = reservations.tests();
            consistent(&tests)?;
            let used = reservations.load().iter().filter(|load| load.utilization > 0.0).count();
            prop_assert_eq!(deciding(&tests).len(), used);
            let is_sound = |&(_, name, passed): &_| name == "response-time" && passed;
            prop_assert!(deciding(&tests).iter().all(is_sound));
        }
    }
}

fn consistent(tests: &[TestResult]) -> Result<(), TestCaseError> {
    let passed = |name, cpu| {
        tests.iter().any(|test| (test.name, test.cpu, test.passed) == (name, cpu, true))
    };
    for test in tests {
        prop_assert_eq!(test.passed, test.value <= test.bound, "{:?}", test);
        if test.passed && ["sha-blocking", "rmdp-bound"].contains(&test.name) {
            prop_assert!(passed("response-time", test.cpu), "{:?}", tests);
        }
    }
    Ok(())
}

#[test]
fn a_restored_reservation_has_its_former_rank_in_any_order() {
    let mut before = Reservations::new(platform(&[0, 1]), &RMDP);
    let set = [task(20, 3), task(10, 2), task(20, 4), task(20, 5)];
    let ids = set.map(|params| before.reserve("t", params, &Terms::default()).unwrap().id);
    let mut after = Reservations::new(platform(&[0, 1]), &RMDP);
    let mut back: Vec<(usize, ReservationId)> = Vec::new();
    for at in [3, 0, 2, 1] {
        let lower_ranked: Vec<_> =
            back.iter().filter(|(other, _)| *other > at).map(|(_, id)| *id).collect();
        let spot = Spot { cpu: 0, lower_ranked: &lower_ranked, user: 0 };
        let put = after.reserve_at(spot, "t", set[at], &Terms::default()).unwrap();
        assert_eq!(put.cpu, 0);
        back.push((at, put.id));
    }
    for (at, id) in back {
        assert_eq!(after.response_max(id), before.response_max(ids[at]), "{at}");
    }
}

#[test]
fn a_former_place_that_no_longer_fits_is_refused_unless_unscreened() {
    let mut reservations = Reservations::new(platform(&[0, 1]), &RMDP);
    reservations.reserve("a", task(10, 8), &Terms::default()).unwrap();
    let spot = |cpu| Spot { cpu, lower_ranked: &[], user: 0 };
    let refusal = reservations.reserve_at(spot(0), "b", task(10, 2), &Terms::default());
    assert_eq!(refusal.unwrap_err().unwrap().name, "b");
    let unknown_cpu = reservations.reserve_at(spot(7), "b", task(10, 2), &Terms::default());
    assert!(unknown_cpu.unwrap_err().is_none());
    assert!(
        reservations.reserve_unscreened_at(spot(7), "b", task(10, 2), &Terms::default()).is_none()
    );
    assert_eq!(reservations.load()[0].utilization, 0.8);
    let placed = reservations.reserve_unscreened_at(spot(0), "b", task(10, 2), &Terms::default());
    assert_eq!(placed.unwrap().cpu, 0);
    assert_eq!(reservations.load()[0].utilization, 1.0);
}
