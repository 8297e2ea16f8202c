//! `upcall plot`: a picture of a trace, or of the outcome of a run.
//!
//! Reads what `--trace` or `--json` wrote and writes SVG. Which of the two it is
//! shows in the first byte. Long traces are drawn from one end of a window to the
//! other; histograms are of all jobs.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::path::Path;

use serde_json::Value;
use upcall::time::{Instant, Span};
use upcall_cli::standard_error::say;

use crate::exit::Failure;
use crate::show;
use page::{Axis, MARGIN, MISSED, Page, colour};
use replayed::Replayed;
use schedule::Schedule;

mod charts;
mod histogram;
mod page;
mod replayed;
mod schedule;
#[cfg(test)]
mod tests;

/// Most stretches that are drawn one by one: more is a grey wall, and a file of
/// megabytes.
const RUNS_MAX: usize = 20_000;
/// Of the schedule, with arrows above and below the line.
const SCHEDULE_ROW: f64 = 44.0;
const RELEASE: &str = "#404040";
const DEADLINE: &str = "#808080";
const ROW: f64 = 34.0;
/// Heights of the bars of responses: the more responses, the thicker.
const WORST: f64 = 6.0;
const MOST: f64 = 12.0;
const MEDIAN: f64 = 18.0;
/// Letters that fit beside the rows.
const LABEL_MAX: usize = 30;
/// Letters of a name that has its count beside it.
const NAME_MAX: usize = 18;

/// What part of a trace to draw, from its start; the end of either may be open.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub from: Option<Span>,
    pub to: Option<Span>,
}

/// Draws the file at `from` into the one at `to`.
///
/// # Errors
/// Either file's; a file that is neither a trace nor an outcome; an empty window; a name
/// for the picture that ends as those of another format do.
pub fn plot(from: &Path, to: &Path, window: Window) -> Result<(), Failure> {
    check_ending(to)?;
    let bytes = std::fs::read(from).map_err(|error| Failure::of_trace(from, &error))?;
    let picture = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {
            let outcome: Value =
                serde_json::from_slice(&bytes).map_err(|error| Failure::of_file(from, error))?;
            of_outcome(&outcome).map_err(|error| Failure::of_file(from, error))?
        }
        _ => {
            let traces = upcall_sim::trace::read_all(&bytes)
                .map_err(|error| Failure::of_file(from, error))?;
            let replayed = match traces.as_slice() {
                [trace] => Replayed::of(trace),
                _ => Err("the CPUs are shared by several processes".to_owned()),
            };
            if let Err(why) = &replayed {
                let from = from.display();
                say(format_args!("upcall: {from}: lag and wake-up latency are not drawn: {why}"));
            }
            of_trace(&Schedule::of(&traces), replayed.as_ref().ok(), window)
                .map_err(|error| Failure::of_file(from, error))?
        }
    };
    std::fs::write(to, picture).map_err(|error| Failure::of_file(to, error))
}

/// Refuses a name that promises another format than SVG. One without an ending, such as
/// `/dev/stdout`, promises none.
fn check_ending(picture: &Path) -> Result<(), Failure> {
    match picture.extension() {
        Some(ending) if !ending.eq_ignore_ascii_case("svg") => {
            let svg = picture.with_extension("svg");
            Err(Failure::of_file(
                picture,
                format_args!(
                    "found the ending .{}, expected .svg: `upcall plot` draws SVG, which browsers \
                     show (for PNG: rsvg-convert {} -o picture.png)",
                    ending.display(),
                    svg.display()
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The schedule in the window, and histograms of slack, and of what a replay showed.
fn of_trace(
    schedule: &Schedule,
    replayed: Option<&Replayed>,
    window: Window,
) -> Result<String, String> {
    let end_ns = schedule.until_ns - schedule.from_ns;
    let from_ns = window.from.map_or_else(|| first_ns(schedule, window.to), Span::as_nanos);
    let page_ns = from_ns.saturating_add(schedule.first_page_ns());
    let until_ns = window.to.map_or(page_ns, Span::as_nanos).min(end_ns);
    if from_ns >= until_ns {
        return Err(format!(
            "found nothing from {} on, the trace lasts {}",
            show::span(from_ns),
            show::span(end_ns)
        ));
    }
    let drawn = schedule.rows.iter().flat_map(|row| &row.runs).filter(|run| {
        run.until_ns > schedule.from_ns + from_ns && run.from_ns < schedule.from_ns + until_ns
    });
    let count = drawn.count();
    if count > RUNS_MAX {
        return Err(format!(
            "{count} upcalls from {} to {}, expected at most {RUNS_MAX}: choose a shorter window",
            show::span(from_ns),
            show::span(until_ns)
        ));
    }
    let mut page = Page::new();
    page.heading(format!(
        "{}: schedule from {} to {} of {}",
        schedule.policy,
        format_ms(from_ns as f64),
        show::span(until_ns),
        show::span(end_ns)
    ));
    gantt(&mut page, schedule, from_ns, until_ns);
    charts::slacks(&mut page, schedule);
    if let Some(replayed) = replayed {
        charts::lags(&mut page, schedule, replayed);
        charts::wakeups(&mut page, replayed);
    }
    Ok(page.finish())
}

/// Where the picture begins unless that is said: a little before something happens, at a
/// round time.
fn first_ns(schedule: &Schedule, to: Option<Span>) -> u64 {
    let page_ns = schedule.first_page_ns();
    let first_ns = schedule.first_event_ns().saturating_sub(page_ns / 50);
    // Of the page 1 % at most.
    let step = page::round_below(page_ns.max(1) as f64 / 100.0).max(1.0);
    let begin_ns = ((first_ns as f64 / step).floor() * step).max(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most `first_ns`"
    )]
    let begin_ns = begin_ns as u64;
    if to.is_some_and(|to| to.as_nanos() <= begin_ns) { 0 } else { begin_ns }
}

/// A row an activity: what ran, releases as arrows upwards, deadlines downwards.
fn gantt(page: &mut Page, schedule: &Schedule, from_ns: u64, until_ns: u64) {
    page.legend(&[
        (&|page, (x, y)| page.rectangle(x - 8.0, y - 7.0, 16.0, 14.0, colour(0), "a run"), "runs"),
        (&|page, (x, y)| page.arrow((x, y + 10.0), (x, y - 10.0), RELEASE), "release"),
        (&|page, (x, y)| page.arrow((x, y - 5.0), (x, y + 5.0), DEADLINE), "deadline"),
        (&|page, (x, y)| page.arrow((x, y - 5.0), (x, y + 5.0), MISSED), "missed deadline"),
    ]);
    let top = page.y;
    let axis = Axis::new(from_ns as f64, until_ns as f64);
    // Axis and ticks lie behind the rows: room for them first.
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

/// The arrows of a row, whose line is at `base`; those in the window.
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

/// A label of no more than `letters_max`, and a mark where it is cut.
fn shortened(label: &str, letters_max: usize) -> String {
    match label.char_indices().nth(letters_max) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.to_owned(),
    }
}

/// A stretch by the window, both from the start of the trace; empty if it is outside.
fn clip(run_from: u64, run_until: u64, start: u64, from: u64, until: u64) -> (u64, u64) {
    let begin = run_from.saturating_sub(start).max(from);
    let end = run_until.saturating_sub(start).min(until);
    (begin, end)
}

/// Nanoseconds as milliseconds, all of their digits.
fn format_ms(ns: f64) -> String {
    trimmed(ns / 1e6) + " ms"
}

/// Six digits behind the point, without zeros that say nothing.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// What `run` and `sim` print with `--json`: of each activity the response
/// against its deadline, and its lag where the policy has one.
fn of_outcome(outcome: &Value) -> Result<String, String> {
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

/// From the least lag to the most, of those that have one.
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
