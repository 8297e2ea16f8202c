//! The daemon of a run: a running one, or one that the run starts.
//!
//! A daemon that the run started ends when its last domain has gone. If another run attached to it
//! meanwhile, the daemon serves that run to its end.

use std::path::{Path, PathBuf};

use upcall::Mode;
use upcall::status::StatusError;

use super::promises;
use crate::exit::Failure;
use crate::own_daemon::{self, OwnDaemon, answers};
use crate::plan::Plan;
use crate::spec::Spec;

/// The remedy for a plan of several domains on CPUs that a running daemon does not have.
const OWN_DAEMON: &str = "`UPCALL_SOCKET=PATH upcall run` starts a daemon of its own at PATH";

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
    start(spec, plan)
}

/// The socket of the daemon that has the interfaces of a run, and the daemon if the run started it.
/// `None`: no stream needs one. In the baseline modes it schedules nothing, so any daemon will do.
///
/// # Errors
/// As [`ensure`].
pub fn for_flows(
    spec: &Spec,
    plan: &Plan<'_>,
    mode: Mode,
) -> Result<Option<(PathBuf, Option<OwnDaemon>)>, Failure> {
    if spec.interfaces().is_empty() {
        return Ok(None);
    }
    if mode == Mode::Upcall {
        return ensure(spec, plan).map(Some);
    }
    let running = upcall::daemon_socket().map_err(Failure::of_error)?;
    match answers(&running)? {
        true => Ok(Some((running, None))),
        false => start(spec, plan).map(Some),
    }
}

/// Starts a daemon for the plan. The second part is `None` if another program started one first.
fn start(spec: &Spec, plan: &Plan<'_>) -> Result<(PathBuf, Option<OwnDaemon>), Failure> {
    // The daemon takes the lock. A process that holds it already is named here.
    drop(promises::lock(plan, &plan.platform.cpus, false)?);
    let socket = upcall::own_daemon_socket().map_err(Failure::of_error)?;
    let own = own_daemon::start(&socket, &arguments(spec, plan))?;
    Ok((socket, own))
}

/// The options of a daemon with the platform of `plan`, and the interfaces of `spec`.
fn arguments(spec: &Spec, plan: &Plan<'_>) -> Vec<String> {
    let platform = &plan.platform;
    let cpus: Vec<String> = platform.cpus.iter().map(ToString::to_string).collect();
    let limit_ppm = platform.cpu_limit.ppm();
    let options = [
        ("--policy", plan.discipline.name.to_owned()),
        ("--cpus", cpus.join(",")),
        ("--cpu-limit", format!("{}.{:04}%", limit_ppm / 10_000, limit_ppm % 10_000)),
        ("--switch-cost", format!("{}ns", platform.switch_cost.as_nanos())),
        ("--wakeup-latency", format!("{}ns", platform.wakeup_latency.as_nanos())),
    ];
    let quantum = plan.discipline.time_quantum;
    let quantum = quantum.map(|quantum| ("--time-quantum", format!("{}ns", quantum.as_nanos())));
    let interfaces = Some(spec.interfaces().join(",")).filter(|names| !names.is_empty());
    let interfaces = interfaces.map(|names| ("--interfaces", names));
    let all = options.into_iter().chain(quantum).chain(interfaces);
    all.flat_map(|(name, value)| [name.to_owned(), value]).collect()
}
