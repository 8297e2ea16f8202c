//! A row of the table and how it is timed.

use std::time::Instant as Wall;

/// A real-time signal (signal(7)). The numbers 34 to 64 are free for programs.
pub const REAL_TIME_SIGNAL: i32 = 40;

/// One row of the table. A call of `sample` returns picoseconds of one event.
pub struct Row {
    pub name: &'static str,
    pub sample: Box<dyn FnMut() -> u64>,
}

pub fn row(name: &'static str, sample: impl FnMut() -> u64 + 'static) -> Row {
    Row { name, sample: Box::new(sample) }
}

/// The picoseconds of one of `events` calls of `each`.
pub fn timed(events: u64, mut each: impl FnMut()) -> u64 {
    let begun = Wall::now();
    (0..events).for_each(|_| each());
    per_event(begun, events)
}

pub fn per_event(begun: Wall, events: u64) -> u64 {
    u64::try_from(begun.elapsed().as_nanos() * 1_000 / u128::from(events)).unwrap_or(u64::MAX)
}
