//! The set of rtu-1995 §7.2 in virtual time: 16 domains of 6 handlers, with periods of 40 to 90 ms.
//!
//! The paper leaves some details open, which are chosen here. Every handler has the same
//! utilization and a batch of 8 PDUs. First releases are random to the nanosecond: a phase number
//! determines them. (The paper's clock ticked once a millisecond, so more of its releases
//! coincided. Upcall has no tick.)

use upcall_core::activity::ActivityParams;
use upcall_core::discipline::Discipline;
use upcall_core::time::Span;
use upcall_sim::{Outcome, SimActivity, SimSpec, Simulation};

/// Number of domains.
pub const DOMAINS: u32 = 16;
/// Periods of the six handlers of each domain.
pub const PERIODS_MS: [u64; 6] = [40, 50, 60, 70, 80, 90];
/// PDUs per job.
pub const BATCH: u32 = 8;
/// The load repeats after this time, the least common multiple of the periods.
pub const HYPERPERIOD: Span = Span::from_millis(25_200);
/// The parameters of one run.
#[derive(Clone, Copy)]
pub struct Trial {
    /// RM or RMDP.
    pub discipline: &'static Discipline,
    /// PDUs without preemption. RM ignores this value.
    pub quantum: u32,
    /// Load of all 96 handlers together, in millionths of a CPU, without hand-offs.
    pub utilization_ppm: u64,
    /// Cost of a hand-off.
    pub switch_cost: Span,
    /// Number that determines the first releases; at least 1.
    pub phases: u64,
}

/// All 96 activities. Costs are rounded down to nanoseconds per PDU.
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

/// Runs one hyperperiod from the last first release on.
pub fn run(trial: Trial) -> Outcome {
    let spec = SimSpec {
        switch_cost: trial.switch_cost,
        ..SimSpec::new(trial.discipline, activities(trial))
    };
    let simulation = Simulation::new(spec).expect("the set makes sense");
    simulation.run(HYPERPERIOD + Span::from_millis(90), &mut |_event| {})
}

/// Jobs that missed their deadline, over all handlers with that period.
pub fn misses(outcome: &Outcome, period_ms: u64) -> u64 {
    let of_period = outcome.activities.iter().skip(place(period_ms)).step_by(PERIODS_MS.len());
    of_period.map(|activity| activity.counters.misses).sum()
}

/// Handlers with that period that missed at least one deadline.
pub fn late_handlers(outcome: &Outcome, period_ms: u64) -> usize {
    let of_period = outcome.activities.iter().skip(place(period_ms)).step_by(PERIODS_MS.len());
    of_period.filter(|activity| activity.counters.misses > 0).count()
}

/// The least slack of all handlers with that period.
pub fn slack_ns_min(outcome: &Outcome, period_ms: u64) -> i64 {
    let of_period = outcome.activities.iter().skip(place(period_ms)).step_by(PERIODS_MS.len());
    of_period.map(|activity| activity.counters.slack_ns_min).min().unwrap_or(i64::MAX)
}

/// All missed deadlines.
pub fn all_misses(outcome: &Outcome) -> u64 {
    PERIODS_MS.iter().map(|&period_ms| misses(outcome, period_ms)).sum()
}

fn place(period_ms: u64) -> usize {
    PERIODS_MS.iter().position(|&of_set| of_set == period_ms).unwrap_or(0)
}
