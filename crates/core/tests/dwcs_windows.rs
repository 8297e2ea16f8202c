//! Compares the promises of admission for DWCS with the behaviour of the scheduler.
//!
//! Sets are drawn at random, admitted or refused, and run by the real scheduler over the cycle of
//! their windows. The test finds violated windows in the recorded jobs
//! (`dwcs_drive::Seen::broken`), not in the policy's own count; the two must agree.

#![expect(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

use dwcs_drive::{Chance, Conditions, Seen, Task, admit, deciding, drive, task, up_to, window};
use upcall_core::admission::{Share, TestResult};
use upcall_core::time::Span;

#[allow(dead_code, reason = "each test looks at what it needs")]
mod dwcs_drive;

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

fn multiple(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(1, |lcm, value| lcm / divisor(lcm, value) * value)
}

fn cycle_ns(set: &[Task]) -> u64 {
    multiple(set.iter().map(|task| task.0.period.as_nanos() * u64::from(window(task).periods)))
}

/// Sum of `(1 - x/y) C/T` in units of one to the cycle.
fn needed_ns(set: &[Task]) -> u64 {
    let cycle_ns = cycle_ns(set);
    let of = |task: &Task| {
        let (params, window) = (task.0, window(task));
        let windows = cycle_ns / (params.period.as_nanos() * u64::from(window.periods));
        windows * u64::from(window.periods - window.misses) * params.compute().as_nanos()
    };
    set.iter().map(of).sum()
}

fn broken(set: &[Task], seen: &[Seen]) -> u64 {
    set.iter().zip(seen).map(|(task, seen)| seen.broken(window(task))).sum()
}

/// Runs an admitted set, asserts that all windows are kept, and returns the misses.
fn keeps_its_windows(set: &[Task], conditions: Conditions, cycles: u64) -> u64 {
    let (seen, _) = drive(set, conditions, cycles * cycle_ns(set) + 1);
    for (task, seen) in set.iter().zip(&seen) {
        let window = window(task);
        assert_eq!(seen.broken(window), 0, "{task:?} of {set:?} under {conditions:?}");
        assert_eq!(seen.violations, 0, "{task:?} of {set:?} under {conditions:?}");
        // Two adjacent windows may both have their misses at their common boundary.
        assert!(seen.misses_in_any(window.periods + window.misses) <= 2 * window.misses as usize);
    }
    seen.iter().map(|seen| seen.counters.misses).sum()
}

const PERIODS: &[u32] = &[1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 20];

/// A set of equal run times and periods, with `slots` slots in a period, that needs exactly all
/// slots. `None` if the draw does not give such a set.
fn full_set(chance: &mut Chance, slots: u64, cost_ns: u64, most: usize) -> Option<Vec<Task>> {
    let (mut set, mut cycle, mut used) = (Vec::new(), 1, 0);
    for _ in 0..20 {
        let periods = chance.one_of(&PERIODS[..most]);
        let next = multiple([cycle, u64::from(periods)]);
        if next > 600 {
            continue;
        }
        let rest = (next * slots - used * (next / cycle)) * u64::from(periods) / next;
        let fitting = rest.min(u64::from(periods)) as u32;
        if fitting == 0 {
            continue;
        }
        let services = match chance.below(3) {
            0 => fitting,
            _ => 1 + chance.below(u64::from(fitting)) as u32,
        };
        used = used * (next / cycle) + next / u64::from(periods) * u64::from(services);
        cycle = next;
        set.push(task(slots * cost_ns, cost_ns, periods - services, periods));
        if used == cycle * slots {
            return Some(set);
        }
    }
    None
}

#[test]
fn admitted_sets_at_utilization_one_with_equal_run_times_keep_every_window() {
    let mut chance = Chance(2000);
    let (mut sets, mut canonical, mut refused, mut missing) = (0, 0, 0, 0);
    while sets < 3_000 {
        let (slots, most) = (1 + chance.below(3), chance.one_of(&[4, 6, 8, PERIODS.len()]));
        let cost_ns = 1 + chance.below(5);
        let Some(set) = full_set(&mut chance, slots, cost_ns, most) else { continue };
        assert_eq!(needed_ns(&set), cycle_ns(&set), "{set:?}");
        sets += 1;
        let one_service = |task: &Task| {
            let window = window(task);
            window.misses == 0 || window.periods - window.misses == 1
        };
        let is_canonical = set.iter().all(one_service);
        canonical += u32::from(is_canonical);
        let conditions = Conditions { seed: sets, ..Conditions::default() };
        if admit(&set, &conditions).1 {
            missing += u64::from(keeps_its_windows(&set, conditions, 2) > 0);
        } else {
            // The published guarantee has no exceptions; these sets are exceptions.
            assert!(!is_canonical, "{set:?}");
            let (seen, _) = drive(&set, conditions, cycle_ns(&set) + 1);
            assert!(broken(&set, &seen) > 0, "refused for nothing: {set:?}");
            refused += 1;
        }
    }
    println!("{sets} sets, {canonical} canonical, {refused} refused, {missing} with misses");
    assert!(canonical > 300 && missing > 1_000 && refused > 0 && refused * 10 < sets);
}

#[test]
fn a_set_below_utilization_one_that_loses_a_window_is_refused() {
    let set = [task(1, 1, 12, 15), task(1, 1, 4, 16), task(1, 1, 20, 21)];
    assert_eq!((needed_ns(&set), cycle_ns(&set)), (1676, 1680));
    let (reservations, admitted) = admit(&set, &Conditions::default());
    assert!(!admitted);
    assert_eq!(deciding(&reservations).name, "window-simulation");
    let slots = |test: &&TestResult| test.name == "slot-simulation";
    assert!(!reservations.tests().iter().find(slots).unwrap().passed);
    let (seen, _) = drive(&set, Conditions::default(), 1680);
    assert!(broken(&set, &seen) > 0);
}

/// Equal periods, everything else at random.
fn slotted(chance: &mut Chance) -> Vec<Task> {
    let period_ns = chance.one_of(&[20u64, 60, 100]);
    let deadline_ns = chance.one_of(&[period_ns, period_ns, period_ns * 4 / 5]);
    let longest_ns = period_ns / (1 + chance.below(4));
    let count = 2 + chance.below(6);
    (0..count)
        .map(|_| {
            let periods = chance.one_of(&PERIODS[..7]);
            let misses = chance.below(u64::from(periods)) as u32;
            let batch = 1 + chance.below(3) as u32;
            let cost_ns = (up_to(chance, longest_ns) / u64::from(batch)).max(1);
            let (params, mut terms) = task(period_ns, cost_ns, misses, periods);
            terms.work_conserving = chance.below(3) == 0;
            let quantum = 1 + chance.below(u64::from(batch)) as u32;
            let deadline = Span::from_nanos(deadline_ns);
            (params.batch(batch).quantum(quantum).deadline(deadline), terms)
        })
        .collect()
}

/// Hand-offs, late wake-ups, short jobs and events may not break the windows that were proved for
/// equal periods.
#[test]
fn equal_periods_keep_their_windows_whatever_happens() {
    let mut chance = Chance(1999);
    let (mut admitted, mut missing, mut refused, mut extras) = (0, 0, 0, 0);
    for seed in 0..6_000 {
        let set = slotted(&mut chance);
        let shortest_ns = set.iter().map(|task| task.0.quantum_cost().as_nanos()).min().unwrap();
        let conditions = Conditions {
            switch_ns: chance.one_of(&[0, 0, 1, 2]).min(shortest_ns),
            wakeup_ns: chance.one_of(&[0, 0, 1, 7]),
            thrifty: chance.below(2) == 0,
            events: chance.one_of(&[0, 1, 4]),
            share: None,
            seed,
        };
        // Sets that are admitted because there is time for all jobs have a test below.
        if set.iter().map(|task| task.0.utilization()).sum::<f64>() <= 1.0 && chance.below(8) > 0 {
            continue;
        }
        let (reservations, true) = admit(&set, &conditions) else {
            refused += 1;
            continue;
        };
        // The simulation tests prove only jobs that behave as declared.
        let conditions = match deciding(&reservations).name {
            "window-simulation" => Conditions { thrifty: false, events: 0, ..conditions },
            _ => conditions,
        };
        admitted += 1;
        let misses = keeps_its_windows(&set, conditions, 3);
        missing += u32::from(misses > 0);
        extras += u32::from(set.iter().any(|(_, terms)| terms.work_conserving));
    }
    println!("{admitted} admitted, {refused} refused, {missing} with misses, {extras} with extras");
    assert!(missing > 150 && refused > 500 && extras > 150);
}

/// The sets have periods of all kinds, and windows. Their jobs need more time than the CPU has.
#[test]
fn sets_admitted_by_simulation_keep_their_windows_in_every_cycle() {
    let mut chance = Chance(2004);
    let (mut admitted, mut refused) = (0, 0);
    while admitted < 60 {
        let count = 2 + chance.below(4);
        let set: Vec<Task> = (0..count)
            .map(|_| {
                let period_ns = chance.one_of(&[4u64, 6, 8, 12, 24]);
                let periods = chance.one_of(&[1u32, 2, 3, 4]);
                let misses = chance.below(u64::from(periods)) as u32;
                let compute_ns = 1 + chance.below(period_ns * 3 / 4);
                let batch = chance.one_of(&[1, compute_ns]) as u32;
                let (params, terms) =
                    task(period_ns, compute_ns / u64::from(batch), misses, periods);
                let early = Span::from_nanos(chance.one_of(&[0, 0, 1]));
                let deadline = params.period.saturating_sub(early).max(params.compute());
                (params.batch(batch).deadline(deadline), terms)
            })
            .collect();
        let in_full = set.iter().map(|task| task.0.utilization()).sum::<f64>();
        if in_full <= 1.0 || needed_ns(&set) > cycle_ns(&set) {
            continue;
        }
        let conditions = Conditions { seed: admitted, ..Conditions::default() };
        if admit(&set, &conditions).1 {
            assert!(keeps_its_windows(&set, conditions, 3) > 0, "{set:?}");
            admitted += 1;
        } else {
            refused += 1;
        }
    }
    println!("{admitted} admitted, {refused} refused");
    assert!(refused > admitted);
}

/// Any phases, any quanta, and jobs that take less than declared: a set that is admitted because no
/// job need be missed misses none. Events are served in addition, from the remaining share, and
/// change the order.
#[test]
fn sets_admitted_by_edf_demand_miss_nothing_while_events_are_served() {
    let mut chance = Chance(1973);
    let (mut admitted, mut with_share, mut extras, mut events) = (0, 0, 0, 0);
    while admitted < 1_500 {
        let conditions = Conditions {
            switch_ns: chance.one_of(&[0, 0, 1, 3]),
            wakeup_ns: chance.one_of(&[0, 0, 1, 9]),
            thrifty: chance.below(2) == 0,
            events: chance.one_of(&[0, 2, 6]),
            share: None,
            seed: admitted,
        };
        let count = 2 + chance.below(4);
        let set: Vec<Task> = (0..count)
            .map(|_| {
                let period_ns = chance.one_of(&[40u64, 60, 80, 120, 240]);
                let compute_ns = 3 + chance.below(period_ns * 2 / count);
                let batch = 1 + chance.below(3);
                let (params, mut terms) =
                    task(period_ns, (compute_ns / batch).max(3), chance.below(2) as u32, 2);
                terms.work_conserving = chance.below(3) == 0;
                let early_ns = chance.one_of(&[0, 0, 5]);
                let params = params.batch(batch as u32).quantum(1 + chance.below(batch) as u32);
                let deadline = params.period.saturating_sub(Span::from_nanos(early_ns));
                let offset = Span::from_nanos(chance.one_of(&[0, 1, 7, 39]));
                (params.deadline(deadline.max(params.compute())).offset(offset), terms)
            })
            .filter(|(params, _)| params.validated().is_ok())
            .collect();
        if set.is_empty() {
            continue;
        }
        let (reservations, true) = admit(&set, &conditions) else { continue };
        if deciding(&reservations).name != "edf-demand" {
            continue;
        }
        let share = reservations.event_share(0).filter(|_| conditions.events > 0);
        let mut reservations = reservations;
        assert!(reservations.reserve_events(0, share).is_ok(), "{set:?} {conditions:?}");
        let more = share.and_then(|share| Share::from_ppm(share.ppm() + 1));
        assert!(more.is_none() || reservations.reserve_events(0, more).is_err());
        let conditions = Conditions { share, ..conditions };
        let (seen, _) = drive(&set, conditions, 6 * 480);
        for seen in &seen {
            assert_eq!((seen.counters.misses, seen.violations), (0, 0), "{set:?} {conditions:?}");
            extras += seen.extras;
            events += seen.events_taken;
        }
        admitted += 1;
        with_share += u32::from(share.is_some());
    }
    println!(
        "{admitted} admitted, {with_share} with a share for events, {extras} extra services, \
         {events} events"
    );
    assert!(with_share > 100 && extras > 5_000 && events > 5_000);
}

#[test]
fn the_count_of_violations_is_that_of_the_recorded_jobs_however_overloaded() {
    let mut chance = Chance(33);
    let mut violated = 0;
    for seed in 0..600 {
        let set = slotted(&mut chance);
        let conditions = Conditions {
            switch_ns: chance.one_of(&[0, 2]),
            wakeup_ns: chance.one_of(&[0, 30]),
            thrifty: chance.below(2) == 0,
            events: chance.one_of(&[0, 4]),
            share: None,
            seed,
        };
        let (seen, _) = drive(&set, conditions, 40 * 100);
        for (task, seen) in set.iter().zip(&seen) {
            // Jobs that are due just now may count either way.
            let broken = seen.broken(window(task));
            assert!(seen.violations.abs_diff(broken) <= 1, "{task:?} {set:?} {conditions:?}");
            violated += broken;
        }
    }
    assert!(violated > 1_000);
}

#[test]
fn the_events_of_one_activity_break_no_window_of_a_full_slot() {
    let set = [task(3, 3, 2, 3), task(3, 3, 2, 3), task(3, 3, 2, 3)];
    assert!(admit(&set, &Conditions::default()).1);
    for seed in 0..50 {
        keeps_its_windows(&set, Conditions { events: 8, seed, ..Conditions::default() }, 30);
    }
}
