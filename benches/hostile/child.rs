//! The processes that the bench starts. Each is this program with a role.

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
        let _ = self.process.wait();
    }
}

/// Kills the processes whose parent this process has become, because their own parent has ended.
/// Keeps `kept`. Returns how many there were.
pub(crate) fn end_strays(kept: u32) -> usize {
    let mut ended = 0;
    // Their children become children of this process in turn.
    for _ in 0..ROUNDS_MAX {
        let strays: Vec<u32> = children().into_iter().filter(|&pid| pid != kept).collect();
        if strays.is_empty() {
            break;
        }
        for pid in strays {
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            let _ = kill_process(pid, Signal::KILL);
            let waited = waitpid(Some(pid), WaitOptions::NOHANG);
            ended += usize::from(waited.is_ok_and(|status| status.is_some()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ended
}

/// How often [`end_strays`] looks, 1 ms apart.
const ROUNDS_MAX: usize = 2_000;

/// The children of all threads of this process (proc_tid_children(5)).
fn children() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let texts = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    texts
        .flat_map(|text| text.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}
