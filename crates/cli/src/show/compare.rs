//! `--compare`: the same load in several modes, side by side, with conclusions.
//!
//! Each sentence states what this run showed, with its figures. It says when another mode did as
//! well as upcall, or better.

use comfy_table::Table;

use super::judgement::{Counts, lacks_class};
use super::{or_dash, slack, span, table};
use crate::output::{Activity, Background, Run, Stream};

/// A table with a column for each mode, and sentences that compare the modes.
pub fn comparison(runs: &[Run]) -> String {
    let all_counts: Vec<Counts> = runs.iter().map(|run| common_counts(runs, run)).collect();
    format!("{}\n\n{}", rows(runs, &all_counts), sentences(runs, &all_counts))
}

pub(super) fn rows(runs: &[Run], all_counts: &[Counts]) -> Table {
    let mut header = vec!["activity", "measured"];
    header.extend(runs.iter().map(|run| run.mode));
    let mut rows = table(&header, 2);
    let mut add = |name: &str, what: &str, cells: Vec<String>| {
        rows.add_row([name.to_owned(), what.to_owned()].into_iter().chain(cells));
    };
    // A run may lack refused activities; the run with the most activities has all of them.
    let Some(whole) = runs.iter().max_by_key(|run| run.activities.len()) else {
        return rows;
    };
    for Activity { name, .. } in &whole.activities {
        let each = |absent: &str, show: &dyn Fn(&Activity) -> String| -> Vec<String> {
            let cell = |run: &Run| {
                let found = run.activities.iter().find(|activity| activity.name == *name);
                found.map_or_else(|| absent.to_owned(), show)
            };
            runs.iter().map(cell).collect()
        };
        let missed = |a: &Activity| format!("{} of {}", a.misses, a.jobs);
        add(name, "deadlines missed", each("refused", &missed));
        add("", "worst slack", each("-", &|a| or_dash(a.slack_ns_min, slack)));
        add("", "worst response", each("-", &|a| span(a.response_ns.max)));
        if whole.streams.iter().any(|stream| stream.name == *name) {
            let each = |show: &dyn Fn(&Stream) -> String| -> Vec<String> {
                let of = |run: &Run| {
                    let found = run.streams.iter().find(|stream| stream.name == *name);
                    found.map_or_else(|| "-".to_owned(), show)
                };
                runs.iter().map(of).collect()
            };
            add("", "packets lost", each(&|s| format!("{} of {}", s.dropped.total(), s.offered)));
            add("", "packets late", each(&|s| or_dash(s.late, |late| late.to_string())));
            add("", "longest delay", each(&|s| or_dash(s.delay_ns_max, span)));
        }
    }
    let each = |show: &dyn Fn(&Counts) -> u64| -> Vec<String> {
        all_counts.iter().map(|counts| show(counts).to_string()).collect()
    };
    let refused = runs.iter().any(|run| !run.refusals.is_empty());
    add(if refused { "admitted" } else { "all" }, "deadlines missed", each(&|t| t.missed));
    add("", "packets lost", each(&|t| t.lost));
    add("", "packets late", each(&|t| t.late));
    let kernel = runs.iter().map(|run| run.switches.kernel.to_string());
    add("", "kernel switches", kernel.collect());
    if !whole.background.is_empty() {
        add("", "background's CPU share", runs.iter().map(background_share).collect());
    }
    rows
}

/// The counts of what ran in every mode, without what any mode refused.
fn common_counts(runs: &[Run], run: &Run) -> Counts {
    let in_all =
        |name: &str| runs.iter().all(|run| run.activities.iter().any(|each| each.name == name));
    Counts::of_named(run, in_all)
}

fn background_share(run: &Run) -> String {
    let share: f64 = run.background.iter().map(Background::share).sum();
    format!("{:.0} %", share * 100.0)
}

/// The result of the first run, and each other run compared with it.
fn sentences(runs: &[Run], all_counts: &[Counts]) -> String {
    let (Some((first, rest)), Some((own, others))) = (runs.split_first(), all_counts.split_first())
    else {
        return String::new();
    };
    let mut text = String::new();
    for refusal in &first.refusals {
        text += &format!("{} refused {}: {}\n", first.mode, refusal.name, refusal.reason);
        if let Some(hint) = &refusal.hint {
            text += &format!("  {hint}\n");
        }
    }
    let outcome = match (first.promised, first.kept) {
        (true, true) => "every promise kept",
        (true, false) => "promises BROKEN",
        (false, true) => "nothing broken",
        (false, false) => "not kept",
    };
    let to_rest = if first.refusals.is_empty() { "" } else { " the others" };
    text += &format!("{} ran{to_rest}: {}: {outcome}\n", first.mode, own.line());
    if lacks_class(first) {
        text +=
            "  without the real-time class other programs delay handlers: nothing is promised\n";
    }
    for (run, counts) in rest.iter().zip(others) {
        let refused = first.refusals.iter().map(|refusal| refusal.name.as_str());
        let taken: Vec<&str> = refused.collect();
        let ran = match taken.is_empty() {
            true => "ran".to_owned(),
            false => format!("took {} too; the others", taken.join(", ")),
        };
        let result = compared(own, counts);
        text += &format!("{} {ran}: {}: {result} {}\n", run.mode, counts.line(), first.mode);
    }
    text + &closest(runs) + &kernel(runs)
}

/// How `other` compares with `own`: fewer faults of each kind are better.
fn compared(own: &Counts, other: &Counts) -> &'static str {
    let faults = |counts: &Counts| [counts.missed, counts.lost, counts.late];
    let pairs = || faults(own).into_iter().zip(faults(other));
    match (pairs().any(|(own, other)| other > own), pairs().any(|(own, other)| other < own)) {
        (true, true) => "in part better and in part worse than",
        (true, false) => "worse than",
        (false, true) => "better than",
        (false, false) => "as good as",
    }
}

/// For each mode the job with the least slack, among activities that ran in all modes.
fn closest(runs: &[Run]) -> String {
    let in_all =
        |name: &str| runs.iter().all(|run| run.activities.iter().any(|each| each.name == name));
    let of = |run: &Run| {
        let known = run.activities.iter().filter(|each| in_all(&each.name));
        let known = known.filter_map(|each| Some((each.slack_ns_min?, &each.name)));
        let (slack_ns, name) = known.min()?;
        let side = if slack_ns < 0 { "after" } else { "before" };
        Some(format!("{} {name} {} {side}", run.mode, span(slack_ns.unsigned_abs())))
    };
    let each: Vec<String> = runs.iter().filter_map(of).collect();
    match each.is_empty() {
        true => String::new(),
        false => format!("closest to its deadline, or latest: {}\n", each.join(", ")),
    }
}

/// Switches counted by the kernel, and whether the first mode needed fewer.
fn kernel(runs: &[Run]) -> String {
    let Some((first, rest)) = runs.split_first() else { return String::new() };
    let compared = |other: &Run| {
        let (own, others) = (first.switches.kernel, other.switches.kernel);
        let word = match own.cmp(&others) {
            std::cmp::Ordering::Less => "more",
            std::cmp::Ordering::Equal => "as many",
            std::cmp::Ordering::Greater => "fewer",
        };
        format!("{} {others} ({word})", other.mode)
    };
    let rest: Vec<String> = rest.iter().map(compared).collect();
    let own = first.switches.kernel;
    format!("kernel switches: {} {own}, {}\n", first.mode, rest.join(", "))
}
