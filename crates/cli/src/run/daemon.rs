//! The daemon of a run: a running one, or one that the run starts.
//!
//! A daemon that the run started ends when its last domain has gone. If another run attached to it
//! meanwhile, the daemon serves that run to its end.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use upcall::clock;
use upcall::status::StatusError;
use upcall::time::Span;
use upcall_cli::standard_error::say;

use super::promises;
use crate::background::own_command;
use crate::exit::Failure;
use crate::plan::Plan;
use crate::spec::Spec;

/// Time within which a daemon must listen.
const LISTEN_WITHIN: Span = Span::from_secs(60);
/// Time within which a daemon must notice that its last domain has gone.
const END_WITHIN: Span = Span::from_secs(1);
/// Time between two checks.
const CHECK_EVERY: Duration = Duration::from_millis(2);

/// The remedy for a plan of several domains on CPUs that a running daemon does not have.
const OWN_DAEMON: &str = "`UPCALL_SOCKET=PATH upcall run` starts a daemon of its own at PATH";

/// A daemon that this process started. Drop it after the last domain of the run.
pub struct OwnDaemon {
    child: Child,
    /// The lines that the daemon printed and this process passed on.
    printed: mpsc::Receiver<String>,
    /// Whether a domain of this run has attached. From then on the daemon ends by itself.
    attached: bool,
}

/// What is at a daemon's socket, for a plan.
#[derive(Debug)]
pub enum Found {
    /// No daemon listens.
    Nothing,
    /// A daemon that can schedule the plan.
    Suitable,
    /// A daemon that cannot, and has none of the plan's CPUs. The failure is that of a plan that
    /// needs a daemon.
    Apart(Failure),
}

/// Looks for a daemon at `socket` that can schedule `plan`.
///
/// # Errors
/// The daemon has CPUs of the plan but cannot schedule it, or the system cannot ask it.
pub fn look(spec: &Spec, plan: &Plan<'_>, socket: &Path) -> Result<Found, Failure> {
    if !answers(socket)? {
        return Ok(Found::Nothing);
    }
    let status = match upcall::status::status(socket) {
        Ok(status) => status,
        // The daemon has ended meanwhile.
        Err(StatusError::Connect { .. } | StatusError::Closed) => return Ok(Found::Nothing),
        Err(error) => return Err(Failure::of_file(socket, error)),
    };
    let (own, policy) = (&plan.platform.cpus, plan.discipline.name);
    let cpus: Vec<u32> = status.cpus.iter().map(|cpu| cpu.cpu).collect();
    let failure = if status.policy != policy {
        let (at, found) = (socket.display(), &status.policy);
        let reason = format!("the daemon at {at} schedules by `{found}`, the spec by `{policy}`");
        let remedy = format!("use `policy = \"{found}\"`, name other `cpus`, or end that daemon");
        unsuitable(plan, &cpus, reason, &remedy)
    } else if spec.cpus.is_some() && !same(&cpus, own) {
        other_cpus(plan, socket, &cpus)
    } else {
        return Ok(Found::Suitable);
    };
    match own.iter().any(|cpu| cpus.contains(cpu)) {
        true => Err(failure),
        false => Ok(Found::Apart(failure)),
    }
}

/// The refusal of `plan` by the CPUs of the daemon at `socket`.
pub fn other_cpus(plan: &Plan<'_>, socket: &Path, cpus: &[u32]) -> Failure {
    let (at, own) = (socket.display(), &plan.platform.cpus);
    let reason = format!("the daemon at {at} schedules CPUs {cpus:?}, the spec names {own:?}");
    unsuitable(plan, cpus, reason, "leave `cpus` out, or name the daemon's CPUs or none of them")
}

/// The refusal of `plan` by a daemon of `cpus`. The remedy for a plan that has none of these CPUs
/// is a daemon of its own.
fn unsuitable(plan: &Plan<'_>, cpus: &[u32], reason: String, remedy: &str) -> Failure {
    let overlaps = plan.platform.cpus.iter().any(|cpu| cpus.contains(cpu));
    let remedy = if overlaps { remedy } else { OWN_DAEMON };
    promises::refused(plan, cpus, reason, Some(remedy.to_owned()))
}

/// Whether both are the same CPUs.
pub fn same(found: &[u32], expected: &[u32]) -> bool {
    found.len() == expected.len() && found.iter().all(|cpu| expected.contains(cpu))
}

/// The socket of a run's daemon. Starts a daemon with the platform of `plan` if none answers. The
/// second part is `None` if a daemon was already running.
///
/// # Errors
/// The daemon does not start or cannot schedule the plan, or the system cannot check the socket.
pub fn ensure(spec: &Spec, plan: &Plan<'_>) -> Result<(PathBuf, Option<OwnDaemon>), Failure> {
    let running = upcall::daemon_socket().map_err(Failure::of_error)?;
    match look(spec, plan, &running)? {
        Found::Suitable => return Ok((running, None)),
        Found::Apart(failure) => return Err(failure),
        Found::Nothing => {}
    }
    // The daemon takes the lock. A process that holds it already is named here.
    drop(promises::lock(plan, &plan.platform.cpus, false)?);
    let socket = upcall::own_daemon_socket().map_err(Failure::of_error)?;
    let mut own = OwnDaemon::start(&socket, plan)?;
    let give_up = clock::now() + LISTEN_WITHIN;
    while clock::now() < give_up {
        let ended = own.has_ended();
        if answers(&socket)? {
            // If this run's daemon ended, another program started one first.
            return Ok((socket, (!ended).then_some(own)));
        }
        if ended {
            let last = own.printed.iter().last();
            let last = last.unwrap_or_else(|| "it ended and said nothing".to_owned());
            return Err(Failure::new(format_args!("the daemon did not start: {last}")));
        }
        std::thread::sleep(CHECK_EVERY);
    }
    Err(Failure::new("the daemon did not start: it does not listen"))
}

/// Whether a daemon listens at `socket`.
///
/// # Errors
/// The system cannot check the socket.
fn answers(socket: &Path) -> Result<bool, Failure> {
    upcall::daemon_answers(socket).map_err(|error| Failure::of_file(socket, error))
}

impl OwnDaemon {
    fn start(socket: &Path, plan: &Plan<'_>) -> Result<Self, Failure> {
        let platform = &plan.platform;
        let cpus: Vec<String> = platform.cpus.iter().map(ToString::to_string).collect();
        let (limit_ppm, own) = (platform.cpu_limit.ppm(), own_command("daemon")?);
        let mut child = Command::new(&own[0])
            .args(&own[1..])
            .args(["--exit-when-idle", "--quiet", "--policy", plan.discipline.name])
            .args(["--cpus", &cpus.join(",")])
            .args(["--cpu-limit", &format!("{}.{:04}%", limit_ppm / 10_000, limit_ppm % 10_000)])
            .args(["--switch-cost", &format!("{}ns", platform.switch_cost.as_nanos())])
            .args(["--wakeup-latency", &format!("{}ns", platform.wakeup_latency.as_nanos())])
            .arg("--socket")
            .arg(socket)
            // A service manager that started this run waits for the run, not for its daemon.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C in a terminal is for the parent.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Failure::new(format_args!("the daemon did not start: {error}")).because(error)
            })?;
        let (printed_in, printed) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            std::thread::Builder::new()
                .name("upcall-daemon".into())
                .spawn(move || pass_on(stderr, &printed_in))
                .map_err(Failure::of_error)?;
        }
        Ok(OwnDaemon { child, printed, attached: false })
    }

    /// Call this when the first domain has attached.
    pub fn mark_attached(&mut self) {
        self.attached = true;
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        if !self.attached {
            let _ = (self.child.kill(), self.child.wait());
            return;
        }
        let give_up = clock::now() + END_WITHIN;
        while !self.has_ended() && clock::now() < give_up {
            std::thread::sleep(CHECK_EVERY);
        }
    }
}

/// Passes on the daemon's standard error, where it prints only failures.
fn pass_on(stderr: ChildStderr, printed: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        say(&line);
        let _ = printed.send(line);
    }
}
