//! `upcall run`: carries out a plan for real, once, in one mode.
//!
//! | module | what |
//! |---|---|
//! | [`in_process`] | all of a plan in this process |
//! | [`parent`] | each domain in a process of its own, in mode upcall under a daemon |
//! | [`domain`] | that process |
//! | [`process`], [`message`] | its handle, and what is said |
//! | [`daemon`] | the daemon, if nobody else has started one |
//! | [`activities`] | what a process runs |
//! | [`load`] | senders, and what competes |
//! | [`steal`] | what the host of a virtual machine takes |
//!
//! Sockets are bound before anything is started, so a port in use stops the run
//! while there is nothing to undo. Whatever was started is ended on every path
//! out: processes by the drop of their handles, threads by `Runtime::stop`.

use std::sync::atomic::AtomicBool;

use upcall::Mode;

use crate::csv::JobLog;
use crate::exit::Failure;
use crate::measured::RunOptions;
use crate::output;
use crate::plan::Plan;
use crate::spec::Spec;
use crate::trace::TraceFile;

mod activities;
mod daemon;
pub mod domain;
mod in_process;
mod load;
mod message;
mod notices;
mod parent;
mod process;
mod steal;
mod timing;

/// Whether each domain gets a process of its own. Where the kernel decides, ranks need
/// not compare.
pub fn is_across_processes(plan: &Plan<'_>, mode: Mode) -> bool {
    plan.domains().len() > 1 && (mode != Mode::Upcall || plan.discipline.across_domains)
}

/// Runs `plan` and says how it went. `started` is called when all is set up and
/// nothing released yet.
///
/// # Errors
/// Something could not be set up; nothing is left running.
pub fn run(
    spec: &Spec,
    plan: &Plan<'_>,
    options: RunOptions,
    (log, trace): (&mut Option<JobLog>, &mut Option<TraceFile>),
    interrupted: &AtomicBool,
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<output::Run, Failure> {
    if is_across_processes(plan, options.mode) {
        parent::run(spec, plan, options, (log, trace), interrupted, started)
    } else {
        in_process::run(spec, plan, options, (log, trace), interrupted, started)
    }
}
