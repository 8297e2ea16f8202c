use super::super::{Hint, Platform, Share};
use super::*;
use crate::discipline::{DISCIPLINES, RMDP};
use crate::time::Span;

/// CPUs 4 and 2, in this order.
fn platform() -> Platform {
    Platform {
        cpus: vec![4, 2],
        cpu_limit: Share::CPU_LIMIT_DEFAULT,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    }
}

/// `cost_ms` in every 10 ms.
fn task(cost_ms: u64) -> ActivityParams {
    ActivityParams::new(Span::from_millis(10), Span::from_millis(cost_ms))
}

fn reserve(reservations: &mut Reservations, name: &str, cost_ms: u64) -> Reservation {
    reservations.reserve(name, task(cost_ms), &Terms::default()).unwrap()
}

fn follow(
    reservations: &mut Reservations,
    other: Reservation,
    name: &str,
    cost_ms: u64,
) -> Result<Reservation, Option<Refusal>> {
    reservations.reserve_on_cpu_of(other.id, name, task(cost_ms), &Terms::default())
}

#[test]
fn an_activity_goes_to_the_cpu_of_the_one_it_names_under_every_policy() {
    for &discipline in DISCIPLINES {
        let mut reservations = Reservations::new(platform(), discipline);
        let half = Terms { share: Share::from_ppm(600_000), ..Terms::default() };
        let [first, second] =
            [(); 2].map(|()| reservations.reserve("half", task(5), &half).unwrap());
        assert_eq!([first.cpu, second.cpu], [4, 2], "{}", discipline.name);
        let params = ActivityParams::new(Span::from_millis(10), Span::from_micros(100));
        for other in [first, second] {
            let follows = reservations.reserve_on_cpu_of(other.id, "x", params, &Terms::default());
            assert_eq!(follows.unwrap().cpu, other.cpu, "{}", discipline.name);
        }
    }
}

#[test]
fn a_chain_is_on_one_cpu_although_an_earlier_one_has_room() {
    let mut reservations = Reservations::new(platform(), &RMDP);
    assert_eq!(reserve(&mut reservations, "big", 7).cpu, 4);
    let head = reserve(&mut reservations, "head", 3);
    let second = follow(&mut reservations, head, "second", 1).unwrap();
    let third = follow(&mut reservations, second, "third", 1).unwrap();
    assert_eq!([head.cpu, second.cpu, third.cpu], [2; 3]);
    // One that names nobody still goes to the first CPU.
    assert_eq!(reserve(&mut reservations, "other", 1).cpu, 4);
}

#[test]
fn one_that_does_not_fit_is_refused_although_another_cpu_is_free() {
    let mut reservations = Reservations::new(platform(), &RMDP);
    let head = reserve(&mut reservations, "head", 6);
    let refusal = follow(&mut reservations, head, "second", 5).unwrap_err().unwrap();
    let text = refusal.to_string();
    assert!(text.starts_with("`second` is refused: it must be on CPU 4, the CPU of `head`: "));
    let Reason::SameCpu { cpu: 4, other, reason } = refusal.reason else { panic!("{text}") };
    assert!(other == "head" && matches!(*reason, Reason::FallsBehind { cpu: 4, .. }), "{text}");
    assert!(refusal.tests.iter().all(|test| test.cpu == 4));
    let loads: Vec<f64> = reservations.load().iter().map(|load| load.utilization).collect();
    assert_eq!(loads, [0.6, 0.0]);
    // The hint is about that CPU, too.
    let fits = match refusal.hint {
        Some(Hint::PduCost { to, .. }) => ActivityParams::new(Span::from_millis(10), to),
        Some(Hint::Period { to, .. }) => ActivityParams::new(to, Span::from_millis(5)),
        _ => panic!("{text}"),
    };
    let granted = reservations.reserve_on_cpu_of(head.id, "second", fits, &Terms::default());
    assert_eq!(granted.unwrap().cpu, 4);
}

#[test]
fn parameters_out_of_range_have_nothing_to_do_with_the_cpu() {
    let mut reservations = Reservations::new(platform(), &RMDP);
    let head = reserve(&mut reservations, "head", 6);
    let refusal = follow(&mut reservations, head, "second", 0).unwrap_err().unwrap();
    assert!(matches!(refusal.reason, Reason::Params(_)), "{refusal}");
}

#[test]
fn without_screening_it_follows_as_well() {
    let mut reservations = Reservations::new(platform(), &RMDP);
    let head = reserve(&mut reservations, "head", 6);
    let (params, terms) = (task(5), Terms::default());
    let second = reservations.reserve_unscreened_on_cpu_of(head.id, "second", params, &terms);
    assert_eq!(second.unwrap().cpu, 4);
}

#[test]
fn nothing_follows_an_activity_without_a_place() {
    let mut reservations = Reservations::new(platform(), &RMDP);
    let head = reserve(&mut reservations, "head", 1);
    reservations.release(head.id);
    assert_eq!(follow(&mut reservations, head, "second", 1), Err(None));
    let (params, terms) = (task(1), Terms::default());
    let second = reservations.reserve_unscreened_on_cpu_of(head.id, "second", params, &terms);
    assert_eq!(second, None);
}
