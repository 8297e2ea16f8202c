//! The lag of each activity over time, in the window of the schedule.

use super::label::{LABEL_MAX, format_ms, shortened, trimmed};
use super::page::{Axis, MARGIN, Page, colour};
use super::replayed::{LagAt, Replayed};
use super::schedule::Schedule;

/// Height of a row.
const ROW: f64 = 64.0;
/// Space above and below the lines of a row.
const INSET: f64 = 6.0;

/// One row for each activity with a lag: a line through its lags at its upcalls and returns. The
/// middle of a row is the ideal share; behind is above, and ahead is below. All rows have the same
/// scale. Draws nothing if the policy has no lag.
pub fn lag_lines(
    page: &mut Page,
    schedule: &Schedule,
    replayed: &Replayed,
    (from_ns, until_ns): (u64, u64),
) {
    let Some(quantum) = replayed.time_quantum else { return };
    let quantum_ns = quantum.as_nanos() as f64;
    let window = (schedule.from_ns + from_ns, schedule.from_ns + until_ns);
    let rows = schedule.rows.iter().enumerate().filter_map(|(place, row)| {
        let lags = replayed.lags.get(&(row.cpu, row.id.0))?;
        Some((place, &row.name, within(lags, window)))
    });
    let rows: Vec<_> = rows.filter(|(.., lags)| !lags.is_empty()).collect();
    if rows.is_empty() {
        return;
    }
    let lags = rows.iter().flat_map(|(.., lags)| *lags);
    let most_ns = lags.map(|lag| lag.lag_ns.unsigned_abs() as f64).fold(quantum_ns, f64::max);
    page.heading(format!(
        "lag in that time: behind (above) and ahead of (below) the ideal share; a row has {} \
         quanta up and down",
        trimmed(most_ns / quantum_ns)
    ));
    let top = page.y;
    let axis = Axis::new(from_ns as f64, until_ns as f64);
    // The axis is drawn first, behind the rows, so their height is reserved.
    page.y += ROW * rows.len() as f64;
    axis.draw(page, top, format_ms);
    for (index, (place, name, lags)) in rows.iter().enumerate() {
        let middle = top + ROW * (index as f64 + 0.5);
        let y = |lag_ns: f64| middle - lag_ns / most_ns * (ROW / 2.0 - INSET);
        page.text(MARGIN - 8.0, middle + 4.0, "end", shortened(name, LABEL_MAX));
        for (lag_ns, stroke) in
            [(0.0, "#c0c0c0"), (quantum_ns, "#e0e0e0"), (-quantum_ns, "#e0e0e0")]
        {
            page.line((MARGIN, y(lag_ns)), (axis.right(), y(lag_ns)), stroke);
        }
        let at = |lag: &LagAt| {
            let since_ns = lag.at_ns.saturating_sub(schedule.from_ns);
            (axis.x(since_ns as f64), y(lag.lag_ns as f64))
        };
        page.chart(&format!("lag over time: {name}"), &format!("{} lags", lags.len()), |page| {
            page.polyline(lags.iter().map(at), colour(*place));
        });
    }
}

/// The lags in the window, which are in order of time.
fn within(lags: &[LagAt], (from_ns, until_ns): (u64, u64)) -> &[LagAt] {
    let from = lags.partition_point(|lag| lag.at_ns < from_ns);
    let until = lags.partition_point(|lag| lag.at_ns <= until_ns);
    &lags[from..until]
}
