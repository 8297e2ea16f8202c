//! The histograms of a trace: slack, lag, and the wake-up latency of each CPU.

use super::histogram::{Bins, HEIGHT, HistogramStyle};
use super::label::{NAME_MAX, format_ms, shortened, trimmed};
use super::page::{Axis, MARGIN, Page, colour};
use super::replayed::Replayed;
use super::schedule::Schedule;
use crate::show;

/// Space between rows that share an axis.
const GAP: f64 = 14.0;
/// Bars narrower than a microsecond of slack are of no use.
const FINEST_SLACK_NS: f64 = 1_000.0;
/// Most bars in a quantum, on an axis of two quanta or more. More cannot be distinguished.
const QUANTUM_BARS_MAX: f64 = 100.0;
/// An axis of wake-ups with fewer ticks gets more.
const WAKEUP_TICKS_MIN: usize = 3;
/// In powers of ten. With half a power on the page, the axis has at least one tick.
const FINEST_POWER: f64 = 0.05;

/// The slack of each activity's jobs; each activity has an axis of its own.
pub fn slacks(page: &mut Page, schedule: &Schedule) {
    page.heading("slack of all jobs: time left at the end of a job; red is missed");
    for (place, row) in schedule.rows.iter().enumerate() {
        let slacks_ns: Vec<i64> = row.jobs.iter().map(|job| job.slack_ns()).collect();
        let Some(bins) = Bins::of(&mut floats(&slacks_ns), FINEST_SLACK_NS) else {
            let text = format!("{}: no job ended", shortened(&row.name, NAME_MAX));
            page.text(MARGIN - 8.0, page.y + 16.0, "end", text);
            page.y += 30.0;
            continue;
        };
        let mut notes = notes(&row.name, "jobs", &slacks_ns);
        let missed = row.jobs.iter().filter(|job| job.missed()).count();
        notes.extend((missed > 0).then(|| format!("{missed} missed")));
        page.chart(&format!("slack of {}", row.name), &notes.join(", "), |page| {
            let (axis, top) = (bins.axis(), page.y);
            page.y += HEIGHT;
            axis.draw(page, top, format_ms);
            let (fill, show) = (colour(place), &format_ms);
            let style =
                HistogramStyle { axis, notes: &notes, fill, red_until: 0.0, what: "jobs", show };
            bins.draw(page, top, &style);
        });
    }
}

/// The lag of each activity, one below the other on one axis, with a mark at each time quantum.
/// Draws nothing if the policy has no lag.
pub fn lags(page: &mut Page, schedule: &Schedule, replayed: &Replayed) {
    let Some(quantum) = replayed.time_quantum else { return };
    let quantum_ns = quantum.as_nanos() as f64;
    let lags = Lag::of(schedule, replayed, quantum_ns / QUANTUM_BARS_MAX);
    if lags.is_empty() {
        return;
    }
    page.heading(format!(
        "lag at every upcall and return: service behind (right) and ahead of (left) the ideal \
         share; a quantum q is {}",
        show::span(quantum.as_nanos())
    ));
    // Space for the labels of the marks.
    page.y += 14.0;
    let axis = Lag::axis(&lags, quantum_ns);
    let top = page.y;
    page.y += (HEIGHT + GAP) * lags.len() as f64;
    let bottom = page.y;
    axis.draw_in(quantum_ns, page, top, |ns| {
        format!("{} q\n{}", signed(ns / quantum_ns), signed_ms(ns))
    });
    let mut row_top = top;
    for Lag { place, name, notes, bins } in &lags {
        page.chart(&format!("lag of {name}"), &notes.join(", "), |page| {
            let (fill, red_until) = (colour(*place), f64::NEG_INFINITY);
            let style =
                HistogramStyle { axis, notes, fill, red_until, what: "lags", show: &signed_ms };
            bins.draw(page, row_top, &style);
        });
        row_top += HEIGHT + GAP;
    }
    for (quanta, label) in [(-1.0, "-1 quantum"), (1.0, "+1 quantum")] {
        let x = axis.x(quanta * quantum_ns);
        page.line((x, top - 2.0), (x, bottom), "#404040");
        page.text(x, top - 6.0, "middle", label);
    }
}

/// One row of [`lags`].
struct Lag<'a> {
    /// Index among all activities.
    place: usize,
    name: &'a str,
    notes: Vec<String>,
    bins: Bins,
}

impl Lag<'_> {
    /// The rows of activities that have lags.
    fn of<'a>(schedule: &'a Schedule, replayed: &Replayed, finest: f64) -> Vec<Lag<'a>> {
        let rows = schedule.rows.iter().enumerate();
        let lags = rows.filter_map(|(place, row)| {
            let lags = replayed.lags.get(&(row.cpu, row.id.0))?;
            let lags_ns: Vec<i64> = lags.iter().map(|lag| lag.lag_ns).collect();
            let bins = Bins::of(&mut floats(&lags_ns), finest)?;
            Some(Lag { place, name: &row.name, notes: notes(&row.name, "lags", &lags_ns), bins })
        });
        lags.collect()
    }

    /// An axis over all bars, and over at least one quantum in both directions.
    fn axis(lags: &[Lag<'_>], quantum_ns: f64) -> Axis {
        let (mut from, mut until) = (-quantum_ns, quantum_ns);
        for (first, last) in lags.iter().map(|lag| lag.bins.span()) {
            (from, until) = (from.min(first), until.max(last));
        }
        let beside = (until - from) / 50.0;
        Axis::new(from - beside, until + beside)
    }
}

/// The wake-up latency of each CPU, in powers of ten, because one late wake-up in a thousand
/// matters and is far from the others. Draws nothing if no CPU woke late, as in a simulation.
pub fn wakeups(page: &mut Page, replayed: &Replayed) {
    if replayed.wakeups_ns.values().flatten().all(|&late_ns| late_ns == 0) {
        return;
    }
    page.heading("wake-up latency: from when a sleeping CPU was due to when it was awake");
    for (place, (cpu, lates_ns)) in replayed.wakeups_ns.iter().enumerate() {
        let power = |ns: u64| (ns.max(1) as f64).log10();
        let mut powers: Vec<f64> = lates_ns.iter().map(|&late_ns| power(late_ns)).collect();
        let Some(bins) = Bins::of(&mut powers, FINEST_POWER) else { continue };
        let notes = wakeup_notes(*cpu, lates_ns);
        page.chart(&format!("wake-up latency of CPU {cpu}"), &notes.join(", "), |page| {
            let (axis, top) = (bins.axis(), page.y);
            page.y += HEIGHT;
            let ticks = |every: &[u64]| {
                let round =
                    (0..19).flat_map(|power| every.iter().map(move |n| n * 10u64.pow(power)));
                let ticks = round.map(|ns| (power(ns), show::span(ns)));
                ticks.filter(|tick| axis.holds(tick.0)).collect::<Vec<_>>()
            };
            let mut shown = ticks(&[1, 2, 5]);
            if shown.len() < WAKEUP_TICKS_MIN {
                shown = ticks(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
            }
            axis.draw_ticks(page, top, shown);
            let (fill, red_until) = (colour(place), f64::NEG_INFINITY);
            let show = &|power: f64| format_ms(10f64.powf(power));
            let style =
                HistogramStyle { axis, notes: &notes, fill, red_until, what: "wake-ups", show };
            bins.draw(page, top, &style);
        });
    }
}

fn wakeup_notes(cpu: u32, lates_ns: &[u64]) -> Vec<String> {
    let mut sorted = lates_ns.to_vec();
    sorted.sort_unstable();
    let count = sorted.len();
    // The value that this percentage of wake-ups does not exceed.
    let at = |percent: usize| {
        let rank = (count * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).map_or_else(String::new, |&late_ns| show::span(late_ns))
    };
    vec![
        format!("CPU {cpu}: {count} wake-ups"),
        format!("median {}, 99 % {}", at(50), at(99)),
        format!("{} to {}", at(0), at(100)),
    ]
}

/// The name, the count and the range of the values.
fn notes(name: &str, what: &str, values_ns: &[i64]) -> Vec<String> {
    let mut notes = vec![format!("{}: {} {what}", shortened(name, NAME_MAX), values_ns.len())];
    if let (Some(&least), Some(&most)) = (values_ns.iter().min(), values_ns.iter().max()) {
        notes.push(match (show::slack(least), show::slack(most)) {
            _ if least == most => format!("all {}", signed_ms(least as f64)),
            // The difference is in digits that are not shown.
            (a, b) if a == b => format!("{a}, {} apart", show::span(most.abs_diff(least))),
            (a, b) => format!("{a} to {b}"),
        });
    }
    notes
}

fn floats(values: &[i64]) -> Vec<f64> {
    values.iter().map(|&value| value as f64).collect()
}

/// A number with its sign, unless it is zero.
fn signed(value: f64) -> String {
    let text = trimmed(value);
    if value > 0.0 && text != "0" { format!("+{text}") } else { text }
}

/// Nanoseconds as milliseconds, with a sign.
fn signed_ms(ns: f64) -> String {
    signed(ns / 1e6) + " ms"
}
