//! How much CPU time a program wanted and got.

use std::collections::BTreeMap;

use upcall_core::time::Span;
use upcall_sys::cgroup::{Cgroup, Hierarchy};
use upcall_sys::process::{ThreadTimes, threads_of, times_of};

/// Threads of a program that are looked at. More would take too much time of the machine.
const THREADS_MAX: usize = 1_024;

/// What a program wanted and got since its meter was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramUsage {
    /// CPU time of all its processes, ended ones included if the kernel counts groups.
    pub used: Span,
    /// How long its threads were ready while others had the CPU, all threads together. Waits of
    /// threads that ended between two looks are missing.
    pub waited: Span,
    /// How often its threads got the CPU.
    pub slices: u64,
    /// Whether it had too many threads to look at all: then waits and slices are missing.
    pub is_partial: bool,
}

/// Reads what a program wants and gets, from the counts of the kernel.
#[derive(Debug)]
pub struct ProgramMeter {
    pid: u32,
    /// The group of the program; `None`: only its first process is known.
    group: Option<Cgroup>,
    /// The group's CPU time when the meter was made.
    begun_ns: Option<u64>,
    threads: BTreeMap<(u32, u32), ThreadTimes>,
    threads_ns: u64,
    usage: ProgramUsage,
}

impl ProgramMeter {
    /// A meter of the program of process `pid`, from now on. Call it once the daemon has admitted
    /// the program: that moves it into its group. Reads some files; allocates.
    pub fn new(pid: u32) -> Self {
        let group = Hierarchy::find().and_then(|hierarchy| hierarchy.group_of(pid)).ok();
        let begun_ns = group.as_ref().and_then(Cgroup::cpu_time_ns);
        let (threads, usage) = (BTreeMap::new(), ProgramUsage::default());
        let mut meter = ProgramMeter { pid, group, begun_ns, threads, threads_ns: 0, usage };
        meter.look();
        // What the threads did before does not count.
        meter.threads_ns = 0;
        meter.usage = ProgramUsage::default();
        meter
    }

    /// What the program wanted and got so far. Reads a file of each thread; allocates.
    pub fn read(&mut self) -> ProgramUsage {
        self.look();
        // The group has none of its own counts any more once it was removed.
        let of_group = self.group.as_ref().and_then(Cgroup::cpu_time_ns);
        let used_ns = match of_group.zip(self.begun_ns) {
            Some((now_ns, begun_ns)) => now_ns.saturating_sub(begun_ns),
            None => self.threads_ns,
        };
        self.usage.used = self.usage.used.max(Span::from_nanos(used_ns));
        self.usage
    }

    /// Adds what each thread did since the last look.
    fn look(&mut self) {
        let mut processes =
            self.group.as_ref().and_then(|group| group.processes().ok()).unwrap_or_default();
        // A zombie is in no group any more, and still has its counts.
        if !processes.contains(&self.pid) {
            processes.push(self.pid);
        }
        let threads = processes.into_iter().flat_map(|pid| {
            threads_of(pid).unwrap_or_default().into_iter().map(move |tid| (pid, tid))
        });
        let mut seen = BTreeMap::new();
        for (pid, tid) in threads {
            if seen.len() == THREADS_MAX {
                self.usage.is_partial = true;
                break;
            }
            let Ok(now) = times_of(pid, tid) else { continue };
            let before = self.threads.get(&(pid, tid)).copied().unwrap_or_default();
            self.add(before, now);
            seen.insert((pid, tid), now);
        }
        self.threads = seen;
    }

    fn add(&mut self, before: ThreadTimes, now: ThreadTimes) {
        // A count below the former one: another thread has got the number.
        let grown = |before: u64, now: u64| if now < before { now } else { now - before };
        self.threads_ns += grown(before.run_ns, now.run_ns);
        let waited_ns = grown(before.wait_ns, now.wait_ns);
        self.usage.waited += Span::from_nanos(waited_ns);
        self.usage.slices += grown(before.slices, now.slices);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_counts_from_its_start() {
        let mut meter = ProgramMeter::new(std::process::id());
        // A process outside of a group of its own shares the counts of all others there.
        (meter.group, meter.begun_ns) = (None, None);
        let before = meter.read();
        while meter.read().used < before.used + Span::from_millis(5) {
            core::hint::spin_loop();
        }
        let after = meter.read();
        assert!(after.slices >= before.slices && !after.is_partial);
    }

    #[test]
    fn the_threads_of_other_programs_do_not_count_twice() {
        let mut meter = ProgramMeter::new(std::process::id());
        meter.usage = ProgramUsage::default();
        let of = |run_ns, wait_ns, slices| ThreadTimes { run_ns, wait_ns, slices };
        meter.add(of(10, 20, 3), of(15, 21, 4));
        meter.add(of(100, 200, 30), of(7, 8, 1));
        let usage = meter.usage;
        assert_eq!((usage.waited, usage.slices), (Span::from_nanos(9), 2));
    }
}
