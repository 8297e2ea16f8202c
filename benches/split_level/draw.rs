//! Figure 9 as SVG, once with linear axes as in the paper, and once with logarithmic axes.

use svg::Document;
use svg::node::element::{Circle, Group, Line as Stroke, Polyline, Rectangle, Text};

use crate::figure::Curve;

/// Colours that colour-blind readers can distinguish (Okabe and Ito 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7"];
const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 60.0;
const BETWEEN: f64 = 90.0;
/// The paper's figure ends at 200 messages per second of each activity, which is 1,600 in all. This
/// figure goes further.
const STRAIGHT_MAX: f64 = 12_800.0;

/// Maps a value to a place between 0 and 1, and lists the marks.
struct Axis {
    least: f64,
    most: f64,
    is_log: bool,
    marks: Vec<f64>,
}

impl Axis {
    fn straight(most: f64, step: f64) -> Self {
        let marks = std::iter::successors(Some(0.0), |at| Some(at + step));
        let marks = marks.take_while(|&at| at <= most * 1.001).collect();
        Axis { least: 0.0, most, is_log: false, marks }
    }

    fn powers(least: f64, most: f64) -> Self {
        let marks = std::iter::successors(Some(least), |at| Some(at * 10.0));
        let marks = marks.take_while(|&at| at <= most * 1.001).collect();
        Axis { least, most, is_log: true, marks }
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log {
            (value / self.least).log10() / (self.most / self.least).log10()
        } else {
            (value - self.least) / (self.most - self.least)
        }
    }

    fn holds(&self, value: f64) -> bool {
        value >= self.least && value <= self.most
    }
}

/// The figure as text.
pub fn picture(curves: &[Curve]) -> String {
    let shown = curves.iter().flat_map(|curve| &curve.points);
    let most = shown
        .filter(|point| point.rate() <= STRAIGHT_MAX)
        .map(|point| point.percent)
        .fold(1.0, f64::max);
    let step = [0.5, 1.0, 2.0, 5.0, 10.0].into_iter().find(|step| most / step <= 8.0);
    let step = step.unwrap_or(20.0);
    let straight = panel(
        curves,
        (LEFT, TOP),
        &Axis::straight(STRAIGHT_MAX, 1_600.0),
        &Axis::straight((most / step).ceil() * step, step),
    );
    let powers = panel(
        curves,
        (LEFT + WIDTH + BETWEEN, TOP),
        &Axis::powers(100.0, 1_000_000.0),
        &Axis::powers(0.01, 100.0),
    );
    let mut document = Document::new()
        .set("viewBox", (0, 0, 1230, 570))
        .set("font-family", "sans-serif")
        .set("font-size", 12)
        .add(rectangle(0.0, 0.0, 1_230.0, 570.0, "#ffffff"))
        .add(
            text(LEFT, 24.0, "start", "Overhead of 5 network and 3 device activities, by message rate")
                .set("font-size", 15)
                .set("font-weight", "bold"),
        )
        .add(text(LEFT, 44.0, "start", "after split-level-1991, Figure 9; CPU time of the reading process, nothing done with a message"))
        .add(straight)
        .add(powers);
    for (nth, curve) in curves.iter().enumerate() {
        let column = f64::from(u8::try_from(nth % 3).unwrap_or(0));
        let row = f64::from(u8::try_from(nth / 3).unwrap_or(0));
        let (x, y) = (LEFT + column * 380.0, TOP + HEIGHT + 80.0 + row * 24.0);
        document = document
            .add(stroke((x, y - 4.0), (x + 26.0, y - 4.0), COLOURS[nth]).set("stroke-width", 2.5))
            .add(dot(x + 13.0, y - 4.0, COLOURS[nth]))
            .add(text(x + 34.0, y, "start", curve.name));
    }
    document.to_string()
}

fn panel(curves: &[Curve], (left, top): (f64, f64), across: &Axis, up: &Axis) -> Group {
    let x = |value: f64| left + WIDTH * across.place(value);
    let y = |value: f64| top + HEIGHT * (1.0 - up.place(value));
    let mut group = Group::new();
    for &mark in &across.marks {
        group = group.add(stroke((x(mark), top), (x(mark), top + HEIGHT), "#e4e4e4")).add(text(
            x(mark),
            top + HEIGHT + 18.0,
            "middle",
            &number(mark),
        ));
    }
    for &mark in &up.marks {
        group = group.add(stroke((left, y(mark)), (left + WIDTH, y(mark)), "#e4e4e4")).add(text(
            left - 8.0,
            y(mark) + 4.0,
            "end",
            &format!("{} %", number(mark)),
        ));
    }
    group = group
        .add(stroke((left, top), (left, top + HEIGHT), "#202020"))
        .add(stroke((left, top + HEIGHT), (left + WIDTH, top + HEIGHT), "#202020"))
        .add(text(
            left + WIDTH / 2.0,
            top + HEIGHT + 40.0,
            "middle",
            "messages a second, all activities",
        ));
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let places: Vec<(f64, f64)> = curve
            .points
            .iter()
            .filter(|point| across.holds(point.rate()) && up.holds(point.percent))
            .map(|point| (x(point.rate()), y(point.percent)))
            .collect();
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        group = group.add(
            Polyline::new()
                .set("points", points.join(" "))
                .set("fill", "none")
                .set("stroke", colour)
                .set("stroke-width", 2),
        );
        for (x, y) in places {
            group = group.add(dot(x, y, colour));
        }
    }
    group
}

/// Formats a number with commas between thousands.
fn number(value: f64) -> String {
    let text = value.to_string();
    if value < 1_000.0 {
        return text;
    }
    let digits = text.chars().enumerate().flat_map(|(nth, digit)| {
        let comma = nth > 0 && (text.len() - nth).is_multiple_of(3);
        comma.then_some(',').into_iter().chain([digit])
    });
    digits.collect()
}

fn dot(x: f64, y: f64, fill: &str) -> Circle {
    Circle::new().set("cx", round(x)).set("cy", round(y)).set("r", 3).set("fill", fill)
}

fn stroke(from: (f64, f64), to: (f64, f64), colour: &str) -> Stroke {
    Stroke::new()
        .set("x1", round(from.0))
        .set("y1", round(from.1))
        .set("x2", round(to.0))
        .set("y2", round(to.1))
        .set("stroke", colour)
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, fill: &str) -> Rectangle {
    Rectangle::new()
        .set("x", x)
        .set("y", y)
        .set("width", width)
        .set("height", height)
        .set("fill", fill)
}

fn text(x: f64, y: f64, anchor: &str, content: &str) -> Text {
    Text::new(content)
        .set("x", round(x))
        .set("y", round(y))
        .set("text-anchor", anchor)
        .set("fill", "#202020")
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
