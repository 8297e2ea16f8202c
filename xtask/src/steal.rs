//! The time for which the host of a virtual machine ran something else (proc_stat(5), `steal`).
//! The gate `readme` and the stored results read it before and after a run.

use std::fs::read_to_string;

/// That time since boot, of all CPUs (`cpu`) or of one (`cpu1`), in steps of 10 ms. `None` if there
/// is no such CPU, or if the kernel does not tell.
pub fn steal_ms(cpu: &str) -> Option<u64> {
    steal_ms_in(&read_to_string("/proc/stat").ok()?, cpu)
}

fn steal_ms_in(stat: &str, cpu: &str) -> Option<u64> {
    /// USER_HZ is 100 on every architecture on which Linux runs Rust programs.
    const TICK_MS: u64 = 10;
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(cpu))?;
    // user nice system idle iowait irq softirq steal
    Some(line.split_whitespace().nth(8)?.parse::<u64>().ok()? * TICK_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_a_cpu() {
        let two = "cpu  1 2 3 4 5 6 7 30 0 0\ncpu1 1 2 3 4 5 6 7 20 0 0\nintr 1 2\n";
        assert_eq!(steal_ms_in(two, "cpu"), Some(300));
        assert_eq!(steal_ms_in(two, "cpu1"), Some(200));
        assert_eq!([steal_ms_in(two, "cpu0"), steal_ms_in(two, "intr")], [None; 2]);
    }
}
