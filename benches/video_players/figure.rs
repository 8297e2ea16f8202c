//! The figures: frame rate by the number of players.

use std::fs;
use std::path::Path;

use svg::Document;
use svg::node::element::{Circle, Group, Line, Polygon, Polyline, Rectangle, Text, Title};

use crate::results::Results;
use crate::setup::{RATE, class_name};
use crate::variant::Variant;

/// Size of a panel with its labels, and the margins for labels at the left, the right, above and
/// below.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const ABOVE: f64 = 30.0;
const BELOW: f64 = 44.0;
/// Height of the heading.
const TOP: f64 = 54.0;
/// The end of the vertical axis, in frames/s.
const RATE_MAX: f64 = 32.0;
/// Colours that colour-blind readers can distinguish (Okabe and Ito 2008).
const COLOURS: [&str; 4] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7"];
const INK: &str = "#202020";
const GRID: &str = "#e4e4e4";

/// Writes `video-players-real-NAME.svg` into `folder`. The first panel has the means of all
/// `variants`. Each variant has another panel with its worst and its best player.
///
/// # Errors
/// The file cannot be written.
pub fn write(
    folder: &Path,
    name: &str,
    heading: &str,
    variants: &[Variant],
    results: &Results,
) -> std::io::Result<()> {
    let columns = if variants.len() > 3 { 3 } else { 2 };
    let rows = (variants.len() + 1).div_ceil(columns);
    let (width, height) = (WIDTH * columns as f64, TOP + HEIGHT * rows as f64);
    let back = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white");
    let content = Group::new().add(label((LEFT, 22.0), "start", heading).set("font-size", 16));
    let players_max = results.players_max() as f64;
    let mut figure = Figure { content, origin: (0.0, TOP), players_max };
    let windows = if variants.iter().any(|variant| variant.has_windows()) {
        "; dotted: the worst of each window"
    } else {
        ""
    };
    let note = format!(
        "band: from the worst player to the best{windows}; dashed: {RATE} frames/s, and where the CPU \
         is full ({:.1} players)",
        results.saturation()
    );
    figure.add(label((LEFT, 42.0), "start", &note));
    figure.overview(variants, results);
    for (place, &variant) in variants.iter().enumerate() {
        let (column, row) = ((place + 1) % columns, (place + 1) / columns);
        figure.origin = (column as f64 * WIDTH, TOP + row as f64 * HEIGHT);
        figure.panel(variant, COLOURS[place % COLOURS.len()], results);
    }
    let path = folder.join(format!("video-players-real-{name}.svg"));
    let document = Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(Title::new(heading))
        .add(back)
        .add(figure.content);
    fs::write(path, document.to_string() + "\n")
}

/// A page to which panels are added.
struct Figure {
    content: Group,
    /// Upper left corner of the panel.
    origin: (f64, f64),
    players_max: f64,
}

impl Figure {
    fn x(&self, players: f64) -> f64 {
        self.origin.0 + LEFT + players / self.players_max * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, rate: f64) -> f64 {
        self.origin.1 + HEIGHT - BELOW - rate / RATE_MAX * (HEIGHT - ABOVE - BELOW)
    }

    fn add(&mut self, node: impl Into<Box<dyn svg::Node>>) {
        self.content = std::mem::take(&mut self.content).add(node);
    }

    /// Draws the means of all variants.
    fn overview(&mut self, variants: &[Variant], results: &Results) {
        self.axes("mean of all players", results);
        for (place, &variant) in variants.iter().enumerate() {
            let colour = COLOURS[place % COLOURS.len()];
            let means: Vec<(f64, f64)> = results
                .of(variant)
                .map(|(players, of)| (players as f64, of.mean_worst_best()[0]))
                .collect();
            self.curve(&means, colour, 2.0);
            let (x, y) = (self.x(0.6), self.y(2.0 + 2.1 * (variants.len() - 1 - place) as f64));
            let key = Line::new().set("x1", x).set("x2", x + 18.0).set("y1", y - 4.0);
            self.add(key.set("y2", y - 4.0).set("stroke", colour).set("stroke-width", 3));
            self.add(haloed(label((x + 24.0, y), "start", variant.long_name())));
        }
    }

    /// Draws one variant: its mean between the worst and the best player. With windows, also the
    /// worst player of each window.
    fn panel(&mut self, variant: Variant, colour: &str, results: &Results) {
        self.axes(variant.long_name(), results);
        let all: Vec<(f64, [f64; 3])> = results
            .of(variant)
            .map(|(players, of)| (players as f64, of.mean_worst_best()))
            .collect();
        let best = all.iter().map(|(players, [_, _, best])| (*players, *best));
        let worst = all.iter().rev().map(|(players, [_, worst, _])| (*players, *worst));
        let outline: Vec<(f64, f64)> = best.chain(worst).collect();
        let points = self.points(&outline);
        let band = Polygon::new().set("points", points).set("fill", colour);
        self.add(band.set("fill-opacity", 0.22));
        if variant.has_windows() {
            for class in 0..3 {
                let least = results
                    .of(variant)
                    .filter_map(|(players, of)| Some((players as f64, of.worst_of_class(class)?)));
                let least: Vec<(f64, f64)> = least.collect();
                let points = self.points(&least);
                let line = Polyline::new().set("points", points).set("fill", "none");
                self.add(line.set("stroke", INK).set("stroke-dasharray", "2 3"));
                let Some(&(players, rate)) = least.last() else { continue };
                let at = (self.x(players) - 6.0, self.y(rate) - 7.0);
                self.add(haloed(label(at, "end", &class_name(class)).set("font-size", 10)));
            }
        }
        let means: Vec<(f64, f64)> =
            all.iter().map(|(players, [mean, ..])| (*players, *mean)).collect();
        self.curve(&means, colour, 2.0);
    }

    fn axes(&mut self, title: &str, results: &Results) {
        let at = (self.origin.0 + LEFT, self.origin.1 + ABOVE - 10.0);
        self.add(label(at, "start", title).set("font-weight", "bold"));
        let (left, right) = (self.x(0.0), self.x(self.players_max));
        for rate in (0..=30).step_by(5).map(f64::from) {
            let y = self.y(rate);
            self.line((left, y), (right, y), GRID, "none");
            self.add(label((left - 6.0, y + 4.0), "end", &format!("{rate}")));
        }
        let (top, bottom) = (self.y(RATE_MAX), self.y(0.0));
        for players in
            (0..=results.players_max()).step_by(if self.players_max > 12.0 { 5 } else { 1 })
        {
            let x = self.x(players as f64);
            self.line((x, top), (x, bottom), GRID, "none");
            self.add(label((x, bottom + 16.0), "middle", &players.to_string()));
        }
        let full = self.x(results.saturation().min(self.players_max));
        self.line((full, top), (full, bottom), "#606060", "6 4");
        let wished = self.y(RATE);
        self.line((left, wished), (right, wished), "#606060", "6 4");
        self.add(label(((left + right) / 2.0, bottom + 32.0), "middle", "players"));
        self.add(label((left - 6.0, top - 3.0), "end", "f/s"));
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, dashes: &str) {
        let line = Line::new()
            .set("x1", round(from.0))
            .set("y1", round(from.1))
            .set("x2", round(to.0))
            .set("y2", round(to.1))
            .set("stroke", colour)
            .set("stroke-dasharray", dashes);
        self.add(line);
    }

    fn curve(&mut self, values: &[(f64, f64)], colour: &str, width: f64) {
        let points = self.points(values);
        let line = Polyline::new().set("points", points).set("fill", "none");
        self.add(line.set("stroke", colour).set("stroke-width", width));
        for &(players, rate) in values {
            let dot =
                Circle::new().set("cx", round(self.x(players))).set("cy", round(self.y(rate)));
            let title = Title::new(format!("{players} players: {rate:.1} frames/s"));
            self.add(dot.set("r", 3).set("fill", colour).add(title));
        }
    }

    fn points(&self, values: &[(f64, f64)]) -> String {
        let points = values
            .iter()
            .map(|&(players, rate)| format!("{},{}", round(self.x(players)), round(self.y(rate))));
        points.collect::<Vec<_>>().join(" ")
    }
}

/// Makes a label legible over a curve.
fn haloed(label: Text) -> Text {
    label.set("paint-order", "stroke").set("stroke", "white").set("stroke-width", 4)
}

fn label(at: (f64, f64), anchor: &str, text: &str) -> Text {
    Text::new(text)
        .set("x", round(at.0))
        .set("y", round(at.1))
        .set("text-anchor", anchor)
        .set("fill", INK)
}

/// Rounds to hundredths of a point, which is invisible and keeps files small.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
