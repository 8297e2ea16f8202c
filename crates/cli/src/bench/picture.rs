//! The picture of the experiment: for each cell, the parts that were on time.

use super::load::{Config, RECEIVERS};
use super::outcome::{Cell, Outcome, Received};
use crate::plot::page::{Axis, MARGIN, Page, colour};
use crate::show::span;

const BAR: f64 = 9.0;
/// Between two cells.
const GAP: f64 = 9.0;

/// The picture as SVG: a chart for each configuration, with bars for each way of sending.
pub fn draw(outcome: &Outcome) -> String {
    let mut page = Page::new();
    let what = match outcome.machine {
        Some(_) => "packets on time",
        None => "in virtual time, packets processed",
    };
    page.heading(format!(
        "receive livelock: {what}, of those sent, and the background program's part of the CPU; {} \
         a cell",
        span(outcome.duration_ns)
    ));
    let names = RECEIVERS.map(|receiver| receiver.name);
    let meanings = names.into_iter().chain(["background"]);
    let marks: Vec<_> = meanings.enumerate().map(|(place, name)| (square(place), name)).collect();
    let marks: Vec<_> = marks.iter().map(|(draw, name)| (draw as _, *name)).collect();
    page.legend(&marks);
    for config in Config::ALL {
        let cells: Vec<&Cell> = outcome.cells.iter().filter(|cell| cell.config == config).collect();
        if !cells.is_empty() {
            chart(&mut page, config, &cells);
        }
    }
    page.finish()
}

fn square(place: usize) -> impl Fn(&mut Page, (f64, f64)) {
    move |page, (x, y)| page.rectangle(x - 5.0, y - 5.0, 10.0, 10.0, colour(place), "")
}

fn chart(page: &mut Page, config: Config, cells: &[&Cell]) {
    page.heading(format!("{}: {}", config.number(), config.title()));
    let description: Vec<String> = cells.iter().map(|cell| described(cell)).collect();
    page.chart(config.title(), &description.join("; "), |page| {
        let (axis, top) = (Axis::new(0.0, 100.0), page.y);
        page.y += cells.len() as f64 * (4.0 * BAR + GAP);
        axis.draw(page, top, |percent| format!("{percent:.0} %"));
        let mut y = top + GAP / 2.0;
        for cell in cells {
            page.text(MARGIN - 8.0, y + 2.0 * BAR + 4.0, "end", cell.senders.name());
            for (place, (name, percent)) in parts(cell).into_iter().enumerate() {
                let width = axis.x(percent.clamp(0.0, 100.0)) - axis.x(0.0);
                let title = format!("{name}: {percent:.1} %");
                page.rectangle(axis.x(0.0), y, width.max(0.5), BAR - 1.0, colour(place), &title);
                y += BAR;
            }
            y += GAP;
        }
    });
}

/// What the bars of a cell show, in percent.
fn parts(cell: &Cell) -> Vec<(&'static str, f64)> {
    let receivers = RECEIVERS.iter().enumerate().map(|(index, receiver)| {
        (receiver.name, cell.of_receiver(index, Received::done_part).mean * 100.0)
    });
    let background = cell.statistics(|run| run.background_part).mean * 100.0;
    receivers.chain([("background", background)]).collect()
}

fn described(cell: &Cell) -> String {
    let parts = parts(cell).into_iter().map(|(name, percent)| format!("{name} {percent:.1} %"));
    format!("{}: {}", cell.senders.name(), parts.collect::<Vec<_>>().join(", "))
}
