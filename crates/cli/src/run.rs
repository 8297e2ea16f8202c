//! `upcall run`: carries out a plan for real, once, in one mode.
//!
//! Sockets are bound before anything is started, so a port in use stops the run
//! while there is nothing to undo. Whatever was started is ended on every path
//! out: processes by the drop of their handles, threads by `Runtime::stop`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use upcall::load::{SenderCounts, Senders};
use upcall::time::{Instant, Span};
use upcall::udp::StreamCounters;
use upcall::work::{Work, WorkKind};
use upcall::{Config, HandlerId, Job, Mode, Report, Runtime, clock};
use upcall_sim::trace::{Clock, Header, Named};

use crate::csv::JobLog;
use crate::exit::Failure;
use crate::live::Live;
use crate::plan::{Plan, Planned};
use crate::spec::{Direction, Spec};
use crate::stream::{Endpoint, WorkTally, sender_plan};
use crate::trace::TraceFile;
use crate::{background, outcome, output};

/// From the last preparation to the first release.
const LEAD: Span = Span::from_millis(100);
/// Longest drain after the senders stopped.
const DRAIN_MAX: Span = Span::from_secs(2);
/// How often job records are taken in and the live table drawn.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// How one run is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub mode: Mode,
    pub duration: Span,
    pub soft: bool,
}

/// A stream while it runs.
#[derive(Debug)]
pub struct RunningStream {
    /// Position among the activities.
    pub activity: usize,
    pub counters: Arc<StreamCounters>,
    pub work: Arc<WorkTally>,
    /// Position among the embedded senders, if one of them feeds it.
    pub sender: Option<usize>,
}

/// Everything that was measured in one run.
pub struct Measured {
    pub report: Report,
    pub streams: Vec<RunningStream>,
    pub senders: Vec<SenderCounts>,
    pub background: Vec<output::Background>,
    pub duration: Span,
    pub interrupted: bool,
    pub notices: Vec<String>,
    pub interface_drops: u64,
}

/// Runs `plan` and says how it went. `started` is called when all is set up and
/// nothing released yet.
///
/// # Errors
/// Something could not be set up; nothing is left running.
pub fn run(
    spec: &Spec,
    plan: &Plan<'_>,
    order: Order,
    (log, trace): (&mut Option<JobLog>, &mut Option<TraceFile>),
    interrupted: &AtomicBool,
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<output::Run, Failure> {
    let endpoints = bind(spec, plan)?;
    let opened = clock::now();
    let mut runtime = Runtime::start(Config {
        cpus: plan.platform.cpus.clone(),
        cpu_limit: plan.platform.cpu_limit,
        switch_cost: Some(plan.platform.switch_cost),
        wakeup_latency: plan.platform.wakeup_latency,
        discipline: plan.discipline,
        mode: order.mode,
        unscreened: order.soft,
        trace: trace.is_some(),
        daemon: None,
    })
    .map_err(Failure::new)?;
    let mut notices: Vec<String> = plan
        .activities
        .iter()
        .zip(&endpoints)
        .filter_map(|(planned, endpoint)| {
            let shortfall = endpoint.as_ref()?.shortfall()?;
            Some(format!("{}: {shortfall}", planned.name()))
        })
        .collect();
    let (handlers, mut streams) = create(&mut runtime, plan, endpoints)?;
    let cpus = used_cpus(plan);
    let background = background::start(spec, &cpus)?;
    let senders = start_senders(spec, plan, &mut streams)?;

    started()?;
    if let Some(trace) = trace {
        trace.begin(&trace_header(&runtime, plan, &handlers, opened));
    }
    if let Some(log) = log {
        log.begin();
    }
    let drops_before = upcall::load::interface_drops();
    let start = clock::now() + LEAD;
    if let Some(senders) = &senders {
        senders.start(start);
    }
    runtime.run_at(&handlers, start).map_err(Failure::new)?;
    notices.extend(runtime.notices().iter().map(ToString::to_string));
    for notice in &notices {
        eprintln!("upcall: {notice}");
    }
    let mut live = Live::new(order, plan, start);
    watch(&mut runtime, &handlers, &streams, order, start, (log, trace), &mut live, interrupted);

    // Load first, so that nothing arrives that nobody was to process.
    let senders = senders.map(Senders::stop).transpose().map_err(Failure::new)?;
    let end = clock::now();
    drain(&mut runtime, plan, trace, interrupted);
    let log_names: Vec<&str> = plan.activities.iter().map(Planned::name).collect();
    let report = runtime.stop(|id, job| log_job(log, order.mode, &log_names, &handlers, id, job));
    if let Some(trace) = trace {
        report.trace.iter().for_each(|(cpu, record)| trace.record(*cpu, record));
    }
    live.finish();
    let measured = Measured {
        report,
        streams,
        senders: senders.unwrap_or_default(),
        background: background::stop(background),
        duration: end.since(start),
        interrupted: interrupted.load(Ordering::Relaxed),
        notices,
        interface_drops: upcall::load::interface_drops().saturating_sub(drops_before),
    };
    Ok(outcome::outcome(plan, order, measured))
}

/// Binds every stream's socket.
fn bind(spec: &Spec, plan: &Plan<'_>) -> Result<Vec<Option<Endpoint>>, Failure> {
    plan.activities
        .iter()
        .map(|planned| {
            let Some((stream, mapping)) = planned.stream() else { return Ok(None) };
            Endpoint::open(stream, mapping).map(Some).map_err(|error| {
                let key = match stream.direction {
                    Direction::Receive(_) => "receive",
                    Direction::Send(_) => "send",
                };
                let (found, expected) = (error.to_string(), "an address that is free and ours");
                Failure::new(spec.source.error_in(&stream.place, key, &found, expected))
            })
        })
        .collect()
}

fn create(
    runtime: &mut Runtime,
    plan: &Plan<'_>,
    endpoints: Vec<Option<Endpoint>>,
) -> Result<(Vec<HandlerId>, Vec<RunningStream>), Failure> {
    let mut handlers = Vec::new();
    let mut streams = Vec::new();
    for (index, (planned, endpoint)) in plan.activities.iter().zip(endpoints).enumerate() {
        let created = match endpoint {
            Some(endpoint) => {
                streams.push(RunningStream {
                    activity: index,
                    counters: endpoint.counters(),
                    work: endpoint.tally(),
                    sender: None,
                });
                runtime.handler(
                    planned.name(),
                    (planned.params, planned.terms),
                    endpoint.into_handler(),
                )
            }
            None => {
                let cost = planned.params.pdu_cost;
                let mut spin = Work::new(WorkKind::Spin, 1, cost, upcall::thread_cpu_ns);
                runtime.handler(planned.name(), (planned.params, planned.terms), move |batch| {
                    while batch.proceed() {
                        // Anything is a PDU to it, and spinning cannot fail then.
                        let _ = spin.take(&[]);
                        let _ = spin.process();
                    }
                })
            }
        };
        handlers.push(created.map_err(Failure::new)?);
    }
    Ok((handlers, streams))
}

/// CPUs that activities run on: where the background load must compete.
fn used_cpus(plan: &Plan<'_>) -> Vec<u32> {
    let mut cpus: Vec<u32> = plan.activities.iter().map(|planned| planned.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn start_senders(
    spec: &Spec,
    plan: &Plan<'_>,
    streams: &mut [RunningStream],
) -> Result<Option<Senders>, Failure> {
    let mut plans = Vec::new();
    for running in streams {
        let Some((stream, mapping)) = plan.activities[running.activity].stream() else { continue };
        if stream.embedded_source {
            running.sender = Some(plans.len());
            plans.push(sender_plan(stream, mapping).map_err(|found| {
                let expected = "a stream whose packets Upcall can make";
                Failure::new(spec.source.error_in(&stream.place, "source", &found, expected))
            })?);
        }
    }
    if plans.is_empty() {
        return Ok(None);
    }
    let command = background::own_command(crate::args::SEND_COMMAND)?;
    let cpus = background::other_cpus(&plan.platform.cpus)?;
    Senders::spawn(&command, &cpus, &plans).map(Some).map_err(Failure::new)
}

/// Lets it run until its time is over or Ctrl-C.
#[expect(clippy::too_many_arguments, reason = "called once, to keep `run` readable")]
fn watch(
    runtime: &mut Runtime,
    handlers: &[HandlerId],
    streams: &[RunningStream],
    order: Order,
    start: Instant,
    (log, trace): (&mut Option<JobLog>, &mut Option<TraceFile>),
    live: &mut Live,
    interrupted: &AtomicBool,
) {
    let end = start + order.duration;
    let names: Vec<String> = live.names().to_vec();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    loop {
        let now = clock::now();
        if now >= end || interrupted.load(Ordering::Relaxed) {
            return;
        }
        let left: Duration = end.since(now).into();
        std::thread::sleep(left.min(POLL_EVERY));
        runtime.poll(|id, job| log_job(log, order.mode, &names, handlers, id, job));
        poll_trace(runtime, trace);
        live.show(runtime, handlers, streams);
    }
}

/// Lets the handlers process what has arrived, as long as the longest delay that
/// was promised; in every mode alike.
fn drain(
    runtime: &mut Runtime,
    plan: &Plan<'_>,
    trace: &mut Option<TraceFile>,
    interrupted: &AtomicBool,
) {
    let delays = plan.activities.iter().filter_map(|planned| Some(planned.mapping?.delay_max));
    let end = clock::now() + delays.max().unwrap_or_default().min(DRAIN_MAX);
    while clock::now() < end && !interrupted.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from(end.since(clock::now())).min(POLL_EVERY));
        poll_trace(runtime, trace);
    }
}

/// Writes what the trace's rings hold before they are full.
fn poll_trace(runtime: &mut Runtime, trace: &mut Option<TraceFile>) {
    if let Some(trace) = trace {
        runtime.poll_trace(|cpu, record| trace.record(cpu, record));
    }
}

/// Who is who in the trace.
fn trace_header(
    runtime: &Runtime,
    plan: &Plan<'_>,
    handlers: &[HandlerId],
    start: Instant,
) -> Header {
    let activities = plan.activities.iter().zip(handlers).filter_map(|(planned, &handler)| {
        let (cpu, id) = runtime.place(handler)?;
        let (name, domain) = (planned.name().to_owned(), planned.domain().to_owned());
        Some(Named { cpu, id, name, domain })
    });
    Header {
        discipline: plan.discipline,
        time_quantum: plan.discipline.time_quantum,
        groups: plan.discipline.groups.clone(),
        clock: Clock::Monotonic,
        start,
        cpus: plan.platform.cpus.iter().map(|&cpu| (cpu, upcall::ACTIVITIES_MAX)).collect(),
        activities: activities.collect(),
    }
}

fn log_job(
    log: &mut Option<JobLog>,
    mode: Mode,
    names: &[&str],
    handlers: &[HandlerId],
    id: HandlerId,
    job: &Job,
) {
    let index = handlers.iter().position(|&handler| handler == id);
    if let (Some(log), Some(index)) = (log.as_mut(), index) {
        log.write(mode, names[index], job);
    }
}
