use super::*;
use upcall_core::admission::program::TimedProgram;
use upcall_core::discipline::{DWCS, RMDP};
use upcall_shm::wire::Portion;

const QUOTA: Quota = Quota { domains_max: 3, share_max_ppm: 500_000 };

/// With free hand-offs.
pub(super) fn platform(cpus: Vec<u32>, cpu_limit: Share) -> Platform {
    Platform {
        cpus,
        cpu_limit,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    }
}

fn limit() -> Share {
    Share::from_ppm(900_000).unwrap()
}

fn registry() -> Registry {
    Registry::new(&RMDP, platform(vec![1, 2], limit()), QUOTA)
}

/// With hand-offs of 100 us.
fn with_switch_cost() -> Registry {
    let platform = Platform { switch_cost: Span::from_micros(100), ..platform(vec![1], limit()) };
    Registry::new(&RMDP, platform, QUOTA)
}

fn owner(uid: u32) -> Owner {
    Owner { uid, pid: 1_000 + uid }
}

/// A need of `percent` of a CPU, in one quantum.
fn need(percent: u64) -> Need {
    Need {
        period_ns: 10_000_000,
        deadline_ns: 10_000_000,
        batch: 1,
        quantum: 1,
        pdu_cost_ns: percent * 100_000,
        ..Need::default()
    }
}

#[test]
fn numbers_are_reused_and_generations_are_not() {
    let mut registry = registry();
    let numbers = [0, 1, 2].map(|uid| registry.attach(owner(uid), "d", "rmdp").unwrap());
    assert_eq!(numbers, [1, 2, 3]);
    let first = registry.detach(2, Instant::ZERO).unwrap().generation;
    assert_eq!(registry.attach(owner(5), "e", "rmdp"), Ok(2));
    let again = registry.domains().find(|(number, _)| *number == 2).unwrap().1.generation;
    assert!(again > first);
    assert!(registry.detach(9, Instant::ZERO).is_none());
}

#[test]
fn a_refused_domain_gets_the_reason() {
    let mut registry = registry();
    let other = registry.attach(owner(1), "d", "ps").unwrap_err();
    assert!(other.to_string().contains("by `rmdp`"), "{other}");
    for _ in 0..QUOTA.domains_max {
        registry.attach(owner(1), "d", "rmdp").unwrap();
    }
    assert_eq!(registry.attach(owner(1), "d", "rmdp"), Err(AttachError::Quota { domains_max: 3 }));
    let others = (2..=DOMAINS_MAX).filter(|&uid| registry.attach(owner(uid), "d", "rmdp").is_ok());
    assert_eq!(others.count() + QUOTA.domains_max, DOMAINS_MAX as usize);
    assert_eq!(registry.attach(owner(99), "d", "rmdp"), Err(AttachError::Full));
}

#[test]
fn admission_counts_all_domains_and_detaching_frees_capacity() {
    let mut registry = registry();
    let (a, b) = (owner(0), owner(0));
    let a = registry.attach(a, "a", "rmdp").unwrap();
    let b = registry.attach(b, "b", "rmdp").unwrap();
    let first = registry.create(a, "x", &need(80), false).unwrap();
    let second = registry.create(b, "y", &need(80), false).unwrap();
    assert_eq!((first.cpu, second.cpu), (1, 2));
    assert!(first.order < second.order);
    assert_eq!(registry.usage(a, 1).quantum_max, Span::from_millis(8));
    assert_eq!(registry.usage(a, 2).quantum_max, Span::ZERO);
    let error = registry.create(b, "z", &need(80), false).unwrap_err();
    assert!(matches!(error, PlaceError::Refused(_)), "{error:?}");
    let (reason, hint) = (error.to_string(), error.hint());
    assert!(!reason.is_empty() && !hint.is_empty(), "{reason} {hint}");
    assert!(registry.create(b, "z", &need(80), true).is_ok());
    registry.detach(b, Instant::ZERO);
    registry.close(a, first.order, Instant::ZERO);
    registry.close(a, first.order, Instant::ZERO);
    assert_eq!(registry.create(a, "z", &need(80), false).unwrap().cpu, 1);
    assert_eq!(registry.create(b, "z", &need(80), false), Err(PlaceError::Gone));
}

#[test]
fn quotas_bind_users_but_not_root() {
    let mut registry = registry();
    let user = registry.attach(owner(7), "u", "rmdp").unwrap();
    let also = registry.attach(owner(7), "v", "rmdp").unwrap();
    registry.create(user, "x", &need(30), false).unwrap();
    let error = registry.create(also, "y", &need(21), true).unwrap_err();
    assert_eq!(error, PlaceError::Quota { found_ppm: 510_000, share_max_ppm: 500_000 });
    assert_eq!(
        error.to_string(),
        "the user would have 51 % of a CPU, its quota is 50 % (upcalld --user-share)"
    );
    registry.create(also, "y", &need(20), false).unwrap();
    let root = registry.attach(owner(0), "r", "rmdp").unwrap();
    registry.create(root, "z", &need(80), false).unwrap();
}

#[test]
fn parameters_out_of_range_are_refused() {
    let mut registry = registry();
    let number = registry.attach(owner(0), "a", "rmdp").unwrap();
    let mut refused = |change: &dyn Fn(&mut Need)| {
        let mut need = need(1);
        change(&mut need);
        registry.create(number, "x", &need, true).unwrap_err()
    };
    for error in [
        refused(&|need| need.period_ns = 0),
        refused(&|need| need.batch = u32::MAX),
        refused(&|need| need.class = 3),
        refused(&|need| need.pdu_cost_ns = u64::MAX),
    ] {
        assert!(matches!(error, PlaceError::Params(_) | PlaceError::Class(3)), "{error:?}");
    }
}

#[test]
fn a_domain_has_no_more_activities_than_slots() {
    let mut registry = registry();
    let number = registry.attach(owner(0), "a", "rmdp").unwrap();
    let tiny = Need { pdu_cost_ns: 1, ..need(1) };
    for _ in 0..ACTIVITIES_MAX {
        registry.create(number, "x", &tiny, false).unwrap();
    }
    assert_eq!(registry.create(number, "x", &tiny, false), Err(PlaceError::TooMany));
    let (_, domain) = registry.domains().next().unwrap();
    assert_eq!(domain.activities().count(), ACTIVITIES_MAX);
}

fn claimed(cpu: u32, order: u32) -> Claimed {
    Claimed { cpu, order, unscreened: false, in_time: true }
}

/// The registry of a daemon that starts after others, which granted the places below 1000.
fn next_registry() -> Registry {
    let mut registry = registry();
    registry.begin_orders_at(1_000);
    registry
}

#[test]
fn claimed_places_are_kept_and_new_ones_come_after() {
    let mut before = registry();
    let [a, b] = ["a", "b"].map(|name| before.attach(owner(0), name, "rmdp").unwrap());
    let grants = [(a, 50), (b, 60), (b, 20), (a, 10)]
        .map(|(number, percent)| before.create(number, "x", &need(percent), false).unwrap());
    let mut after = next_registry();
    let [b, a] = ["b", "a"].map(|name| after.attach(owner(0), name, "rmdp").unwrap());
    // Claims arrive in any order; here the last one first.
    for (at, number, percent) in [(3, a, 10), (1, b, 60), (0, a, 50), (2, b, 20)] {
        let Grant { cpu, order, .. } = grants[at];
        let grant = after.claim(number, "x", &need(percent), claimed(cpu, order)).unwrap();
        assert_eq!((grant.cpu, grant.order), (cpu, order));
    }
    let listed = |registry: &Registry| {
        let mut all: Vec<_> = (1..=2)
            .flat_map(|number| {
                registry
                    .listed(number)
                    .map(|l| (l.order, l.cpu, l.response_max))
                    .collect::<Vec<_>>()
            })
            .collect();
        all.sort_unstable();
        all
    };
    assert_eq!(listed(&after), listed(&before));
    let added = after.create(a, "y", &need(5), false).unwrap();
    assert!(added.order > grants[3].order);
    assert!(matches!(after.create(a, "y", &need(80), false), Err(PlaceError::Refused(_))));
}

#[test]
fn a_claim_must_come_in_time_fit_and_name_a_place_that_was_granted() {
    let mut registry = next_registry();
    let [a, b] = ["a", "b"].map(|name| registry.attach(owner(0), name, "rmdp").unwrap());
    registry.claim(a, "x", &need(80), claimed(1, 7)).unwrap();
    let mut claim = |percent, claimed| registry.claim(b, "y", &need(percent), claimed);
    assert_eq!(claim(1, claimed(1, 7)), Err(PlaceError::Order(7)));
    assert_eq!(claim(1, claimed(1, 1_000)), Err(PlaceError::Order(1_000)));
    assert_eq!(claim(1, claimed(1, 3 << 30)), Err(PlaceError::Order(3 << 30)));
    assert_eq!(claim(1, claimed(1, u32::MAX)), Err(PlaceError::Order(u32::MAX)));
    assert_eq!(claim(1, claimed(3, 8)), Err(PlaceError::Cpu(3)));
    assert!(claim(21, claimed(1, 8)).is_err());
    assert_eq!(claim(1, Claimed { in_time: false, ..claimed(1, 8) }), Err(PlaceError::Late));
    // 95 % is above the limit of the CPU, but all deadlines are kept.
    assert!(claim(15, claimed(1, 8)).is_ok());
    assert!(claim(5, claimed(1, 9)).is_ok());
}

#[test]
fn a_claim_that_breaks_the_promise_of_another_is_refused() {
    let mut registry = next_registry();
    let [a, b] = ["a", "b"].map(|name| registry.attach(owner(0), name, "rmdp").unwrap());
    let tight = Need { deadline_ns: 2_000_000, ..need(10) };
    let promised = registry.claim(a, "tight", &tight, claimed(1, 7)).unwrap().response_max;
    // A quantum of 5 ms blocks the other for longer than its deadline.
    let error =
        registry.claim(b, "long", &Need { period_ns: 50_000_000, ..need(50) }, claimed(1, 8));
    assert!(matches!(error, Err(PlaceError::Refused(_))), "{error:?}");
    assert_eq!(registry.listed(a).next().unwrap().response_max, promised);
}

#[test]
fn a_refused_claim_leaves_nothing() {
    let mut registry = next_registry();
    let user = registry.attach(owner(7), "u", "rmdp").unwrap();
    let refused = [
        (need(90), claimed(1, 3)),
        (need(1), claimed(1, u32::MAX)),
        (need(1), claimed(9, 3)),
        (need(1), Claimed { in_time: false, ..claimed(1, 3) }),
        (Need { period_ns: 1, ..need(1) }, claimed(1, 3)),
    ];
    for round in 0..1_000 {
        let (need, claimed) = &refused[round % refused.len()];
        assert!(registry.claim(user, "x", need, *claimed).is_err());
    }
    assert_eq!(registry.listed(user).count(), 0);
    // No rank may be shown, so a false one is found (`ranks`), and later places are not moved.
    assert_eq!((registry.admitted(user, 1), registry.admitted(user, 9)), (Vec::new(), Vec::new()));
    assert_eq!(registry.create(user, "y", &need(1), false).unwrap().order, 1_000);
}

#[test]
fn a_false_claim_is_bound_by_the_quota() {
    let mut registry = next_registry();
    let user = registry.attach(owner(7), "u", "rmdp").unwrap();
    registry.claim(user, "x", &need(50), claimed(1, 0)).unwrap();
    let error = registry.claim(user, "y", &need(1), claimed(2, 1)).unwrap_err();
    assert_eq!(error, PlaceError::Quota { found_ppm: 510_000, share_max_ppm: 500_000 });
    assert_eq!(registry.reservations().load()[1].utilization, 0.0);
}

#[test]
fn places_that_are_used_up_are_granted_again() {
    let mut registry = registry();
    let number = registry.attach(owner(0), "a", "rmdp").unwrap();
    registry.begin_orders_at(UNRESERVED - 2);
    let mut create = || registry.create(number, "x", &need(1), false);
    let [first, last] = [(); 2].map(|()| create().unwrap().order);
    assert_eq!((first, last), (UNRESERVED - 2, UNRESERVED - 1));
    assert_eq!(create(), Err(PlaceError::OrdersUsedUp));
    registry.close(number, last, Instant::ZERO);
    assert_eq!(registry.create(number, "x", &need(1), false).unwrap().order, last);
}

/// What the test of admission says for others depends on reservations alone.
#[test]
fn an_activity_that_was_refused_costs_no_other_its_admission() {
    let mut registry = registry();
    let [soft, other] = [0, 7].map(|uid| registry.attach(owner(uid), "d", "rmdp").unwrap());
    for _ in 0..2 {
        registry.create(soft, "x", &need(80), false).unwrap();
    }
    let with = registry.create(soft, "soft", &need(80), true).unwrap();
    assert_eq!((with.order >= UNRESERVED, with.response_max), (true, None));
    let listed: Vec<_> = registry.listed(soft).map(|l| (l.unscreened, l.reserved_ppm)).collect();
    assert_eq!(listed, [(false, 800_000), (false, 800_000), (true, 0)]);
    // There are still 10 % on each CPU.
    let granted = registry.create(other, "y", &need(9), false).unwrap();
    assert!(granted.response_max.is_some());
    registry.leave(soft, granted.cpu, Instant::ZERO);
    assert_eq!(registry.listed(soft).filter(|listed| listed.cpu == granted.cpu).count(), 0);
    registry.detach(soft, Instant::ZERO);
    assert!(registry.reservations().load()[0].utilization < 0.1);
}

#[test]
fn an_activity_without_a_reservation_adds_nothing_to_what_its_domain_may_use() {
    let mut registry = registry();
    let [mixed, soft] = ["m", "s"].map(|name| registry.attach(owner(0), name, "rmdp").unwrap());
    for _ in 0..2 {
        registry.create(mixed, "x", &need(80), false).unwrap();
    }
    let cpu = registry.create(mixed, "soft", &need(70), true).unwrap().cpu;
    let usage = registry.usage(mixed, cpu);
    assert_eq!((usage.share_ppm, usage.compute), (800_000, Span::from_millis(8)));
    assert_eq!(registry.admitted(mixed, cpu).len(), 1);
    // A domain that has no reservation is held to what it declared.
    let cpu = registry.create(soft, "soft", &need(70), true).unwrap().cpu;
    assert_eq!(registry.usage(soft, cpu).share_ppm, 700_000);
    assert_eq!(registry.admitted(soft, cpu), []);
}

/// Found by a bench: a domain of a short period was accused, because hand-offs are CPU time of its
/// thread, and the watchdog allowed a twentieth of the CPU for them.
#[test]
fn a_domain_may_use_the_hand_offs_that_admission_counts() {
    let mut registry = with_switch_cost();
    let number = registry.attach(owner(0), "d", "rmdp").unwrap();
    assert_eq!(registry.usage(number, 1), Usage::default());
    for _ in 0..2 {
        registry.create(number, "x", &need(10), false).unwrap();
    }
    let usage = registry.usage(number, 1);
    assert_eq!((usage.share_ppm, usage.compute), (200_000, Span::from_millis(2)));
    // A hand-off each 10 ms, for each activity.
    assert_eq!((usage.hand_offs_ppm, usage.hand_offs), (20_000, Span::from_micros(200)));
}

/// Found by reading: 275 activities of 1 ns a millisecond counted as 275 millionths of a CPU, and
/// let the domain use all of it.
#[test]
fn jobs_shorter_than_a_hand_off_buy_no_cpu_time_and_count_in_the_quota() {
    let tiny = Need { period_ns: 1_000_000, deadline_ns: 1_000_000, pdu_cost_ns: 1, ..need(0) };
    let mut registry = with_switch_cost();
    let number = registry.attach(owner(7), "d", "rmdp").unwrap();
    let refused = (0..10).find_map(|_| registry.create(number, "x", &tiny, false).err());
    // Five hand-offs of 100 us each millisecond are half of the CPU.
    let quota = PlaceError::Quota { found_ppm: 600_000, share_max_ppm: 500_000 };
    assert_eq!((refused, registry.admitted(number, 1).len()), (Some(quota), 5));
    let usage = registry.usage(number, 1);
    assert_eq!((usage.share_ppm, usage.hand_offs_ppm), (5, 5));
    assert_eq!(usage.hand_offs, Span::from_nanos(5));
}

#[test]
fn only_root_and_named_users_may_run_what_admission_refuses() {
    let mut registry = registry();
    registry.quota.share_max_ppm = u64::MAX;
    registry.allow_unscreened(vec![8]);
    let [named, other] = [8, 9].map(|uid| registry.attach(owner(uid), "d", "rmdp").unwrap());
    let seldom = Need { period_ns: 100_000_000, deadline_ns: 100_000_000, batch: 80, ..need(10) };
    for _ in 0..2 {
        registry.create(named, "x", &seldom, false).unwrap();
    }
    let error = registry.create(other, "y", &need(50), true).unwrap_err();
    assert!(matches!(error, PlaceError::NoRight { uid: 9, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.ends_with("; user 9 has no right to run it all the same (upcalld --soft-users)"));
    assert!(text.starts_with("with it") && !error.hint().is_empty(), "{text}");
    assert_eq!(registry.listed(other).count(), 0);
    // What fits needs no right.
    assert!(registry.create(other, "y", &need(5), true).unwrap().response_max.is_some());
    assert!(registry.create(named, "y", &need(50), true).is_ok());
    // The same at the next daemon.
    let mut after = next_registry();
    let [named, other] = [0, 9].map(|uid| after.attach(owner(uid), "d", "rmdp").unwrap());
    let soft = Claimed { unscreened: true, ..claimed(1, UNRESERVED) };
    assert_eq!(after.claim(other, "y", &need(50), soft), Err(PlaceError::Order(UNRESERVED)));
    assert_eq!(after.claim(named, "y", &need(50), soft).unwrap().order, UNRESERVED);
    assert_eq!(after.claim(named, "y", &need(50), soft), Err(PlaceError::Order(UNRESERVED)));
}

#[test]
fn a_domain_gets_no_place_on_a_cpu_where_its_thread_has_ended() {
    let mut registry = registry();
    let number = registry.attach(owner(0), "d", "rmdp").unwrap();
    assert_eq!(registry.create(number, "x", &need(5), false).unwrap().cpu, 1);
    registry.leave(number, 1, Instant::ZERO);
    let claim = registry.claim(number, "y", &need(5), claimed(1, 0));
    assert_eq!(claim, Err(PlaceError::NoThread(1)));
    for unscreened in [false, true] {
        assert_eq!(registry.create(number, "y", &need(5), unscreened).unwrap().cpu, 2);
    }
    let refused = registry.create(number, "z", &need(85), false);
    assert!(matches!(refused, Err(PlaceError::Refused(_))), "{refused:?}");
    assert_eq!(registry.create(number, "z", &need(85), true).unwrap().cpu, 2);
    registry.leave(number, 2, Instant::ZERO);
    let refused = registry.create(number, "y", &need(5), true).unwrap_err();
    assert_eq!(refused, PlaceError::NoThread(1));
    assert_eq!(refused.to_string(), "the domain's thread on CPU 1 has ended");
    // Another domain of the user is not concerned.
    let other = registry.attach(owner(0), "e", "rmdp").unwrap();
    assert_eq!(registry.create(other, "y", &need(5), false).unwrap().cpu, 1);
}

#[test]
fn a_need_for_one_cpu_gets_its_place_there_or_none() {
    let mut registry = registry();
    let number = registry.attach(owner(0), "d", "rmdp").unwrap();
    let on = |cpu, percent| Need { only_cpu: Some(cpu), ..need(percent) };
    assert_eq!(registry.create(number, "a", &on(2, 60), false).unwrap().cpu, 2);
    assert_eq!(registry.create(number, "b", &on(2, 20), false).unwrap().cpu, 2);
    // The other CPU is free.
    let refused = registry.create(number, "c", &on(2, 20), false);
    assert!(matches!(refused, Err(PlaceError::Refused(_))), "{refused:?}");
    let granted = registry.create(number, "c", &on(2, 20), true).unwrap();
    assert_eq!((granted.cpu, granted.order), (2, UNRESERVED));
    assert_eq!(registry.create(number, "d", &need(20), false).unwrap().cpu, 1);
    let nowhere = registry.create(number, "e", &on(7, 1), true);
    assert_eq!(nowhere, Err(PlaceError::Cpu(7)));
    registry.leave(number, 2, Instant::ZERO);
    assert_eq!(registry.create(number, "e", &on(2, 1), true), Err(PlaceError::NoThread(2)));
}

/// Each may be ahead of its reservation at the cost of the other one. Before, both were granted,
/// and the first one could make the second one miss.
#[test]
fn admission_counts_jobs_ahead_of_the_domains_of_other_users() {
    let place = |uids: [u32; 2]| {
        let mut registry = registry();
        let [a, b] = uids.map(|uid| registry.attach(owner(uid), "d", "rmdp").unwrap());
        registry.leave(a, 2, Instant::ZERO);
        registry.leave(b, 2, Instant::ZERO);
        registry.create(a, "x", &need(25), false).unwrap();
        registry.create(b, "y", &need(25), false)
    };
    // Root is isolated from others, too.
    for uids in [[1, 2], [1, 0]] {
        let Err(PlaceError::Refused(refusal)) = place(uids) else { panic!("granted") };
        let is_by_users = matches!(refusal.reason, Reason::MissesDeadline { by_users: true, .. });
        assert!(is_by_users, "{refusal}");
    }
    for uids in [[1, 1], [0, 2], [0, 0]] {
        place(uids).unwrap_or_else(|error| panic!("{uids:?}: {error}"));
    }
}

#[test]
fn shares_of_programs_count_in_the_quota_and_in_the_limit() {
    let mut registry = registry();
    let user = registry.attach(owner(7), "u", "rmdp").unwrap();
    let of_users = BTreeMap::from([(7, 300_000), (8, 100_000)]);
    registry.set_programs([1, 2].map(|cpu| (cpu, CpuPrograms::default())), of_users);
    let error = registry.create(user, "x", &need(21), false).unwrap_err();
    assert_eq!(error, PlaceError::Quota { found_ppm: 510_000, share_max_ppm: 500_000 });
    registry.create(user, "x", &need(20), false).unwrap();
    assert_eq!(registry.check_share(8, 400_000), Ok(()));
    let quota = PlaceError::Quota { found_ppm: 500_001, share_max_ppm: 500_000 };
    assert_eq!(registry.check_share(7, 1), Err(quota));
    assert_eq!(registry.check_share(0, 2_000_000), Ok(()));
    let most = CpuPrograms { reserved_ppm: 850_000, ..CpuPrograms::default() };
    registry.set_programs([1, 2].map(|cpu| (cpu, most.clone())), BTreeMap::new());
    let refused = registry.create(user, "y", &need(20), false);
    assert!(matches!(refused, Err(PlaceError::Refused(_))), "{refused:?}");
}

/// A claim of a former daemon passes a limit that is lower now, but breaks no promise to a program.
#[test]
fn neither_a_new_handler_nor_a_claim_breaks_the_promise_to_a_program() {
    let mut registry = registry();
    registry.begin_orders_at(10);
    let user = registry.attach(owner(7), "u", "rmdp").unwrap();
    let player = TimedProgram {
        id: 3,
        name: "player".to_owned(),
        share: Share::from_ppm(500_000).unwrap(),
        quantum: Span::from_millis(1),
        cost: Span::from_millis(47),
        period: Span::from_millis(100),
    };
    let timed = vec![player];
    let programs = CpuPrograms { reserved_ppm: 700_000, ticker_ppm: 25_000, timed };
    registry.set_programs([1, 2].map(|cpu| (cpu, programs.clone())), BTreeMap::new());
    let claimed = Claimed { cpu: 1, order: 4, unscreened: false, in_time: true };
    let asked = [
        registry.create(user, "x", &need(21), false),
        registry.claim(user, "x", &need(21), claimed),
    ];
    for refused in asked {
        let Err(PlaceError::Refused(refusal)) = refused else { panic!("{refused:?}") };
        assert!(matches!(refusal.reason, Reason::BreaksProgram { .. }), "{refusal}");
        assert!(refusal.to_string().contains("program 3 (`player`)"), "{refusal}");
    }
    registry.set_programs([1, 2].map(|cpu| (cpu, CpuPrograms::default())), BTreeMap::new());
    registry.claim(user, "x", &need(21), claimed).unwrap();
}

#[test]
fn under_ps_domains_have_parts_and_a_cpu_has_one_user() {
    let platform = Platform {
        cpus: vec![1],
        cpu_limit: Share::from_ppm(900_000).unwrap(),
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut registry = Registry::new(&upcall_core::discipline::PS, platform, QUOTA);
    // Both must have the same time quantum.
    let refused = registry.attach(owner(1), "d", "ps").unwrap_err();
    assert!(refused.to_string().contains("time quantum of 1 ms"), "{refused}");
    let policy = "ps with a time quantum of 1 ms";
    let [one, two, other] = [1, 1, 2].map(|uid| registry.attach(owner(uid), "d", policy).unwrap());
    let share = Need { share_ppm: 300_000, ..need(5) };
    let weight = |weight| Need { weight, ..need(5) };
    let first = registry.create(one, "a", &share, false).unwrap();
    registry.create(one, "b", &weight(1), false).unwrap();
    registry.create(two, "c", &weight(2), false).unwrap();
    let parts = |registry: &Registry| {
        let Parts { of_domains, ordinary, .. } = registry.parts(1).unwrap();
        assert_eq!(ordinary.map(Share::ppm), Some(100_000));
        let all: Vec<_> = of_domains.iter().map(|(of, part)| (of.number(), part.ppm())).collect();
        all
    };
    // Of the 60 % that shares and ordinary programs leave.
    assert_eq!(parts(&registry), [(1, 500_000), (2, 400_000)]);
    let refused = registry.create(other, "e", &weight(1), false).unwrap_err();
    assert_eq!(refused, PlaceError::OtherUser(1));
    // The quota counts shares.
    let more = Portion::Share(600_000);
    let refused = registry.reweigh(one, first.order, more).unwrap_err();
    assert!(matches!(refused, PlaceError::Quota { .. }), "{refused}");
    registry.reweigh(one, first.order, Portion::Share(390_000)).unwrap();
    assert_eq!(parts(&registry), [(1, 560_000), (2, 340_000)]);
    assert_eq!(registry.reserved_ppm(one, 1), 390_000);
    let wrong = [Portion::Share(0), Portion::Weight(0)];
    assert!(wrong.iter().all(|of| registry.reweigh(one, first.order, *of).is_err()));
    registry.detach(one, Instant::ZERO);
    registry.detach(two, Instant::ZERO);
    assert_eq!(parts(&registry), []);
    registry.create(other, "e", &weight(1), false).unwrap();
    assert_eq!(parts(&registry), [(3, 900_000)]);
}

/// Of one CPU under DWCS, with free hand-offs.
fn windows() -> Registry {
    Registry::new(&DWCS, platform(vec![1], Share::WHOLE), QUOTA)
}

#[test]
fn event_servers_of_domains_have_shares_until_they_leave() {
    let mut registry = windows();
    let [one, two] = [0, 0].map(|uid| registry.attach(owner(uid), "d", "dwcs").unwrap());
    let fine = Need { batch: 40, pdu_cost_ns: 100_000, ..need(0) };
    registry.create(one, "x", &fine, false).unwrap();
    let used = |registry: &Registry| registry.reservations().load()[0].utilization;
    registry.reserve_events(one, 1, 100_000).unwrap();
    registry.reserve_events(two, 1, 150_000).unwrap();
    assert!((used(&registry) - 0.65).abs() < 1e-9);
    assert_eq!(registry.usage(one, 1).share_ppm, 500_000);
    assert_eq!(registry.usage(two, 1).share_ppm, 150_000);
    // 40 % and the blocking of the last quantum leave less than 60 %.
    let refused = registry.reserve_events(two, 1, 500_000).unwrap_err();
    assert!(matches!(refused, PlaceError::Refused(_)), "{refused}");
    // A window that allows misses does not help beside an event server.
    let loose = Need { window_misses: 1, window_periods: 2, ..need(60) };
    assert!(matches!(registry.create(two, "y", &loose, false), Err(PlaceError::Refused(_))));
    assert!((used(&registry) - 0.65).abs() < 1e-9);
    registry.reserve_events(one, 1, 50_000).unwrap();
    registry.detach(two, Instant::ZERO).unwrap();
    assert!((used(&registry) - 0.45).abs() < 1e-9);
    registry.leave(one, 1, Instant::ZERO);
    assert_eq!(used(&registry), 0.0);
    assert_eq!(registry.reserve_events(one, 1, 1), Err(PlaceError::NoThread(1)));
    assert_eq!(registry.reserve_events(9, 1, 1), Err(PlaceError::Gone));
    let three = registry.attach(owner(0), "d", "dwcs").unwrap();
    assert_eq!(registry.reserve_events(three, 7, 1), Err(PlaceError::Cpu(7)));
    assert_eq!(registry.reserve_events(three, 1, 1_000_001), Err(PlaceError::Portion));
}

#[test]
fn an_event_server_counts_for_its_user_and_keeps_others_away() {
    let mut registry = windows();
    let [one, two] = [5, 6].map(|uid| registry.attach(owner(uid), "d", "dwcs").unwrap());
    registry.reserve_events(one, 1, 300_000).unwrap();
    let quota = registry.create(one, "x", &need(30), false).unwrap_err();
    assert!(matches!(quota, PlaceError::Quota { found_ppm: 600_000, .. }), "{quota}");
    assert_eq!(registry.create(two, "y", &need(1), false), Err(PlaceError::OtherUser(1)));
    assert_eq!(registry.reserve_events(two, 1, 1), Err(PlaceError::OtherUser(1)));
    registry.reserve_events(one, 1, 0).unwrap();
    registry.create(two, "y", &need(1), false).unwrap();
    assert_eq!(registry.reserve_events(one, 1, 1), Err(PlaceError::OtherUser(1)));
    let mut other = self::registry();
    let domain = other.attach(owner(0), "d", "rmdp").unwrap();
    let refused = other.reserve_events(domain, 1, 1).unwrap_err().to_string();
    assert!(refused.contains("`rmdp` has no event server"), "{refused}");
}

/// An activity that left may have been served in a window that is not over. Its part is free after
/// that window only.
#[test]
fn who_takes_the_part_of_a_window_waits_for_its_end() {
    let mut registry = windows();
    let at = |ms: u64| Instant::ZERO + Span::from_millis(ms);
    let [one, two] = [0, 0].map(|uid| registry.attach(owner(uid), "d", "dwcs").unwrap());
    let third = Need { window_misses: 2, window_periods: 3, ..need(90) };
    let first = registry.create(one, "x", &third, false).unwrap();
    registry.create(one, "y", &third, false).unwrap();
    let last = registry.create(two, "z", &third, false).unwrap();
    assert_eq!(last.not_before, at(0));
    assert!(registry.create(two, "w", &third, false).is_err());
    registry.close(one, first.order, at(5));
    let next = registry.create(two, "w", &third, false).unwrap();
    assert_eq!(next.not_before, at(35));
    // Where all have left nobody waits, however long a window was (found by an attack).
    for domain in [one, two] {
        registry.detach(domain, at(50));
    }
    let [one, two] = [0, 0].map(|uid| registry.attach(owner(uid), "d", "dwcs").unwrap());
    let long = Need { window_misses: u32::MAX - 1, window_periods: u32::MAX, ..need(1) };
    let long = registry.create(one, "x", &long, false).unwrap();
    registry.close(one, long.order, at(51));
    for _ in 0..3 {
        assert_eq!(registry.create(two, "y", &third, false).unwrap().not_before, at(0));
    }
    // Where every job is done in time nobody waits.
    registry.detach(one, at(50));
    registry.detach(two, at(50));
    let three = registry.attach(owner(0), "d", "dwcs").unwrap();
    assert_eq!(registry.create(three, "v", &need(50), false).unwrap().not_before, at(0));
}
