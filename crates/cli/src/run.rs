//! `upcall run`: runs a plan on this machine, once, in one mode.
//!
//! | module | content |
//! |---|---|
//! | [`in_process`] | runs the whole plan in this process |
//! | [`parent`] | runs each domain in a process of its own; in mode upcall under a daemon |
//! | [`domain`] | the process of a domain |
//! | [`process`], [`message`] | the parent's handle of that process, and their messages |
//! | [`daemon`] | finds a running daemon, or starts one |
//! | [`activities`] | the activities of one process |
//! | [`load`] | embedded senders and background load |
//! | [`steal`] | CPU time that the host of a virtual machine takes |
//! | [`promises`] | the lock of the CPUs that the run uses |
//! | [`notices`], [`timing`] | what a run prints before it starts; its time limits |
//!
//! Sockets are bound before anything is started. A port in use therefore stops the run before there
//! is anything to undo. Every way out ends what was started: dropped handles end processes,
//! `Runtime::stop` ends threads.

use std::sync::atomic::AtomicBool;

use upcall::Mode;

use crate::csv::JobLog;
use crate::exit::Failure;
use crate::measured::RunOptions;
use crate::output;
use crate::plan::Plan;
use crate::spec::Spec;
use crate::trace::TraceFile;
use daemon::Found;

mod activities;
mod daemon;
pub mod domain;
mod in_process;
mod load;
mod message;
mod notices;
mod parent;
mod process;
mod promises;
pub mod steal;
mod timing;

/// Whether each domain gets a process of its own. In the baseline modes the kernel decides, so the
/// policy's ranks need not compare across processes.
pub fn is_across_processes(plan: &Plan<'_>, mode: Mode) -> bool {
    plan.domains().len() > 1 && (mode != Mode::Upcall || plan.takes_daemon)
}

/// Whether a plan of one domain attaches to a running daemon, whose reservations count too. A soft
/// run attaches too: the daemon puts its refused work below all work with a reservation.
///
/// # Errors
/// A daemon has CPUs of the plan but cannot schedule it.
fn attaches(spec: &Spec, plan: &Plan<'_>, mode: Mode) -> Result<bool, Failure> {
    if mode != Mode::Upcall || !plan.takes_daemon {
        return Ok(false);
    }
    match upcall::daemon_socket() {
        Ok(socket) => Ok(matches!(daemon::look(spec, plan, &socket)?, Found::Suitable)),
        // Another user may have taken the name of the folder in `/tmp`. Then this run is alone.
        Err(_) => Ok(false),
    }
}

/// Whether streams of the plan have flows, which a daemon keeps.
///
/// # Errors
/// No daemon would take the plan.
fn has_flows(spec: &Spec, plan: &Plan<'_>) -> Result<bool, Failure> {
    let streams = plan.activities.iter().filter_map(|planned| planned.stream());
    let mut flows = streams.filter(|(stream, _)| stream.direction.parts().1.interface.is_some());
    let Some((stream, _)) = flows.next() else { return Ok(false) };
    if plan.takes_daemon {
        return Ok(true);
    }
    let (key, address) = stream.direction.parts();
    let policy = plan.discipline.name;
    let refusal = plan.refused_by_daemon.as_deref().unwrap_or("the set");
    let found = format!("{address}, whose daemon of {policy} would refuse {refusal}");
    let expected = "udp://, or a set that a daemon takes";
    Err(Failure::new(spec.source.error_in(&stream.place, key, &found, expected)))
}

/// Runs `plan` and returns its outcome. Calls `started` when everything is set up and nothing is
/// released yet.
///
/// # Errors
/// A part could not be set up. Nothing is left running.
pub fn run(
    spec: &Spec,
    plan: &Plan<'_>,
    options: RunOptions,
    (log, trace): (&mut Option<JobLog>, &mut Option<TraceFile>),
    interrupted: &AtomicBool,
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<output::Run, Failure> {
    // The daemon has the interfaces, and the CPUs too.
    let has_flows = options.mode == Mode::Upcall && has_flows(spec, plan)?;
    if has_flows || is_across_processes(plan, options.mode) || attaches(spec, plan, options.mode)? {
        parent::run(spec, plan, options, (log, trace), interrupted, started)
    } else {
        in_process::run(spec, plan, options, (log, trace), interrupted, started)
    }
}
