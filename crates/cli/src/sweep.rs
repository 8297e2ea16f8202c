//! `upcall sweep`: admits and simulates random task sets over a grid under each policy, on all
//! cores.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use indicatif::{ProgressBar, ProgressStyle};
use upcall::admission::{Platform, Reservations, Share};
use upcall::discipline::Discipline;
use upcall::time::Span;
use upcall_cli::spec::sweep::Sweep;
use upcall_cli::standard_error::say;
use upcall_sim::{SimActivity, SimSpec, Simulation};

use crate::exit::Failure;
use crate::output;
use log::Log;
use parquet_file::Finished;
use sets::{Point, draw, point};

mod log;
mod parquet_file;
mod sets;

/// Format number of the rows. Results of another format are not continued.
const FORMAT: u32 = 1;
/// How many sets may be done before an earlier one is: bounds the rows that wait in memory.
const AHEAD_MAX: u64 = 4_096;

/// Runs the sets that the file at `results` lacks, on `threads` threads, until all are done or
/// `interrupted` is set.
///
/// A Parquet file cannot be continued, so its rows are kept in a CSV beside it until all are done:
///
/// ```text
/// (a) no file -> (b) out.parquet.csv grows -> (c) out.parquet.tmp -> (d) out.parquet, no CSV
/// ```
///
/// In state (c), and if the move to (d) fails, the rows of (b) are still complete.
///
/// # Errors
/// The file's error.
pub fn sweep(
    sweep: &Sweep,
    results: &Path,
    threads: usize,
    interrupted: &AtomicBool,
) -> Result<output::Sweep, Failure> {
    let fingerprint = fingerprint(sweep);
    if !parquet_file::is_parquet(results) {
        return sweep_into(sweep, results, &fingerprint, threads, interrupted).map(|done| done.0);
    }
    if let Some(found) = parquet_file::finished(results)? {
        return finished(sweep, results, fingerprint, found);
    }
    let log = parquet_file::log_path(results);
    let (done, rows) = sweep_into(sweep, &log, &fingerprint, threads, interrupted)?;
    if done.done == done.sets {
        parquet_file::write(results, &rows, &done)?;
        std::fs::remove_file(&log).map_err(|error| Failure::of_file(&log, error))?;
    }
    Ok(done)
}

/// The content of a finished file. A file of another sweep is an error.
fn finished(
    asked: &Sweep,
    results: &Path,
    sweep: String,
    found: Finished,
) -> Result<output::Sweep, Failure> {
    let sets = asked.set_count();
    if found.sweep != sweep || found.rows != sets * asked.policies.len() as u64 {
        let error = "found the results of another sweep, expected those of this one";
        return Err(Failure::about_file(results, error));
    }
    say(format_args!(
        "upcall: {}: all {sets} sets are already in it; it was not changed",
        results.display()
    ));
    let curve = found.curve;
    Ok(output::Sweep { mode: "sweep", sweep, sets, done: sets, resumed: sets, curve })
}

/// Writes the rows to the CSV at `results`. Returns them as well.
fn sweep_into(
    sweep: &Sweep,
    results: &Path,
    fingerprint: &str,
    threads: usize,
    interrupted: &AtomicBool,
) -> Result<(output::Sweep, String), Failure> {
    let mut log = Log::open(results, fingerprint, sweep.policies.len())?;
    let count = sweep.set_count();
    let resumed = log.done;
    let bar = ProgressBar::new(count).with_position(resumed);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} sets, {eta} left") {
        bar.set_style(style);
    }
    bar.reset_eta();
    let (next, written) = (AtomicU64::new(resumed), AtomicU64::new(resumed));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (rows_in, rows_out) = mpsc::channel();
        for _ in 0..threads {
            let rows_in = rows_in.clone();
            let (next, written, stop) = (&next, &written, &stop);
            scope.spawn(move || {
                // Relaxed: each number is taken once, and rows go through the channel.
                let ended = || stop.load(Ordering::Relaxed) || interrupted.load(Ordering::Relaxed);
                while !ended() {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    while number > written.load(Ordering::Relaxed) + AHEAD_MAX && !ended() {
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    let rows = rows(sweep, number, fingerprint);
                    if rows_in.send((number, rows)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(rows_in);
        let kept = keep(&mut log, &rows_out, &bar, &written);
        // Relaxed: the threads check again after each set.
        stop.store(kept.is_err(), Ordering::Relaxed);
        kept
    })?;
    bar.finish_and_clear();
    let done = log.done;
    let rows = log.rows()?;
    let (sweep, curve) = (fingerprint.to_owned(), curve(&rows));
    Ok((output::Sweep { mode: "sweep", sweep, sets: count, done, resumed, curve }, rows))
}

/// Writes rows in the order of their sets as they arrive.
fn keep(
    log: &mut Log,
    rows: &mpsc::Receiver<(u64, String)>,
    bar: &ProgressBar,
    written: &AtomicU64,
) -> Result<(), Failure> {
    let mut waiting: BTreeMap<u64, String> = BTreeMap::new();
    for (number, text) in rows {
        waiting.insert(number, text);
        while let Some(text) = waiting.remove(&log.done) {
            log.write(&text)?;
            bar.inc(1);
            // Relaxed: it only bounds how far other threads run ahead.
            written.store(log.done, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The rows of one set: one for each policy.
fn rows(sweep: &Sweep, number: u64, fingerprint: &str) -> String {
    let point = point(sweep, number);
    let set = draw(sweep, number);
    let mut rows = String::new();
    for discipline in &sweep.policies {
        let platform = Platform {
            cpus: vec![0],
            cpu_limit: Share::WHOLE,
            switch_cost: point.switch_cost,
            wakeup_latency: Span::ZERO,
            defer_preemption: Span::ZERO,
        };
        let mut reservations = Reservations::new(platform, *discipline);
        let refused =
            set.iter().find_map(|(params, terms)| reservations.reserve("", *params, terms).err());
        let tests = refused.as_ref().map_or_else(|| reservations.tests(), |r| r.tests.clone());
        let deciding = tests.iter().find(|test| test.deciding).map_or("", |test| test.name);
        let _ = write!(
            rows,
            "{fingerprint},{number},{},{}.{:06},{},{},{},{},{deciding}",
            discipline.name,
            point.utilization_ppm / 1_000_000,
            point.utilization_ppm % 1_000_000,
            point.activities,
            point.quantum,
            point.switch_cost.as_nanos(),
            u8::from(refused.is_none()),
        );
        let ran = sweep.duration.map(|duration| run(discipline, &set, point, duration, number));
        let _ = match ran {
            Some([jobs, misses, switches, busy_ns, duration_ns]) => {
                writeln!(rows, ",{jobs},{misses},{switches},{busy_ns},{duration_ns}")
            }
            None => writeln!(rows, ",,,,,"),
        };
    }
    rows
}

/// Jobs, misses, switches, busy time and total time, in virtual time.
fn run(
    discipline: &'static Discipline,
    set: &[(upcall::activity::ActivityParams, upcall::activity::Terms)],
    point: Point,
    duration: Span,
    number: u64,
) -> [u64; 5] {
    let activities = set.iter().map(|(params, terms)| {
        let mut activity = SimActivity::new("", *params);
        activity.terms = *terms;
        activity
    });
    let mut spec = SimSpec::new(discipline, activities.collect());
    (spec.switch_cost, spec.seed) = (point.switch_cost, number);
    let Ok(simulation) = Simulation::new(spec) else { return [0; 5] };
    let outcome = simulation.run(duration, &mut |_event| {});
    let sum = |of: fn(&upcall::scheduler::Counters) -> u64| {
        outcome.activities.iter().map(|activity| of(&activity.counters)).sum()
    };
    let cpu = outcome.cpus[0];
    [
        sum(|counters| counters.jobs),
        sum(|counters| counters.misses),
        cpu.switches,
        cpu.busy.as_nanos(),
        duration.as_nanos(),
    ]
}

/// Sixteen digits that identify the sweep.
fn fingerprint(sweep: &Sweep) -> String {
    let text = format!("{FORMAT} {sweep:?}");
    // FNV-1a (Fowler, Noll and Vo): it must detect mistakes, not attacks.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Sums the rows by policy and point.
fn curve(rows: &str) -> Vec<output::SweepPoint> {
    let mut points: BTreeMap<(usize, Vec<&str>), output::SweepPoint> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for row in rows.lines() {
        let fields: Vec<&str> = row.split(',').collect();
        let [_, _, policy, utilization, activities, quantum, cost, admitted, _, rest @ ..] =
            &*fields
        else {
            continue;
        };
        let place = order.iter().position(|known| known == policy).unwrap_or_else(|| {
            order.push(policy);
            order.len() - 1
        });
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let key = (place, vec![*utilization, *activities, *quantum, *cost]);
        let point = points.entry(key).or_insert_with(|| output::SweepPoint {
            policy: (*policy).to_owned(),
            utilization: utilization.parse().unwrap_or(0.0),
            activities: number(activities),
            quantum: number(quantum),
            switch_cost_ns: number(cost),
            ..output::SweepPoint::default()
        });
        let rest: Vec<u64> = rest.iter().map(|text| number(text)).collect();
        let at = |place: usize| rest.get(place).copied().unwrap_or(0);
        point.sets += 1;
        point.admitted += u64::from(*admitted == "1");
        point.with_misses += u64::from(at(1) > 0);
        point.admitted_with_misses += u64::from(*admitted == "1" && at(1) > 0);
        point.jobs += at(0);
        point.switches += at(2);
        point.busy_ns += at(3);
        point.duration_ns += at(4);
    }
    points.into_values().collect()
}
