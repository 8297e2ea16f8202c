//! Runs a whole plan in this process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use upcall::time::{Instant, Span};
use upcall::{BusyLimit, Config, MemoryLock, Mode, Runtime, clock};
use upcall_cli::standard_error::say;

use super::activities::{Activities, bind, shortfall};
use super::daemon;
use super::load::Load;
use super::notices::{RunNotice, say_class};
use super::promises;
use super::steal::steal_ns;
use super::timing::{LEAD, POLL_EVERY, drain_time};
use crate::csv::JobLog;
use crate::exit::Failure;
use crate::live::Live;
use crate::measured::{Measured, Missing, RunOptions};
use crate::plan::Plan;
use crate::spec::Spec;
use crate::trace::TraceFile;
use crate::{outcome, output};

/// See [`super::run`].
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
    let has_lock = options.mode == Mode::Upcall;
    let lock = || promises::lock(plan, &used_cpus(plan), options.soft);
    let _locks = has_lock.then(lock).transpose()?;
    // Dropped after the activities, whose flows the daemon has.
    let mut daemon = daemon::for_flows(spec, plan, options.mode)?;
    let socket = daemon.as_ref().map(|(socket, _)| socket.as_path());
    let (mut activities, mut notices, opened) =
        set_up(spec, plan, options, trace.is_some(), socket)?;
    if let Some((_, Some(own))) = &mut daemon {
        own.mark_attached();
    }
    let mut load = Load::start(spec, plan, &used_cpus(plan))?;

    let _limit = busy_limit(plan, options.mode);
    started()?;
    if let Some(trace) = trace {
        trace.begin(&activities.trace_header(&plan.activities, 0, opened));
    }
    if let Some(log) = log {
        log.begin();
    }
    let drops_before = upcall::load::interface_drops();
    let stolen_before_ns = steal_ns(&plan.platform.cpus);
    let start = clock::now() + LEAD;
    load.begin(start);
    activities.run_at(start).map_err(Failure::of_error)?;
    notices.extend(activities.runtime.notices().iter().map(RunNotice::from));
    let missing = Missing::of(activities.runtime.notices());
    say_class(options.mode, activities.runtime.real_time(), &notices);
    let mut live = Live::new(options, plan, start);
    let mut files = Files { mode: options.mode, plan, log, trace };
    watch(&mut activities, start + options.duration, &mut files, &mut live, interrupted);

    // The senders stop first, so that nothing arrives after the last handler has run.
    let senders = load.stop_senders()?;
    let end = clock::now();
    drain(&mut activities, drain_time(plan), &mut files, interrupted);
    let (mut part, records) =
        activities.stop(&plan.activities, options.mode, |activity, job| files.log(activity, job));
    for offence in &mut part.offences {
        offence.line = format!("this process {}", offence.line);
        say(format_args!("upcall: {}", offence.line));
        notices.push(RunNotice::new(offence.line.clone()));
    }
    if let Some(trace) = files.trace {
        records.iter().for_each(|(cpu, record)| trace.record(*cpu, record));
    }
    live.finish();
    let measured = Measured {
        part,
        senders,
        background: load.stop(),
        duration: end.since(start),
        interrupted: interrupted.load(Ordering::Relaxed),
        notices: notices.iter().map(ToString::to_string).collect(),
        missing,
        interface_drops: upcall::load::interface_drops().saturating_sub(drops_before),
        steal_ns: steal_ns(&plan.platform.cpus).saturating_sub(stolen_before_ns),
        broken: Vec::new(),
        cpus: plan.platform.cpus.clone(),
        alone: true,
    };
    Ok(outcome::outcome(plan, options, measured))
}

/// The last line behind the runtime's watchdog: ten times what that lets a thread run without a
/// sleep. It holds in mode `upcall` only: no watchdog lowers the threads of the other modes. If the
/// user has set a lower limit, that stays.
fn busy_limit(plan: &Plan<'_>, mode: Mode) -> Option<BusyLimit> {
    let computes = plan.activities.iter().map(|planned| planned.params.compute().as_nanos());
    let allowed_ns = computes.fold(1_000_000_000, |sum: u64, ns| sum.saturating_add(ns * 2));
    let limit = (mode == Mode::Upcall).then(|| BusyLimit::set(allowed_ns.saturating_mul(10)));
    limit.and_then(Result::ok)
}

/// Binds the sockets, opens flows at the daemon with the socket `flows`, starts the runtime and
/// creates the activities, suspended. Returns also the notices about the plan, and the time just
/// before the runtime started.
fn set_up(
    spec: &Spec,
    plan: &Plan<'_>,
    options: RunOptions,
    is_traced: bool,
    flows: Option<&Path>,
) -> Result<(Activities, Vec<RunNotice>, Instant), Failure> {
    let endpoints = plan.activities.iter().map(|each| bind(spec, each, flows));
    let endpoints = endpoints.collect::<Result<Vec<_>, _>>()?;
    let opened = clock::now();
    let runtime = start_runtime(plan, options, is_traced)?;
    let mut notices: Vec<RunNotice> =
        one_process(plan, options.mode).map(RunNotice::new).into_iter().collect();
    let mut activities = Activities::new(runtime, flows);
    for (index, (planned, endpoint)) in plan.activities.iter().zip(endpoints).enumerate() {
        notices.extend(shortfall(planned, endpoint.as_ref()).map(RunNotice::new));
        activities.create(index, planned, endpoint).map_err(Failure::of_error)?;
    }
    Ok((activities, notices, opened))
}

fn start_runtime(
    plan: &Plan<'_>,
    options: RunOptions,
    is_traced: bool,
) -> Result<Runtime, Failure> {
    Runtime::start(Config {
        cpus: plan.platform.cpus.clone(),
        cpu_limit: plan.platform.cpu_limit,
        switch_cost: Some(plan.platform.switch_cost),
        wakeup_latency: plan.platform.wakeup_latency,
        discipline: plan.discipline,
        mode: options.mode,
        unscreened: options.soft,
        trace: is_traced,
        memory_lock: MemoryLock::All,
        daemon: None,
    })
    .map_err(Failure::of_error)
}

/// A notice if domains run in this process that should be processes of their own.
fn one_process(plan: &Plan<'_>, mode: Mode) -> Option<String> {
    let domains = plan.domains().len();
    let policy = plan.discipline.name;
    (mode == Mode::Upcall && domains > 1).then_some(())?;
    let refusal = plan.refused_by_daemon.as_ref()?;
    Some(format!(
        "the {domains} domains run in one process: a daemon of {policy} would refuse {refusal}"
    ))
}

/// The CPUs that activities run on: there the background load must compete.
fn used_cpus(plan: &Plan<'_>) -> Vec<u32> {
    let mut cpus: Vec<u32> = plan.activities.iter().map(|planned| planned.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The files that the run writes.
struct Files<'f, 's> {
    mode: Mode,
    plan: &'f Plan<'s>,
    log: &'f mut Option<JobLog>,
    trace: &'f mut Option<TraceFile>,
}

impl Files<'_, '_> {
    fn log(&mut self, activity: usize, job: &upcall::Job) {
        if let Some(log) = self.log {
            log.write(self.mode, self.plan.activities[activity].name(), &job.into());
        }
    }

    /// Empties the trace's rings into the file before the rings are full.
    fn poll_trace(&mut self, activities: &mut Activities) {
        if let Some(trace) = self.trace {
            activities.runtime.poll_trace(|cpu, record| trace.record(cpu, record));
        }
    }
}

/// Lets the activities run until `end` or Ctrl-C.
fn watch(
    activities: &mut Activities,
    end: Instant,
    files: &mut Files<'_, '_>,
    live: &mut Live,
    interrupted: &AtomicBool,
) {
    loop {
        let now = clock::now();
        if now >= end || interrupted.load(Ordering::Relaxed) {
            return;
        }
        let left: Duration = end.since(now).into();
        std::thread::sleep(left.min(POLL_EVERY));
        activities.poll(|activity, job| files.log(activity, job));
        files.poll_trace(activities);
        live.show(&activities.rows());
    }
}

/// Lets the handlers process what has arrived.
fn drain(
    activities: &mut Activities,
    longest: Span,
    files: &mut Files<'_, '_>,
    interrupted: &AtomicBool,
) {
    let end = clock::now() + longest;
    while clock::now() < end && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from(end.since(clock::now())).min(POLL_EVERY));
        files.poll_trace(activities);
    }
}
