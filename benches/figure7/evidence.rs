//! Evidence of whether the machine or Upcall caused a miss.
//!
//! A handler's thread can lose its CPU to the host (steal), to a thread of higher rank, and to the
//! kernel's limit on real-time classes. The kernel reports the first with the precision of a tick,
//! and the sum of the others exactly. That sum contains the time for which a domain waited for the
//! other one, which is no evidence against the machine. The bench scans from time to time for
//! threads of higher or equal rank.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use upcall::clock;
use upcall::time::Instant;
use upcall_benches::steal_ms;
use upcall_sys::{process, schedule};

/// Counts that only grow. The bench reads them before and after a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Time for which the host ran something else on this CPU, in milliseconds. It grows in steps
    /// of a tick (proc_stat(5), `steal`).
    pub steal_ms: u64,
    /// Time for which the scheduling thread of each domain was ready and did not run, in
    /// nanoseconds (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`).
    pub waited_ns: [u64; 2],
    /// CPU time of these threads, in nanoseconds.
    pub ran_ns: [u64; 2],
}

/// The kernel counts steal time by the tick, so up to a tick is missing.
const TICK_NS: u64 = 10_000_000;

impl Host {
    /// The present counts of `cpu` and of the threads that upcall there. Zero if the system does
    /// not report them.
    fn now(cpu: u32, threads: [Option<(u32, u32)>; 2]) -> Self {
        let count = |of: fn(u32, u32) -> Result<u64, upcall_sys::OsError>| {
            threads.map(|thread| thread.and_then(|(pid, tid)| of(pid, tid).ok()).unwrap_or(0))
        };
        Host {
            steal_ms: steal_ms(cpu).unwrap_or_default(),
            waited_ns: count(process::wait_time_of),
            ran_ns: count(process::cpu_time_of),
        }
    }

    /// The time that the host and threads of no domain took from that domain, in nanoseconds.
    /// Upcall's daemon is among these threads. If the host took time, the part of a tick that the
    /// steal time leaves out counts, too. The time for which the other domain ran does not count:
    /// our own order let it run.
    pub fn taken_ns(self, domain: usize) -> u64 {
        let tick_ns = if self.steal_ms > 0 { TICK_NS } else { 0 };
        self.steal_ms * 1_000_000 + tick_ns + self.waited_by_others_ns(domain)
    }

    /// The time for which that domain waited beyond the time for which the other one ran.
    pub fn waited_by_others_ns(self, domain: usize) -> u64 {
        self.waited_ns[domain].saturating_sub(self.ran_ns[1 - domain])
    }

    pub fn since(self, earlier: Host) -> Host {
        Host {
            steal_ms: self.steal_ms.saturating_sub(earlier.steal_ms),
            waited_ns: minus(self.waited_ns, earlier.waited_ns),
            ran_ns: minus(self.ran_ns, earlier.ran_ns),
        }
    }
}

fn minus(now: [u64; 2], earlier: [u64; 2]) -> [u64; 2] {
    [0, 1].map(|domain| now[domain].saturating_sub(earlier[domain]))
}

/// The counts during a step, a sample every tick.
#[derive(Clone, Debug, Default)]
pub struct HostLog(Vec<(Instant, Host)>);

impl HostLog {
    /// What happened from `from` to `to`, to the next samples before and after.
    pub fn between(&self, from: Instant, to: Instant) -> Host {
        let first = self.0.partition_point(|(at, _)| *at <= from).saturating_sub(1);
        let last = self.0.partition_point(|(at, _)| *at < to).min(self.0.len().saturating_sub(1));
        match (self.0.get(first), self.0.get(last)) {
            (Some((_, earlier)), Some((_, later))) => later.since(*earlier),
            _ => Host::default(),
        }
    }

    /// What happened in the whole step.
    pub fn whole(&self) -> Host {
        match (self.0.first(), self.0.last()) {
            (Some((_, earlier)), Some((_, later))) => later.since(*earlier),
            _ => Host::default(),
        }
    }
}

/// The thread that fills a [`HostLog`]. It runs on the CPUs that the handlers do not use.
pub struct Recorder {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<HostLog>,
}

impl Recorder {
    /// Records the counts of `cpu`, and of the threads of the domains' `processes` that upcall
    /// there.
    pub fn start(cpu: u32, processes: [u32; 2]) -> Self {
        /// A tick, in which the steal time grows.
        const INTERVAL: Duration = Duration::from_millis(10);
        let threads = processes.map(|pid| Some((pid, upcall_thread(pid, cpu)?)));
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let others: Vec<u32> = schedule::allowed_cpus().unwrap_or_default();
            let others: Vec<u32> = others.into_iter().filter(|&other| other != cpu).collect();
            if !others.is_empty() {
                let _ = schedule::pin_thread(&others);
            }
            let mut log = Vec::new();
            while !stopped.load(Relaxed) {
                log.push((clock::now(), Host::now(cpu, threads)));
                std::thread::sleep(INTERVAL);
            }
            log.push((clock::now(), Host::now(cpu, threads)));
            HostLog(log)
        });
        Recorder { stop, thread }
    }

    pub fn stop(self) -> HostLog {
        self.stop.store(true, Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// The thread of a process that upcalls on `cpu`.
fn upcall_thread(pid: u32, cpu: u32) -> Option<u32> {
    let name = format!("upcall-cpu{cpu}");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    tasks.flatten().find_map(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        (comm.trim_end() == name).then(|| task.file_name().to_str()?.parse().ok())?
    })
}

/// Threads of other programs that a scan found in a real-time class on a CPU, with the number of
/// scans that found them.
#[derive(Clone, Debug, Default)]
pub struct Rivals(pub BTreeMap<String, u32>);

impl Rivals {
    /// Scans every thread of the system except those of `ours` and of this process, which takes
    /// some milliseconds.
    pub fn scan(&mut self, cpu: u32, ours: &[u32]) {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            // Skips the links `self` and `thread-self`, and names that are no process.
            let number = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if number.is_none_or(|number| number == std::process::id() || ours.contains(&number)) {
                continue;
            }
            let tasks = std::fs::read_dir(process.path().join("task")).into_iter().flatten();
            for task in tasks.flatten() {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                if let Some(name) = rival(&stat, cpu) {
                    *self.0.entry(name).or_default() += 1;
                }
            }
        }
    }
}

/// The name of the thread that `stat` describes (proc_pid_stat(5)). `None` if the thread is not in
/// a real-time class, last ran on another CPU, or is a kernel thread.
fn rival(stat: &str, cpu: u32) -> Option<String> {
    const PF_KTHREAD: u64 = 0x0020_0000;
    // The name stands in parentheses and may contain any character.
    let (head, tail) = stat.rsplit_once(") ")?;
    let (process, name) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    // The first field here is field 3, the state.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let real_time = matches!(field(41)?, 1 | 2 | 6); // FIFO, RR, DEADLINE
    let kernel = field(9)? & PF_KTHREAD != 0;
    let here = field(39)? == u64::from(cpu);
    (real_time && here && !kernel).then(|| format!("{name} ({process})"))
}
