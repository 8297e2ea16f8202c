//! Times, windows and limits that every step shares.

use std::time::Duration;

use upcall::activity::Window;
use upcall::admission::Share;
use upcall::time::Span;

/// What a process started by this one is to do: its variable of the environment.
pub const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Between two frames: 30 a second.
pub const PERIOD: Span = Span::from_nanos(33_333_333);
pub const RATE: f64 = 30.0;
/// The most that a frame is late.
pub const JITTER: Span = Span::from_millis(5);
/// From the arrival of a frame to its display.
pub const SHOWN_AFTER: Span = Span::from_millis(50);
/// Of round robin in the paper.
pub const SLICE: Duration = Duration::from_micros(150);
/// Of each player, in front of those that count.
pub const WARM_FRAMES: u64 = 15;
/// Most that admission gives away here.
pub const CPU_LIMIT: Share = match Share::from_ppm(950_000) {
    Some(share) => share,
    None => Share::WHOLE,
};

/// What players may lose under DWCS: a third of them one frame in ten, a third half of
/// them, a third four of five.
pub const CLASSES: [Window; 3] = [
    Window { misses: 1, periods: 10 },
    Window { misses: 1, periods: 2 },
    Window { misses: 4, periods: 5 },
];

pub fn window(player: usize) -> Window {
    CLASSES[player % CLASSES.len()]
}

/// Frames/s that a class's window asks for.
pub fn required_rate(class: usize) -> f64 {
    let Window { misses, periods } = CLASSES[class];
    RATE * f64::from(periods - misses) / f64::from(periods)
}

pub fn class_name(class: usize) -> String {
    let Window { misses, periods } = CLASSES[class];
    format!("{misses}/{periods} ({:.0})", required_rate(class))
}

pub fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}
