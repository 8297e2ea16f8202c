//! Turns what a run measured into its outcome, and checks whether the promises were kept.

use upcall::scheduler::Counters;
use upcall::work::WorkKind;
use upcall::{ActivityReport, Latency, Mode, Report, Statistics};

use crate::measured::{Measured, Progress, RunOptions, StreamCounts};
use crate::output::{self, Cost, Dropped, Percentiles, Switches};
use crate::plan::{Plan, Planned};
use crate::spec::Direction;
use crate::stream::SharedWorkCounters;

/// The JSON object of one run (docs/contract.md).
pub fn outcome(plan: &Plan<'_>, options: RunOptions, mut measured: Measured) -> output::Run {
    let mut part = std::mem::take(&mut measured.part);
    measured.part.offences = std::mem::take(&mut part.offences);
    let platform = platform(plan, options.mode, part.wakeup_latency_ns.take(), &measured);
    // The analysis holds only for the admitted set alone, in the real-time class, under Upcall's
    // own scheduler.
    let real_time = platform.real_time;
    let applies = measured.alone && options.mode == Mode::Upcall && real_time;
    let activities: Vec<output::Activity> = part
        .activities
        .into_iter()
        .map(|(index, activity)| {
            let bound = plan.activities[index].response_max.filter(|_| applies);
            output::Activity {
                response_ns_max: bound.map(|response| response.as_nanos()),
                responses_above_max: bound.and(activity.responses_above_max),
                ..activity
            }
        })
        .collect();
    let streams: Vec<output::Stream> = part
        .streams
        .into_iter()
        .map(|(index, counts)| stream(plan, index, counts, &measured))
        .collect();
    let mut broken = broken_promises(&activities, &streams);
    for cpu in &part.stuck {
        broken.push(format!("a handler on CPU {cpu} did not yield when the run ended"));
    }
    broken.append(&mut measured.broken);
    output::Run {
        mode: options.mode.name(),
        policy: plan.output.policy,
        duration_ns: measured.duration.as_nanos(),
        promised: options.mode == Mode::Upcall
            && !options.soft
            && real_time
            && promises_any(&activities),
        kept: broken.is_empty(),
        broken,
        refusals: plan.left_out.clone(),
        interrupted: measured.interrupted,
        switches: part.switches,
        platform: output::Platform::Machine(Box::new(platform)),
        seed: None,
        activities,
        streams,
        background: measured.background,
    }
}

/// The switches of a process. In the baseline modes the kernel switches and counts.
pub fn switches(mode: Mode, report: &Report) -> Switches {
    Switches {
        activity: match mode {
            Mode::Upcall => report.activity_switches,
            Mode::Threads | Mode::Fifo => 0,
        },
        domain: report.domain_switches,
        kernel: report.kernel_switches,
    }
}

/// The last known state of an activity whose process was lost.
pub fn last_known(planned: &Planned<'_>, row: &Progress) -> output::Activity {
    let params = &planned.params;
    let nothing = Percentiles::default();
    output::Activity {
        name: planned.name().to_owned(),
        domain: planned.domain().to_owned(),
        cpu: planned.cpu,
        jobs: row.jobs,
        completed: row.jobs,
        misses: row.misses,
        response_ns: nothing.clone(),
        slack_ns_min: row.slack_ns_min,
        preemptions: 0,
        pdus: row.pdus,
        period_ns: params.period.as_nanos(),
        deadline_ns: planned.deadline.as_nanos(),
        response_ns_max: None,
        responses_above_max: None,
        skipped: 0,
        overruns: 0,
        quantum_overruns: 0,
        pdu_cost_ns: Cost { declared: params.pdu_cost.as_nanos(), measured: None, max: 0 },
        wakeup_latency_ns: nothing,
        faulted: false,
        lag_ns: None,
        promise: planned.promise,
        window: planned.window(),
        window_violations: None,
    }
}

/// The final figures of an activity, without what admission promised.
pub fn activity(planned: &Planned<'_>, report: &ActivityReport) -> output::Activity {
    let statistics = &report.statistics;
    // A handler that never returned has no exact counters. Its last statistics take their place,
    // and the run is reported as broken.
    let counters = report.counters;
    let jobs = counters.map_or(statistics.jobs, |c| c.jobs);
    output::Activity {
        name: report.name.clone(),
        domain: planned.domain().to_owned(),
        cpu: report.cpu,
        jobs,
        completed: counters.map_or(statistics.jobs, |c| c.completed),
        misses: counters.map_or(statistics.misses, |c| c.misses),
        response_ns: response(statistics, counters),
        slack_ns_min: match counters {
            Some(c) => (c.slack_ns_min != i64::MAX).then_some(c.slack_ns_min),
            None => statistics.slack_ns_min,
        },
        preemptions: counters.map_or(0, |c| c.preemptions),
        pdus: counters.map_or(statistics.pdus, |c| c.pdus),
        period_ns: report.params.period.as_nanos(),
        deadline_ns: planned.deadline.as_nanos(),
        response_ns_max: None,
        responses_above_max: None,
        skipped: counters.map_or(0, |c| c.skipped),
        overruns: counters.map_or(0, |c| c.overruns),
        quantum_overruns: statistics.quantum_overruns,
        pdu_cost_ns: Cost {
            declared: report.params.pdu_cost.as_nanos(),
            measured: statistics.cost.mean().map(|cost| cost.as_nanos()),
            max: statistics.cost.max().as_nanos(),
        },
        wakeup_latency_ns: percentiles(&statistics.wakeup),
        faulted: report.faulted,
        lag_ns: statistics.lag.map(|lag| output::Range { min: lag.min_ns, max: lag.max_ns }),
        promise: planned.promise,
        window: planned.window(),
        window_violations: None,
    }
}

/// How late the scheduling threads woke. `None` in the baseline modes, where a thread that wakes
/// late may have waited for another handler. `None` also among domains, where the daemon's thread
/// waits for releases.
pub fn wakeup_latency(mode: Mode, report: &Report) -> Option<Percentiles> {
    let is_measured = mode == Mode::Upcall && report.wakeup.count() > 0;
    is_measured.then(|| percentiles(&report.wakeup))
}

/// The percentiles of a distribution.
pub fn percentiles(latency: &Latency) -> Percentiles {
    let at = |percent| latency.percentile(percent).as_nanos();
    Percentiles { p50: at(50.0), p99: at(99.0), max: latency.max().as_nanos() }
}

/// The maximum is the scheduler's exact one, which includes jobs that never ended.
fn response(statistics: &Statistics, counters: Option<Counters>) -> Percentiles {
    let seen = percentiles(&statistics.response);
    Percentiles { max: counters.map_or(seen.max, |c| c.response_max.as_nanos()), ..seen }
}

fn stream(
    plan: &Plan<'_>,
    index: usize,
    counts: StreamCounts,
    measured: &Measured,
) -> output::Stream {
    let planned = &plan.activities[index];
    let StreamCounts { received, dropped_socket: socket, .. } = counts;
    let stream = planned.stream().map(|(stream, _)| stream);
    let sends = stream.is_some_and(|stream| matches!(stream.direction, Direction::Send(_)));
    let sent = measured.senders.iter().find(|(activity, _)| *activity == index);
    let offered = match sent {
        Some((_, sent)) => sent.offered,
        None if sends => counts.processed + counts.dropped_queue,
        None => received + socket,
    };
    let interface = match sent {
        Some((_, sent)) => sent.offered.saturating_sub(received + socket),
        // Another program is the sender: only the interface's own count is known.
        None => measured.interface_drops,
    };
    let seconds = measured.duration.as_secs_f64().max(1e-9);
    let bits = counts.processed_bytes as f64 * 8.0;
    output::Stream {
        name: planned.name().to_owned(),
        offered,
        received,
        processed: counts.processed,
        dropped: Dropped { interface, queue: counts.dropped_queue, socket },
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and far below 2^64"
        )]
        throughput_bps: (bits / seconds).round() as u64,
        direction: if sends { "send" } else { "receive" },
        unread: counts.unread,
        late: Some(counts.late),
        delay_ns_max: Some(counts.delay_ns_max),
        errors: counts.errors,
        work: counts.work,
    }
}

/// The counts of a named processor; `None` for `spin`, which ignores its input.
pub fn work_counts(kind: WorkKind, counters: &SharedWorkCounters) -> Option<output::WorkCounts> {
    let seen = counters.lock().ok().filter(|_| kind != WorkKind::Spin)?;
    Some(output::WorkCounts {
        kind: kind.name().into(),
        processed: seen.processed,
        rejected: seen.rejected,
        decode_errors: seen.decode_errors,
        lost: seen.lost,
        reordered: seen.reordered,
        duplicates: seen.duplicates,
        frames_dropped: seen.frames_dropped,
        peak: seen.peak,
        width: seen.width,
        height: seen.height,
    })
}

/// Whether admission promises something to any of the activities. A stream has its share or
/// deadline, so it has a promise.
pub fn promises_any(activities: &[output::Activity]) -> bool {
    activities.iter().any(|activity| activity.promise != output::Promise::Nothing)
}

/// The broken promises: missed deadlines, violated windows, late packets and lost packets. Misses
/// count only where deadlines are promised.
pub fn broken_promises(activities: &[output::Activity], streams: &[output::Stream]) -> Vec<String> {
    let mut broken = Vec::new();
    for activity in activities {
        let violations = activity.window_violations.unwrap_or_default();
        if activity.promise == output::Promise::Windows && violations > 0 {
            broken.push(format!("{}: {violations} windows violated", activity.name));
        }
        if activity.promise == output::Promise::Deadlines && activity.misses > 0 {
            broken.push(format!(
                "{}: {} of {} deadlines missed",
                activity.name, activity.misses, activity.jobs
            ));
        }
        if activity.faulted {
            broken.push(format!("{}: its handler panicked", activity.name));
        }
    }
    for stream in streams {
        // Drops at the interface count for a sender of Upcall only: for another sender they cannot
        // be separated from other traffic.
        let lost = stream.dropped.socket + stream.dropped.queue;
        if lost > 0 {
            broken.push(format!("{}: {lost} of {} packets lost", stream.name, stream.offered));
        }
        if let Some(late) = stream.late.filter(|&late| late > 0) {
            broken.push(format!("{}: {late} packets late", stream.name));
        }
    }
    broken
}

fn platform(
    plan: &Plan<'_>,
    mode: Mode,
    wakeup_latency_ns: Option<Percentiles>,
    measured: &Measured,
) -> output::Machine {
    let machine = upcall::Machine::describe();
    output::Machine {
        cpu_model: machine.cpu_model,
        kernel: machine.kernel_release,
        cpus_online: machine.cpus_online,
        cpus: measured.cpus.clone(),
        real_time: mode != Mode::Threads && !measured.missing.real_time_class,
        memory_locked: !measured.missing.memory_lock,
        switch_cost_ns: plan.platform.switch_cost.as_nanos(),
        wakeup_latency_ns,
        steal_ns: measured.steal_ns,
        date: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
        notices: measured.notices.clone(),
        offences: measured.part.offences.clone(),
    }
}
