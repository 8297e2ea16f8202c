//! CPU time that the host of a virtual machine takes: `steal` in proc_stat(5).
//!
//! Threads of the virtual machine notice stolen time only indirectly: a handler takes longer than
//! its cost, or a CPU wakes late.

/// One tick of the counts in `/proc/stat`. `USER_HZ` is 100 on every supported architecture.
const TICK_NS: u64 = 10_000_000;

/// CPU time in nanoseconds that the host took from `cpus` since boot, in steps of 10 ms. Returns 0
/// if the kernel does not count it. Reads a file of `/proc`; allocates.
pub fn steal_ns(cpus: &[u32]) -> u64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    steal_ticks(&stat, cpus).saturating_mul(TICK_NS)
}

/// The fields after the name: user nice system idle iowait irq softirq steal.
fn steal_ticks(stat: &str, cpus: &[u32]) -> u64 {
    let of_line = |line: &str| {
        let mut fields = line.split_whitespace();
        let cpu: u32 = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
        cpus.contains(&cpu).then(|| fields.nth(7)?.parse::<u64>().ok()).flatten()
    };
    stat.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::steal_ticks;

    #[test]
    fn the_eighth_number_of_each_named_cpu_counts() {
        let stat = "cpu  9 9 9 9 9 9 9 999 9 9\n\
                    cpu0 1 2 3 4 5 6 7 80 9 10\n\
                    cpu1 1 2 3 4 5 6 7 500 9 10\n\
                    cpu10 1 2 3 4 5 6 7 6000 9 10\nintr 1 2 3 4 5 6 7 8\n";
        assert_eq!(steal_ticks(stat, &[1]), 500);
        assert_eq!(steal_ticks(stat, &[0, 10]), 6080);
        assert_eq!(steal_ticks("cpu0 1 2 3", &[0]), 0, "a kernel that does not tell");
    }
}
