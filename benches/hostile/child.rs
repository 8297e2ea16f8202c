//! The processes that the bench starts. Each is this program with a role.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::attack::OTHER_USER;

/// The environment variable that gives a process started by this one its role.
pub(crate) const ROLE: &str = "UPCALL_BENCH_ROLE";

/// A process of this program, and the lines that it and its children print. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) process: Child,
    /// Each with the moment at which the bench got it.
    lines: Receiver<(Instant, String)>,
}

/// Starts this program with a role.
pub(crate) fn start(role: &str) -> Running {
    Running::new(command(role))
}

/// Starts the process as another user. Only root can.
pub(crate) fn start_as_other(role: &str) -> Running {
    let mut command = command(role);
    command.uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
    Running::new(command)
}

fn command(role: &str) -> Command {
    let program = std::env::current_exe().expect("this program");
    // Attackers may print anything.
    let stderr = if role.starts_with("attack|") { Stdio::null() } else { Stdio::inherit() };
    let mut command = Command::new(program);
    // The daemon ends when its standard input ends.
    let stdin = if role.starts_with("daemon|") { Stdio::piped() } else { Stdio::null() };
    command.env(ROLE, role).stdin(stdin).stdout(Stdio::piped()).stderr(stderr);
    command
}

impl Running {
    fn new(mut command: Command) -> Running {
        let mut process = command.spawn().expect("this program can be started");
        let output = process.stdout.take().expect("the pipe exists");
        let (tell, lines) = mpsc::channel();
        // The thread ends with the last process that has the pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if tell.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        Running { process, lines }
    }

    /// The next line. Waits until `deadline` at most. `None` after the last line as well.
    pub(crate) fn line(&self, deadline: Instant) -> Option<String> {
        let rest = deadline.saturating_duration_since(Instant::now());
        self.lines.recv_timeout(rest).ok().map(|(_, line)| line)
    }

    /// The lines so far that nobody has taken, each with its moment.
    pub(crate) fn lines_so_far(&self) -> impl Iterator<Item = (Instant, String)> {
        self.lines.try_iter()
    }

    /// The rest of the next line that begins so. Waits until `deadline` at most.
    pub(crate) fn line_after(&self, begin: &str, deadline: Instant) -> Option<String> {
        while let Some(line) = self.line(deadline) {
            if let Some(rest) = line.strip_prefix(begin) {
                return Some(rest.to_owned());
            }
            println!("{line}");
        }
        None
    }

    /// How the process ended, if it did within this time.
    pub(crate) fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return Some(status),
                _ if Instant::now() >= deadline => return None,
                _ => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // A thread that gets no CPU cannot end. `end_strays` then ends what keeps the CPU.
        let _ = self.ended_within(Duration::from_millis(200));
    }
}

/// Ends all processes that this process or its descendants have started, except for `kept`. An
/// attacker can leave real-time processes that keep a CPU from everything else.
pub(crate) fn end_strays(kept: u32) {
    for _ in 0..ROUNDS_MAX {
        let strays: Vec<Pid> = descendants(kept);
        if strays.is_empty() {
            return;
        }
        for pid in strays {
            let _ = kill_process(pid, Signal::KILL);
            // Only children can be waited for. Orphans become children of this process.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How often [`end_strays`] looks.
const ROUNDS_MAX: usize = 1_000;

/// The processes that descend from this one, without `kept`.
fn descendants(kept: u32) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: BTreeMap<u32, u32> = processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            // "PID (NAME) STATE PARENT ..."
            let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect();
    let own = std::process::id();
    let descends = |&pid: &u32| {
        let mut ancestors = std::iter::successors(parents.get(&pid), |pid| parents.get(pid));
        ancestors.any(|&pid| pid == own)
    };
    let strays = parents.keys().copied().filter(|&pid| pid != kept && descends(&pid));
    strays.filter_map(|pid| Pid::from_raw(pid.try_into().ok()?)).collect()
}
