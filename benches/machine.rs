//! What every bench prints beside its table, and how it sums up samples.

#![forbid(unsafe_code)]

use std::time::SystemTime;

/// Whether only a short run is wanted, to see that the bench works.
pub fn smoke() -> bool {
    std::env::args().any(|argument| argument == "--smoke")
}

/// What must stand beside every table: machine, kernel, date and command, and
/// how busy the machine was with other things (proc_loadavg(5)).
pub fn heading(bench: &str) -> String {
    let machine = upcall::Machine::describe();
    // Cargo adds `--bench` by itself.
    let options: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let options = if options.is_empty() { String::new() } else { format!(" -- {}", options.join(" ")) };
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

/// The value that `percent` % of `samples` do not exceed; 0 if there are none.
/// Sorts them.
pub fn percentile(samples: &mut [u64], percent: f64) -> u64 {
    samples.sort_unstable();
    let rank = (samples.len() as f64 * percent / 100.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank in range")]
    let rank = (rank as usize).clamp(1, samples.len().max(1));
    samples.get(rank - 1).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::percentile;

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
