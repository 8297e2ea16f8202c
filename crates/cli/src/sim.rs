//! `upcall sim`: runs the plan in virtual time and reports it as a run.
//!
//! Streams arrive exactly at their declared rate, or as recorded, and cost what they declare. The
//! simulator's library can do more (jitter, faults).

use std::collections::BTreeMap;
use std::sync::Arc;

use upcall::time::{Instant, Span};
use upcall::work::MediaClock;
use upcall_cli::arrivals::Recording;
use upcall_cli::standard_error::say;
use upcall_sim::outcome::ActivityOutcome;
use upcall_sim::trace::Header;
use upcall_sim::{Arrivals, SimActivity, SimSpec, Simulation, SplitLevel};

use crate::exit::Failure;
use crate::outcome::{broken_promises, promises_any};
use crate::output::{self, Cost, Dropped, Percentiles};
use crate::plan::{Plan, Planned};
use crate::spec::{Activity, Spec};
use crate::trace::TraceFile;

/// Recorded arrivals by the name of their activity.
pub type Recorded = BTreeMap<String, OneRecorded>;

/// The recorded arrivals of one activity.
#[derive(Clone, Debug)]
pub struct OneRecorded {
    at: Arc<[Instant]>,
    /// When they arrive logically, by the timestamps of RTP.
    logical: Option<Arc<[Instant]>>,
}

/// The clock of the timestamps in the packets of a stream, by its work.
fn media_clock(activity: &Activity<'_>) -> Option<MediaClock> {
    let Activity::Stream(stream) = activity else { return None };
    MediaClock::of(stream.work)
}

/// Reads the recordings, and prints their notes on standard error.
///
/// # Errors
/// A name that the spec does not have or that is given twice, or a file without arrivals.
pub fn recorded(
    spec: &Spec,
    recordings: &[Recording],
    duration: Span,
) -> Result<Recorded, Failure> {
    let activities = spec.activities();
    let names: Vec<&str> = activities.iter().map(|activity| activity.name()).collect();
    let mut recorded = Recorded::new();
    for recording in recordings {
        let name = &recording.name;
        if !names.contains(&name.as_str()) {
            let known: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            let known = known.join(", ");
            return Err(Failure::new(format_args!(
                "--arrivals: found {name:?}, expected one of {known}"
            )));
        }
        if recorded.contains_key(name) {
            return Err(Failure::new(format_args!(
                "--arrivals: found {name:?} again, expected each once"
            )));
        }
        let path = &recording.path;
        let of = activities.iter().find(|activity| activity.name() == name);
        let arrived = recording
            .read(of.and_then(media_clock))
            .map_err(|error| Failure::of_file(path, error))?;
        for note in &arrived.notes {
            say(format_args!("upcall: {}: {note}", path.display()));
        }
        let within = arrived.at.partition_point(|&at| at < Instant::ZERO + duration);
        let (all, after) = (arrived.at.len(), arrived.at.len() - within);
        if after > 0 {
            say(format_args!(
                "upcall: {name}: {after} of {all} arrivals come after {duration}, the end"
            ));
        }
        let logical = arrived.logical.map(Into::into);
        recorded.insert(name.clone(), OneRecorded { at: arrived.at.into(), logical });
    }
    Ok(recorded)
}

/// The plan as the simulator takes it, with a number for each domain. Several domains are
/// processes, as in a run, unless the discipline runs them in one.
fn sim_spec(plan: &Plan<'_>, seed: u64, recorded: &Recorded) -> SimSpec {
    let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
    let activities = plan.activities.iter().map(|planned| {
        let next = u32::try_from(domains.len()).unwrap_or(u32::MAX);
        let domain = *domains.entry(planned.domain()).or_insert(next);
        sim_activity(planned, domain, recorded.get(planned.name()))
    });
    let mut spec = SimSpec::new(plan.discipline, activities.collect());
    spec.cpus = plan.platform.cpus.clone();
    spec.switch_cost = plan.platform.switch_cost;
    spec.split_level = plan.is_split().then_some(SplitLevel {
        handoff_cost: plan.platform.switch_cost,
        defer_preemption: plan.platform.defer_preemption,
    });
    spec.seed = seed;
    spec
}

/// Simulates `plan` for `duration`. Writes `trace` if there is one.
///
/// # Errors
/// The simulation is invalid, which never happens for a plan.
pub fn simulate(
    plan: &Plan<'_>,
    duration: Span,
    seed: u64,
    recorded: &Recorded,
    trace: &mut Option<TraceFile>,
) -> Result<output::Run, Failure> {
    let spec = sim_spec(plan, seed, recorded);
    if let Some(trace) = trace {
        let mut headers = Header::all(&spec);
        for named in headers.iter_mut().flat_map(|header| &mut header.activities) {
            let planned = plan.activities.iter().find(|planned| planned.name() == named.name);
            named.domain = planned.map_or_else(String::new, |of| of.domain().to_owned());
        }
        trace.begin_all(&headers);
    }
    let simulation = Simulation::new(spec).map_err(Failure::of_error)?;
    let outcome = match trace {
        Some(trace) => {
            simulation.run_traced(duration, &mut |_event| {}, &mut |process, cpu, record| {
                trace.record_of(process, cpu, record);
            })
        }
        None => simulation.run(duration, &mut |_event| {}),
    };

    let each = || plan.activities.iter().zip(&outcome.activities);
    let activities: Vec<_> = each().map(|(planned, done)| activity(planned, done)).collect();
    let streams: Vec<_> =
        each().filter_map(|(planned, done)| stream(planned, done, duration)).collect();
    let broken = broken_promises(&activities, &streams);
    Ok(output::Run {
        mode: "sim",
        policy: plan.output.policy,
        duration_ns: duration.as_nanos(),
        promised: plan.is_admitted() && promises_any(&activities),
        kept: broken.is_empty(),
        refusals: plan.left_out.clone(),
        broken,
        interrupted: false,
        switches: output::Switches {
            activity: outcome.cpus.iter().map(|cpu| cpu.switches).sum(),
            domain: outcome.cpus.iter().map(|cpu| cpu.domain_switches).sum(),
            kernel: 0,
        },
        platform: output::Platform::Virtual {
            simulated: true,
            domains: if plan.is_split() { plan.domains().len() } else { 0 },
            defer_preemption_ns: plan.platform.defer_preemption.as_nanos(),
        },
        seed: Some(seed),
        activities,
        streams,
        background: Vec::new(),
    })
}

fn sim_activity(planned: &Planned<'_>, domain: u32, recorded: Option<&OneRecorded>) -> SimActivity {
    let mut activity = SimActivity::new(planned.name(), planned.params);
    activity.domain = domain;
    activity.terms = planned.terms;
    activity.cpu = planned.cpu;
    if let Some(OneRecorded { at, logical }) = recorded {
        activity.arrivals = Arrivals::Recorded(at.clone());
        activity.logical_arrivals.clone_from(logical);
    } else if let Some(mapping) = &planned.mapping {
        activity.arrivals = Arrivals::Periodic { every: mapping.pdu_interval };
    }
    activity
}

fn activity(planned: &Planned<'_>, done: &ActivityOutcome) -> output::Activity {
    let counters = &done.counters;
    let at = |percent| done.responses.percentile(percent).unwrap_or_default().as_nanos();
    let cost_ns = planned.params.pdu_cost.as_nanos();
    output::Activity {
        name: planned.name().to_owned(),
        domain: planned.domain().to_owned(),
        cpu: planned.cpu,
        jobs: counters.jobs,
        completed: counters.completed,
        misses: counters.misses,
        response_ns: Percentiles {
            p50: at(50),
            p99: at(99),
            max: counters.response_max.as_nanos(),
        },
        slack_ns_min: (counters.slack_ns_min != i64::MAX).then_some(counters.slack_ns_min),
        preemptions: counters.preemptions,
        pdus: counters.pdus,
        period_ns: planned.params.period.as_nanos(),
        deadline_ns: planned.deadline.as_nanos(),
        response_ns_max: planned.response_max.map(Span::as_nanos),
        responses_above_max: planned.response_max.map(|bound| done.responses.above(bound)),
        skipped: counters.skipped,
        overruns: counters.overruns,
        quantum_overruns: 0,
        pdu_cost_ns: Cost {
            declared: cost_ns,
            measured: (counters.pdus > 0).then_some(cost_ns),
            max: cost_ns,
        },
        wakeup_latency_ns: Percentiles { p50: 0, p99: 0, max: 0 },
        faulted: false,
        lag_ns: done.lag_ns.map(|(min, max)| output::Range { min, max }),
        promise: planned.promise,
        window: planned.window(),
        window_violations: done.window_violations,
    }
}

fn stream(planned: &Planned<'_>, done: &ActivityOutcome, duration: Span) -> Option<output::Stream> {
    let (stream, _) = planned.stream()?;
    let processed = done.counters.pdus;
    let bits = u128::from(processed) * u128::from(stream.pdu_bytes) * 8;
    let throughput = bits * 1_000_000_000 / u128::from(duration.as_nanos().max(1));
    Some(output::Stream {
        name: planned.name().to_owned(),
        offered: done.arrived,
        received: done.arrived,
        processed,
        dropped: Dropped { interface: 0, queue: 0, socket: 0 },
        throughput_bps: u64::try_from(throughput).unwrap_or(u64::MAX),
        direction: stream.direction.parts().0,
        unread: done.arrived.saturating_sub(processed),
        late: None,
        delay_ns_max: None,
        errors: 0,
        work: None,
    })
}
