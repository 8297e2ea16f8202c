//! The time that the host of a virtual machine took from each CPU: `steal` in proc_stat(5).
//! And the CPUs that the host has stopped just now.
//!
//! A domain that waits then falls behind its reservation, and may catch up. The watchdog's own
//! delay ([`super::meter::stall_time`]) does not show that time if the host took another CPU. The
//! watchdog calls this before its checks. The kernel updates the number at its ticks, and so when
//! the CPU goes on after the host had it.
//!
//! Until then all times of that CPU stand still in proc_stat(5), because only its ticks count them.
//! Yet the kernel charges the thread on the CPU when another CPU asks for its CPU time. So a CPU
//! whose times stand still for [`STOPPED_MIN`] counts as stopped, if the host took time before.

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
/// The times of a CPU that runs change at least that often. They count in [`COUNT`], a kernel tick
/// is 10 ms at most, and readings are a few ms apart.
const STOPPED_MIN: Span = Span::from_millis(25);
/// The longest line of a CPU: a name of 13 bytes and ten numbers of 20.
const LINE_BYTES: usize = 256;

/// See the module's head.
pub(super) struct Steal {
    /// `None`: it cannot be opened, and no time counts as taken.
    file: Option<File>,
    text: Vec<u8>,
    cpus: Vec<CpuTimes>,
    read_at: Instant,
    next_at: Instant,
}

/// What the last reading found of a CPU.
#[derive(Debug, Default)]
struct CpuTimes {
    cpu: u32,
    /// The time taken since boot.
    taken: Span,
    /// All counted times since boot, in [`COUNT`].
    counted: u64,
    /// The first reading that found this number.
    counted_at: Instant,
}

impl Steal {
    /// For these CPUs. Opens a file, and allocates: later readings do not.
    pub(super) fn of(cpus: impl Iterator<Item = u32>) -> Self {
        let cpus: Vec<_> = cpus.map(|cpu| CpuTimes { cpu, ..CpuTimes::default() }).collect();
        // The kernel shows the CPUs in order, after one line for all.
        let lines = cpus.iter().map(|times| times.cpu as usize + 2).max().unwrap_or(0);
        let text = vec![0; lines * LINE_BYTES];
        let file = File::open("/proc/stat").ok();
        Steal { file, text, cpus, read_at: Instant::ZERO, next_at: Instant::ZERO }
    }

    /// Reads the times, unless that was done a short time ago. One system call at most.
    pub(super) fn update(&mut self, clock: impl Fn() -> Instant) {
        let begun = clock();
        let Some(file) = self.file.as_ref().filter(|_| begun >= self.next_at) else { return };
        let length = file.read_at(&mut self.text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&self.text[..length]);
        self.cpus.iter_mut().for_each(|times| times.update(&text, begun));
        self.read_at = begun;
        let is_none = self.cpus.iter().all(|times| times.taken.is_zero());
        let ended = clock();
        self.next_at = ended + if is_none { PAUSE_IF_NONE } else { ended.since(begun) * PAUSE };
    }

    /// The time taken from a CPU since boot, as of the last reading.
    pub(super) fn taken(&self, cpu: u32) -> Span {
        self.times(cpu).map_or(Span::ZERO, |times| times.taken)
    }

    /// For how long the host has stopped a CPU, as of the last reading. 0: it runs, or the host has
    /// never taken it.
    pub(super) fn stopped(&self, cpu: u32) -> Span {
        let times = self.times(cpu).filter(|times| !times.taken.is_zero());
        let still = times.map_or(Span::ZERO, |times| self.read_at.since(times.counted_at));
        if still >= STOPPED_MIN { still } else { Span::ZERO }
    }

    fn times(&self, cpu: u32) -> Option<&CpuTimes> {
        self.cpus.iter().find(|times| times.cpu == cpu)
    }
}

impl CpuTimes {
    /// Notes what the kernel shows `now`. A line that is not whole changes nothing.
    fn update(&mut self, text: &str, now: Instant) {
        let Some((counted, taken)) = times_in(text, self.cpu) else { return };
        if counted != self.counted {
            (self.counted, self.counted_at) = (counted, now);
        }
        self.taken = Span::from_nanos(COUNT.as_nanos().saturating_mul(taken));
    }
}

/// The sum of all times of a CPU, and its `steal`. The fields after the name: user nice system idle
/// iowait irq softirq steal.
fn times_in(text: &str, cpu: u32) -> Option<(u64, u64)> {
    let is_its = |line: &&str| {
        let name = line.split(' ').next().and_then(|name| name.strip_prefix("cpu"));
        name.and_then(|number| number.parse().ok()) == Some(cpu)
    };
    let mut fields = text.lines().find(is_its)?.split_whitespace().skip(1);
    let mut counts = [0u64; 8];
    for count in &mut counts {
        *count = fields.next()?.parse().ok()?;
    }
    Some((counts.iter().fold(0, |sum, &count| sum.saturating_add(count)), counts[7]))
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
        let of = |cpu| times_in(TEXT, cpu);
        assert_eq!(
            [0, 1, 2, 10].map(of),
            [Some((108, 80)), Some((528, 500)), None, Some((6028, 6000))]
        );
        assert_eq!(times_in("cpu0 1 2 3", 0), None, "a kernel that does not tell");
    }

    #[test]
    fn a_cpu_whose_times_stand_still_is_stopped_if_the_host_takes_time() {
        let at = |millis| Instant::ZERO + Span::from_millis(millis);
        let mut steal = Steal::of([0, 1].into_iter());
        let mut read = |user, millis| {
            let text = format!("cpu0 {user} 2 3 4 5 6 7 0 9 10\ncpu1 {user} 2 3 4 5 6 7 1 9 10\n");
            steal.cpus.iter_mut().for_each(|times| times.update(&text, at(millis)));
            steal.read_at = at(millis);
            [0, 1].map(|cpu| steal.stopped(cpu).as_nanos() / 1_000_000)
        };
        assert_eq!(read(1, 1000), [0, 0]);
        assert_eq!(read(1, 1024), [0, 0], "its counts are coarse");
        assert_eq!(read(1, 1025), [0, 25], "the host has never taken the first one");
        assert_eq!(read(1, 1060), [0, 60]);
        assert_eq!(read(2, 1062), [0, 0], "it goes on");
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
        steal.cpus[0].taken = COUNT;
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
