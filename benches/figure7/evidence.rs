//! Evidence of whether the machine or Upcall caused a miss.
//!
//! A handler's thread can lose its CPU to the host (steal), to a thread of higher rank, and to the
//! kernel's limit on real-time classes. The kernel reports the first with the precision of a tick,
//! and the sum of the others exactly. The bench scans from time to time for threads of higher or
//! equal rank.

use std::collections::BTreeMap;

use upcall_benches::{steal_ms, threads_named};
use upcall_sys::process;

/// Counts that only grow. The bench reads them before and after a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Time for which the host ran something else on this CPU, in milliseconds. It grows in steps
    /// of a tick (proc_stat(5), `steal`).
    pub steal_ms: u64,
    /// Time for which the scheduling thread was ready and did not run, in nanoseconds
    /// (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`).
    pub waited_ns: u64,
}

impl Host {
    /// The present counts of `cpu` and of the thread that upcalls there. Zero if the system does
    /// not report them.
    pub fn now(cpu: u32) -> Self {
        Host {
            steal_ms: steal_ms(cpu).unwrap_or_default(),
            waited_ns: waited_ns(cpu).unwrap_or_default(),
        }
    }

    pub fn since(self, earlier: Host) -> Host {
        Host {
            steal_ms: self.steal_ms.saturating_sub(earlier.steal_ms),
            waited_ns: self.waited_ns.saturating_sub(earlier.waited_ns),
        }
    }
}

fn waited_ns(cpu: u32) -> Option<u64> {
    let name = format!("upcall-cpu{cpu}");
    let thread = *threads_named(|comm| comm == name).first()?;
    process::wait_time_of(std::process::id(), thread).ok()
}

/// Threads of other programs that a scan found in a real-time class on a CPU, with the number of
/// scans that found them.
#[derive(Clone, Debug, Default)]
pub struct Rivals(pub BTreeMap<String, u32>);

impl Rivals {
    /// Scans every thread of the system, which takes some milliseconds.
    pub fn scan(&mut self, cpu: u32) {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes {
            // Skips the links `self` and `thread-self`, and names that are no process.
            let number = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if number.is_none_or(|number| number == std::process::id()) {
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
