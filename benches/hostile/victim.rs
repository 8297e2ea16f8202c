//! The processes beside an attacker: domains with reservations, an ordinary program, and domains
//! that attach again and again.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, Runtime};
use upcall_benches::measured_cpu;
use upcall_sys::{clock, schedule};

use crate::attack::Victims;
use crate::child::Running;
use crate::outcome::{ArrivalReport, VictimReport};
use crate::raw::{Raw, need};

/// A victim: two handlers that keep to their declared costs.
pub(crate) fn run(socket: &Path, name: &str, millis: u64, work: Victims) {
    let daemon = Some(Attach { socket: socket.into(), name: name.to_owned() });
    let mut runtime = Runtime::start(Config { daemon, ..Config::default() }).expect("attached");
    let ids = work.periods_us.map(|period_us| {
        let (period, cost) = (Span::from_micros(period_us), Span::from_micros(work.cost_us));
        let need = ActivityParams::new(period, cost).batch(work.pdus);
        let created = runtime.handler(&period_us.to_string(), need, move |batch| {
            while batch.proceed() {
                let until = clock::monotonic_ns() + work.pdu_us * 1_000;
                while clock::monotonic_ns() < until {}
            }
        });
        created.expect("the queue has room")
    });
    let begin = Instant::now();
    runtime.run_at(&ids, upcall::clock::now()).expect("the executor runs");
    std::thread::sleep(Duration::from_millis(millis));
    let due = due(work, begin.elapsed());
    let report = runtime.stop(|_, _| {});
    let (mut missed, mut worst_ns) = (0, 0);
    for (due, activity) in due.into_iter().zip(&report.activities) {
        let late = activity.counters.map_or(due, |it| {
            // A job that was never released is in neither count.
            let late = it.misses + due.saturating_sub(it.jobs);
            late.max(due.saturating_sub(it.completed))
        });
        missed += late.min(due);
        worst_ns = worst_ns.max(activity.statistics.response.max().as_nanos());
    }
    println!("victim {} {missed} {worst_ns}", due.iter().sum::<u64>());
}

/// The jobs of each handler whose deadlines are in this time.
fn due(work: Victims, time: Duration) -> [u64; 2] {
    let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    work.periods_us.map(|period_us| time_us / period_us)
}

/// The report of a victim, which is due at `deadline`. Without one all jobs of `millis` are missed.
pub(crate) fn report(
    victim: &Running,
    deadline: Instant,
    work: Victims,
    millis: u64,
) -> VictimReport {
    let line = victim.line_after("victim ", deadline).unwrap_or_default();
    match numbers(&line)[..] {
        [due, missed, worst_ns] => VictimReport { due, missed, worst_ns, reported: true },
        _ => {
            let due = due(work, Duration::from_millis(millis)).iter().sum();
            VictimReport { due, missed: due, worst_ns: 0, reported: false }
        }
    }
}

fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').filter_map(|word| word.parse().ok()).collect()
}

/// An ordinary program that spins on the measured CPU. It prints the CPU time that it got.
pub(crate) fn spin_as_ordinary(millis: u64) {
    let _ = schedule::set_ordinary();
    let _ = schedule::pin_thread(&[measured_cpu()]);
    let until = clock::monotonic_ns() + millis * 1_000_000;
    while clock::monotonic_ns() < until {}
    let used = clock_gettime(ClockId::ThreadCPUTime);
    println!("ordinary {}", used.tv_sec * 1_000 + used.tv_nsec / 1_000_000);
}

/// The CPU time in milliseconds that an ordinary program prints until `deadline`.
pub(crate) fn ordinary_cpu_ms(program: &Running, deadline: Instant) -> Option<u64> {
    program.line_after("ordinary ", deadline)?.parse().ok()
}

/// The report of the domains that attach, which is due at `deadline`.
pub(crate) fn arrival_report(arrivals: &Running, deadline: Instant) -> Option<ArrivalReport> {
    let line = arrivals.line_after("arrivals ", deadline)?;
    let mut words = line.splitn(3, ' ');
    let count = words.next()?.parse().ok()?;
    let worst = Duration::from_nanos(words.next()?.parse().ok()?);
    Some(ArrivalReport { count, worst, refused: words.next().map(str::to_owned) })
}

/// Domains that attach, ask for a reservation and leave, one after the other. The answer may be a
/// refusal if the CPU is full.
pub(crate) fn attach_again_and_again(socket: &Path, millis: u64) {
    let until = Instant::now() + Duration::from_millis(millis);
    let (mut count, mut worst) = (0, Duration::ZERO);
    while Instant::now() < until {
        let begin = Instant::now();
        // Each has a thread of its own, because the daemon changes its class and its CPU.
        let arrival = std::thread::scope(|scope| {
            let arrival = scope.spawn(|| {
                let raw = Raw::join(socket, "arrival")?;
                // Either answer will do: the attacker may have filled the CPU.
                raw.create(1, false, need(1_000_000_000, 10_000)).map(drop)
            });
            arrival.join().unwrap_or_else(|_| Err("its thread panicked".to_owned()))
        });
        worst = worst.max(begin.elapsed());
        if let Err(why) = arrival {
            println!("arrivals {count} {} {why}", worst.as_nanos());
            return;
        }
        count += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("arrivals {count} {}", worst.as_nanos());
}
