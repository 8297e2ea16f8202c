//! What tells the machine's fault from ours.
//!
//! A handler's thread can lose its CPU to the host (steal), to a thread of
//! higher rank, and to the kernel's limit on real-time classes. The kernel
//! knows the first by the tick and the rest exactly.

/// Counts that only grow, read before and after a step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Time the host ran something else on this CPU, in milliseconds; in steps
    /// of a tick (proc_stat(5), `steal`).
    pub steal_ms: u64,
    /// Time the scheduling thread was ready and did not run, in nanoseconds
    /// (Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`).
    pub waited_ns: u64,
}

impl Host {
    /// As it stands now, for `cpu` and the thread that upcalls there. Zero where
    /// the system does not tell.
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

fn steal_ms(cpu: u32) -> Option<u64> {
    /// USER_HZ is 100 on every architecture Linux runs Rust programs on.
    const TICK_MS: u64 = 10;
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let name = format!("cpu{cpu}");
    let mut fields = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut fields| (fields.next() == Some(&name)).then_some(fields))?;
    // user nice system idle iowait irq softirq steal
    let ticks: u64 = fields.nth(7)?.parse().ok()?;
    Some(ticks * TICK_MS)
}

fn waited_ns(cpu: u32) -> Option<u64> {
    let name = format!("upcall-cpu{cpu}");
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let thread = tasks.flatten().map(|task| task.path()).find(|path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    })?;
    // time running, time ready and not running, turns
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}
