//! The tables a person reads, drawn from the same objects as the JSON.

use comfy_table::{CellAlignment, Table, presets};

use crate::output::{Activity, Plan, Platform, Replay, Run, Sweep, Vopr};

mod compare;

pub use compare::comparison;

/// A table with a header; all columns but the first `left` are numbers.
pub fn table(header: &[&str], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        if index >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A length of time, to three significant digits: nobody reads more.
pub fn span(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..10_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{} {unit}", digits(ns as f64 / f64::from(unit_ns)))
}

/// A number to three significant digits, without zeros that say nothing.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.places$}");
    if places == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

/// A slack, with its sign.
pub fn slack(ns: i64) -> String {
    let sign = if ns < 0 { '-' } else { '+' };
    format!("{sign}{}", span(ns.unsigned_abs()))
}

fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn bits_a_second(bps: u64) -> String {
    match bps {
        0 => "-".to_owned(),
        1..1_000_000 => format!("{} kbit/s", digits(bps as f64 / 1e3)),
        _ => format!("{} Mbit/s", digits(bps as f64 / 1e6)),
    }
}

/// The plan: activities, tests, and what was refused.
pub fn plan(plan: &Plan) -> String {
    let mut activities = table(
        &[
            "activity",
            "domain",
            "CPU",
            "period",
            "deadline",
            "batch",
            "quantum",
            "cost/PDU",
            "compute",
            "share",
            "response max",
            "buffers",
            "bandwidth",
        ],
        2,
    );
    for activity in &plan.activities {
        let share = activity.compute_ns as f64 / activity.period_ns as f64 * 100.0;
        let measured = if activity.cost_measured { "*" } else { "" };
        activities.add_row([
            activity.name.clone(),
            activity.domain.clone(),
            or_dash(activity.cpu, |cpu| cpu.to_string()),
            span(activity.period_ns),
            span(activity.deadline_ns),
            activity.batch.to_string(),
            activity.quantum.to_string(),
            span(activity.pdu_cost_ns) + measured,
            span(activity.compute_ns),
            format!("{share:.1} %"),
            or_dash(activity.response_ns_max, span),
            if activity.buffers == 0 {
                "-".to_owned()
            } else {
                format!(
                    "{} x {} B",
                    activity.buffers,
                    activity.buffer_bytes / u64::from(activity.buffers)
                )
            },
            bits_a_second(activity.bandwidth_bps),
        ]);
    }
    let mut tests = table(&["test", "CPU", "value", "bound", "", ""], 1);
    for test in &plan.tests {
        tests.add_row([
            test.name.to_owned(),
            test.cpu.to_string(),
            or_dash(test.value, |value| format!("{value:.3}")),
            format!("{:.3}", test.bound),
            if test.passed { "passed" } else { "FAILED" }.to_owned(),
            if test.deciding { "decides" } else { "" }.to_owned(),
        ]);
    }
    let mut text = format!("{activities}\n");
    if plan.activities.iter().any(|activity| activity.cost_measured) {
        text += "* measured on a built-in sample, since the spec declares none\n";
    }
    text += &format!("\n{tests}\n\n");
    for cpu in &plan.cpus {
        text += &format!(
            "CPU {}: {:.1} % reserved of {:.1} %\n",
            cpu.cpu,
            cpu.utilization * 100.0,
            cpu.limit * 100.0
        );
    }
    text += &format!("hand-off cost: {}\n", span(plan.switch_cost_ns));
    if plan.admitted {
        text += "admitted\n";
    }
    for refusal in &plan.refusals {
        text += &format!("REFUSED {}: {}\n", refusal.name, refusal.reason);
        if let Some(hint) = &refusal.hint {
            text += &format!("  {hint}\n");
        }
    }
    text
}

/// The outcome of one run.
pub fn run(run: &Run) -> String {
    let mut activities = table(
        &[
            "activity",
            "CPU",
            "jobs",
            "missed",
            "worst slack",
            "response p50",
            "p99",
            "max",
            "bound",
            "yields",
            "cost/PDU",
            "measured",
        ],
        1,
    );
    for activity in &run.activities {
        activities.add_row([
            activity.name.clone(),
            activity.cpu.to_string(),
            activity.jobs.to_string(),
            activity.misses.to_string(),
            or_dash(activity.slack_ns_min, slack),
            span(activity.response_ns.p50),
            span(activity.response_ns.p99),
            span(activity.response_ns.max),
            or_dash(activity.response_ns_max, span),
            activity.preemptions.to_string(),
            span(activity.pdu_cost_ns.declared),
            or_dash(activity.pdu_cost_ns.measured, span),
        ]);
    }
    let mut text = format!("{} for {}\n\n{activities}\n", run.mode, span(run.duration_ns));
    if !run.streams.is_empty() {
        text += &format!("\n{}\n", streams(run));
    }
    for background in &run.background {
        let share = background.cpu_ns as f64 / run.duration_ns.max(1) as f64 * 100.0;
        text += &format!(
            "\nbackground {}: {} of CPU time ({share:.0} % of a CPU)",
            background.name,
            span(background.cpu_ns)
        );
    }
    let by_us = match run.switches.activity {
        0 => String::new(),
        switches => format!("{switches} between activities, "),
    };
    let by_domains = match run.switches.domain {
        0 => String::new(),
        turns => format!("{turns} turns passed between domains, "),
    };
    text += &format!("\nswitches: {by_us}{by_domains}{} by the kernel", run.switches.kernel);
    if let Platform::Machine(machine) = &run.platform {
        let wakeup = &machine.wakeup_latency_ns;
        text += &format!(
            "; threads woke {} late at p50, {} at p99, {} at most",
            span(wakeup.p50),
            span(wakeup.p99),
            span(wakeup.max),
        );
    }
    text.push('\n');
    let overruns: u64 = run.activities.iter().map(|activity| activity.overruns).sum();
    let quanta: u64 = run.activities.iter().map(|activity| activity.quantum_overruns).sum();
    if overruns + quanta > 0 {
        text += &format!(
            "overruns: {overruns} releases found the job before unfinished, \
             {quanta} quanta were longer than declared\n"
        );
    }
    for activity in run.activities.iter().filter(|activity| costs_more(activity)) {
        text += &format!(
            "NOTE {}: a PDU costs {}, more than the {} that was admitted\n",
            activity.name,
            or_dash(activity.pdu_cost_ns.measured, span),
            span(activity.pdu_cost_ns.declared),
        );
    }
    if run.interrupted {
        text += "interrupted\n";
    }
    text + &verdict(run)
}

/// Whether PDUs cost more than declared, beyond what noise explains.
fn costs_more(activity: &Activity) -> bool {
    let cost = &activity.pdu_cost_ns;
    cost.measured.is_some_and(|measured| measured > cost.declared + cost.declared / 20)
}

fn streams(run: &Run) -> Table {
    let mut streams = table(
        &[
            "stream",
            "offered",
            "received",
            "processed",
            "lost: interface",
            "queue",
            "socket",
            "late",
            "delay max",
            "throughput",
        ],
        1,
    );
    for stream in &run.streams {
        streams.add_row([
            stream.name.clone(),
            stream.offered.to_string(),
            stream.received.to_string(),
            stream.processed.to_string(),
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

fn verdict(run: &Run) -> String {
    if run.kept {
        return "every promise kept\n".to_owned();
    }
    run.broken.iter().map(|line| format!("BROKEN {line}\n")).collect()
}

/// What a replay compared, and `same commands` or the first that differs.
pub fn replay(replay: &Replay) -> String {
    let mut text = format!("policy {}, clock {}\n", replay.policy, replay.clock);
    let place = |cpu: u32, domain: &Option<String>| match domain {
        Some(domain) => format!("CPU {cpu}, domain {domain}"),
        None => format!("CPU {cpu}"),
    };
    for cpu in &replay.cpus {
        text += &format!(
            "{}: {} inputs, {} commands, {} times no command\n",
            place(cpu.cpu, &cpu.domain),
            cpu.inputs,
            cpu.commands,
            cpu.silences
        );
    }
    text + &match &replay.divergence {
        Some(found) => {
            format!("other commands: {}, {}\n", place(found.cpu, &found.domain), found.text)
        }
        None if replay.lost > 0 => String::new(),
        None => "same commands\n".to_owned(),
    }
}

/// What passed, and the first seed that did not, with how to see it again.
pub fn vopr(vopr: &Vopr) -> String {
    let mut text = String::new();
    for checked in &vopr.policies {
        let (seeds, jobs, events) = (checked.seeds, checked.jobs, checked.events);
        text += &format!("{:>5} {seeds} seeds, {jobs} jobs, {events} events\n", checked.policy);
    }
    text + &match &vopr.failed {
        Some(failed) => format!(
            "seed {} under {}: {}\nagain: upcall sim --vopr 1 --seed {} --policy {}\n",
            failed.seed, failed.policy, failed.what, failed.seed, failed.policy
        ),
        None => "every promise kept\n".to_owned(),
    }
}

/// What part of the sets was admitted at each point, and what the runs cost.
pub fn sweep(sweep: &Sweep) -> String {
    let header = [
        "policy",
        "load",
        "activities",
        "quantum",
        "hand-off",
        "sets",
        "admitted",
        "late",
        "switches/s",
        "busy",
    ];
    let mut table = table(&header, 1);
    for point in &sweep.curve {
        let part = |count: u64, of: u64| match of {
            0 => "-".to_owned(),
            of => format!("{} %", digits(count as f64 * 100.0 / of as f64)),
        };
        let ran = point.duration_ns > 0;
        let per_second = point.switches as f64 * 1e9 / point.duration_ns.max(1) as f64;
        table.add_row([
            point.policy.clone(),
            format!("{} %", digits(point.utilization * 100.0)),
            point.activities.to_string(),
            point.quantum.to_string(),
            span(point.switch_cost_ns),
            point.sets.to_string(),
            part(point.admitted, point.sets),
            if ran { part(point.with_misses, point.sets) } else { "-".to_owned() },
            if ran { digits(per_second) } else { "-".to_owned() },
            part(point.busy_ns, point.duration_ns),
        ]);
    }
    format!("{table}\n{} of {} sets\n", sweep.done, sweep.sets)
}
