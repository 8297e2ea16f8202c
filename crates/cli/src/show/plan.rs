//! The result of admission.

use comfy_table::{CellAlignment, Table};

use super::{bits_a_second, or_dash, span, table};
use crate::output::{PacketQuota, Plan, PlannedActivity, Test};

/// The plan: activities, tests and refusals.
pub fn plan(plan: &Plan) -> String {
    let (activities, tests) = (activities(plan), tests(plan));
    let mut text = format!("{activities}\n");
    if plan.activities.iter().any(|activity| activity.cost_measured) {
        text += "* measured on a built-in sample, since the spec declares none\n";
    }
    text += &ends(plan);
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
        text += &format!("admitted: {}\n", admitted(plan).join(", "));
    }
    for refusal in &plan.refusals {
        let optional = if refusal.optional { " (optional)" } else { "" };
        text += &format!("REFUSED {}{optional}: {}\n", refusal.name, refusal.reason);
        if let Some(hint) = &refusal.hint {
            text += &format!("  {hint}\n");
        }
    }
    text
}

/// A line for each stream whose packets are processed in user space.
fn ends(plan: &Plan) -> String {
    let line = |activity: &PlannedActivity| {
        let (verb, address) = match (&activity.receive, &activity.send) {
            (Some(address), _) => ("receives at", address),
            (None, address) => ("sends to", address.as_ref()?),
        };
        let limit = activity.packet_quota.as_ref().map(|PacketQuota { interval_ns, depth }| {
            format!(", at most a packet each {} and {depth} ahead", span(*interval_ns))
        });
        let limit = limit.unwrap_or_default();
        address.starts_with("xdp:").then(|| format!("{} {verb} {address}{limit}\n", activity.name))
    };
    plan.activities.iter().filter_map(line).collect()
}

/// Names of the admitted activities.
fn admitted(plan: &Plan) -> Vec<&str> {
    let is_refused = |name: &str| plan.refusals.iter().any(|refusal| refusal.name == name);
    let names = plan.activities.iter().map(|activity| activity.name.as_str());
    names.filter(|name| !is_refused(name)).collect()
}

pub(super) fn activities(plan: &Plan) -> Table {
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
    activities
}

pub(super) fn tests(plan: &Plan) -> Table {
    let mut tests = table(&["test", "CPU", "value", "bound", "unit", "result"], 1);
    for text in [4, 5] {
        if let Some(column) = tests.column_mut(text) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    for test in &plan.tests {
        tests.add_row([
            test.name.to_owned(),
            test.cpu.to_string(),
            or_dash(test.value, |value| format!("{value:.3}")),
            format!("{:.3}", test.bound),
            test_unit(test).to_owned(),
            test_result(test, &plan.tests).to_owned(),
        ]);
    }
    tests
}

/// The unit of a test's value and bound.
fn test_unit(test: &Test) -> &'static str {
    match test.name {
        "response-time" | "demand-bound" => "of the deadline",
        "edf-demand" => "of the time",
        "window-slots" => "of the slots",
        "slot-simulation" | "window-simulation" => "windows violated",
        // Utilizations, with and without blocking.
        _ => "of a CPU",
    }
}

/// The result of a test. A test that fails while another test admits the CPU's set is only
/// sufficient, so its failure proves nothing.
fn test_result(test: &Test, tests: &[Test]) -> &'static str {
    let admits = |other: &Test| other.cpu == test.cpu && other.deciding && other.passed;
    match (test.deciding, test.passed) {
        (true, true) => "passes, decides",
        (true, false) => "FAILS, decides",
        (false, true) => "holds",
        (false, false) if tests.iter().any(admits) => "no answer (a sufficient test)",
        (false, false) => "does not hold",
    }
}
