//! `[[task]]`: an activity by its numbers, for those who know them.
//!
//! Read by [`super::Spec::parse`]. What the policies need beyond
//! [`ActivityParams`] is kept as it was given, whatever the file's policy is:
//! one file can then be tried with each.

use super::source::Place;
use super::table::Table;
use super::units::Quantity;
use upcall::activity::{ActivityParams, BATCH_MAX, ParamError, Terms, Window, WorkClass};
use upcall::admission::Share;
use upcall::time::Span;

/// Largest weight of proportional sharing.
pub const WEIGHT_MAX: u32 = 1_000_000;

/// Most periods in a window: the state that a window needs grows with it.
pub const WINDOW_PERIODS_MAX: u32 = 65_535;

/// A task as its user describes it.
#[derive(Clone, Debug)]
pub struct Task {
    /// Where it stands, for errors found later.
    pub place: Place,
    /// Unique among streams and tasks.
    pub name: String,
    /// Validated.
    pub params: ActivityParams,
    /// What the policies want to know beside them.
    pub terms: Terms,
    /// The group it is in, under `ps`; its place there is in the terms.
    pub group: Option<String>,
    /// The process it runs in; absent: the one all such share.
    pub domain: Option<String>,
    /// A run goes on without it if admission refuses it.
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
    "domain",
    "optional",
];

/// What a DWS task may be.
const CLASSES: &[(&str, WorkClass)] = &[
    ("real-time", WorkClass::RealTime),
    ("interactive", WorkClass::Interactive),
    ("background", WorkClass::Background),
];

/// Reads one task; `None` if anything was refused.
pub(super) fn read_task(table: &mut Table<'_, '_>) -> Option<Task> {
    let name = table.own_name("task");
    table.reject_unknown(KEYS);
    let params = read_params(table);
    let share = table.share_ppm("share").and_then(Share::from_ppm);
    let weight = table.count("weight", 1..=WEIGHT_MAX);
    let group = table.name("group");
    if table.has("group") && table.has("share") {
        table.refuse("share", "it in a group", "a weight, of what the group gets");
    }
    let window = read_window(table);
    let work_conserving = table.boolean("work_conserving").unwrap_or(false);
    let delay_bound = table.duration("delay_bound", Span::from_nanos(1));
    let class = table.choice("class", CLASSES).unwrap_or_default();
    let workahead_max =
        or_default(table, "workahead", Some(0), |t, key| t.count(key, 0..=BATCH_MAX));
    let domain = table.name("domain");
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
            ..Terms::default()
        },
        group,
        domain,
        optional,
    })
}

/// The numbers of the activity, each by itself and then together.
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

/// Reports numbers that do not go together at the key to blame.
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
