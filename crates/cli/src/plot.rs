//! `upcall plot`: draws a trace, or the outcome of a run.
//!
//! It reads a file that `--trace` or `--json` wrote, and writes SVG. The first byte tells which of
//! the two the file is. Of a trace it draws the schedule and the lags in a window, and histograms
//! of all jobs.

use std::path::Path;

use serde_json::Value;
use upcall::time::Span;
use upcall_cli::standard_error::say;

use crate::exit::Failure;
use crate::show;
use gantt::gantt;
use label::format_ms;
use lag_lines::lag_lines;
use outcome::of_outcome;
use page::Page;
use replayed::Replayed;
use schedule::Schedule;

mod charts;
mod gantt;
mod histogram;
mod label;
mod lag_lines;
mod outcome;
pub mod page;
mod replayed;
mod schedule;
#[cfg(test)]
mod tests;

/// Most upcalls that a picture draws. More would be a grey area, and a file of megabytes.
const RUNS_MAX: usize = 20_000;
/// The part of a trace to draw, from the trace's start. Each end has a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    pub from: Option<Span>,
    pub to: Option<Span>,
}

/// Draws the file at `from` into the file at `to`.
///
/// # Errors
/// A file cannot be read or written; it is neither a trace nor an outcome; the window is empty; the
/// name of the picture has the ending of another format.
pub fn plot(from: &Path, to: &Path, window: Window) -> Result<(), Failure> {
    check_ending(to)?;
    let bytes = std::fs::read(from).map_err(|error| Failure::of_trace(from, error))?;
    let picture = match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{') => {
            let outcome: Value =
                serde_json::from_slice(&bytes).map_err(|error| Failure::of_file(from, error))?;
            of_outcome(&outcome).map_err(|error| Failure::about_file(from, error))?
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
                .map_err(|error| Failure::about_file(from, error))?
        }
    };
    std::fs::write(to, picture).map_err(|error| Failure::of_file(to, error))
}

/// Refuses a name with the ending of another format than SVG. A name without an ending, such as
/// `/dev/stdout`, is accepted.
pub fn check_ending(picture: &Path) -> Result<(), Failure> {
    match picture.extension() {
        Some(ending) if !ending.eq_ignore_ascii_case("svg") => {
            let svg = picture.with_extension("svg");
            Err(Failure::about_file(
                picture,
                format_args!(
                    "found the ending .{}, expected .svg: Upcall draws SVG, which browsers \
                     show (for PNG: rsvg-convert {} -o picture.png)",
                    ending.display(),
                    svg.display()
                ),
            ))
        }
        _ => Ok(()),
    }
}

/// The schedule and the lags in the window, and the histograms of slack and of the replay.
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
    if let Some(replayed) = replayed {
        lag_lines(&mut page, schedule, replayed, (from_ns, until_ns));
    }
    charts::slacks(&mut page, schedule);
    if let Some(replayed) = replayed {
        charts::lags(&mut page, schedule, replayed);
        charts::wakeups(&mut page, replayed);
    }
    Ok(page.finish())
}

/// Where the picture begins by default: at a round time, a little before the first event.
fn first_ns(schedule: &Schedule, to: Option<Span>) -> u64 {
    let page_ns = schedule.first_page_ns();
    let first_ns = schedule.first_event_ns().saturating_sub(page_ns / 50);
    // At most 1 % of the page.
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
