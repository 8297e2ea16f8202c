//! rtu-1995 §7.2 in virtual time: 16 domains of 6 handlers, periods 40 to 90 ms.
//!
//! What the paper does not say is chosen here: every handler has the same
//! utilization and a batch of 8 PDUs, and first releases are at random: a phase
//! number makes them, to the nanosecond. (The paper's clock ticked once a
//! millisecond, so more of its releases fell together; Upcall has no tick.)

use upcall_core::activity::ActivityParams;
use upcall_core::discipline::Discipline;
use upcall_core::time::Span;
use upcall_sim::{Outcome, SimActivity, SimSpec, Simulation};

/// Processes.
pub const DOMAINS: u32 = 16;
/// Of the six handlers of each.
pub const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];
/// PDUs of a job.
pub const BATCH: u32 = 8;
/// The load repeats after this: the least common multiple of the periods.
pub const HYPERPERIOD: Span = Span::from_millis(25_200);
/// What is tried.
#[derive(Clone, Copy)]
pub struct Trial {
    /// RM or RMDP.
    pub discipline: &'static Discipline,
    /// PDUs without preemption; RM does not mind.
    pub quantum: u32,
    /// Of all 96 together, in millionths of a CPU, hand-offs not counted.
    pub utilization_ppm: u64,
    /// What a hand-off costs.
    pub switch_cost: Span,
    /// Makes the first releases; at least 1.
    pub phases: u64,
}

/// All 96; costs are rounded down to nanoseconds a PDU.
pub fn activities(trial: Trial) -> Vec<SimActivity> {
    let handlers = u64::from(DOMAINS) * PERIODS_MS.len() as u64;
    let mut chance = trial.phases;
    (0..DOMAINS)
        .flat_map(|domain| PERIODS_MS.map(|period_ms| (domain, period_ms)))
        .map(|(domain, period_ms)| {
            let period = Span::from_millis(period_ms);
            let compute_ns = period.as_nanos() * trial.utilization_ppm / 1_000_000 / handlers;
            let cost = Span::from_nanos(compute_ns / u64::from(BATCH));
            // Lehmer's generator with Park and Miller's numbers (CACM 1988).
            chance = chance * 48_271 % 0x7fff_ffff;
            let offset = Span::from_nanos(chance % period.as_nanos());
            let params = ActivityParams::new(period, cost).batch(BATCH);
            let params = params.quantum(trial.quantum).offset(offset);
            let mut activity = SimActivity::new(format!("d{domain}-{period_ms}ms"), params);
            activity.domain = domain;
            activity
        })
        .collect()
}

/// A hyperperiod from the last first release on.
pub fn run(trial: Trial) -> Outcome {
    let spec = SimSpec {
        switch_cost: trial.switch_cost,
        ..SimSpec::new(trial.discipline, activities(trial))
    };
    let simulation = Simulation::new(spec).expect("the set makes sense");
    simulation.run(HYPERPERIOD + Span::from_millis(90), &mut |_event| {})
}

/// Jobs that missed their deadline, of all handlers with that period.
pub fn misses(outcome: &Outcome, period_ms: u64) -> u64 {
    let of_period = outcome.activities.iter().skip(place(period_ms)).step_by(PERIODS_MS.len());
    of_period.map(|activity| activity.counters.misses).sum()
}

/// Handlers of that period that missed at all.
pub fn late_handlers(outcome: &Outcome, period_ms: u64) -> usize {
    let of_period = outcome.activities.iter().skip(place(period_ms)).step_by(PERIODS_MS.len());
    of_period.filter(|activity| activity.counters.misses > 0).count()
}

/// The least slack of all handlers of that period.
pub fn slack_ns_min(outcome: &Outcome, period_ms: u64) -> i64 {
    let of_period = outcome.activities.iter().skip(place(period_ms)).step_by(PERIODS_MS.len());
    of_period.map(|activity| activity.counters.slack_ns_min).min().unwrap_or(i64::MAX)
}

/// All misses.
pub fn all_misses(outcome: &Outcome) -> u64 {
    PERIODS_MS.iter().map(|&period_ms| misses(outcome, period_ms)).sum()
}

fn place(period_ms: u64) -> usize {
    PERIODS_MS.iter().position(|&of_set| of_set == period_ms).unwrap_or(0)
}
