//! What every bench prints beside its table, and how it sums up samples.

#![forbid(unsafe_code)]

use std::time::SystemTime;

/// Whether only a short run is wanted, to see that the bench works.
pub fn smoke() -> bool {
    std::env::args().any(|argument| argument == "--smoke")
}

/// Machine, kernel, command and date, for the head of a table.
pub fn heading() -> String {
    let machine = upcall::Machine::describe();
    let command: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    format!(
        "machine: {} x {}; kernel: {}; date: {}; command: cargo bench -p upcall-benches --bench {} -- {}",
        machine.cpus_online,
        machine.cpu_model,
        machine.kernel_release,
        humantime::format_rfc3339_seconds(SystemTime::now()),
        bench_name(),
        command.join(" "),
    )
}

fn bench_name() -> String {
    let path = std::env::args().next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default().to_owned();
    // Cargo adds a hash: figure7-0123456789abcdef.
    file.rsplit_once('-').map_or(file.clone(), |(name, _)| name.to_owned())
}

/// The value that `percent` % of `samples` do not exceed. Sorts them.
///
/// # Panics
/// There are none.
pub fn percentile(samples: &mut [u64], percent: f64) -> u64 {
    samples.sort_unstable();
    let rank = (samples.len() as f64 * percent / 100.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank in range")]
    samples[(rank as usize).clamp(1, samples.len()) - 1]
}
