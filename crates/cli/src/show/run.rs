//! The outcome of one run.

use comfy_table::Table;

use super::judgement::{lacks_class, verdict};
use super::{bits_a_second, or_dash, slack, span, table};
use crate::output::{Activity, Machine, Offence, Platform, Range, Run};

/// The whole report of a run, from its activities to its verdict.
pub fn run(run: &Run) -> String {
    let mut text = format!("{} for {}\n\n{}\n", run.mode, span(run.duration_ns), activities(run));
    if !run.streams.is_empty() {
        text += &format!("\n{}\n", streams(run));
    }
    text.push('\n');
    for background in &run.background {
        text += &format!(
            "background {}: {} of CPU time ({:.0} % of a CPU)\n",
            background.name,
            span(background.cpu_ns),
            background.share() * 100.0
        );
    }
    text += &switches(run);
    match &run.platform {
        Platform::Machine(machine) => text += &of_machine(machine),
        Platform::Virtual { domains: 0, .. } => {}
        Platform::Virtual { domains, defer_preemption_ns, .. } => {
            text += &format!("domains: {domains} processes, each with its own scheduler");
            text += &match defer_preemption_ns {
                0 => "\n".to_owned(),
                &deferral => format!("; one goes on for up to {}\n", span(deferral)),
            };
        }
    }
    text += &overruns(run);
    text += &skipped(run);
    text += &lag(run);
    let dearer = run.activities.iter().filter(|activity| costs_more(activity));
    // Mode upcall measures by the clock. Without the real-time class other threads run meanwhile.
    // The same holds for those of a thread that a watchdog lowered.
    let all = of_watchdogs(run);
    let was_lowered = |activity: &Activity| all.iter().any(|offence| offence.lowered(activity));
    text += &offences(all);
    for activity in dearer.filter(|activity| !lacks_class(run) && !was_lowered(activity)) {
        text += &format!(
            "NOTE {}: a PDU costs {}, more than the {} that was admitted\n",
            activity.name,
            or_dash(activity.pdu_cost_ns.measured, span),
            span(activity.pdu_cost_ns.declared),
        );
    }
    text += &responses(run);
    if run.interrupted {
        text += "interrupted\n";
    }
    for refusal in &run.refusals {
        text += &format!("left out: {}, refused by admission: {}\n", refusal.name, refusal.reason);
    }
    text + &verdict(run)
}

pub(super) fn activities(run: &Run) -> Table {
    let header = [
        "activity",
        "CPU",
        "released",
        "ended",
        "missed",
        "worst slack",
        "response p50",
        "p99",
        "max",
        "bound",
        "above bound",
        "yields",
        "cost/PDU",
        "measured",
    ];
    let mut activities = table(&header, 1);
    for activity in &run.activities {
        activities.add_row([
            activity.name.clone(),
            activity.cpu.to_string(),
            activity.jobs.to_string(),
            activity.completed.to_string(),
            activity.misses.to_string(),
            or_dash(activity.slack_ns_min, slack),
            span(activity.response_ns.p50),
            span(activity.response_ns.p99),
            span(activity.response_ns.max),
            or_dash(activity.response_ns_max, span),
            or_dash(activity.responses_above_max, |above| above.to_string()),
            activity.preemptions.to_string(),
            span(activity.pdu_cost_ns.declared),
            or_dash(activity.pdu_cost_ns.measured, span),
        ]);
    }
    activities
}

pub(super) fn streams(run: &Run) -> Table {
    let header = [
        "stream",
        "offered",
        "received",
        "processed",
        "unread",
        "lost: interface",
        "queue",
        "socket",
        "late",
        "delay max",
        "throughput",
    ];
    let mut streams = table(&header, 1);
    for stream in &run.streams {
        streams.add_row([
            stream.name.clone(),
            stream.offered.to_string(),
            stream.received.to_string(),
            stream.processed.to_string(),
            stream.unread.to_string(),
            stream.dropped.interface.to_string(),
            stream.dropped.queue.to_string(),
            stream.dropped.socket.to_string(),
            or_dash(stream.late, |late| late.to_string()),
            or_dash(stream.delay_ns_max, span),
            bits_a_second(stream.throughput_bps),
        ]);
    }
    streams
}

fn switches(run: &Run) -> String {
    let by_us = match run.switches.activity {
        0 => String::new(),
        switches => format!("{switches} between activities, "),
    };
    let by_domains = match run.switches.domain {
        _ if !has_domains(run) => String::new(),
        0 => String::new(),
        1 => "1 turn passed between domains, ".to_owned(),
        turns => format!("{turns} turns passed between domains, "),
    };
    format!("switches: {by_us}{by_domains}{} by the kernel\n", run.switches.kernel)
}

/// Whether there are several domains, which pass turns to each other.
fn has_domains(run: &Run) -> bool {
    run.activities.iter().any(|activity| activity.domain != run.activities[0].domain)
}

fn of_machine(machine: &Machine) -> String {
    let mut text = match &machine.wakeup_latency_ns {
        Some(late) => format!(
            "wake-up: {} late at p50, {} at p99, {} at most\n",
            span(late.p50),
            span(late.p99),
            span(late.max)
        ),
        None => "wake-up: not measured\n".to_owned(),
    };
    if machine.steal_ns > 0 {
        let taken = span(machine.steal_ns);
        text += &format!("host: took {taken} of CPU time from CPUs {:?}\n", machine.cpus);
    }
    text
}

fn overruns(run: &Run) -> String {
    let overruns: u64 = run.activities.iter().map(|activity| activity.overruns).sum();
    let quanta = longer_quanta(run);
    if overruns + quanta == 0 {
        return String::new();
    }
    let mut text = format!(
        "overruns: {overruns} releases found the job before unfinished, \
         {quanta} quanta were longer than declared\n"
    );
    for Activity { name, overruns, quantum_overruns, .. } in &run.activities {
        if overruns + quantum_overruns > 0 {
            text += &format!("  {name}: {overruns} releases, {quantum_overruns} quanta\n");
        }
    }
    text
}

fn skipped(run: &Run) -> String {
    let skipped: u64 = run.activities.iter().map(|activity| activity.skipped).sum();
    if skipped == 0 {
        return String::new();
    }
    let some = run.activities.iter().filter(|activity| activity.skipped > 0);
    let by_name: Vec<String> =
        some.map(|activity| format!("{} {}", activity.name, activity.skipped)).collect();
    let by_name = by_name.join(", ");
    format!("skipped: {skipped} jobs were dropped before they began ({by_name})\n")
}

/// The furthest ahead of and behind the ideal share, of all activities and of each.
fn lag(run: &Run) -> String {
    let shown = |range: &Range| format!("{} to {}", slack(range.min), slack(range.max));
    let some = || {
        let lags = run.activities.iter().map(|activity| (&activity.name, activity.lag_ns.as_ref()));
        lags.filter_map(|(name, lag)| Some((name, lag?)))
    };
    let all = some()
        .map(|(_, lag)| lag.clone())
        .reduce(|a, b| Range { min: a.min.min(b.min), max: a.max.max(b.max) });
    let Some(all) = all else { return String::new() };
    let by_name: Vec<String> = some().map(|(name, lag)| format!("{name} {}", shown(lag))).collect();
    format!("lag: {} ({})\n", shown(&all), by_name.join(", "))
}

/// What watchdogs did to the processes of the run.
fn of_watchdogs(run: &Run) -> &[Offence] {
    match &run.platform {
        Platform::Machine(machine) => &machine.offences,
        Platform::Virtual { .. } => &[],
    }
}

fn offences(all: &[Offence]) -> String {
    let mut text: String = all.iter().map(|offence| format!("NOTE {}\n", offence.line)).collect();
    if all.iter().any(|offence| offence.lost_class) {
        text += "  From then on other programs ran among the handlers, and measured times count \
                 them.\n";
    }
    text
}

fn longer_quanta(run: &Run) -> u64 {
    run.activities.iter().map(|activity| activity.quantum_overruns).sum()
}

/// Whether PDUs cost more than declared, by more than noise explains.
fn costs_more(activity: &Activity) -> bool {
    let cost = &activity.pdu_cost_ns;
    cost.measured.is_some_and(|measured| measured > cost.declared + cost.declared / 20)
}

/// How many jobs met the bounds of the analysis, and why a job may exceed them. Empty if no bound
/// applies.
fn responses(run: &Run) -> String {
    let bounded = || run.activities.iter().filter(|activity| activity.response_ns_max.is_some());
    let jobs: u64 = bounded().map(|activity| activity.completed).sum();
    let above = |activity: &Activity| activity.responses_above_max.unwrap_or_default();
    let above_all: u64 = bounded().map(above).sum();
    if bounded().next().is_none() {
        return String::new();
    }
    let within = jobs.saturating_sub(above_all);
    let mut text = format!("responses: {within} of {jobs} jobs within the bound\n");
    let Platform::Machine(machine) = &run.platform else { return text };
    if above_all == 0 {
        return text;
    }
    for activity in bounded().filter(|activity| above(activity) > 0) {
        text += &format!(
            "  above: {} {} of {} jobs, {} at most, bound {}\n",
            activity.name,
            above(activity),
            activity.completed,
            span(activity.response_ns.max),
            or_dash(activity.response_ns_max, span)
        );
    }
    let wakeup = match &machine.wakeup_latency_ns {
        Some(late) => format!("the CPU woke up to {} late", span(late.max)),
        None => "wake-ups were not measured".to_owned(),
    };
    text + &format!(
        "  The bound assumes declared costs, prompt wake-ups, and a CPU that the host leaves alone.\n  \
         Here {} quanta were longer than declared, {wakeup}, the host took {}.\n",
        longer_quanta(run),
        span(machine.steal_ns)
    )
}
