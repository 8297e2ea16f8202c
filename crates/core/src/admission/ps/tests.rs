//! Bounds worked out by hand, and the text of a refusal. `tests/ps_scheduler.rs` tests that the
//! bounds hold.

use super::super::{Hint, Reason, Reservations};
use super::*;
use crate::activity::GroupId;
use crate::discipline::{PS, ps_with_groups};

const fn us(us: u64) -> Span {
    Span::from_micros(us)
}

fn platform(switch: Span, wakeup: Span) -> Platform {
    Platform {
        cpus: vec![0],
        cpu_limit: Share::CPU_LIMIT_DEFAULT,
        switch_cost: switch,
        wakeup_latency: wakeup,
        defer_preemption: Span::ZERO,
    }
}

const FREE: Span = Span::ZERO;

fn share(percent: u32) -> Terms {
    Terms { share: Share::from_ppm(percent * 10_000), ..Terms::default() }
}

/// 8 PDUs of 250 us in 40 ms, preemptible after each: 5 %.
fn audio() -> ActivityParams {
    ActivityParams::new(us(40_000), us(250)).batch(8)
}

/// One PDU of `cost_us` in 100 ms.
fn piece(cost_us: u64) -> ActivityParams {
    ActivityParams::new(us(100_000), us(cost_us))
}

fn responses(set: &[(ActivityParams, Terms)], platform: &Platform) -> Vec<Response> {
    verdict(0, set, None, platform, us(1_000), &[]).responses
}

#[test]
fn the_bounds_match_a_calculation_by_hand() {
    let set = [(audio(), share(20)), (piece(700), Terms::default()), (piece(3_000), share(50))];
    // J = 3 ms, G = 2.25 ms, B = 3 ms; J = 0.7 ms, G = 3 ms, B = 1 ms.
    let (own, adaptive) = (3_000 + 2_250 * 5 + 3_000, Response::AtLeast(us(700)));
    let of_piece = 700 + 3_000 * 2 + 1_000;
    assert_eq!(
        responses(&set, &platform(FREE, FREE)),
        [Response::Bounded(us(own)), adaptive, Response::Bounded(us(of_piece))]
    );
    // `J` is the wake-up latency if that is longer.
    assert_eq!(
        responses(&set, &platform(FREE, us(2_000))),
        [Response::Bounded(us(own)), adaptive, Response::Bounded(us(of_piece + 1_300))]
    );
    // Hand-offs of 5 us: 1 + floor(485 / 250) = 2 PDUs a request, so m = 4 + 2;
    // C' = 2.03 ms, G = 3.03 ms, J = 3.005 ms, B = 3.015 ms. One for the piece:
    // G = 3.005 + 3, J = 0.705, B = 1.015.
    assert_eq!(
        responses(&set, &platform(us(5), FREE)),
        [
            Response::Bounded(us(3_005 + 3_030 * 5 + 3_015)),
            adaptive,
            Response::Bounded(us(705 + 6_005 * 2 + 1_015))
        ]
    );
    // Alone, it never waits.
    assert_eq!(responses(&set[..1], &platform(FREE, FREE)), [Response::Bounded(us(11_250))]);
}

#[test]
fn a_share_below_the_utilization_promises_nothing() {
    // 5 % are asked for.
    let set = |percent| [(audio(), share(percent))];
    assert_eq!(responses(&set(4), &platform(FREE, FREE)), [Response::Unbounded]);
    let exact = verdict(0, &set(5), None, &platform(FREE, FREE), us(1_000), &[]);
    assert_eq!(exact.responses, [Response::Bounded(us(45_000))]);
    // Slightly later than the period: see the module's head.
    let late =
        Failure::Misses { index: 0, response: us(45_000), deadline: us(40_000), exact: true };
    assert_eq!(exact.failure, Some(late));
    assert_eq!(verdict(0, &set(6), None, &platform(FREE, FREE), us(1_000), &[]).failure, None);
    let short = verdict(0, &set(4), None, &platform(FREE, FREE), us(1_000), &[]);
    assert!(matches!(short.failure, Some(Failure::Misses { exact: false, .. })));
}

fn deciding(tests: &[TestResult]) -> Vec<(&'static str, bool)> {
    assert!(tests.iter().all(|test| test.passed == (test.value <= test.bound)), "{tests:?}");
    tests.iter().filter(|test| test.deciding).map(|test| (test.name, test.passed)).collect()
}

#[test]
fn shares_are_granted_up_to_the_limit() {
    let mut reservations = Reservations::new(platform(FREE, FREE), &PS);
    assert_eq!(reservations.tests(), []);
    let ids =
        [30, 30, 30].map(|percent| reservations.reserve("t", audio(), &share(percent)).unwrap().id);
    assert_eq!(reservations.load()[0].utilization, 0.9);
    assert_eq!(deciding(&reservations.tests()), [("share-sum", true)]);
    assert_eq!(reservations.response_max(ids[0]), Some(us(250 + 7_500 + 1_000)));
    let refusal = reservations.reserve("more", audio(), &share(1 + 5)).unwrap_err();
    assert_eq!(deciding(&refusal.tests), [("cpu-limit", false)]);
    assert_eq!(refusal.hint.map(|hint| hint.to_string()), None.or(limit_hint(96)));
    // Adaptive activities are accepted, without a promise.
    let adaptive = reservations.reserve("adaptive", piece(90_000), &Terms::default());
    assert!(adaptive.is_err(), "pieces of 90 ms keep the others waiting");
    let adaptive = reservations.reserve("adaptive", piece(500), &Terms::default()).unwrap();
    assert_eq!(reservations.response_max(adaptive.id), None);
    assert_eq!(reservations.load()[0].utilization, 0.9);
}

fn limit_hint(percent: u32) -> Option<String> {
    let to = Share::from_ppm(percent * 10_000)?;
    Some(Hint::CpuLimit { from: Share::CPU_LIMIT_DEFAULT, to }.to_string())
}

#[test]
fn shares_stay_below_the_whole_whatever_the_limit() {
    let whole = Platform { cpu_limit: Share::WHOLE, ..platform(FREE, FREE) };
    let mut reservations = Reservations::new(whole, &PS);
    reservations.reserve("half", audio(), &share(50)).unwrap();
    let refusal = reservations.reserve("other", audio(), &share(50)).unwrap_err();
    assert_eq!(deciding(&refusal.tests), [("share-sum", false)]);
    assert!(matches!(refusal.reason, Reason::OverLimit { .. }));
    reservations.reserve("other", audio(), &share(49)).unwrap();
}

#[test]
fn a_refusal_names_the_late_activity() {
    let mut reservations = Reservations::new(platform(FREE, FREE), &PS);
    reservations.reserve("audio", audio().deadline(us(13_000)), &share(20)).unwrap();
    let refusal = reservations.reserve("block", piece(2_000), &Terms::default()).unwrap_err();
    assert_eq!(deciding(&refusal.tests), [("response-time", false)]);
    let Reason::MissesDeadline { victim, response, .. } = &refusal.reason else {
        panic!("{refusal}")
    };
    assert_eq!((victim.as_str(), *response), ("audio", us(2_000 + 11_250 + 2_000)));
    assert!(matches!(refusal.hint, Some(Hint::PduCost { .. })), "{refusal}");
}

#[test]
fn another_share_is_granted_where_it_fits() {
    let mut reservations = Reservations::new(platform(FREE, FREE), &PS);
    let [audio_id, other_id] =
        [20, 40].map(|percent| reservations.reserve("audio", audio(), &share(percent)).unwrap().id);
    let claim = |percent: u32| Claim::Share(Share::from_ppm(percent * 10_000).unwrap());
    reservations.reweigh(audio_id, claim(50)).unwrap();
    assert_eq!(reservations.load()[0].utilization, 0.9);
    // G / f with G = 2.25 ms, and 0.25 + 1 ms for the other.
    assert_eq!(reservations.response_max(audio_id), Some(us(250 + 4_500 + 1_000)));
    // More than the limit leaves; less than its period takes; no share at all.
    let before = reservations.tests();
    for (percent, hint) in [(51, "a share of 50 % instead of 51 %"), (5, "a share of 5.8065 %")] {
        let refusal = reservations.reweigh(audio_id, claim(percent)).unwrap_err();
        assert_eq!(deciding(&refusal.tests).len(), 1);
        let said = refusal.to_string();
        assert!(said.starts_with("`audio` is refused: ") && said.contains(hint), "{said}");
        assert_eq!(reservations.tests(), before);
    }
    // A share that was given back is free for another activity.
    reservations.reweigh(audio_id, claim(10)).unwrap();
    reservations.reweigh(other_id, claim(80)).unwrap();
    reservations.release(audio_id);
    reservations.reweigh(audio_id, claim(100)).unwrap();
    assert_eq!(reservations.load()[0].utilization, 0.8);
}

#[test]
fn the_kind_of_a_claim_stays() {
    let mut reservations = Reservations::new(platform(FREE, FREE), &PS);
    let real_time = reservations.reserve("real", audio(), &share(20)).unwrap().id;
    let adaptive = reservations.reserve("adaptive", audio(), &Terms::default()).unwrap().id;
    for (id, claim, real_time) in [
        (real_time, Claim::Weight(2), true),
        (adaptive, Claim::Share(Share::from_ppm(1).unwrap()), false),
    ] {
        let screened = reservations.reweigh(id, claim).unwrap_err();
        assert_eq!(screened.reason, Reason::OtherKind { real_time });
        assert_eq!(reservations.reweigh_unscreened(id, claim).unwrap_err(), screened);
    }
    reservations.reweigh(adaptive, Claim::Weight(7)).unwrap();
    // Unscreened, any claim of the same kind is accepted. A weight then fares no worse than before.
    reservations.reweigh_unscreened(real_time, Claim::Share(Share::WHOLE)).unwrap();
    reservations.reweigh(adaptive, Claim::Weight(8)).unwrap();
    let hint = reservations.reweigh(real_time, Claim::Share(Share::WHOLE)).unwrap_err().hint;
    assert_eq!(hint, None, "what it has does not fit either");
    let mut other = Reservations::new(platform(FREE, FREE), &crate::discipline::RMDP);
    let id = other.reserve("t", audio(), &Terms::default()).unwrap().id;
    let refusal = other.reweigh(id, Claim::Weight(2)).unwrap_err();
    assert_eq!(refusal.reason, Reason::NotShared { policy: "rmdp" });
}

#[test]
fn the_share_of_a_group_is_granted_on_cpus_with_members() {
    let share_of = |percent: u32| Claim::Share(Share::from_ppm(percent * 10_000).unwrap());
    let within = Group { claim: Claim::Weight(2), parent: Some(GroupId(0)) };
    let groups = vec![
        Group { claim: share_of(40), parent: None },
        within,
        Group { claim: share_of(50), parent: None },
        Group { claim: Claim::Weight(9), parent: None },
    ];
    let ps: &_ = Box::leak(Box::new(ps_with_groups(us(1_000), groups).unwrap()));
    let member = |group| Terms { group: Some(GroupId(group)), ..share(90) };
    let mut reservations = Reservations::new(platform(FREE, FREE), ps);
    let given_away = |reservations: &Reservations| reservations.load()[0].utilization;
    let first = reservations.reserve("first", piece(400), &member(1)).unwrap();
    assert_eq!((given_away(&reservations), reservations.response_max(first.id)), (0.4, None));
    reservations.reserve("second", piece(900), &member(0)).unwrap();
    reservations.reserve("third", piece(400), &member(3)).unwrap();
    assert_eq!(given_away(&reservations), 0.4);
    let alone = reservations.reserve("alone", audio(), &share(45)).unwrap();
    // The activity may have to wait for a member of a group: J = B = 0.9 ms, G = 2.25 ms.
    let waited = at_share(us(2_250), Share::from_ppm(450_000).unwrap()) + us(900 + 900);
    assert_eq!(reservations.response_max(alone.id), Some(waited));
    let refusal = reservations.reserve("other", piece(1), &member(2)).unwrap_err();
    assert_eq!(deciding(&refusal.tests), [("share-sum", false)]);
    // The weight of a member may change, and nothing else.
    reservations.reweigh(first.id, Claim::Weight(3)).unwrap();
    let refusal = reservations.reweigh(first.id, share_of(1)).unwrap_err();
    assert_eq!(refusal.reason, Reason::OtherKind { real_time: false });
    reservations.release(alone.id);
    assert!(reservations.reserve("other", piece(1), &member(2)).is_ok());
}
