//! PS and DWCS among processes: a scheduler for each domain, the turn passed by accounts or by
//! deadlines and windows.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityParams, Claim, GroupId, Terms, Window};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::{DWCS, Discipline, PS, ps_with_groups};
use upcall_core::policy::ps::{Group, QUANTUM_DEFAULT};
use upcall_core::time::{Instant, Span};
use upcall_sim::chance::Chance;
use upcall_sim::{EventKind, Outcome, SimActivity, SimEvent, SimSpec, Simulation, SplitLevel};

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

const fn us(us: u64) -> Span {
    Span::from_micros(us)
}

fn run(spec: SimSpec, duration: Span, mut each: impl FnMut(&SimEvent)) -> Outcome {
    Simulation::new(spec).unwrap().run(duration, &mut each)
}

fn processes(
    discipline: &'static Discipline,
    activities: Vec<SimActivity>,
    handoff_cost: Span,
) -> SimSpec {
    let split_level = Some(SplitLevel { handoff_cost, ..SplitLevel::default() });
    SimSpec { checked: true, split_level, ..SimSpec::new(discipline, activities) }
}

/// An activity that always has work, one quantum of `stretch` after the other.
fn busy(domain: u32, stretch: Span, terms: Terms) -> SimActivity {
    let batch = u32::try_from(ms(10).as_nanos() / stretch.as_nanos()).unwrap();
    let params = ActivityParams::new(ms(10), stretch).batch(batch).quantum(1);
    SimActivity { domain, terms, ..SimActivity::new(format!("of {domain}"), params) }
}

fn fixed(ppm: u32) -> Terms {
    Terms { share: Share::from_ppm(ppm), ..Terms::default() }
}

fn weight(weight: u32) -> Terms {
    Terms { weight: Some(weight), ..Terms::default() }
}

fn one_of<T: Copy>(chance: &mut Chance, choices: &[T]) -> T {
    let last = choices.len() as u64 - 1;
    choices[usize::try_from(chance.between(0, last)).unwrap()]
}

fn upcalls(spec: SimSpec, duration: Span) -> String {
    let mut found = Vec::new();
    run(spec, duration, |event| {
        if let EventKind::Upcall { activity, .. } = event.kind {
            found.push(format!("{} {activity}", event.at.as_nanos() / 1_000));
        }
    });
    found.join(", ")
}

#[test]
fn domains_take_turns_by_their_accounts() {
    // A half and a quarter by shares, and the rest by weight.
    let set = vec![
        busy(0, ms(1), fixed(500_000)),
        busy(1, ms(1), fixed(250_000)),
        busy(2, ms(1), weight(1)),
    ];
    let found = upcalls(processes(&PS, set.clone(), Span::ZERO), ms(8));
    assert_eq!(found, "0 0, 1000 1, 2000 0, 3000 2, 4000 0, 5000 1, 6000 0, 7000 2");
    // Two activities of one domain have the part of the domain together. The hand-off to a domain
    // is charged to it, and one inside a domain costs nothing here.
    let set = vec![
        busy(0, us(500), fixed(250_000)),
        busy(0, us(500), fixed(250_000)),
        busy(1, ms(1), weight(1)),
    ];
    let found = upcalls(processes(&PS, set, us(10)), ms(6));
    let starts = |text: &str| found.starts_with(text);
    assert!(starts("10 0, ") && found.contains(" 1, ") && found.contains(" 2, "), "{found}");
}

/// Sets of 2 to 16 domains, all busy: every activity has its part, to a quantum at each level, and
/// no lag exceeds a quantum and a hand-off.
#[test]
fn busy_processes_have_their_parts_and_keep_the_bound_on_lags() {
    let (mut hand_offs, mut worst) = (0, [0f64; 2]);
    for seed in 0..12 {
        let mut chance = Chance::new(seed, 0);
        let domains = u32::try_from(chance.between(2, 16)).unwrap();
        let mut shares_ppm = 0;
        let mut activities = Vec::new();
        for domain in 0..domains {
            for _ in 0..chance.between(1, 3) {
                let ppm = u32::try_from(chance.between(5_000, 60_000)).unwrap();
                let is_fixed =
                    domain > 0 && chance.between(0, 1) == 0 && shares_ppm + ppm < 900_000;
                shares_ppm += if is_fixed { ppm } else { 0 };
                let terms = match is_fixed {
                    true => fixed(ppm),
                    false => weight(u32::try_from(chance.between(1, 4)).unwrap()),
                };
                let stretch = one_of(&mut chance, &[us(50), us(100), us(250), ms(1)]);
                activities.push(busy(domain, stretch, terms));
            }
        }
        let weights: u32 = activities.iter().filter_map(|of| of.terms.weight).sum();
        let left = 1.0 - f64::from(shares_ppm) / 1e6;
        let due = activities.iter().map(|of| match (of.terms.share, of.terms.weight) {
            (Some(share), _) => share.as_f64(),
            (None, weight) => left * f64::from(weight.unwrap_or(1)) / f64::from(weights),
        });
        let due: Vec<_> = due.collect();
        let handoff_cost = us(one_of(&mut chance, &[0, 2, 20]));
        let lag_max = ms(1) + handoff_cost;
        let length = Span::from_secs(4);
        let outcome = run(processes(&PS, activities, handoff_cost), length, |event| {
            let (level, lag_ns) = match event.kind {
                EventKind::Lag { lag_ns, .. } => (0, lag_ns),
                EventKind::DomainLag { lag_ns, .. } => (1, lag_ns),
                _ => return,
            };
            let ratio = lag_ns.unsigned_abs() as f64 / lag_max.as_nanos() as f64;
            assert!(ratio <= 1.0, "seed {seed}: {event}");
            worst[level] = ratio.max(worst[level]);
        });
        for (activity, due) in outcome.activities.iter().zip(due) {
            let found = activity.busy.as_nanos() as f64 / length.as_nanos() as f64;
            // A hand-off to a domain is no time of its activities.
            let lost = outcome.cpus[0].switching.as_nanos() as f64 / length.as_nanos() as f64;
            let most = 2.5 * lag_max.as_nanos() as f64 / length.as_nanos() as f64 + lost;
            assert!((found - due).abs() <= most, "seed {seed}: {found} of {due}");
        }
        hand_offs += outcome.cpus[0].domain_switches;
    }
    println!("{hand_offs} hand-offs, lags {worst:?} of the bound");
    assert!(hand_offs > 20_000 && worst.iter().all(|ratio| *ratio > 0.8));
}

/// proportional-share-1998 §3.1: a fixed share stays the same while others come, go and change. In
/// any interval the activity has its part, but for a quantum at each end.
#[test]
fn a_fixed_share_does_not_depend_on_what_other_processes_do() {
    let mut set = vec![busy(0, us(250), fixed(450_000)), busy(1, us(500), fixed(200_000))];
    set.extend((2..6).map(|domain| busy(domain, us(100) * domain, weight(domain))));
    for (place, activity) in (0u64..).zip(&mut set[2..]) {
        let at = |ms_: u64| Instant::ZERO + ms(ms_);
        let window = |from, until| upcall_sim::Window { from: at(from), until: at(until) };
        activity.present =
            vec![window(place * 40, 300 + place * 50), window(600 + place * 30, 5_000)];
        let claim = Claim::Weight(9 - u32::try_from(place).unwrap());
        activity.reweighs = vec![(at(100 + place * 7), claim)];
    }
    let mut periods = vec![Span::ZERO; 20];
    let mut since = None;
    run(processes(&PS, set, us(2)), Span::from_secs(2), |event| match event.kind {
        EventKind::Upcall { activity: 0, .. } => since = Some(event.at),
        EventKind::Yield { activity: 0, .. } => {
            let since: Instant = since.take().unwrap();
            let period = usize::try_from(since.as_nanos() / ms(100).as_nanos()).unwrap();
            periods[period] += event.at.since(since);
        }
        EventKind::JobDone(record) if record.id.0 == 0 => {
            if let Some(since) = since.take() {
                let period = usize::try_from(since.as_nanos() / ms(100).as_nanos()).unwrap();
                periods[period] += event.at.since(since);
            }
        }
        _ => {}
    });
    // 45 ms of each 100, with two quanta, the upcall that crosses the end, and the hand-offs.
    let least = periods.iter().min().unwrap();
    assert!(*least >= us(41_500), "{periods:?}");
}

/// Sets that admission accepts without any miss miss none among processes, with hand-offs that cost
/// what admission was told.
#[test]
fn admitted_processes_miss_no_deadline_under_dwcs() {
    let (mut granted, mut jobs, mut hand_offs) = (0, 0, 0);
    for seed in 0..60 {
        let mut chance = Chance::new(seed, 1);
        let handoff_cost = us(one_of(&mut chance, &[0, 5, 50]));
        let platform = Platform {
            cpus: vec![0],
            cpu_limit: Share::WHOLE,
            switch_cost: handoff_cost,
            wakeup_latency: Span::ZERO,
            defer_preemption: Span::ZERO,
        };
        let mut reservations = Reservations::new(platform, &DWCS);
        let mut activities = Vec::new();
        for _ in 0..8 {
            let period = ms(one_of(&mut chance, &[5, 8, 10, 12, 20, 30]));
            let batch = u32::try_from(chance.between(1, 6)).unwrap();
            let cost = Span::from_nanos(period.as_nanos() / 20 * chance.between(1, 6));
            let quantum = u32::try_from(chance.between(1, u64::from(batch))).unwrap();
            let params = ActivityParams::new(period, cost / batch).batch(batch).quantum(quantum);
            let params = params.offset(us(chance.between(0, 5_000)));
            let window = Some(Window { misses: 1, periods: 3 });
            let terms = Terms { window, ..Terms::default() };
            let mut trial = reservations.clone();
            let Ok(_) = trial.reserve("it", params, &terms) else { continue };
            let tests = trial.tests();
            if !tests.iter().any(|test| test.deciding && test.name == "edf-demand") {
                continue;
            }
            reservations = trial;
            let domain = u32::try_from(chance.between(0, 4)).unwrap();
            activities.push(SimActivity { domain, terms, ..SimActivity::new("it", params) });
        }
        granted += activities.len();
        let outcome = run(processes(&DWCS, activities, handoff_cost), Span::from_secs(2), |_| {});
        for activity in &outcome.activities {
            assert_eq!(activity.counters.misses, 0, "seed {seed}");
            assert_eq!(activity.window_violations, Some(0), "seed {seed}");
            jobs += activity.counters.completed;
        }
        hand_offs += outcome.cpus[0].domain_switches;
    }
    println!("{granted} activities, {jobs} jobs, {hand_offs} hand-offs");
    assert!(granted > 150 && jobs > 20_000 && hand_offs > 10_000);
}

/// Two of three jobs of each period fit, and each of three processes may miss one of three. The
/// windows decide among equal deadlines, across processes.
#[test]
fn windows_decide_between_processes_of_equal_deadlines() {
    let params = ActivityParams::new(ms(2), ms(1));
    let window = Some(Window { misses: 1, periods: 3 });
    let set = (0..3).map(|domain| {
        let terms = Terms { window, ..Terms::default() };
        SimActivity { domain, terms, ..SimActivity::new("it", params) }
    });
    let spec = processes(&DWCS, set.collect(), Span::ZERO);
    let found = upcalls(spec.clone(), ms(12));
    let expected = "0 0, 1000 1, 2000 2, 3000 0, 4000 1, 5000 2, 6000 0, 7000 1, 8000 2, 9000 0, \
                    10000 1, 11000 2";
    assert_eq!(found, expected);
    let outcome = run(spec, Span::from_secs(3), |_| {});
    for activity in &outcome.activities {
        assert_eq!(activity.window_violations, Some(0));
        assert!(activity.counters.misses >= 490, "{:?}", activity.counters);
    }
}

/// Three processes in a group of 40 %, with weights 1, 3 and 4, beside another one. The third
/// member has work in the second second only. Before and after, all processes get what it leaves,
/// in proportion. The parts are kept to a few quanta of each second.
#[test]
fn members_of_a_group_in_several_processes_share_its_part() {
    let film = Group { claim: Claim::Share(Share::from_ppm(400_000).unwrap()), parent: None };
    let within = Group { claim: Claim::Weight(1), parent: Some(GroupId(0)) };
    let made = ps_with_groups(QUANTUM_DEFAULT, vec![film, within]).unwrap();
    let discipline: &'static Discipline = Box::leak(Box::new(made));
    let member = |group, of| Terms { group: Some(GroupId(group)), ..weight(of) };
    let at = |ms_: u64| Instant::ZERO + ms(ms_);
    let mut guest = busy(3, us(500), member(0, 4));
    guest.present = vec![upcall_sim::Window { from: at(1_000), until: at(2_000) }];
    let set = vec![
        // The only member of a group inside the group, which has weight 1 there.
        busy(0, us(250), member(1, 7)),
        busy(1, us(500), member(0, 3)),
        busy(2, ms(1), weight(1)),
        guest,
    ];
    let mut got = [[Span::ZERO; 4]; 3];
    let mut since: Option<(usize, Instant)> = None;
    run(processes(discipline, set, us(2)), Span::from_secs(3), |event| {
        let ended = match event.kind {
            EventKind::Upcall { activity, .. } => {
                since = Some((activity as usize, event.at));
                return;
            }
            EventKind::Yield { .. } | EventKind::JobDone(_) => since.take(),
            _ => None,
        };
        if let Some((activity, since)) = ended {
            let second = usize::try_from(since.as_nanos() / 1_000_000_000).unwrap();
            got[second][activity] += event.at.since(since);
        }
    });
    let due = [[63, 187, 750, 0], [50, 150, 600, 200], [63, 187, 750, 0]];
    for (found, due) in got.iter().flatten().zip(due.iter().flatten()) {
        // A quantum and a hand-off at each level at each end, and what hand-offs cost.
        assert!(found.as_nanos().abs_diff(ms(*due).as_nanos()) <= 7_000_000, "{got:?}");
    }
}
