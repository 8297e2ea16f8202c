//! Histograms: number of bars, edges, and drawing.

use super::page::{Axis, MARGIN, MISSED, Page, round_above, round_below};

#[cfg(test)]
mod tests;

/// Fewest bars between the least and the greatest value, if they differ by this many units.
const BARS_MIN: f64 = 10.0;
/// Most bars; at most two fewer between the extreme values, which seldom fall on edges.
const BARS_MAX: f64 = 60.0;
/// Height of the tallest bar.
pub const HEIGHT: f64 = 60.0;

/// Values counted in bins of one width. The edges are multiples of the width, so zero is an edge
/// and no bar covers both sides of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bins {
    /// Where the first bin begins, in widths.
    first: f64,
    width: f64,
    counts: Vec<u64>,
}

impl Bins {
    /// Counts `values`, which must be numbers; returns `None` if there are none. The width follows
    /// Freedman and Diaconis ("On the histogram as a density estimator", 1981): twice the distance
    /// of the quartiles, divided by the cube root of the count. It is limited to 10 to 60 bars and
    /// then rounded. `finest`, above zero, is about the smallest width, even if this gives fewer
    /// bars. Sorts the values.
    pub fn of(values: &mut [f64], finest: f64) -> Option<Bins> {
        values.sort_unstable_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let quartile = |quarter: usize| values[(values.len() - 1) * quarter / 4];
        let natural = 2.0 * (quartile(3) - quartile(1)) / (values.len() as f64).cbrt();
        let range = most - least;
        let (narrowest, widest) = (range / (BARS_MAX - 2.0), range / BARS_MIN);
        let finest = if range > 0.0 { finest } else { finest.max(least.abs() / 50.0) };
        let natural = natural.clamp(narrowest, widest).max(finest);
        let round = round_above(natural);
        // The next round width below is at least 0.4 times this one, and so wider than `narrowest`.
        let width = if round > widest && natural <= widest { round_below(widest) } else { round };
        let first = (least / width).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 0 to BARS_MAX, as `width` is at least `narrowest`"
        )]
        let place = |value: f64| ((value / width).floor() - first) as usize;
        let mut counts = vec![0; place(most) + 1];
        values.iter().for_each(|&value| counts[place(value)] += 1);
        Some(Bins { first, width, counts })
    }

    /// From the first edge to the last.
    pub fn span(&self) -> (f64, f64) {
        (self.edge(0), self.edge(self.counts.len()))
    }

    fn edge(&self, place: usize) -> f64 {
        (self.first + place as f64) * self.width
    }

    fn tallest(&self) -> u64 {
        self.counts.iter().copied().max().unwrap_or(0)
    }

    /// An axis for this histogram alone, at least ten bars wide.
    pub fn axis(&self) -> Axis {
        let (from, until) = self.span();
        let beside = (BARS_MIN - self.counts.len() as f64).max(0.0) / 2.0 * self.width;
        Axis::new(from - beside, until + beside)
    }

    /// Draws bars from `top` to `HEIGHT` below, and the notes of `style` beside them. The caller
    /// draws the axis first.
    pub fn draw(&self, page: &mut Page, top: f64, style: &HistogramStyle<'_>) {
        let (axis, base, tallest) = (style.axis, top + HEIGHT, self.tallest());
        let notes = style.notes.iter().cloned().chain([format!("tallest bar: {tallest}")]);
        for (line, note) in notes.enumerate() {
            page.text(MARGIN - 8.0, top + 12.0 + 15.0 * line as f64, "end", note);
        }
        for (place, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (begin, end) = (self.edge(place), self.edge(place + 1));
            let (x, until) = (axis.x(begin), axis.x(end));
            let height = (count as f64 / tallest as f64 * HEIGHT).max(1.0);
            let fill = if end <= style.red_until { MISSED } else { style.fill };
            let (begin, end) = ((style.show)(begin), (style.show)(end));
            let title = format!("{count} {} from {begin} to {end}", style.what);
            page.rectangle(x, base - height, (until - x - 1.0).max(0.6), height, fill, &title);
        }
        page.line((MARGIN, base), (axis.right(), base), "#909090");
    }
}

/// The look and the texts of a histogram.
pub struct HistogramStyle<'a> {
    pub axis: Axis,
    /// Lines at the left of the bars, three at most.
    pub notes: &'a [String],
    pub fill: &'a str,
    /// Bars that end at this value or before are red.
    pub red_until: f64,
    /// The name of what is counted.
    pub what: &'a str,
    /// Formats an edge.
    pub show: &'a dyn Fn(f64) -> String,
}
