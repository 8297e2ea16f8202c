//! One run: a daemon, three receivers under `upcall exec`, what runs beside, and the senders.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use upcall_benches::measured_cpu;
use upcall_sys::schedule;

use crate::handlers::{self, Handlers};
use crate::lag::{Lags, Owed, lags};
use crate::sender;
use crate::trace::Trace;

const RECEIVER: &str = env!("CARGO_BIN_EXE_program-receiver");
/// Shares, handlers and ticker take 92.5 % of the CPU.
const CPU_LIMIT: &str = "95%";
/// What the ticker takes at a quantum of 1 ms, by admission.
const TICKER: f64 = 0.025;
const QUANTUM_MS: f64 = 1.0;
/// From the start of all programs to the first message.
const LEAD: Duration = Duration::from_millis(300);
/// Programs end by themselves then, also if the bench was killed.
const PROGRAM_S_MAX: u64 = 120;
const LIMIT: Duration = Duration::from_secs(20);

/// Name, messages a second, bytes of a message, cost in us, and share in percent (§5).
const RECEIVERS: [(&str, u64, usize, u64, u64); 3] = [
    ("audio", 50, 100, 1_000, 5),
    ("video", 90, 1_470, 5_000, 45),
    ("file", 200, 1_470, 1_000, 20),
];
/// What the file sender sends a second if it misbehaves.
const MISBEHAVING: u64 = 1_000;

/// 32 children at a time. Each computes for some 0.5 ms.
const FORK_BOMB: &str = "while :; do i=0; while [ $i -lt 32 ]; do \
    ( j=0; while [ $j -lt 300 ]; do j=$((j+1)); done ) & i=$((i+1)); done; wait; done";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nothing,
    Hog,
    ForkBomb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Senders {
    Constant,
    Bursty,
    Misbehaving,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) beside: Beside,
    pub(crate) senders: Senders,
    pub(crate) handlers: bool,
}

/// What one receiver did.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    pub(crate) name: &'static str,
    pub(crate) sent: u64,
    pub(crate) processed: u64,
    /// As many messages as its share computes in the time of the senders.
    pub(crate) affordable: u64,
    job_us_max: u64,
    bound_us: f64,
    lags: Lags,
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) receivers: Vec<Receiver>,
    /// What the handlers did while messages were sent.
    pub(crate) handled: handlers::Ended,
    names: Vec<(u32, String)>,
}

/// Why a row has no outcome.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    /// This machine cannot run it.
    Missing(String),
    /// The programs did not start, or did not end: they got too little of the CPU.
    Starved(String),
    /// The handlers were refused, or died.
    Handlers(String),
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Trouble::Missing(why)
    }
}

impl Row {
    pub(crate) fn name(&self) -> String {
        let beside = match self.beside {
            Beside::Nothing => "nothing",
            Beside::Hog => "hog",
            Beside::ForkBomb => "fork-bomb",
        };
        let senders = match self.senders {
            Senders::Constant => "constant",
            Senders::Bursty => "bursty",
            Senders::Misbehaving => "misbehaving",
        };
        let handlers = if self.handlers { "20%" } else { "none" };
        format!("{beside:<9} {senders:<12} {handlers:<8}")
    }
}

impl Receiver {
    /// The longest job by the bound `cost / f + 2 q / f + B`.
    pub(crate) fn job_of_bound(&self) -> f64 {
        self.job_us_max as f64 / self.bound_us
    }
}

impl Outcome {
    /// All lags, and all times from a wake-up to the run.
    pub(crate) fn samples_ns(&self) -> (Vec<u64>, Vec<u64>) {
        let all = |of: fn(&Lags) -> &Vec<u64>| {
            self.receivers.iter().flat_map(|it| of(&it.lags).iter().copied()).collect()
        };
        (all(|lags| &lags.samples_ns), all(|lags| &lags.wakes_ns))
    }

    /// The greatest lag of any program in each second.
    pub(crate) fn of_seconds_ns(&self) -> Vec<u64> {
        let of = || self.receivers.iter().map(|it| &it.lags.of_seconds_ns);
        let seconds = of().map(Vec::len).max().unwrap_or_default();
        let greatest = |second| of().filter_map(|it: &Vec<u64>| it.get(second)).max();
        (0..seconds).map(|second| greatest(second).copied().unwrap_or_default()).collect()
    }

    /// What ran while a program was ready and did not run, by name, most first.
    pub(crate) fn beside(&self) -> String {
        let mut by_name: Vec<(&str, u64)> = Vec::new();
        for (pid, ns) in self.receivers.iter().flat_map(|it| &it.lags.beside_ns) {
            let named = self.names.iter().find(|(of, _)| of == pid);
            let name = named.map_or("other programs, in `rest`", |(_, name)| name);
            match by_name.iter_mut().find(|(found, _)| *found == name) {
                Some((_, sum)) => *sum += ns,
                None => by_name.push((name, *ns)),
            }
        }
        by_name.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
        let texts = by_name.iter().map(|(name, ns)| format!("{name} {} ms", ns / 1_000_000));
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// Builds `upcall` and `upcalld`, which are no part of this package.
///
/// # Errors
/// Why it fails.
pub(crate) fn build_commands() -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "--quiet", "-p", "upcall-cli", "--bins"]);
    match build.current_dir(env!("CARGO_MANIFEST_DIR")).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`upcall` cannot be built: {status}")),
        Err(error) => Err(format!("no cargo: {error}")),
    }
}

/// A program of `upcall-cli`: the folder of this one is beside them.
fn command_of(name: &str) -> PathBuf {
    Path::new(RECEIVER).with_file_name(name)
}

/// Runs a row.
///
/// # Errors
/// See [`Trouble`].
pub(crate) fn run(row: &Row, seconds: u64) -> Result<Outcome, Trouble> {
    let folder = std::env::temp_dir().join(format!("upcall-programs-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let result = run_in(row, seconds, &folder);
    let _ = fs::remove_dir_all(&folder);
    result
}

fn run_in(row: &Row, seconds: u64, folder: &Path) -> Result<Outcome, Trouble> {
    let cpu = measured_cpu().to_string();
    let socket = folder.join("upcall.sock");
    let log = fs::File::create(folder.join("log")).map_err(|error| error.to_string())?;
    // Also if the bench is killed, it ends.
    let mut daemon = Command::new("timeout");
    daemon.arg(PROGRAM_S_MAX.to_string()).arg(command_of("upcalld"));
    daemon.args(["--cpus", &cpu, "--cpu-limit", CPU_LIMIT, "--switch-cost", "20us", "--socket"]);
    let daemon = Ended::start(daemon.arg(&socket).stdout(Stdio::null()).stderr(log))?;
    let deadline = Instant::now() + LIMIT;
    while upcall::daemon_answers(&socket) != Ok(true) {
        if Instant::now() > deadline {
            return Err(Trouble::Missing("the daemon does not answer".to_owned()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _beside: Vec<Ended> = beside(row.beside, &cpu)?;
    let ports = free_ports()?;
    let mut programs = Vec::new();
    for ((name, _, _, cost_us, share), port) in RECEIVERS.into_iter().zip(ports) {
        let mut exec = Command::new(command_of("upcall"));
        exec.args(["exec", "--json", "--cpu", &cpu, "--socket"]).arg(&socket);
        exec.args(["--share", &format!("{share}%"), "--", RECEIVER]);
        exec.args([port.to_string(), cost_us.to_string(), PROGRAM_S_MAX.to_string()]);
        exec.stdout(Stdio::piped()).stderr(Stdio::piped());
        programs.push((name, exec.spawn().map_err(|error| format!("upcall: {error}"))?));
    }
    let pids = wait_for_receivers(&socket)?;
    let trace = Trace::start();
    let started = row.handlers.then(|| Handlers::start(&socket));
    let handlers = started.transpose().map_err(Trouble::Handlers)?;
    std::thread::sleep(LEAD);
    let sent = send_all(row.senders, ports, Duration::from_secs(seconds));
    let handled = handlers.map(Handlers::end).transpose().map_err(Trouble::Handlers)?;
    let handled = handled.unwrap_or_default();
    let events = trace.and_then(Trace::stop);
    let names = names_of_threads();
    end_all(&mut programs, &pids, ports);
    let mut ended = Vec::new();
    for (name, program) in programs {
        ended.push(Exec::of(name, program)?);
    }
    drop(daemon);
    let below = 1.0 - TICKER - if row.handlers { handlers::UTILIZATION } else { 0.0 };
    let owed: Vec<Owed> = ended
        .iter()
        .zip(RECEIVERS)
        .map(|(of, (.., share))| Owed { pid: of.pid, part: share as f64 / 100.0 / below })
        .collect();
    let lags = lags(&events?, measured_cpu(), &owed);
    let receivers = ended.into_iter().zip(RECEIVERS).zip(sent.into_iter().zip(lags)).map(
        |((of, (name, _, _, cost_us, share)), (sent, lags))| {
            let share = share as f64 / 100.0;
            let bound_us = (cost_us as f64 + 2e3 * QUANTUM_MS) / share + of.burst_us;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
            let affordable = (share * seconds as f64 * 1e6 / cost_us as f64) as u64;
            let (processed, job_us_max) = (of.processed, of.job_us_max);
            Receiver { name, sent, processed, affordable, job_us_max, bound_us, lags }
        },
    );
    Ok(Outcome { receivers: receivers.collect(), handled, names })
}

/// Waits until all receivers execute. They may wait for the CPU before.
fn wait_for_receivers(socket: &Path) -> Result<Vec<u32>, Trouble> {
    let executes = |pid: u32| {
        // The kernel shows 15 bytes of a name.
        fs::read_to_string(format!("/proc/{pid}/comm"))
            .is_ok_and(|name| RECEIVER.contains(name.trim()))
    };
    let deadline = Instant::now() + LIMIT;
    loop {
        let status = upcall::status::status(socket).map_err(|error| error.to_string())?;
        let pids: Vec<u32> = status.programs.iter().map(|program| program.pid).collect();
        if pids.iter().filter(|&&pid| executes(pid)).count() == RECEIVERS.len() {
            return Ok(pids);
        }
        if Instant::now() > deadline {
            pids.into_iter().for_each(kill);
            return Err(Trouble::Starved(format!("the receivers did not start in {LIMIT:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Asks the receivers to end once they have processed what they were sent. They are killed if they
/// do not.
fn end_all(programs: &mut [(&'static str, Child)], pids: &[u32], ports: [u16; 3]) {
    let deadline = Instant::now() + LIMIT;
    let Ok(socket) = std::net::UdpSocket::bind("127.0.0.1:0") else { return };
    while programs.iter_mut().any(|(_, program)| matches!(program.try_wait(), Ok(None))) {
        if Instant::now() > deadline {
            pids.iter().copied().for_each(kill);
        }
        for port in ports {
            // A receiver may have ended, or its queue may be full.
            let _ = socket.send_to(&[0], ("127.0.0.1", port));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// What competes on the CPU: always the program that only computes.
fn beside(beside: Beside, cpu: &str) -> Result<Vec<Ended>, String> {
    let on_cpu = |words: &[&str]| {
        let mut command = Command::new("timeout");
        command
            .args([&PROGRAM_S_MAX.to_string(), "taskset", "-c", cpu])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ended::start(&mut command)
    };
    let spin = || on_cpu(&[RECEIVER, "spin", &PROGRAM_S_MAX.to_string()]);
    let more = match beside {
        Beside::Nothing => None,
        Beside::Hog => Some(spin()?),
        Beside::ForkBomb => Some(on_cpu(&["sh", "-c", FORK_BOMB])?),
    };
    Ok([Some(spin()?), more].into_iter().flatten().collect())
}

fn free_ports() -> Result<[u16; 3], String> {
    let bind = || std::net::UdpSocket::bind("127.0.0.1:0");
    let sockets = [bind(), bind(), bind()];
    let port = |socket: &std::io::Result<std::net::UdpSocket>| {
        socket.as_ref().ok()?.local_addr().ok().map(|address| address.port())
    };
    match sockets.each_ref().map(port) {
        [Some(one), Some(two), Some(three)] => Ok([one, two, three]),
        _ => Err("no free ports".to_owned()),
    }
}

/// Sends for so long, from threads that stay off the measured CPU.
fn send_all(senders: Senders, ports: [u16; 3], time: Duration) -> Vec<u64> {
    let until = Instant::now() + time;
    let others: Vec<u32> = upcall::allowed_cpus().unwrap_or_default();
    let others: Vec<u32> = others.into_iter().filter(|&cpu| cpu != measured_cpu()).collect();
    std::thread::scope(|scope| {
        let threads = RECEIVERS.into_iter().zip(ports).map(|((name, rate, bytes, ..), port)| {
            let rate = match senders == Senders::Misbehaving && name == "file" {
                true => MISBEHAVING,
                false => rate,
            };
            let others = &others;
            scope.spawn(move || {
                // On a machine of one CPU it stays there.
                let _ = schedule::pin_thread(others);
                sender::send(port, (bytes, rate), senders == Senders::Bursty, until)
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// What a receiver and its `upcall exec` have printed.
struct Exec {
    pid: u32,
    burst_us: f64,
    processed: u64,
    job_us_max: u64,
}

impl Exec {
    fn of(name: &str, program: Child) -> Result<Exec, Trouble> {
        let output = program.wait_with_output().map_err(|error| format!("{name}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let last = said.lines().last().unwrap_or_default();
        let report: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
        let number = |value: &serde_json::Value| value.as_u64();
        let told = (number(&report["pid"]), number(&report["promise"]["burst_ns"]));
        let (Some(pid), Some(burst_ns)) = told else {
            return Err(Trouble::Missing(format!("{name}: {said}")));
        };
        let pid = u32::try_from(pid).map_err(|error| error.to_string())?;
        let line = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        let processed = numbers.next().ok_or_else(|| {
            Trouble::Starved(format!("{name} did not process what it was sent in {LIMIT:?} more"))
        })?;
        let job_us_max = numbers.max().unwrap_or_default();
        Ok(Exec { pid, burst_us: burst_ns as f64 / 1e3, processed, job_us_max })
    }
}

/// The names of the threads of the kernel and of the programs that run now.
fn names_of_threads() -> Vec<(u32, String)> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let named = pids.filter_map(|pid| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, comm.trim_end().to_owned()))
    });
    named.collect()
}

/// A process that ends when this is dropped, with all of its group.
struct Ended(Child);

impl Ended {
    fn start(command: &mut Command) -> Result<Ended, String> {
        let name = command.get_program().display().to_string();
        let child = command.process_group(0).stdin(Stdio::null()).spawn();
        child.map(Ended).map_err(|error| format!("{name}: {error}"))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) else { return };
        // A daemon takes its groups back.
        let _ = kill_process(pid, Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Others of its group may still fork.
        for _ in 0..200 {
            if kill_process_group(pid, Signal::KILL).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.wait();
    }
}
