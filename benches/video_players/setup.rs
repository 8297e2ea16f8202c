//! Times, windows and limits that every step shares.

use std::time::Duration;

use upcall::activity::Window;
use upcall::admission::Share;
use upcall::clock;
use upcall::io_events::FrameRate;
use upcall::time::{Instant, Span};

/// The environment variable that gives a process started by this one its role.
pub const ROLE: &str = "UPCALL_BENCH_ROLE";
/// Interval between two frames: 30 per second.
pub const PERIOD: Span = Span::from_nanos(33_333_333);
pub const RATE: f64 = 30.0;
pub const FRAME_RATE: FrameRate = match FrameRate::new(30, 1) {
    Some(rate) => rate,
    None => panic!("a number is 0"),
};
/// The most by which a frame is late.
pub const JITTER: Span = Span::from_millis(5);
/// Time to the display of a frame from the moment at which it comes if it is not late.
pub const SHOWN_AFTER: Span = Span::from_millis(50);
/// The slice of round robin in the paper.
pub const SLICE: Duration = Duration::from_micros(150);
/// Priority of the threads of the source: above ordinary threads on their CPUs.
pub const SOURCE_PRIORITY: u8 = 40;
/// Frames of each player before those that count.
pub const WARM_FRAMES: u64 = 15;
/// The most that a process without a daemon uses, and the most of [`daemon_limit`].
pub const CPU_LIMIT: Share = match Share::from_ppm(950_000) {
    Some(share) => share,
    None => Share::WHOLE,
};

/// What the daemon grants: a frame of a player that it refused, and hand-offs, still fit into a
/// period beside it. Else such a player must return within 1 ms whenever another one waits.
pub fn daemon_limit(cost: Span) -> Share {
    let frame_ppm = cost.as_nanos() * 1_000_000 / PERIOD.as_nanos() + HAND_OFFS_PPM;
    let left_ppm = u64::from(Share::WHOLE.ppm()).saturating_sub(frame_ppm);
    let left = u32::try_from(left_ppm).ok().and_then(Share::from_ppm);
    left.map_or(CPU_LIMIT, |left| left.min(CPU_LIMIT))
}

/// Part of the CPU for all hand-offs of a period, in millionths.
const HAND_OFFS_PPM: u64 = 20_000;

/// Windows of players under DWCS. A third of the players may lose one frame in ten, a third half of
/// the frames, and a third four of five.
pub const CLASSES: [Window; 3] = [
    Window { misses: 1, periods: 10 },
    Window { misses: 1, periods: 2 },
    Window { misses: 4, periods: 5 },
];

/// The next period of the screen whose clock all players of a machine share, one period from now at
/// the earliest.
pub fn screen_clock() -> Instant {
    let periods = clock::now().as_nanos() / PERIOD.as_nanos() + 2;
    Instant::from_nanos(periods * PERIOD.as_nanos())
}

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
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}
