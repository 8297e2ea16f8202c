//! The live table on the terminal: the progress of the run and of each activity.
//!
//! `indicatif` draws it on standard error. If standard error is no terminal, a line of progress is
//! printed every few seconds instead.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use upcall::clock;
use upcall::time::{Instant, Span};
use upcall_cli::standard_error::say;

use crate::measured::{Progress, RunOptions};
use crate::plan::{Plan, Planned};
use crate::show::{or_dash, slack};

/// Time between two lines of progress without a terminal.
const LINE_EVERY: Span = Span::from_secs(5);

/// Column titles of the table.
const COLUMNS: [&str; 7] = ["activity", "ended", "PDUs/s", "missed", "lost", "worst slack", "lag"];

/// See the module's head.
pub struct Live {
    names: Vec<String>,
    name_width: usize,
    bars: Option<Bars>,
    options: RunOptions,
    start: Instant,
    line_at: Instant,
}

struct Bars {
    all: MultiProgress,
    progress: ProgressBar,
    rows: Vec<ProgressBar>,
}

impl Live {
    /// Starts to draw.
    pub fn new(options: RunOptions, plan: &Plan<'_>, start: Instant) -> Self {
        let names: Vec<String> =
            plan.activities.iter().map(|planned| Planned::name(planned).to_owned()).collect();
        let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(8);
        let bars =
            std::io::stderr().is_terminal().then(|| Bars::new(options, names.len(), name_width));
        Live { names, name_width, bars, options, start, line_at: start + LINE_EVERY }
    }

    /// Draws the present progress: a row for each activity, in the plan's order.
    pub fn show(&mut self, rows: &[Progress]) {
        let now = clock::now();
        let elapsed = now.since(self.start);
        let Some(bars) = &self.bars else {
            if now >= self.line_at {
                self.line_at = now + LINE_EVERY;
                self.print_line(rows, elapsed);
            }
            return;
        };
        bars.progress.set_position(elapsed.min(self.options.duration).as_nanos() / 1_000_000);
        for (row, bar) in rows.iter().zip(&bars.rows) {
            bar.set_message(self.row(row, elapsed));
        }
    }

    /// Removes the table from the terminal. The final table follows.
    pub fn finish(&self) {
        if let Some(bars) = &self.bars {
            // If the terminal has gone, there is nothing to clear.
            let _ = bars.all.clear();
        }
    }

    fn row(&self, row: &Progress, elapsed: Span) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let dropped = row.stream.as_ref().map_or_else(
            || "-".to_owned(),
            |stream| (stream.dropped_socket + stream.dropped_queue).to_string(),
        );
        format!(
            "{:<width$} {:>9} {:>10} {:>8} {:>8} {:>13} {:>10}",
            self.names[row.activity],
            row.jobs,
            format!("{:.1}", row.pdus as f64 / seconds),
            row.misses,
            dropped,
            or_dash(row.slack_ns_min, slack),
            or_dash(row.lag_ns, slack),
            width = self.name_width,
        )
    }

    fn print_line(&self, rows: &[Progress], elapsed: Span) {
        say(progress(self.options, rows, elapsed));
    }
}

/// The line of progress, with sums over all rows.
fn progress(options: RunOptions, rows: &[Progress], elapsed: Span) -> String {
    let jobs: u64 = rows.iter().map(|row| row.jobs).sum();
    let misses: u64 = rows.iter().map(|row| row.misses).sum();
    let least = rows.iter().filter_map(|row| row.slack_ns_min).min();
    let lags_ns = rows.iter().filter_map(|row| row.lag_ns);
    let lag = match (lags_ns.clone().min(), lags_ns.max()) {
        (Some(min), Some(max)) => format!(", lags {} to {}", slack(min), slack(max)),
        _ => String::new(),
    };
    format!(
        "upcall: mode {}, {:.0} s of {}: {jobs} jobs ended, {misses} missed, worst slack {}{lag}",
        options.mode.name(),
        elapsed.as_secs_f64(),
        options.duration,
        or_dash(least, slack),
    )
}

impl Bars {
    fn new(options: RunOptions, rows: usize, name_width: usize) -> Self {
        let all = MultiProgress::new();
        let text = ProgressStyle::with_template("{msg}").expect("the template is valid");
        let bar = ProgressStyle::with_template("{prefix:8} [{bar:40}] {msg}")
            .expect("the template is valid")
            .progress_chars("=> ");
        let progress = all.add(ProgressBar::new(options.duration.as_nanos() / 1_000_000));
        progress.set_style(bar);
        progress.set_prefix(options.mode.name());
        progress.set_message(format!("{}, Ctrl-C ends it", options.duration));
        let header = all.add(ProgressBar::new(0));
        header.set_style(text.clone());
        let [activity, ended, rate, missed, lost, slack, lag] = COLUMNS;
        header.set_message(format!(
            "{activity:<name_width$} {ended:>9} {rate:>10} {missed:>8} {lost:>8} {slack:>13} \
             {lag:>10}"
        ));
        // Draws the header once; without a tick it would never appear.
        header.tick();
        let rows = (0..rows)
            .map(|_| {
                let row = all.add(ProgressBar::new(0));
                row.set_style(text.clone());
                row
            })
            .collect();
        Bars { all, progress, rows }
    }
}

#[cfg(test)]
mod tests {
    use upcall::Mode;
    use upcall::time::Span;

    use crate::measured::{Progress, RunOptions};
    use crate::show::tests::assert_explained;

    #[test]
    fn the_line_of_progress_names_the_mode_and_adds_up_the_rows() {
        let options = RunOptions { mode: Mode::Upcall, duration: Span::from_secs(10), soft: false };
        let row = |jobs, slack_ns| Progress {
            jobs,
            misses: 1,
            slack_ns_min: Some(slack_ns),
            ..Progress::default()
        };
        let line = super::progress(options, &[row(3, 7_000), row(4, -2_000)], Span::from_secs(5));
        let expected =
            "upcall: mode upcall, 5 s of 10 s: 7 jobs ended, 2 missed, worst slack -2 us";
        assert_eq!(line, expected);
        let lagging = |lag_ns| Progress { lag_ns: Some(lag_ns), ..row(1, 0) };
        let rows = [lagging(400_000), row(1, 0), lagging(-500_000)];
        let line = super::progress(options, &rows, Span::from_secs(5));
        assert!(line.ends_with("worst slack +0 ns, lags -500 us to +400 us"), "{line}");
    }

    #[test]
    fn the_page_explains_every_column_of_the_live_table() {
        assert_explained(&super::COLUMNS.map(str::to_owned));
    }
}
