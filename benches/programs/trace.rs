//! The kernel's record of switches and wake-ups, in a trace instance of the bench (tracefs).

use std::fs;
use std::path::PathBuf;

/// Where tracefs is mounted, if at all.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// For each CPU. A fork bomb causes some 20,000 events a second.
const BUFFER_KB: &str = "49152";

/// A trace that runs. Dropping it removes it.
pub(crate) struct Trace {
    folder: PathBuf,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// On this CPU another thread runs from now on. `stays_ready`: the former one was preempted.
    Switch { cpu: u32, prev: u32, stays_ready: bool, next: u32, next_is_fair: bool },
    /// A thread became ready.
    Wake { pid: u32 },
}

/// An event with its time in ns (CLOCK_MONOTONIC).
pub(crate) type At = (u64, Event);

impl Trace {
    /// Starts to record.
    ///
    /// # Errors
    /// What is missing, in one line.
    pub(crate) fn start() -> Result<Trace, String> {
        let mounted = MOUNTS.iter().find(|mount| fs::metadata(format!("{mount}/events")).is_ok());
        let mount = mounted.ok_or("no tracefs: mount -t tracefs nodev /sys/kernel/tracing")?;
        let name = format!("upcall-programs-{}", std::process::id());
        let folder = PathBuf::from(mount).join("instances").join(name);
        fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let trace = Trace { folder };
        for (file, text) in [
            ("trace_clock", "mono"),
            ("buffer_size_kb", BUFFER_KB),
            ("events/sched/sched_switch/enable", "1"),
            ("events/sched/sched_wakeup/enable", "1"),
            ("events/sched/sched_wakeup_new/enable", "1"),
        ] {
            trace.write(file, text)?;
        }
        Ok(trace)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Stops, and returns all events in their order.
    ///
    /// # Errors
    /// Events were lost, or the record cannot be read.
    pub(crate) fn stop(self) -> Result<Vec<At>, String> {
        self.write("tracing_on", "0")?;
        let cpus = fs::read_dir(self.folder.join("per_cpu")).map_err(|error| error.to_string())?;
        for cpu in cpus.flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).unwrap_or_default();
            if !stats.lines().any(|line| line.trim() == "overrun: 0") {
                return Err(format!("events of {} were lost", cpu.file_name().display()));
            }
        }
        let path = self.folder.join("trace");
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // Names of threads may be anything.
        Ok(String::from_utf8_lossy(&text).lines().filter_map(event_in).collect())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// A line such as `sh-7 [001] d..2. 12.345678: sched_switch: prev_comm=sh prev_pid=7 ...`.
fn event_in(line: &str) -> Option<At> {
    const FAIR_PRIO_MIN: u32 = 100;
    let (before, event) = line.split_once(": sched_")?;
    let (before, time) = before.rsplit_once(' ')?;
    let (seconds, micros) = time.split_once('.')?;
    let ns = (seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?) * 1_000;
    if let Some(switch) = event.strip_prefix("switch: ") {
        let (_, cpu) = before.rsplit_once('[')?;
        let (prev, next) = switch.split_once(" ==> ")?;
        let cpu = cpu.split_once(']')?.0.parse().ok()?;
        let state = word(prev, " prev_state=")?;
        let next_pid: u32 = word(next, " next_pid=")?.parse().ok()?;
        let next_prio: u32 = word(next, " next_prio=")?.parse().ok()?;
        return Some((
            ns,
            Event::Switch {
                cpu,
                prev: word(prev, " prev_pid=")?.parse().ok()?,
                stays_ready: state.starts_with('R'),
                next: next_pid,
                next_is_fair: next_pid != 0 && next_prio >= FAIR_PRIO_MIN,
            },
        ));
    }
    let woken = event.strip_prefix("wakeup: ").or_else(|| event.strip_prefix("wakeup_new: "))?;
    Some((ns, Event::Wake { pid: word(woken, " pid=")?.parse().ok()? }))
}

/// The word behind the last `key`: a name of a thread may contain one.
fn word<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.rsplit_once(key)?.1.split_whitespace().next()
}
