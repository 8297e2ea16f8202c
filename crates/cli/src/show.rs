//! The tables that a person reads, drawn from the same objects as the JSON.

use comfy_table::{CellAlignment, Table, presets};

use crate::output::{Replay, Sweep, Vopr};

mod compare;
mod judgement;
mod plan;
mod run;

#[cfg(test)]
pub(crate) mod tests;

pub use compare::comparison;
pub use plan::plan;
pub use run::run;

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

/// A name that another process chose, without control characters, which could control a terminal.
pub fn visible(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A length of time, to three significant digits.
pub fn span(ns: u64) -> String {
    let (unit_ns, unit) = match ns {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "us"),
        1_000_000..10_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    format!("{} {unit}", digits(ns as f64 / f64::from(unit_ns)))
}

/// A number to three significant digits, without trailing zeros.
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

/// `-` if there is no such figure.
pub fn or_dash<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

fn bits_a_second(bps: u64) -> String {
    match bps {
        0 => "-".to_owned(),
        1..1_000_000 => format!("{} kbit/s", digits(bps as f64 / 1e3)),
        _ => format!("{} Mbit/s", digits(bps as f64 / 1e6)),
    }
}

/// What a replay compared, and `same commands` or the first difference.
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

/// What passed, and the first failed seed with the command that repeats it.
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

/// The admitted part of the sets at each point, and the cost of the runs.
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
