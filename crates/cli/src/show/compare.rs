//! `--compare`: the same load in several modes, side by side.

use crate::output::{Activity, Run, Stream};

use super::{slack, span, table};

/// One table with a column a mode, and what it comes to in a sentence.
pub fn comparison(runs: &[Run]) -> String {
    let Some(first) = runs.first() else { return String::new() };
    let mut header = vec!["activity", "measured"];
    header.extend(runs.iter().map(|run| run.mode));
    let mut rows = table(&header, 2);
    for (index, activity) in first.activities.iter().enumerate() {
        let each = |show: &dyn Fn(&Activity) -> String| -> Vec<String> {
            runs.iter()
                .map(|run| run.activities.get(index).map_or_else(String::new, show))
                .collect()
        };
        let mut add = |name: &str, what: &str, cells: Vec<String>| {
            rows.add_row([name.to_owned(), what.to_owned()].into_iter().chain(cells));
        };
        add(&activity.name, "deadlines missed", each(&|a| format!("{} of {}", a.misses, a.jobs)));
        add("", "worst slack", each(&|a| a.slack_ns_min.map_or_else(|| "-".to_owned(), slack)));
        add("", "worst response", each(&|a| span(a.response_ns.max)));
        if let Some(at) = first.streams.iter().position(|stream| stream.name == activity.name) {
            let each = |show: &dyn Fn(&Stream) -> String| -> Vec<String> {
                runs.iter().map(|run| run.streams.get(at).map_or_else(String::new, show)).collect()
            };
            add("", "packets lost", each(&|s| format!("{} of {}", s.dropped.total(), s.offered)));
            add("", "packets late", each(&|s| s.late.unwrap_or_default().to_string()));
        }
    }
    let mut totals = vec!["all".to_owned(), "deadlines missed".to_owned()];
    totals.extend(runs.iter().map(|run| misses(run).to_string()));
    rows.add_row(totals);
    let mut totals = vec![String::new(), "packets lost".to_owned()];
    totals.extend(runs.iter().map(|run| lost(run).to_string()));
    rows.add_row(totals);
    let mut totals = vec![String::new(), "hog's CPU share".to_owned()];
    totals.extend(runs.iter().map(background_share));
    rows.add_row(totals);
    format!("{rows}\n\n{}", sentences(runs))
}

fn misses(run: &Run) -> u64 {
    run.activities.iter().map(|activity| activity.misses).sum()
}

fn lost(run: &Run) -> u64 {
    run.streams.iter().map(|stream| stream.dropped.total()).sum()
}

fn background_share(run: &Run) -> String {
    let cpu_ns: u64 = run.background.iter().map(|background| background.cpu_ns).sum();
    format!("{:.0} %", cpu_ns as f64 / run.duration_ns.max(1) as f64 * 100.0)
}

/// The worst job of a run, judged by the part of its deadline it used.
fn worst(run: &Run) -> Option<&Activity> {
    run.activities
        .iter()
        .filter(|activity| activity.slack_ns_min.is_some())
        .max_by(|a, b| used(a).total_cmp(&used(b)))
}

/// Worst response as a share of the deadline: above 1 is a miss.
fn used(activity: &Activity) -> f64 {
    activity.response_ns.max as f64 / activity.deadline_ns as f64
}

/// The ratio of worst slack, in words: slack has two signs, so what is divided
/// is the part of the deadline that was used, 1 - slack/deadline.
fn sentences(runs: &[Run]) -> String {
    let Some((first, rest)) = runs.split_first() else { return String::new() };
    let Some(own) = worst(first) else { return String::new() };
    let mut text = format!("{}: {}\n", first.mode, describe(own));
    for run in rest {
        let Some(other) = worst(run) else { continue };
        text += &format!(
            "{}: {}, {:.1} times as much of the deadline as {}\n",
            run.mode,
            describe(other),
            used(other) / used(own),
            first.mode,
        );
    }
    text
}

fn describe(activity: &Activity) -> String {
    format!(
        "worst slack {} ({}, deadline {}; {:.0} % of it used)",
        activity.slack_ns_min.map_or_else(|| "-".to_owned(), slack),
        activity.name,
        span(activity.deadline_ns),
        used(activity) * 100.0,
    )
}
