//! The schedule of a trace: one row an activity.

use std::ops::RangeInclusive;

use upcall::time::Instant;

use super::label::{LABEL_MAX, format_ms, shortened};
use super::page::{Axis, MARGIN, MISSED, Page, colour};
use super::schedule::{self, Schedule};
use crate::show;

/// Height of a row, with arrows above and below its line.
const SCHEDULE_ROW: f64 = 44.0;
const RELEASE: &str = "#404040";
const DEADLINE: &str = "#808080";

/// One row an activity: runs as bars, releases as arrows upwards, deadlines as arrows downwards.
pub fn gantt(page: &mut Page, schedule: &Schedule, from_ns: u64, until_ns: u64) {
    page.legend(&[
        (&|page, (x, y)| page.rectangle(x - 8.0, y - 7.0, 16.0, 14.0, colour(0), "a run"), "runs"),
        (&|page, (x, y)| page.arrow((x, y + 10.0), (x, y - 10.0), RELEASE), "release"),
        (&|page, (x, y)| page.arrow((x, y - 5.0), (x, y + 5.0), DEADLINE), "deadline"),
        (&|page, (x, y)| page.arrow((x, y - 5.0), (x, y + 5.0), MISSED), "missed deadline"),
    ]);
    let top = page.y;
    let axis = Axis::new(from_ns as f64, until_ns as f64);
    // The axis is drawn first, behind the rows, so their height is reserved.
    page.y += SCHEDULE_ROW * schedule.rows.len() as f64;
    axis.draw(page, top, format_ms);
    let bottom = page.y;
    page.y = top;
    for (place, row) in schedule.rows.iter().enumerate() {
        let base = page.y + SCHEDULE_ROW - 14.0;
        let home = format!("CPU {} · {}", row.cpu, row.domain);
        for (y, label) in [(base - 12.0, &row.name), (base + 3.0, &home)] {
            page.text(MARGIN - 8.0, y, "end", shortened(label, LABEL_MAX));
        }
        page.line((MARGIN, base), (axis.x(until_ns as f64), base), "#c0c0c0");
        for run in &row.runs {
            let (begin, end) = clip(run.from_ns, run.until_ns, schedule.from_ns, from_ns, until_ns);
            if begin >= end {
                continue;
            }
            let (x, until) = (axis.x(begin as f64), axis.x(end as f64));
            let mut title = format!(
                "{}: {} from {}",
                row.name,
                show::span(run.until_ns - run.from_ns),
                show::span(run.from_ns - schedule.from_ns)
            );
            if run.resumed {
                title += ", resumed";
            }
            let (height, width) = (14.0, (until - x).max(0.6));
            page.rectangle(x, base - height, width, height, colour(place), &title);
        }
        releases_and_deadlines(page, schedule, row, (&axis, base), from_ns..=until_ns);
        page.y += SCHEDULE_ROW;
    }
    page.y = bottom;
}

/// The arrows in the window for one row, whose line is at `base`.
fn releases_and_deadlines(
    page: &mut Page,
    schedule: &Schedule,
    row: &schedule::Row,
    (axis, base): (&Axis, f64),
    window: RangeInclusive<u64>,
) {
    let since_start = |at: Instant| at.as_nanos().saturating_sub(schedule.from_ns);
    for job in &row.jobs {
        let (release, due) = (since_start(job.release), since_start(job.deadline));
        if window.contains(&release) {
            let x = axis.x(release as f64);
            page.arrow((x, base), (x, base - 24.0), RELEASE);
        }
        if window.contains(&due) {
            let x = axis.x(due as f64);
            let stroke = if job.missed() { MISSED } else { DEADLINE };
            page.arrow((x, base), (x, base + 10.0), stroke);
            if job.missed() {
                let title = format!("{}: deadline missed", row.name);
                page.rectangle(x - 1.0, base, 2.0, 10.0, MISSED, &title);
            }
        }
    }
}

/// The part of a run inside the window, from the start of the trace; empty if the run is outside.
fn clip(run_from: u64, run_until: u64, start: u64, from: u64, until: u64) -> (u64, u64) {
    let begin = run_from.saturating_sub(start).max(from);
    let end = run_until.saturating_sub(start).min(until);
    (begin, end)
}
