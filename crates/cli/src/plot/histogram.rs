//! Histograms: how many bars, where they begin, and how they are drawn.

use super::page::{Axis, MARGIN, MISSED, Page, round_above, round_below};

#[cfg(test)]
mod tests;

/// Fewest bars between the least value and the most, if these differ by so many units.
const BARS_MIN: f64 = 10.0;
/// Most bars; two less than that between the ends, which seldom fall on edges.
const BARS_MAX: f64 = 60.0;
/// Of the tallest bar.
pub const HEIGHT: f64 = 60.0;

/// Values counted in stretches of one width, whose edges are multiples of it: so zero
/// is an edge, and no bar is on both sides of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Bins {
    /// Where the first begins, in widths.
    first: f64,
    width: f64,
    counts: Vec<u64>,
}

impl Bins {
    /// Of `values`, which are numbers; `None` if there are none. The width is that of
    /// Freedman and Diaconis ("On the histogram as a density estimator", 1981), twice
    /// the distance of the quartiles by the cube root of the count, within 10 to 60
    /// bars, and then a round one. `finest`, above zero, is about the narrowest there
    /// may be, though bars be fewer. Sorts the values.
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
        // The round one below is at least 0.4 of it: still wider than `narrowest`.
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

    /// An axis of their own: at least ten bars wide.
    pub fn axis(&self) -> Axis {
        let (from, until) = self.span();
        let beside = (BARS_MIN - self.counts.len() as f64).max(0.0) / 2.0 * self.width;
        Axis::new(from - beside, until + beside)
    }

    /// Bars from `top` to `HEIGHT` below, and what `style` says beside them. The axis is
    /// the caller's to draw, before.
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

/// How bars are drawn and named.
pub struct HistogramStyle<'a> {
    pub axis: Axis,
    /// Lines at their left, three at most.
    pub notes: &'a [String],
    pub fill: &'a str,
    /// Bars that end here or before are red.
    pub red_until: f64,
    /// What is counted.
    pub what: &'a str,
    /// An edge in words.
    pub show: &'a dyn Fn(f64) -> String,
}
