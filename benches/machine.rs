//! The heading that every bench prints, the statistics of its samples, and runs that wait for a
//! calm host.

#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "hostile/arguments.rs"]
mod arguments;
#[cfg(test)]
#[path = "hostile/arguments_tests.rs"]
mod arguments_tests;
pub mod calm;
#[cfg(test)]
#[path = "hostile/outcome.rs"]
mod outcome;
#[cfg(test)]
#[path = "hostile/outcome_tests.rs"]
mod outcome_tests;

use std::time::SystemTime;

use upcall::default_cpus;
use upcall::record::JobRecord;
use upcall::time::Instant;

/// Whether the option `--smoke` asks for a short run, which only shows that the bench works.
pub fn smoke() -> bool {
    std::env::args().any(|argument| argument == "--smoke")
}

/// The heading of every table: machine, kernel, date, command, and how busy the machine was before
/// the run (proc_loadavg(5)).
pub fn heading(bench: &str) -> String {
    let machine = upcall::Machine::describe();
    // Cargo itself adds `--bench`.
    let options: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let options =
        if options.is_empty() { String::new() } else { format!(" -- {}", options.join(" ")) };
    let busy = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "machine: {} x {}\nkernel:  {}\ndate:    {}\ncommand: cargo bench -p upcall-benches --bench \
         {bench}{options}\nload before: {}",
        machine.cpus_online,
        machine.cpu_model,
        machine.kernel_release,
        humantime::format_rfc3339_seconds(SystemTime::now()),
        busy.split_whitespace().take(3).collect::<Vec<_>>().join(" "),
    )
}

/// The value that `percent` % of `samples` do not exceed, or 0 without samples. Sorts `samples`.
pub fn percentile(samples: &mut [u64], percent: f64) -> u64 {
    samples.sort_unstable();
    at_percent(samples, percent).unwrap_or_default()
}

/// The value that `percent` % of `sorted` do not exceed, by nearest rank. `None`: there is none.
pub fn at_percent<T: Copy>(sorted: &[T], percent: f64) -> Option<T> {
    let rank = (sorted.len() as f64 * percent / 100.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank in range")]
    let rank = (rank as usize).clamp(1, sorted.len().max(1));
    sorted.get(rank - 1).copied()
}

/// The CPU to measure on: the last one that a runtime would use, or 0 if it is not known.
pub fn measured_cpu() -> u32 {
    default_cpus().ok().and_then(|cpus| cpus.last().copied()).unwrap_or(0)
}

/// The threads of this process whose names (proc_pid_comm(5)) fulfil `predicate`. Empty if the
/// system does not report them.
pub fn threads_named(predicate: impl Fn(&str) -> bool) -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .filter(|task| {
            let comm = std::fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| predicate(comm.trim_end()))
        })
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// The time for which the host ran something else on `cpu` since boot, in milliseconds. It grows in
/// steps of a tick (proc_stat(5), `steal`). `None` if the system does not report it.
pub fn steal_ms(cpu: u32) -> Option<u64> {
    steal_of(&format!("cpu{cpu}"))
}

/// The same, summed over all CPUs. 0 if the system does not report it.
pub fn machine_steal_ms() -> u64 {
    steal_of("cpu").unwrap_or(0)
}

/// The steal time in the line of `/proc/stat` with this name.
fn steal_of(name: &str) -> Option<u64> {
    /// USER_HZ is 100 on every architecture on which Linux runs Rust programs.
    const TICK_MS: u64 = 10;
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let mut fields = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    // user nice system idle iowait irq softirq steal
    let ticks: u64 = fields.nth(7)?.parse().ok()?;
    Some(ticks * TICK_MS)
}

/// Wake-up latencies in nanoseconds, sorted, computed from the records of all jobs of a thread. A
/// latency is the time from a release that found the thread idle to the first upcall after it. O(n
/// log n).
pub fn wakeup_latencies_ns(records: &[JobRecord]) -> Vec<u64> {
    let mut by_release: Vec<&JobRecord> = records.iter().collect();
    by_release.sort_unstable_by_key(|record| record.release);
    let mut latencies_ns = Vec::new();
    // All jobs released so far have ended at this time.
    let mut busy_until = Instant::ZERO;
    for together in by_release.chunk_by(|one, other| one.release == other.release) {
        let release = together[0].release;
        if busy_until < release {
            let started = together.iter().map(|record| record.start).min();
            latencies_ns.extend(started.map(|start| start.since(release).as_nanos()));
        }
        busy_until = together.iter().map(|record| record.end).fold(busy_until, Instant::max);
    }
    latencies_ns.sort_unstable();
    latencies_ns
}

#[cfg(test)]
mod tests {
    use super::{percentile, wakeup_latencies_ns};
    use upcall::activity::ActivityId;
    use upcall::record::JobRecord;
    use upcall::time::{Instant, Span};

    fn record(release_ns: u64, start_ns: u64, end_ns: u64) -> JobRecord {
        let at = Instant::from_nanos;
        JobRecord {
            id: ActivityId(0),
            job: 0,
            release: at(release_ns),
            deadline: at(release_ns + 100),
            start: at(start_ns),
            end: at(end_ns),
            run: Span::from_nanos(end_ns - start_ns),
            pdus: 1,
            preemptions: 0,
            completed: true,
        }
    }

    #[test]
    fn a_latency_counts_from_a_release_that_finds_the_thread_idle() {
        // Two jobs overlap: the second is released while the first runs. A third job comes after a
        // rest. The records are in the order in which the jobs end.
        let records =
            [record(10, 13, 20), record(18, 20, 30), record(10, 30, 40), record(50, 55, 60)];
        assert_eq!(wakeup_latencies_ns(&records), [3, 5]);
        assert_eq!(wakeup_latencies_ns(&[]), []);
    }

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut samples: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut samples, 50.0), 50);
        assert_eq!(percentile(&mut samples, 99.0), 99);
        assert_eq!(percentile(&mut samples, 0.0), 1);
        assert_eq!(percentile(&mut [7], 100.0), 7);
        assert_eq!(percentile(&mut [], 50.0), 0);
    }
}
