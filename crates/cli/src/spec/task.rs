//! `[[task]]`: an activity given by its numbers.
//!
//! [`super::Spec::parse`] reads it. A task keeps the terms of every policy beside its
//! [`ActivityParams`], whichever policy the file names, so that one file can be tried with each
//! policy.

use super::source::Place;
use super::table::Table;
use super::units::Quantity;
use upcall::activity::{ActivityParams, BATCH_MAX, Backlog, ParamError, Terms, Window, WorkClass};
use upcall::admission::Share;
use upcall::time::Span;

/// Largest weight of proportional sharing.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// Most periods in a window, which bounds the state of a window.
pub const WINDOW_PERIODS_MAX: u32 = 65_535;

/// A task as its user describes it.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its position, for errors found later.
    pub place: Place,
    /// Unique among streams and tasks.
    pub name: String,
    /// Validated parameters.
    pub params: ActivityParams,
    /// The terms of the policies.
    pub terms: Terms,
    /// Its group under `ps`. The group's index is in the terms.
    pub group: Option<String>,
    /// The process it runs in. `None`: the process that all activities without a domain share.
    pub domain: Option<String>,
    /// The stream or task whose CPU it runs on. `None`: the first CPU with room.
    pub same_cpu_as: Option<String>,
    /// Whether a run continues without the task if admission refuses it.
    pub optional: bool,
}

const KEYS: &[&str] = &[
    "name",
    "period",
    "deadline",
    "offset",
    "batch",
    "quantum",
    "cost",
    "share",
    "weight",
    "group",
    "window",
    "work_conserving",
    "delay_bound",
    "class",
    "workahead",
    "backlog",
    "domain",
    "same_cpu_as",
    "optional",
];

/// The classes of a DWS task.
const CLASSES: &[(&str, WorkClass)] = &[
    ("real-time", WorkClass::RealTime),
    ("interactive", WorkClass::Interactive),
    ("background", WorkClass::Background),
];

/// What may become of jobs that wait too long.
pub(super) const BACKLOGS: &[(&str, Backlog)] =
    &[("catch-up", Backlog::CatchUp), ("skip", Backlog::Skip), ("latest", Backlog::Latest)];

/// Reads one task; `None` if it has an error.
pub(super) fn read_task(table: &mut Table<'_, '_>) -> Option<Task> {
    let name = table.own_name("task");
    table.reject_unknown(KEYS);
    let params = read_params(table);
    let share = table.share_ppm("share").and_then(Share::from_ppm);
    let weight = table.count("weight", 1..=WEIGHT_MAX);
    let group = table.name("group");
    if table.has("group") && table.has("share") {
        table.refuse("share", "a share in a group", "a weight within the group");
    }
    let window = read_window(table);
    let work_conserving = table.boolean("work_conserving").unwrap_or(false);
    let delay_bound = table.duration("delay_bound", Span::from_nanos(1));
    let class = table.choice("class", CLASSES).unwrap_or_default();
    let workahead_max =
        or_default(table, "workahead", Some(0), |t, key| t.count(key, 0..=BATCH_MAX));
    let backlog = table.choice("backlog", BACKLOGS).unwrap_or_default();
    let domain = table.name("domain");
    let same_cpu_as = table.name("same_cpu_as");
    let optional = table.boolean("optional").unwrap_or(false);
    Some(Task {
        place: table.place().clone(),
        name: name?,
        params: params?,
        terms: Terms {
            share,
            weight,
            window,
            work_conserving,
            delay_bound,
            class,
            workahead_max: workahead_max?,
            backlog,
            ..Terms::default()
        },
        group,
        domain,
        same_cpu_as,
        optional,
    })
}

/// Reads the numbers of the activity, and checks each alone and all together.
fn read_params(table: &mut Table<'_, '_>) -> Option<ActivityParams> {
    let least = Span::from_nanos(1);
    table.require("period", Quantity::Duration.example());
    table.require("cost", Quantity::Duration.example());
    let period = table.duration("period", least);
    let cost = table.duration("cost", least);
    let deadline = or_default(table, "deadline", period, |t, key| t.duration(key, least));
    let offset =
        or_default(table, "offset", Some(Span::ZERO), |t, key| t.duration(key, Span::ZERO));
    let batch = or_default(table, "batch", Some(1), |t, key| t.count(key, 1..=BATCH_MAX));
    let quantum = or_default(table, "quantum", Some(1), |t, key| t.count(key, 1..=BATCH_MAX));
    let params = ActivityParams {
        period: period?,
        deadline: deadline?,
        offset: offset?,
        batch: batch?,
        quantum: quantum?,
        pdu_cost: cost?,
    };
    params.validated().map_err(|error| refuse_params(table, error)).ok()
}

fn or_default<T>(
    table: &mut Table<'_, '_>,
    key: &str,
    default: Option<T>,
    read: impl FnOnce(&mut Table<'_, '_>, &str) -> Option<T>,
) -> Option<T> {
    if table.has(key) { read(table, key) } else { default }
}

/// Reports an inconsistent set of numbers, at the key that caused it.
fn refuse_params(table: &mut Table<'_, '_>, error: ParamError) {
    let (key, expected) = match error {
        ParamError::Deadline { period, .. } => {
            ("deadline", format!("at most the period, {period}"))
        }
        ParamError::Quantum { batch, .. } => ("quantum", format!("at most the batch, {batch}")),
        ParamError::Cost { compute, period } => {
            ("cost", format!("a batch to fit into the period, {period}; it takes {compute}"))
        }
        ParamError::CostZero => ("cost", error.to_string()),
        ParamError::Offset(_) => ("offset", error.to_string()),
        ParamError::Batch(_) => ("batch", error.to_string()),
        _ => ("period", error.to_string()),
    };
    table.refuse_value(key, &expected);
}

/// `window = "x/y"`.
fn read_window(table: &mut Table<'_, '_>) -> Option<Window> {
    const EXPECTED: &str = "a window x/y such as \"1/4\", with 0 <= x < y <= 65535";
    let text = table.string("window", EXPECTED)?;
    let digits = |part: &str| {
        let part = part.trim();
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<u32>().ok()).flatten()
    };
    let window = text.split_once('/').and_then(|(misses, periods)| {
        Some(Window { misses: digits(misses)?, periods: digits(periods)? })
    });
    match window {
        Some(window) if window.misses < window.periods && window.periods <= WINDOW_PERIODS_MAX => {
            Some(window)
        }
        _ => {
            table.refuse_value("window", EXPECTED);
            None
        }
    }
}
