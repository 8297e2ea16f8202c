//! Draws the outcome that `run` and `sim` print.

use std::fmt::Write as _;

use serde_json::Value;

use super::label::{LABEL_MAX, NAME_MAX, format_ms, shortened};
use super::page::{Axis, MARGIN, MISSED, Page, colour};
use crate::show;

const ROW: f64 = 34.0;
/// Heights of the bars: the median is the thickest, the worst response the thinnest.
const WORST: f64 = 6.0;
const MOST: f64 = 12.0;
const MEDIAN: f64 = 18.0;

/// Draws the JSON of `run` and `sim`: for each activity its responses against its deadline, and its
/// lag if the policy has one.
pub fn of_outcome(outcome: &Value) -> Result<String, String> {
    const EXPECTED: &str =
        "found no activities, expected what `upcall run` or `upcall sim` prints with --json";
    let runs = match outcome["runs"].as_array() {
        Some(runs) => runs.iter().collect(),
        None => vec![outcome],
    };
    let mut page = Page::new();
    for run in runs {
        let activities = run["activities"].as_array().ok_or(EXPECTED)?;
        let (mode, policy) = (&run["mode"], &run["policy"]);
        let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        page.heading(format!(
            "{} {}: response (median, 99 %, worst) against the deadline",
            word(mode),
            word(policy)
        ));
        let bar = |height: f64| {
            move |page: &mut Page, (x, y): (f64, f64)| {
                page.rectangle(x - 8.0, y - height / 2.0, 16.0, height, colour(0), "a response");
            }
        };
        page.legend(&[
            (&bar(MEDIAN), "half of the responses"),
            (&bar(MOST), "99 % of them"),
            (&bar(WORST), "all of them"),
            (&|page, (x, y)| page.line((x, y - 12.0), (x, y + 12.0), MISSED), "deadline"),
        ]);
        responses(&mut page, activities).ok_or(EXPECTED)?;
        lags(&mut page, activities);
    }
    Ok(page.finish())
}

fn responses(page: &mut Page, activities: &[Value]) -> Option<()> {
    let mut rows = Vec::new();
    for activity in activities {
        let response = &activity["response_ns"];
        let numbers = ["p50", "p99", "max"].map(|key| response[key].as_u64());
        let [Some(p50), Some(p99), Some(max)] = numbers else { return None };
        let deadline_ns = activity["deadline_ns"].as_u64();
        let misses = activity["misses"].as_u64().unwrap_or(0);
        rows.push((activity["name"].as_str()?, [p50, p99, max], deadline_ns, misses));
    }
    let longest = rows.iter().map(|row| row.1[2].max(row.2.unwrap_or(0))).max().unwrap_or(1);
    let axis = Axis::new(0.0, longest as f64);
    let top = page.y;
    page.y += ROW * rows.len() as f64;
    axis.draw(page, top, format_ms);
    for (place, (name, [p50, p99, max], deadline_ns, misses)) in rows.iter().enumerate() {
        let base = top + ROW * (place + 1) as f64 - 10.0;
        let mut label = shortened(name, NAME_MAX);
        if *misses > 0 {
            let _ = write!(label, ": {misses} missed");
        }
        page.text(MARGIN - 8.0, base - 2.0, "end", label);
        for (ns, height, what) in
            [(max, WORST, "worst"), (p99, MOST, "99 %"), (p50, MEDIAN, "median")]
        {
            let title = format!("{name}: {what} {}", show::span(*ns));
            let width = (axis.x(*ns as f64) - MARGIN).max(0.6);
            page.rectangle(
                MARGIN,
                base - 9.0 - height / 2.0 + 6.0,
                width,
                height,
                colour(place),
                &title,
            );
        }
        if let Some(deadline_ns) = deadline_ns {
            let x = axis.x(*deadline_ns as f64);
            page.line((x, base - 18.0), (x, base + 6.0), MISSED);
        }
    }
    Some(())
}

/// The range of lag of each activity that has one.
fn lags(page: &mut Page, activities: &[Value]) {
    let lag = |activity: &Value| {
        let range = &activity["lag_ns"];
        Some((
            activity["name"].as_str()?.to_owned(),
            range["min"].as_i64()?,
            range["max"].as_i64()?,
        ))
    };
    let rows: Vec<(String, i64, i64)> = activities.iter().filter_map(lag).collect();
    let (Some(least), Some(most)) =
        (rows.iter().map(|row| row.1).min(), rows.iter().map(|row| row.2).max())
    else {
        return;
    };
    page.heading("lag: service behind (right) and ahead of (left) the ideal share");
    let axis = Axis::new(least as f64, most as f64);
    let top = page.y;
    page.y += ROW * rows.len() as f64;
    axis.draw(page, top, format_ms);
    for (place, (name, min, max)) in rows.iter().enumerate() {
        let base = top + ROW * (place + 1) as f64 - 10.0;
        page.text(MARGIN - 8.0, base - 2.0, "end", shortened(name, LABEL_MAX));
        let (x, until) = (axis.x(*min as f64), axis.x(*max as f64));
        let title = format!("{name}: {} to {}", show::slack(*min), show::slack(*max));
        page.rectangle(x, base - 12.0, (until - x).max(0.6), 12.0, colour(place), &title);
    }
}
