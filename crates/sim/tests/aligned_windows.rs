//! DWCS among processes: windows that allow misses are kept, whenever processes start, suspend and
//! go on, because first releases are aligned.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use upcall_core::activity::{ActivityParams, Terms, Window};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::DWCS;
use upcall_core::time::{Instant, Span};
use upcall_sim::chance::Chance;
use upcall_sim::{EventKind, Execution, SimActivity, SimSpec, Simulation, SplitLevel};

const LENGTH: Span = Span::from_secs(1);
const SETS: u64 = 400;

fn us(us: u64) -> Span {
    Span::from_micros(us)
}

fn one_of<T: Copy>(chance: &mut Chance, choices: &[T]) -> T {
    let last = choices.len() as u64 - 1;
    choices[usize::try_from(chance.between(0, last)).unwrap()]
}

/// When an activity is delivered: from the start, or several times with pauses between.
fn presence(chance: &mut Chance, period: Span) -> Vec<upcall_sim::Window> {
    let mut present = Vec::new();
    let mut from = Instant::ZERO + us(chance.between(0, period.as_nanos() / 200));
    while from < Instant::ZERO + LENGTH {
        let until = from + period * 3 + us(chance.between(0, period.as_nanos() / 50));
        present.push(upcall_sim::Window { from, until });
        from = until + period + us(chance.between(0, period.as_nanos() / 200));
    }
    present
}

/// A set that the test `window-slots` admits for processes, with the cost of a hand-off. `None` if
/// the draw gives none. Its jobs together take more than their period has.
fn overloaded_set(seed: u64) -> Option<(Vec<SimActivity>, Span)> {
    let mut chance = Chance::new(seed, 7);
    let handoff_cost = us(one_of(&mut chance, &[0, 0, 5, 50]));
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: handoff_cost,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut reservations = Reservations::new(platform, &DWCS);
    reservations.start_apart();
    let period = us(one_of(&mut chance, &[2_000, 6_000, 10_000]));
    let deadline = one_of(&mut chance, &[period, period * 4 / 5]);
    let slots = chance.between(1, 3);
    let domains = chance.between(2, 5);
    let offset = us(one_of(&mut chance, &[0, 0, 700]));
    let mut activities = Vec::new();
    for place in 0..12 {
        let room_ns = deadline.as_nanos() / slots - 3 * handoff_cost.as_nanos();
        let cost = Span::from_nanos(room_ns / 100 * chance.between(85, 100));
        let batch = u32::try_from(chance.between(1, 3)).unwrap();
        let params = ActivityParams::new(period, cost / batch).batch(batch).deadline(deadline);
        let quantum = u32::try_from(chance.between(1, u64::from(batch))).unwrap();
        let params = params.quantum(quantum).offset(offset);
        let periods = one_of(&mut chance, &[1, 2, 3, 4, 5, 6, 8, 12]);
        let window = Some(Window { misses: periods - 1, periods });
        let terms = Terms { window, ..Terms::default() };
        if reservations.reserve("it", params, &terms).is_err() {
            continue;
        }
        // The first two are of different processes.
        let domain = if place < 2 { place } else { chance.between(0, domains - 1) };
        let domain = u32::try_from(domain).unwrap();
        let execution = match chance.between(0, 2) {
            0 => Execution::Uniform { least: params.pdu_cost / 4, most: params.pdu_cost },
            _ => Execution::Fixed(params.pdu_cost),
        };
        let present = match chance.between(0, 2) {
            0 => vec![upcall_sim::Window::ALWAYS],
            _ => presence(&mut chance, period),
        };
        let activity = SimActivity::new("it", params);
        activities.push(SimActivity { domain, terms, execution, present, ..activity });
    }
    let tests = reservations.tests();
    let decides = |name| tests.iter().any(|test| test.deciding && test.passed && test.name == name);
    let processes = activities.iter().any(|of| of.domain != activities[0].domain);
    (decides("window-slots") && processes).then_some((activities, handoff_cost))
}

/// The violated windows, the misses and the turns of a run.
fn run(activities: Vec<SimActivity>, handoff_cost: Span) -> (u64, u64, u64) {
    let split_level = Some(SplitLevel { handoff_cost, ..SplitLevel::default() });
    let spec = SimSpec { checked: true, split_level, ..SimSpec::new(&DWCS, activities) };
    let outcome = Simulation::new(spec).unwrap().run(LENGTH, &mut |_| {});
    let violations = outcome.activities.iter().map(|of| of.window_violations.unwrap()).sum();
    let misses = outcome.activities.iter().map(|of| of.counters.misses).sum();
    (violations, misses, outcome.cpus[0].domain_switches)
}

#[test]
fn windows_are_kept_whenever_processes_start_and_pause() {
    let (mut sets, mut misses, mut turns) = (0, 0, 0);
    for seed in 0..SETS {
        let Some((activities, handoff_cost)) = overloaded_set(seed) else { continue };
        let (violated, missed, passed) = run(activities.clone(), handoff_cost);
        assert_eq!(violated, 0, "seed {seed}: {activities:#?}");
        (sets, misses, turns) = (sets + 1, misses + missed, turns + passed);
    }
    println!("{sets} sets, {misses} misses, {turns} turns");
    assert!(sets > SETS / 3 && misses > sets * 50 && turns > sets * 100);
}

/// The same sets, but each activity is released at a phase of its own, as an offset makes it. So
/// the test above can fail.
#[test]
fn windows_are_violated_without_aligned_releases() {
    let (mut sets, mut violated) = (0, 0);
    for seed in 0..SETS {
        let Some((mut activities, handoff_cost)) = overloaded_set(seed) else { continue };
        let mut chance = Chance::new(seed, 8);
        for activity in &mut activities {
            let period_ns = activity.params.period.as_nanos();
            activity.params.offset = Span::from_nanos(chance.between(0, period_ns));
        }
        let (violations, ..) = run(activities, handoff_cost);
        (sets, violated) = (sets + 1, violated + u64::from(violations > 0));
    }
    println!("{violated} of {sets} sets violated");
    assert!(violated * 4 > sets);
}

/// An activity that pauses begins a new window, but not before the former one would have ended.
#[test]
fn a_window_that_a_pause_interrupted_ends_before_the_next_begins() {
    let ms = Span::from_millis;
    let at = |of: u64| Instant::ZERO + ms(of);
    let params = ActivityParams::new(ms(10), ms(4));
    let window = |misses, periods| Some(Window { misses, periods });
    let set = (0..2).map(|domain| {
        let terms = Terms { window: window(domain * 4, 1 + domain * 4), ..Terms::default() };
        SimActivity { domain, terms, ..SimActivity::new("it", params) }
    });
    let mut set: Vec<_> = set.collect();
    let present = [(3, 25), (38, 41), (52, 1_000)];
    let present =
        present.map(|(from, until)| upcall_sim::Window { from: at(from), until: at(until) });
    set.iter_mut().for_each(|of| of.present = present.to_vec());
    let split_level = Some(SplitLevel::default());
    let spec = SimSpec { checked: true, split_level, ..SimSpec::new(&DWCS, set) };
    let mut first = vec![[0; 3]; 2];
    Simulation::new(spec).unwrap().run(ms(300), &mut |event| {
        if let EventKind::Release { activity, .. } = event.kind {
            let ms = event.at.as_nanos() / 1_000_000;
            let part = usize::from(ms >= 38) + usize::from(ms >= 52);
            let first = &mut first[activity as usize][part];
            *first = if *first == 0 { ms } else { *first };
        }
    });
    // Each period is a window of the first one. The windows of the other one take 50 ms, and that
    // from 10 ms on ends at 60 ms.
    assert_eq!(first, [[10, 40, 60], [10, 0, 60]]);
}

/// A domain that does not run gets the turn for its lost job, and drops it: nine hand-offs of 50 us
/// in each period of this set. In one process nobody pays them.
#[test]
fn processes_lose_windows_if_their_lost_jobs_take_more_than_the_rest_of_the_period() {
    let handoff_cost = us(50);
    let set = |cost_us| -> Vec<_> {
        let params = ActivityParams::new(us(2_000), us(cost_us));
        let window = Some(Window { misses: 9, periods: 10 });
        let of = |domain| SimActivity {
            domain,
            terms: Terms { window, ..Terms::default() },
            ..SimActivity::new("it", params)
        };
        (0..10).map(of).collect()
    };
    let admits = |set: &[SimActivity], apart: bool| {
        let platform = Platform {
            cpus: vec![0],
            cpu_limit: Share::WHOLE,
            switch_cost: handoff_cost,
            wakeup_latency: Span::ZERO,
            defer_preemption: Span::ZERO,
        };
        let mut all = Reservations::new(platform, &DWCS);
        if apart {
            all.start_apart();
        }
        set.iter().all(|of| all.reserve("it", of.params, &of.terms).is_ok())
    };
    // Beside the last hand-off there is time for 1,900 us and a hand-off, or for ten hand-offs.
    let (long, short) = (set(1_900), set(1_450));
    assert!(admits(&long, false) && !admits(&long, true) && admits(&short, true));
    let (of_long, of_short) = (run(long, handoff_cost), run(short, handoff_cost));
    println!("violations, misses and turns: {of_long:?}, {of_short:?}");
    assert!(of_long.0 > 100);
    assert_eq!(of_short.0, 0);
}
