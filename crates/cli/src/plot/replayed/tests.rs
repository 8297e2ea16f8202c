//! A replay computes the values that the simulation reported.

use super::*;
use upcall::activity::{ActivityParams, Terms};
use upcall::discipline::Discipline;
use upcall::discipline::PS;
use upcall::discipline::RMDP;
use upcall_sim::fault::{Fault, Window};
use upcall_sim::trace::{Header, Writer, read};
use upcall_sim::{Outcome, SimActivity, SimSpec, Simulation};

const LATE_MAX: Span = Span::from_micros(300);

/// Two activities on each of two CPUs for a second, with late wake-ups on request.
fn traced(discipline: &'static Discipline, late: bool) -> (Trace, Outcome) {
    let activity = |cpu, period_ms, cost_us| {
        let params = ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(cost_us));
        let mut activity = SimActivity::new(format!("{cpu}-{period_ms}"), params.batch(8));
        activity.cpu = cpu;
        activity.terms = Terms { weight: Some(2), ..Terms::default() };
        activity
    };
    let all = [(0, 10, 200), (3, 12, 700), (0, 25, 900), (3, 40, 900)];
    let activities = all.map(|(cpu, period, cost)| activity(cpu, period, cost)).to_vec();
    let mut spec = SimSpec { cpus: vec![0, 3], ..SimSpec::new(discipline, activities) };
    if late {
        spec.faults.push(Fault::LateWakeups { window: Window::ALWAYS, by_max: LATE_MAX });
    }
    let mut writer = Writer::new(Vec::new(), &Header::of(&spec)).unwrap();
    let mut record = |_, cpu, record: &Record| writer.record(cpu, record).unwrap();
    let simulation = Simulation::new(spec).unwrap();
    let outcome = simulation.run_traced(Span::from_secs(1), &mut |_| {}, &mut record);
    (read(&writer.finish().unwrap()).unwrap(), outcome)
}

#[test]
fn the_extremes_of_lag_match_the_simulation() {
    let (trace, outcome) = traced(&PS, false);
    let replayed = Replayed::of(&trace).unwrap();
    assert_eq!(replayed.time_quantum, PS.time_quantum);
    assert_eq!(replayed.lags.len(), 4);
    for (place, key) in [(0, (0, 0)), (1, (3, 0)), (2, (0, 1)), (3, (3, 1))] {
        let lags = &replayed.lags[&key];
        let lags_ns = || lags.iter().map(|lag| lag.lag_ns);
        let ends = (lags_ns().min().unwrap(), lags_ns().max().unwrap());
        assert_eq!(Some(ends), outcome.activities[place].lag_ns);
        // Each job was upcalled and returned at least once.
        assert!(lags.is_sorted_by_key(|lag| lag.at_ns));
        assert!(lags.len() as u64 >= 2 * outcome.activities[place].counters.completed);
    }
    let (trace, _) = traced(&RMDP, false);
    assert!(Replayed::of(&trace).unwrap().lags.is_empty());
}

#[test]
fn wake_up_latencies_match_the_simulated_ones() {
    let (trace, _) = traced(&RMDP, false);
    let punctual = Replayed::of(&trace).unwrap().wakeups_ns;
    assert_eq!(punctual.keys().copied().collect::<Vec<_>>(), [0, 3]);
    assert!(punctual.values().flatten().all(|&late_ns| late_ns == 0));
    let (trace, _) = traced(&RMDP, true);
    for lates_ns in Replayed::of(&trace).unwrap().wakeups_ns.values() {
        // On average a quarter is zero and a quarter is the maximum.
        let of = |ns| lates_ns.iter().filter(|&&late_ns| late_ns == ns).count();
        assert!(of(0) > 5 && of(LATE_MAX.as_nanos()) > 5, "{lates_ns:?}");
        assert!(lates_ns.iter().all(|&late_ns| late_ns <= LATE_MAX.as_nanos()));
    }
}

#[test]
fn a_trace_with_gaps_or_other_commands_gives_an_error() {
    let (whole, _) = traced(&PS, false);
    let mut gap = whole.clone();
    gap.records[1][70].crossing = Crossing::Lost { records: 12 };
    assert_eq!(Replayed::of(&gap).unwrap_err(), "CPU 3: 12 records are missing");
    let mut other = whole;
    other.header.discipline = &RMDP;
    other.header.time_quantum = None;
    let why = Replayed::of(&other).unwrap_err();
    assert!(why.starts_with("CPU 0: record ") && why.contains(", found "), "{why}");
}
