//! The page of a picture: positions, axes and colours. It knows nothing of traces.

use svg::Document;
use svg::node::element::{Description, Group, Line, Polygon, Polyline, Rectangle, Text, Title};

pub const WIDTH: f64 = 1200.0;
/// Width of the names at the left.
pub const MARGIN: f64 = 230.0;
const RIGHT: f64 = 45.0;
/// Most ticks: a step is a tenth of an axis or more.
const TICKS_MAX: u32 = 12;
/// Tolerance for rounding errors, in steps.
const HAIR: f64 = 1e-6;

/// Size of an arrow's head, in both directions.
const HEAD: f64 = 6.0;
/// Height of a legend.
const LEGEND: f64 = 26.0;
/// Approximate width of a letter.
const LETTER: f64 = 6.5;

/// A function that draws a mark around a place, and the meaning of the mark.
pub type Mark<'m> = (&'m dyn Fn(&mut Page, (f64, f64)), &'m str);

/// Distinct for people who confuse colours (Okabe and Ito 2008).
const COLOURS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c"];
pub const MISSED: &str = "#c00000";

/// The colour of the row at `place`.
pub fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// A page that grows downwards.
pub struct Page {
    content: Group,
    pub y: f64,
}

impl Page {
    pub fn new() -> Self {
        Page { content: Group::new(), y: 12.0 }
    }

    pub fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str, title: &str) {
        let rectangle = Rectangle::new()
            .set("x", round(x))
            .set("y", round(y))
            .set("width", round(width))
            .set("height", round(height))
            .set("fill", fill)
            .add(Title::new(title));
        self.add(rectangle);
    }

    /// Groups what `draw` draws into one picture with a title and a description for screen readers.
    pub fn chart(&mut self, title: &str, description: &str, draw: impl FnOnce(&mut Page)) {
        let described = Group::new()
            .set("role", "img")
            .add(Title::new(title))
            .add(Description::new().add(svg::node::Text::new(description)));
        let outer = std::mem::replace(&mut self.content, described);
        draw(self);
        let chart = std::mem::replace(&mut self.content, outer);
        self.add(chart);
    }

    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let line = Line::new()
            .set("x1", round(from.0))
            .set("y1", round(from.1))
            .set("x2", round(to.0))
            .set("y2", round(to.1))
            .set("stroke", stroke);
        self.add(line);
    }

    /// A line through these points.
    pub fn polyline(&mut self, points: impl Iterator<Item = (f64, f64)>, stroke: &str) {
        let points = points.map(|(x, y)| format!("{},{}", round(x), round(y)));
        let line = Polyline::new()
            .set("points", points.collect::<Vec<_>>().join(" "))
            .set("fill", "none")
            .set("stroke", stroke);
        self.add(line);
    }

    /// An arrow with its head at `to`, which is above or below `from`.
    pub fn arrow(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        self.line(from, to, stroke);
        let (x, y) = to;
        let back = y + if y < from.1 { HEAD } else { -HEAD };
        let corners = [(x, y), (x - HEAD / 2.0, back), (x + HEAD / 2.0, back)];
        let points = corners.map(|(x, y)| format!("{},{}", round(x), round(y)));
        self.add(Polygon::new().set("points", points.join(" ")).set("fill", stroke));
    }

    /// A line that explains marks. Each function draws its mark around the given place; the meaning
    /// is at its right.
    pub fn legend(&mut self, marks: &[Mark<'_>]) {
        let (mut x, y) = (MARGIN, self.y + LEGEND / 2.0);
        for (draw, meaning) in marks {
            draw(self, (x + HEAD, y));
            self.text(x + 3.0 * HEAD, y + 4.0, "start", *meaning);
            x += 7.0 * HEAD + LETTER * meaning.chars().count() as f64;
        }
        self.y += LEGEND;
    }

    pub fn text(&mut self, x: f64, y: f64, anchor: &str, text: impl Into<String>) {
        let text = Text::new(text)
            .set("x", round(x))
            .set("y", round(y))
            .set("text-anchor", anchor)
            .set("fill", "#202020");
        self.add(text);
    }

    pub fn heading(&mut self, text: impl Into<String>) {
        self.y += 20.0;
        let heading = Text::new(text)
            .set("x", 12)
            .set("y", round(self.y))
            .set("font-size", 15)
            .set("font-weight", "bold")
            .set("fill", "#202020");
        self.add(heading);
        self.y += 12.0;
    }

    /// The picture as text.
    pub fn finish(self) -> String {
        let height = round(self.y + 20.0);
        let back = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white");
        Document::new()
            .set("viewBox", (0, 0, WIDTH, height))
            .set("width", WIDTH)
            .set("height", height)
            .set("font-family", "sans-serif")
            .set("font-size", 12)
            .add(back)
            .add(self.content)
            .to_string()
    }

    fn add(&mut self, node: impl Into<Box<dyn svg::Node>>) {
        self.content = std::mem::take(&mut self.content).add(node);
    }
}

/// A horizontal axis over the page's width.
#[derive(Clone, Copy)]
pub struct Axis {
    from: f64,
    until: f64,
}

impl Axis {
    /// An axis from `from` to `until`, which must be in order. An empty range is widened.
    pub fn new(from: f64, until: f64) -> Self {
        Axis { from, until: if until > from { until } else { from + 1.0 } }
    }

    pub fn x(&self, value: f64) -> f64 {
        MARGIN + (value - self.from) / (self.until - self.from) * (WIDTH - MARGIN - RIGHT)
    }

    /// Whether `value` lies on the axis.
    pub fn holds(&self, value: f64) -> bool {
        (self.from..=self.until).contains(&value)
    }

    /// The right end of the axis.
    pub fn right(&self) -> f64 {
        self.x(self.until)
    }

    /// Draws ticks at round values; `label` formats each value.
    pub fn draw(&self, page: &mut Page, top: f64, label: impl Fn(f64) -> String) {
        self.draw_in(1.0, page, top, label);
    }

    /// Draws ticks at round multiples of `unit`.
    pub fn draw_in(&self, unit: f64, page: &mut Page, top: f64, label: impl Fn(f64) -> String) {
        let step = round_above((self.until - self.from) / unit / 10.0);
        // Counts steps. A sum of steps would miss the last tick, or zero, by a rounding error.
        let first = (self.from / unit / step - HAIR).ceil();
        let last = (self.until / unit / step + HAIR).floor();
        // Bounded: in a forged trace a step can vanish in rounding, and the ticks would never end.
        let ticks = (0..TICKS_MAX).map(|place| first + f64::from(place));
        let values = ticks.take_while(|&number| number <= last).map(|number| number * step * unit);
        self.draw_ticks(page, top, values.map(|value| (value, label(value))));
    }

    /// Draws ticks at the given values, each with a label of one or more lines.
    pub fn draw_ticks(
        &self,
        page: &mut Page,
        top: f64,
        ticks: impl IntoIterator<Item = (f64, String)>,
    ) {
        let mut lines = 1;
        for (value, label) in ticks {
            let x = self.x(value);
            page.line((x, top), (x, page.y), "#e0e0e0");
            for (place, line) in label.lines().enumerate() {
                page.text(x, page.y + 14.0 * (place + 1) as f64, "middle", line);
                lines = lines.max(place + 1);
            }
        }
        page.y += 8.0 + 14.0 * lines as f64;
    }
}

/// The smallest number of the form 1, 2 or 5 times a power of ten that is not below `least`.
pub fn round_above(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|times| times * power);
    steps.into_iter().find(|&step| step >= least).unwrap_or(10.0 * power)
}

/// The largest number of the form 1, 2 or 5 times a power of ten that is not above `most`.
pub fn round_below(most: f64) -> f64 {
    let power = 10f64.powf(most.log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|times| times * power);
    steps.into_iter().find(|&step| step <= most).unwrap_or(power / 2.0)
}

/// Rounds to hundredths of a point. More digits are invisible, and files stay small.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
