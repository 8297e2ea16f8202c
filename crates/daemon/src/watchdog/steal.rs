//! The time that the host of a virtual machine took from each CPU: `steal` in proc_stat(5).
//!
//! A domain that waits then falls behind its reservation, and may catch up. The watchdog's own
//! delay ([`super::meter::stall_time`]) does not show that time if the host took another CPU. The
//! watchdog calls this before its checks. The kernel updates the number at its ticks, and so when
//! the CPU goes on after the host had it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use upcall_core::time::{Instant, Span};

/// One tick of the counts. `USER_HZ` is 100 on every supported architecture.
const COUNT: Span = Span::from_millis(10);
/// A reading takes time for each CPU of the machine. The next one comes after this many times that,
/// so readings take a fiftieth of the watchdog's time at most.
const PAUSE: u32 = 50;
/// The time between two readings while the host has never taken a CPU: real machines stay so.
const PAUSE_IF_NONE: Span = Span::from_secs(1);
/// The longest line of a CPU: a name of 13 bytes and ten numbers of 20.
const LINE_BYTES: usize = 256;

/// See the module's head.
pub(super) struct Steal {
    /// `None`: it cannot be opened, and no time counts as taken.
    file: Option<File>,
    text: Vec<u8>,
    /// The time taken from each CPU since boot.
    cpus: Vec<(u32, Span)>,
    next_at: Instant,
}

impl Steal {
    /// For these CPUs. Opens a file, and allocates: later readings do not.
    pub(super) fn of(cpus: impl Iterator<Item = u32>) -> Self {
        let cpus: Vec<_> = cpus.map(|cpu| (cpu, Span::ZERO)).collect();
        // The kernel shows the CPUs in order, after one line for all.
        let lines = cpus.iter().map(|(cpu, _)| *cpu as usize + 2).max().unwrap_or(0);
        let text = vec![0; lines * LINE_BYTES];
        Steal { file: File::open("/proc/stat").ok(), text, cpus, next_at: Instant::ZERO }
    }

    /// Reads the times, unless that was done a short time ago. One system call at most.
    pub(super) fn update(&mut self, clock: impl Fn() -> Instant) {
        let begun = clock();
        let Some(file) = self.file.as_ref().filter(|_| begun >= self.next_at) else { return };
        let length = file.read_at(&mut self.text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&self.text[..length]);
        for (cpu, taken) in &mut self.cpus {
            *taken = steal_in(&text, *cpu).unwrap_or(*taken);
        }
        let is_none = self.cpus.iter().all(|(_, taken)| taken.is_zero());
        let ended = clock();
        self.next_at = ended + if is_none { PAUSE_IF_NONE } else { ended.since(begun) * PAUSE };
    }

    /// The time taken from a CPU since boot, as of the last reading.
    pub(super) fn taken(&self, cpu: u32) -> Span {
        self.cpus.iter().find(|(of, _)| *of == cpu).map_or(Span::ZERO, |(_, taken)| *taken)
    }
}

/// The fields after the name: user nice system idle iowait irq softirq steal.
fn steal_in(text: &str, cpu: u32) -> Option<Span> {
    let is_its = |line: &&str| {
        let name = line.split(' ').next().and_then(|name| name.strip_prefix("cpu"));
        name.and_then(|number| number.parse().ok()) == Some(cpu)
    };
    let count: u64 = text.lines().find(is_its)?.split_whitespace().nth(8)?.parse().ok()?;
    Some(Span::from_nanos(COUNT.as_nanos().saturating_mul(count)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const TEXT: &str = "cpu  9 9 9 9 9 9 9 999 9 9\n\
                        cpu0 1 2 3 4 5 6 7 80 9 10\n\
                        cpu1 1 2 3 4 5 6 7 500 9 10\n\
                        cpu10 1 2 3 4 5 6 7 6000 9 10\nintr 1 2 3 4 5 6 7 8\n";

    #[test]
    fn the_eighth_number_of_a_cpu_counts() {
        let millis = |cpu| steal_in(TEXT, cpu).map(|span| span.as_nanos() / 1_000_000);
        assert_eq!([0, 1, 2, 10].map(millis), [Some(800), Some(5_000), None, Some(60_000)]);
        assert_eq!(steal_in("cpu0 1 2 3", 0), None, "a kernel that does not tell");
    }

    #[test]
    fn readings_take_a_fiftieth_of_the_time() {
        let mut steal = Steal::of([0].into_iter());
        let (ns, readings) = (Cell::new(1_000_000_000), Cell::new(0));
        // Each reading takes 10 us by this clock.
        let clock = || {
            readings.set(readings.get() + 1);
            Instant::from_nanos(ns.replace(ns.get() + 10_000))
        };
        steal.cpus[0].1 = COUNT;
        steal.update(clock);
        assert_eq!(readings.take(), 2);
        steal.update(clock);
        assert_eq!(readings.take(), 1, "too early");
        let pause = if steal.taken(0).is_zero() { 1_000_000_000 } else { 500_000 };
        ns.set(ns.get() + pause);
        steal.update(clock);
        assert_eq!(readings.take(), 2);
    }
}
