//! A measured process: a domain with its handlers, or FIFO threads without a daemon.

use std::path::Path;
use std::time::Duration;

use upcall::time::{Instant, Span};
use upcall::{Attach, Config, HandlerId, Mode, Runtime, clock};
use upcall_benches::{measured_cpu, threads_named};
use upcall_sys::process;

use crate::working_set::WorkingSet;
use crate::workload::{BOUNDARY_NS, PERIODS_MS, Variant, need, number, offsets};

/// The work of the handlers of a process.
pub struct Work {
    /// Part of the CPU that all handlers together use, in ppm.
    pub share_ppm: u64,
    pub variant: Variant,
    pub set_kib: usize,
    pub phases: u64,
}

/// Runs the handlers of one process from the start time that its parent sends, and prints the
/// results.
pub fn domain(socket: &Path, place: usize, work: Work, millis: u64) {
    let Work { share_ppm, variant, set_kib, phases } = work;
    let warm = WorkingSet::new(set_kib).warm();
    let name = format!("d{place}");
    let daemon = Some(Attach { socket: socket.into(), name: name.clone() });
    // Handlers that admission refuses run without a promise, as in the paper.
    let config = match variant {
        Variant::Fifo => {
            let cpus = vec![measured_cpu()];
            Config { unscreened: true, mode: Mode::Fifo, cpus, ..Config::default() }
        }
        _ => Config { unscreened: true, daemon, ..Config::default() },
    };
    let mut runtime = Runtime::start(config).expect("attached");
    let ids: Vec<HandlerId> = PERIODS_MS
        .iter()
        .zip(offsets(phases).skip(place * PERIODS_MS.len()))
        .map(|(&period_ms, chance)| {
            let need = need(period_ms, share_ppm, variant.quantum());
            let need = need.offset(Span::from_nanos(chance % need.period.as_nanos()));
            let spin = need.pdu_cost.as_nanos().saturating_sub(BOUNDARY_NS);
            let spin = Span::from_nanos(spin.saturating_sub(warm.as_nanos()));
            let mut set = WorkingSet::new(set_kib);
            runtime
                .handler(&format!("{name}-{period_ms}"), need, move |batch| {
                    while batch.proceed() {
                        set.walk();
                        keep_busy(spin);
                    }
                })
                .expect("unscreened")
        })
        .collect();
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a start");
    let start = Instant::from_nanos(number(line.trim()));
    runtime.run_at(&ids, start).expect("the executor runs");
    // Waits for the start, because attaching is not part of the experiment.
    std::thread::sleep(start.since(clock::now()).into());
    let before = kernel_account();
    let until = start + Span::from_millis(millis);
    while clock::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        runtime.poll(|_, _| {});
    }
    let after = kernel_account();
    let report = runtime.stop(|_, _| {});
    let counters = || report.activities.iter().filter_map(|activity| activity.counters);
    let longest = report.activities.last().and_then(|activity| activity.counters);
    println!(
        "{} {} {} {} {} {} {}",
        counters().map(|of| of.jobs).sum::<u64>(),
        counters().map(|of| of.misses).sum::<u64>(),
        counters().map(|of| of.slack_ns_min).min().unwrap_or(i64::MAX),
        longest.map_or(i64::MAX, |of| of.slack_ns_min),
        after[0] - before[0],
        report.domain_switches,
        after[1] - before[1],
    );
}

/// Keeps the CPU busy for `span`. Reads the clock, which costs no system call. A large step of the
/// clock means that another thread ran.
fn keep_busy(span: Span) {
    const LEAP: Span = Span::from_nanos(1_000);
    let (mut last, mut done) = (clock::now(), Span::ZERO);
    while done < span {
        let now = clock::now();
        let step = now.since(last);
        if step < LEAP {
            done += step;
        }
        last = now;
    }
}

/// The kernel's counts for this process's executors: switches, and CPU time in nanoseconds.
fn kernel_account() -> [u64; 2] {
    let pid = std::process::id();
    let executors = threads_named(|comm| comm.starts_with("upcall-cpu"));
    executors.into_iter().fold([0, 0], |[switches, cpu_ns], tid| {
        let switched = process::switches_of(pid, tid).unwrap_or_default().total();
        let ran_ns = process::cpu_time_of(pid, tid).unwrap_or_default();
        [switches + switched, cpu_ns + ran_ns]
    })
}
