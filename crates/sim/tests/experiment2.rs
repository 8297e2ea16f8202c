//! rtu-1995 Experiment 2 (§7.2): delayed preemption saves switches and thus deadlines.

use set::{BATCH, PERIODS_MS, Trial, activities, all_misses, misses, run};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::Discipline;
use upcall_core::discipline::RM;
use upcall_core::discipline::RMDP;
use upcall_core::time::Span;
use upcall_sim::place;

#[allow(dead_code, reason = "the example prints more than is asserted here")]
#[path = "../examples/experiment2/set.rs"]
mod set;

/// Including hand-offs, immediate preemption uses 98.5 % of the CPU here.
fn trial(discipline: &'static Discipline, quantum: u32) -> Trial {
    Trial {
        discipline,
        quantum,
        utilization_ppm: 860_000,
        switch_cost: Span::from_micros(50),
        phases: 1995,
    }
}

#[test]
fn delayed_preemption_saves_the_papers_35_percent_of_switches_and_every_deadline() {
    let immediate = run(trial(&RM, BATCH));
    // As in the paper, only the 90 ms handlers miss.
    assert!(misses(&immediate, 90) > 0);
    assert_eq!(all_misses(&immediate), misses(&immediate, 90));
    let whole_batch = run(trial(&RMDP, BATCH));
    assert_eq!(all_misses(&whole_batch), 0);
    let (before, after) = (immediate.cpus[0].switches, whole_batch.cpus[0].switches);
    assert!(after * 100 <= before * 65, "{after} of {before}");
    // A quantum of half the batch saves less, but enough for every deadline.
    assert_eq!(all_misses(&run(trial(&RMDP, BATCH / 2))), 0);
}

#[test]
fn the_larger_the_quantum_the_fewer_the_switches() {
    let immediate = run(trial(&RM, BATCH));
    let curve = [1, 2, 4, 8].map(|b| run(trial(&RMDP, b)).cpus[0].switches);
    assert!(immediate.cpus[0].switches > curve[0]);
    assert!(curve.windows(2).all(|pair| pair[0] > pair[1]), "{curve:?}");
    // A job that is never preempted needs one hand-off, or none if it follows a job of the same
    // activity.
    let whole_batch = run(trial(&RMDP, BATCH));
    let jobs: u64 = whole_batch.activities.iter().map(|a| a.counters.completed).sum();
    assert!(whole_batch.cpus[0].switches <= jobs + 1);
    assert!(whole_batch.activities.iter().all(|a| a.counters.preemptions == 0));
}

/// The last point at which a job can be preempted decides: after 6 of 8 PDUs with quanta of 6,
/// after 4 with quanta of 4.
#[test]
fn a_quantum_that_divides_the_batch_saves_more_than_a_larger_one_that_does_not() {
    let [four, six] = [4, 6].map(|b| run(trial(&RMDP, b)).cpus[0].switches);
    assert!(four < six, "{four} {six}");
}

/// Admission must allow for every phase, so it grants less than one phase needs.
#[test]
fn admission_accepts_delayed_preemption_and_refuses_immediate() {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::from_micros(50),
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let fits = |discipline| {
        let mut reservations = Reservations::new(platform.clone(), discipline);
        let trial = Trial { utilization_ppm: 680_000, ..trial(discipline, BATCH) };
        place(&mut activities(trial), &mut reservations).is_ok()
    };
    assert!(fits(&RMDP));
    assert!(!fits(&RM));
}

#[test]
fn the_set_matches_the_paper() {
    let activities = activities(trial(&RM, BATCH));
    assert_eq!(activities.len(), 96);
    for (activity, period_ms) in activities.iter().zip(PERIODS_MS.iter().cycle()) {
        assert_eq!(activity.params.period, Span::from_millis(*period_ms));
    }
    let utilization: f64 = activities.iter().map(|a| a.params.utilization()).sum();
    assert!((0.859..=0.86).contains(&utilization), "{utilization}");
    assert_eq!(activities.iter().map(|a| a.domain).max(), Some(15));
}
