//! The head of a stored result: the machine, and what happened on it during the run.

use std::fs::read_to_string;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::steal::steal_ms;

/// The most seconds to wait until the host leaves the machine alone.
const WAIT_S_MAX: u32 = 60;
/// The most time that the host takes of all CPUs in a calm second.
const CALM_MS_MAX: u64 = 10;
/// The lines of a head, which some programs print as well.
const OWN: [&str; 6] = ["machine", "kernel", "date", "command", "commit", "load before"];

/// Waits until the host took hardly any CPU time for a second.
pub fn wait_for_calm() {
    for _ in 0..WAIT_S_MAX {
        let before_ms = all_steal_ms();
        std::thread::sleep(Duration::from_secs(1));
        if all_steal_ms().saturating_sub(before_ms) <= CALM_MS_MAX {
            return;
        }
    }
    println!("the host was not calm for a second in {WAIT_S_MAX} s");
}

/// The state of the machine at the begin of a run.
pub struct Measured {
    load: String,
    date: String,
    steal_ms: u64,
    begun: Instant,
}

impl Measured {
    pub fn begin() -> Self {
        let load = read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().take(3).collect::<Vec<_>>().join(" ");
        let date = printed("date", &["--utc", "+%Y-%m-%dT%H:%M:%SZ"]);
        Measured { load, date, steal_ms: all_steal_ms(), begun: Instant::now() }
    }

    /// The head of a run of `commands` that ends now.
    pub fn end(self, commit: &str, commands: &[String]) -> String {
        let cpu_info = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = field_of(&cpu_info, "model name").unwrap_or("unknown");
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let stolen_ms = all_steal_ms().saturating_sub(self.steal_ms);
        let commands = commands.join("\n         ");
        format!(
            "machine: {cpus} x {model}\n\
             kernel:  {}\n\
             date:    {}\n\
             commit:  {commit}\n\
             command: {commands}\n\
             load before: {}\n\
             took:    {} s, in which the host took {stolen_ms} ms of all CPUs (steal)\n",
            printed("uname", &["-r"]),
            self.date,
            self.load,
            self.begun.elapsed().as_secs(),
        )
    }
}

/// `output` without the head that the program printed itself, and without empty lines before and
/// after the rest.
pub fn without_own_head(output: &str) -> String {
    let is_own = |line: &str| OWN.iter().any(|own| line.starts_with(&format!("{own}:")));
    // The words may begin a line below, too.
    let mut is_head = false;
    let mut is_kept = |line: &&str| {
        is_head = line.starts_with("machine:") || (is_head && is_own(line));
        !is_head
    };
    let kept: Vec<&str> = output.lines().filter(&mut is_kept).collect();
    format!("{}\n", kept.join("\n").trim_matches('\n'))
}

/// What a command prints, without the line's end. Empty if it cannot run.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// The first value of a field in `/proc/cpuinfo`.
fn field_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// The time for which the host ran something else on any CPU. 0 if the kernel does not tell.
fn all_steal_ms() -> u64 {
    steal_ms("cpu").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_the_program_is_left_out() {
        let output = "machine: a\nkernel:  b\nload before: 0 0 0\n\nrow 1\nmachine room\n\n";
        assert_eq!(without_own_head(output), "row 1\nmachine room\n");
        assert_eq!(without_own_head("row: machine: 1\n"), "row: machine: 1\n");
    }

    #[test]
    fn the_head_names_commit_command_and_steal() {
        let head = Measured::begin().end("123abc", &["cargo bench".into(), "cargo run".into()]);
        assert!(
            head.contains("commit:  123abc\ncommand: cargo bench\n         cargo run\n"),
            "{head}"
        );
        assert!(head.contains(" ms of all CPUs (steal)\n"), "{head}");
    }
}
