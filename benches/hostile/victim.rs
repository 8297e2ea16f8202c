//! The processes beside an attacker: domains with reservations, and an ordinary program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use upcall::activity::ActivityParams;
use upcall::time::Span;
use upcall::{Attach, Config, Runtime};
use upcall_benches::measured_cpu;
use upcall_sys::{clock, schedule};

/// A victim: two handlers that keep to their declared costs.
pub(crate) fn run(socket: &Path, name: &str, millis: u64) {
    let daemon = Some(Attach { socket: socket.into(), name: name.to_owned() });
    let mut runtime = Runtime::start(Config { daemon, ..Config::default() }).expect("attached");
    let ids: Vec<_> = [10, 20]
        .map(|period_ms| {
            let need = ActivityParams::new(Span::from_millis(period_ms), Span::from_micros(275));
            let created = runtime.handler(&period_ms.to_string(), need.batch(4), |batch| {
                while batch.proceed() {
                    let until = clock::monotonic_ns() + 250_000;
                    while clock::monotonic_ns() < until {}
                }
            });
            created.expect("the queue has room")
        })
        .into();
    runtime.run_at(&ids, upcall::clock::now()).expect("the executor runs");
    std::thread::sleep(Duration::from_millis(millis));
    let report = runtime.stop(|_, _| {});
    let (mut jobs, mut misses, mut worst_ns) = (0, 0, 0);
    for activity in &report.activities {
        let Some(counters) = activity.counters else { continue };
        jobs += counters.completed;
        misses += counters.misses;
        worst_ns = worst_ns.max(activity.statistics.response.max().as_nanos());
    }
    println!("victim {jobs} {misses} {worst_ns}");
}

/// The report of a victim at its end.
#[derive(Debug, Default)]
pub(crate) struct VictimReport {
    pub(crate) jobs: u64,
    pub(crate) misses: u64,
    pub(crate) worst_ns: u64,
}

impl VictimReport {
    /// Blocks until the victim has reported.
    pub(crate) fn read(child: &mut Child) -> VictimReport {
        let output = child.stdout.take().expect("the pipe exists");
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let numbers: Option<Vec<u64>> = line
                .strip_prefix("victim ")
                .map(|rest| rest.split(' ').filter_map(|word| word.parse().ok()).collect());
            if let Some(&[jobs, misses, worst_ns]) = numbers.as_deref() {
                return VictimReport { jobs, misses, worst_ns };
            }
            println!("{line}");
        }
        VictimReport::default()
    }
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

/// The CPU time in milliseconds that an ordinary program printed. Blocks until its end.
pub(crate) fn ordinary_cpu_ms(child: &mut Child) -> Option<u64> {
    let output = child.stdout.take()?;
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    lines.find_map(|line| line.strip_prefix("ordinary ")?.parse().ok())
}
