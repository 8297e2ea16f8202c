use super::*;
use crate::activity::{ActivityParams, Terms};
use crate::admission::{Hint, Platform, Reason, Reservations, Spot};
use crate::discipline::RMDP;

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn share(ppm: u32) -> Share {
    Share::from_ppm(ppm).unwrap()
}

/// A CPU with a limit of 90 %, and handlers that use so much of it.
fn cpu(utilization: f64, burst: Span) -> ProgramCpu {
    let load = CpuLoad { cpu: 3, utilization, limit: 0.9, burst };
    ProgramCpu { load, ticker_ppm: 0, programs_ppm: 0, quantum: ms(1) }
}

fn timed(cost: Span, period: Span) -> ProgramNeed {
    ProgramNeed { cost: Some(cost), period: Some(period), ..ProgramNeed::default() }
}

#[test]
fn a_share_without_slack_is_refused_with_the_share_that_fits() {
    // 4.95 ms of 11 ms are 45 %. Two quanta of 1 ms more are 6.95 of 11 ms.
    let (cost, period) = (Span::from_micros(4_950), ms(11));
    let exact = ProgramNeed { share: Some(share(450_000)), ..timed(cost, period) };
    let refusal = cpu(0.0, Span::ZERO).admit(&exact).unwrap_err();
    let (asked, needed) = (share(450_000), share(631_819));
    assert_eq!(refusal, ProgramRefusal::ShareTooSmall { asked, needed, free_ppm: 900_000 });
    assert!(refusal.to_string().contains("63.1819 % would do"), "{refusal}");
    for need in [timed(cost, period), ProgramNeed { share: Some(needed), ..exact }] {
        let supply = cpu(0.0, Span::ZERO).admit(&need).unwrap().unwrap();
        assert_eq!((supply.share, supply.burst, supply.quantum), (needed, Span::ZERO, ms(1)));
        assert!(supply.in_any(period) >= cost && supply.completion(cost) <= period);
    }
    let less = Supply { share: share(631_818), burst: Span::ZERO, quantum: ms(1) };
    assert!(less.in_any(period) < cost && less.completion(cost) > period);
}

#[test]
fn handlers_and_ticker_make_the_needed_share_larger() {
    // Handlers of 20 %: 2 ms at once. B = 2 / (1 - 0.2 - 0.05) ms.
    let cpu = ProgramCpu { ticker_ppm: 50_000, ..cpu(0.2, ms(2)) };
    assert_eq!(cpu.burst(), Span::from_nanos(2_666_667));
    let supply = cpu.admit(&timed(ms(4), ms(20))).unwrap().unwrap();
    // (4 + 2) / (20 - 2.666667)
    assert_eq!(supply.share, share(346_154));
    assert!(supply.in_any(ms(20)) >= ms(4));
    assert_eq!(supply.in_any(ms(2)), Span::ZERO);
}

#[test]
fn the_sum_of_all_is_limited_and_the_limit_itself_fits() {
    let cpu = ProgramCpu { ticker_ppm: 25_000, programs_ppm: 450_000, ..cpu(0.2, ms(2)) };
    assert_eq!(cpu.free_ppm(), 225_000);
    let asks = |ppm| ProgramNeed { share: Some(share(ppm)), ..ProgramNeed::default() };
    assert_eq!(cpu.admit(&asks(225_000)).unwrap().unwrap().share, share(225_000));
    let refusal = cpu.admit(&asks(225_001)).unwrap_err();
    let expected = ProgramRefusal::OverLimit { cpu: 3, share: share(225_001), free_ppm: 225_000 };
    assert_eq!(refusal, expected);
    assert_eq!(refusal.to_string(), "a share of 22.5001 % does not fit on CPU 3: 22.5 % is free");
    // The needed share may be more than what is free.
    let refusal = cpu.admit(&timed(ms(6), ms(20))).unwrap_err();
    assert!(matches!(refusal, ProgramRefusal::OverLimit { free_ppm: 225_000, .. }), "{refusal}");
    let need = ProgramNeed { share: Some(share(1)), ..timed(ms(6), ms(20)) };
    let refusal = cpu.admit(&need).unwrap_err();
    assert!(refusal.to_string().ends_with("would do, and 22.5 % is free"), "{refusal}");
    let full = ProgramCpu { load: CpuLoad { utilization: 0.95, ..cpu.load }, ..cpu };
    assert_eq!(full.free_ppm(), 0);
}

#[test]
fn a_period_that_no_share_serves_is_refused() {
    for (cost, period) in [(ms(1), ms(2)), (ms(9), ms(10))] {
        let refusal = cpu(0.1, ms(1)).admit(&timed(cost, period)).unwrap_err();
        assert!(matches!(refusal, ProgramRefusal::PeriodTooShort { .. }), "{refusal}");
    }
    let full = ProgramCpu { ticker_ppm: 25_000, ..cpu(0.98, ms(1)) };
    assert_eq!(full.burst(), Span::MAX);
    let refusal = full.admit(&timed(ms(1), Span::from_secs(9))).unwrap_err();
    assert!(matches!(refusal, ProgramRefusal::PeriodTooShort { .. }), "{refusal}");
}

#[test]
fn a_weight_is_always_admitted_and_promised_nothing() {
    let full = ProgramCpu { programs_ppm: 900_000, ..cpu(0.0, Span::ZERO) };
    for weight in [1, PROGRAM_WEIGHT_MAX] {
        let need = ProgramNeed { weight: Some(weight), ..ProgramNeed::default() };
        assert_eq!(full.admit(&need), Ok(None));
    }
}

#[test]
fn needs_out_of_range_are_refused_with_the_range() {
    let share = Some(share(1));
    let none = ProgramNeed::default();
    for (need, text) in [
        (none, "nothing is asked for"),
        (ProgramNeed { weight: Some(1), share, ..none }, "a weight and a share"),
        (ProgramNeed { weight: Some(1), ..timed(ms(1), ms(9)) }, "a weight and a share"),
        (ProgramNeed { cost: Some(ms(1)), share, ..none }, "expected cost and period"),
        (ProgramNeed { period: Some(ms(1)), share, ..none }, "expected cost and period"),
        (ProgramNeed { weight: Some(0), ..none }, "weight 0, expected 1 to 100"),
        (ProgramNeed { weight: Some(101), ..none }, "weight 101, expected 1 to 100"),
        (ProgramNeed { share, quantum: Some(Span::from_micros(99)), ..none }, "100 us to 100 ms"),
        (ProgramNeed { share, quantum: Some(ms(101)), ..none }, "100 us to 100 ms"),
        (timed(Span::ZERO, ms(9)), "more than 0"),
        (timed(ms(10), ms(9)), "at most the period"),
    ] {
        let refusal = cpu(0.0, Span::ZERO).admit(&need).unwrap_err();
        assert!(refusal.to_string().contains(text), "{refusal}");
    }
}

#[test]
fn the_supply_holds_for_the_worst_service_of_a_fluid_server() {
    // In any time the program gets f t less two quanta and what handlers delay.
    let supply = Supply { share: share(250_000), burst: ms(4), quantum: ms(1) };
    assert_eq!(supply.in_any(ms(12)), Span::ZERO);
    assert_eq!(supply.in_any(ms(104)), ms(23));
    assert_eq!(supply.completion(ms(23)), ms(104));
    assert_eq!(supply.completion(Span::MAX), Span::MAX);
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

/// 40 % for 36 ms in each 100 ms: 40 ms less two quanta of 1 ms, and less 40 % of B.
fn player() -> TimedProgram {
    TimedProgram {
        id: 5,
        name: "player".to_owned(),
        share: share(400_000),
        quantum: ms(1),
        cost: ms(36),
        period: ms(100),
    }
}

#[test]
fn a_program_is_broken_by_handlers_only_if_its_cost_is_not_supplied() {
    let batch = TimedProgram { cost: ms(1), ..player() };
    let programs = CpuPrograms { ticker_ppm: 25_000, timed: vec![batch, player()], ..none() };
    let with = |burst_ms| CpuLoad { burst: ms(burst_ms), ..cpu(0.175, Span::ZERO).load };
    // B = b / (1 - 0.175 - 0.025) is 5 ms, and 40 % of it 2 ms.
    assert_eq!(programs.broken_by(&with(4)), None);
    let (index, supplied) = programs.broken_by(&with(5)).unwrap();
    assert_eq!((index, supplied.as_nanos().div_ceil(1_000)), (1, 35_500));
    assert_eq!(none().broken_by(&with(5)), None);
}

fn none() -> CpuPrograms {
    CpuPrograms::default()
}

#[test]
fn a_handler_that_would_break_the_promise_to_a_program_is_refused_and_told_which() {
    let mut reservations = Reservations::new(platform(&[0]), &RMDP);
    let programs = CpuPrograms { reserved_ppm: 425_000, ticker_ppm: 25_000, timed: vec![player()] };
    reservations.set_programs(0, programs.clone());
    // 5 ms of each 100 ms: B is 5 / 0.925 ms. 38 ms less 2.16 ms are not 36 ms.
    let task = |cost| ActivityParams::new(ms(100), ms(cost));
    let refusal = reservations.reserve("late", task(5), &Terms::default()).unwrap_err();
    let Reason::BreaksProgram { cpu: 0, program, supplied } = &refusal.reason else {
        panic!("{refusal}")
    };
    assert_eq!((&**program, supplied.as_nanos() / 1_000), (&player(), 35_837));
    let said = refusal.to_string();
    for part in ["program 5 (`player`) on CPU 0", "get 35.838 ms in each 100 ms", "promised 36 ms"]
    {
        assert!(said.contains(part), "no `{part}`: {said}");
    }
    // A hint keeps the promise, too. A longer period alone would not: the burst counts.
    let Some(Hint::PduCost { to, .. }) = refusal.hint else { panic!("{said}") };
    assert!(to < ms(5) && to >= ms(4), "{said}");
    let fits = reservations.reserve("late", task(4), &Terms::default()).unwrap();
    // The sum counts: 4 ms and 1 ms.
    assert!(reservations.reserve("more", task(1), &Terms::default()).is_err());
    reservations.release(fits.id);
    assert!(reservations.reserve("more", task(1), &Terms::default()).is_ok());
    // Without the program it fits.
    reservations.set_programs(0, none());
    assert!(reservations.reserve("late", task(5), &Terms::default()).is_ok());
}

#[test]
fn a_handler_goes_to_a_cpu_where_no_program_is_broken() {
    let mut reservations = Reservations::new(platform(&[0, 1]), &RMDP);
    reservations.set_programs(0, CpuPrograms { timed: vec![player()], ..none() });
    let placed = |reservations: &mut Reservations, cost| {
        let params = ActivityParams::new(ms(100), ms(cost));
        reservations.reserve("handler", params, &Terms::default()).unwrap().cpu
    };
    assert_eq!([5, 4].map(|cost| placed(&mut reservations, cost)), [1, 0]);
}

#[test]
fn programs_lower_the_limit_of_their_cpu_and_no_deadline() {
    let task = |cost| ActivityParams::new(ms(10), ms(cost));
    let platform = platform(&[0, 1]);
    let mut reservations = Reservations::new(platform, &RMDP);
    let half = CpuPrograms { reserved_ppm: 500_000, ..CpuPrograms::default() };
    reservations.set_programs(0, half.clone());
    reservations.set_programs(7, half);
    let refusal = reservations.reserve_at(
        Spot { cpu: 0, lower_ranked: &[], user: 0 },
        "a",
        task(5),
        &Terms::default(),
    );
    let refusal = refusal.unwrap_err().unwrap();
    let limit = Share::from_ppm(400_000).unwrap();
    assert!(
        matches!(refusal.reason, Reason::OverLimit { cpu: 0, limit: found, .. } if found == limit),
        "{refusal}"
    );
    // The hint does not name a limit that no spec has.
    assert!(!matches!(refusal.hint, Some(Hint::CpuLimit { .. })), "{refusal}");
    let placed = reservations.reserve("a", task(5), &Terms::default()).unwrap();
    assert_eq!(placed.cpu, 1);
    let placed = reservations.reserve("b", task(4), &Terms::default()).unwrap();
    assert_eq!((placed.cpu, reservations.response_max(placed.id)), (0, Some(ms(4))));
    let loads = reservations.load();
    assert_eq!((loads[0].burst, loads[1].burst), (ms(4), ms(5)));
    // The limit is as before when the programs have ended.
    reservations.set_programs(0, CpuPrograms::default());
    assert_eq!(reservations.reserve("c", task(4), &Terms::default()).unwrap().cpu, 0);
}
