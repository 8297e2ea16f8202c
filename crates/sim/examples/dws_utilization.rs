//! Measures how much of a CPU DWS grants to deadlines at the next messages. In theory it grants
//! everything except the longest quantum per shortest period. The program asks admission for random
//! sets, and simulates each one in its worst phases.
//!
//! ```sh
//! cargo run --release -p upcall-sim --example dws_utilization   # 2 min
//! ```

use core::iter::once;
use std::process::ExitCode;

use upcall_core::activity::{ActivityParams, Terms};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::DWS;
use upcall_core::time::Span;
use upcall_sim::chance::Chance;
use upcall_sim::{SimActivity, SimSpec, Simulation};

/// Quanta, in parts per million of the set's shortest period; 0 is a nanosecond.
const BLOCKINGS_PPM: [u64; 7] = [0, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000];
/// Utilizations in thousandths of a CPU.
const UTILIZATIONS: [u32; 11] = [800, 850, 900, 920, 940, 950, 960, 970, 980, 990, 1_000];
/// Activities per set. In a set of two, one activity is more often almost the whole load, where
/// blocking matters most.
const ACTIVITIES: [u32; 2] = [2, 8];
/// Every drawn set repeats after `HYPERPERIOD`. So the program simulates the whole hyperperiod, and
/// the analysis ends even at a utilization of 1. The periods are short, because a batch of PDUs of
/// a nanosecond has a limit.
const PERIODS_US: [u64; 15] =
    [40, 50, 60, 80, 100, 120, 150, 160, 200, 240, 300, 400, 480, 600, 800];
const HYPERPERIOD: Span = Span::from_micros(2_400);
const LONGEST: Span = Span::from_micros(800);
/// Sets per point: the same parts and periods for each blocking.
const SETS: u64 = 200;
/// Random first releases, besides the worst ones.
const PHASES: u64 = 3;
const SEED: u64 = 1991;

/// The counts over the sets of one point.
#[derive(Clone, Copy, Default)]
struct Counts {
    admitted: u64,
    refused: u64,
    /// Sets whose utilization and blocking are together 1 or less, by the drawn numbers.
    within: u64,
    /// Sets within the bound that were refused: none, if the theory holds.
    within_refused: u64,
    /// Admitted sets that missed a deadline in some phase: none, if admission is right.
    admitted_missed: u64,
    /// Refused sets that missed a deadline: all, if admission refuses no more than it must.
    refused_missed: u64,
    simulations: u64,
    jobs: u64,
}

fn main() -> ExitCode {
    let ends = (PERIODS_US[0], PERIODS_US[PERIODS_US.len() - 1]);
    println!("DWS, deadlines at the next messages, {SETS} random sets a point, periods of");
    println!("{} to {} us; blocking: a quantum by the shortest period of the set", ends.0, ends.1);
    println!("(0: a nanosecond); bound: 1 - blocking, admitted by theory");
    let all: Vec<Counts> = ACTIVITIES.into_iter().map(table).collect();
    let sum = |of: fn(&Counts) -> u64| all.iter().map(of).sum::<u64>();
    let broken = sum(|counts| counts.within_refused) + sum(|counts| counts.admitted_missed);
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a table with a row per blocking and a column per utilization.
fn table(activities: u32) -> Counts {
    println!(
        "\n{activities} activities: sets admitted, in %; * where utilization is within the bound"
    );
    print!("{:>8} {:>6} |", "blocking", "bound");
    UTILIZATIONS.iter().for_each(|&thousandths| print!(" {:>6.2}", f64::from(thousandths) / 1e3));
    println!();
    let mut all = Counts::default();
    for blocking_ppm in BLOCKINGS_PPM {
        print!("{:>6} % {:>6.2} |", blocking_ppm / 10_000, 1.0 - blocking_ppm as f64 / 1e6);
        for thousandths in UTILIZATIONS {
            let point = counts(activities, blocking_ppm, thousandths);
            let within = u64::from(thousandths) * 1_000 + blocking_ppm <= 1_000_000;
            let mark = if within { '*' } else { ' ' };
            print!(" {:>5.1}{mark}", 100.0 * point.admitted as f64 / SETS as f64);
            all.add(point);
        }
        println!();
    }
    println!("sets within the bound: {}, refused of them: {}", all.within, all.within_refused);
    println!("admitted sets: {}, with a miss: {}", all.admitted, all.admitted_missed);
    println!("refused sets: {}, with a miss: {}", all.refused, all.refused_missed);
    let each = HYPERPERIOD.saturating_mul(2) + LONGEST;
    println!("simulations: {}, of {each} and {} jobs in all", all.simulations, all.jobs);
    all
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.within += other.within;
        self.within_refused += other.within_refused;
        self.admitted_missed += other.admitted_missed;
        self.refused_missed += other.refused_missed;
        self.simulations += other.simulations;
        self.jobs += other.jobs;
    }
}

fn counts(activities: u32, blocking_ppm: u64, thousandths: u32) -> Counts {
    let mut counts = Counts::default();
    for number in 0..SETS {
        let set = draw(activities, blocking_ppm, thousandths, number);
        let (fits, within) = (admitted(&set), is_within(&set));
        let mut missed = false;
        for offsets in phases(activities, number) {
            let (jobs, misses) = run(&set, &offsets);
            missed |= misses > 0;
            counts.jobs += jobs;
            counts.simulations += 1;
        }
        counts.admitted += u64::from(fits);
        counts.refused += u64::from(!fits);
        counts.within += u64::from(within);
        counts.within_refused += u64::from(!fits && within);
        counts.admitted_missed += u64::from(fits && missed);
        counts.refused_missed += u64::from(!fits && missed);
    }
    counts
}

/// Draws a set with PDUs of a nanosecond, in quanta of `blocking_ppm` of the shortest period.
fn draw(activities: u32, blocking_ppm: u64, thousandths: u32, number: u64) -> Vec<ActivityParams> {
    let mut chance = Chance::new(SEED, number);
    let parts = chance.parts(activities, u64::from(thousandths) * 1_000_000);
    let most = PERIODS_US.len() as u64 - 1;
    let periods: Vec<Span> = (0..activities)
        .filter_map(|_| PERIODS_US.get(usize::try_from(chance.between(0, most)).ok()?))
        .map(|&period_us| Span::from_micros(period_us))
        .collect();
    let shortest_ns = periods.iter().map(|period| period.as_nanos()).min().unwrap_or(0);
    let quantum = count(shortest_ns * blocking_ppm / 1_000_000);
    let set = parts.iter().zip(periods).map(|(part_ppb, period)| {
        let batch = count(period.as_nanos() * part_ppb / 1_000_000_000);
        let params = ActivityParams::new(period, Span::from_nanos(1));
        params.batch(batch).quantum(quantum.min(batch))
    });
    set.collect()
}

/// `ns` as a number of PDUs, at least one. No period has 4 billion nanoseconds.
fn count(ns: u64) -> u32 {
    u32::try_from(ns).unwrap_or(u32::MAX).max(1)
}

fn admitted(set: &[ActivityParams]) -> bool {
    let platform = Platform {
        cpus: vec![0],
        cpu_limit: Share::WHOLE,
        switch_cost: Span::ZERO,
        wakeup_latency: Span::ZERO,
        defer_preemption: Span::ZERO,
    };
    let mut reservations = Reservations::new(platform, &DWS);
    set.iter().all(|params| reservations.reserve("", *params, &Terms::default()).is_ok())
}

/// `U + (b c - 1) / T <= 1` with the longest quantum and the shortest period, in whole numbers. A
/// quantum that began earlier has at least a nanosecond less to run.
fn is_within(set: &[ActivityParams]) -> bool {
    let in_cycle = |params: &ActivityParams| HYPERPERIOD.as_nanos() / params.period.as_nanos();
    let demand_ns: u64 =
        set.iter().map(|params| params.compute().as_nanos() * in_cycle(params)).sum();
    let blocking_ns = set.iter().map(|params| params.quantum_cost().as_nanos() - 1).max();
    let most = set.iter().map(in_cycle).max();
    demand_ns + blocking_ns.unwrap_or(0) * most.unwrap_or(0) <= HYPERPERIOD.as_nanos()
}

/// First releases, in nanoseconds: all at once; each activity in turn a nanosecond before all
/// others, so that its first quantum blocks them; and some at random.
fn phases(activities: u32, number: u64) -> Vec<Vec<u64>> {
    let together = vec![0; activities as usize];
    let before = (0..activities)
        .map(|first| (0..activities).map(|activity| u64::from(activity != first)).collect());
    let mut chance = Chance::new(SEED, SETS + number);
    let any = (0..PHASES).map(|_| {
        (0..activities).map(|_| chance.between(0, LONGEST.as_nanos())).collect::<Vec<_>>()
    });
    once(together).chain(before).chain(any).collect()
}

/// Jobs and missed deadlines, in two hyperperiods after the last first release.
fn run(set: &[ActivityParams], offsets: &[u64]) -> (u64, u64) {
    let activities = set.iter().zip(offsets).map(|(params, &offset_ns)| {
        SimActivity::new("", params.offset(Span::from_nanos(offset_ns)))
    });
    let simulation =
        Simulation::new(SimSpec::new(&DWS, activities.collect())).expect("the set makes sense");
    let duration = HYPERPERIOD.saturating_mul(2) + LONGEST;
    let outcome = simulation.run(duration, &mut |_event| {});
    let counters = outcome.activities.iter().map(|activity| activity.counters);
    counters.fold((0, 0), |(jobs, misses), of| (jobs + of.jobs, misses + of.misses))
}
