//! Collects recorded arrival times, sorts them, and turns them into times of the simulation. These
//! count from the earliest arrival, or are the recorded ones.

use super::error::ArrivalsError;
use super::limits::ARRIVALS_MAX;
use super::note::Note;
use upcall::time::{Instant, Span};

/// The times in the order they were read.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The first time that was read; the offsets count from it.
    origin: Option<i128>,
    offsets: Vec<i64>,
    latest: i64,
    disordered: u64,
    back_max: u64,
}

impl Timeline {
    /// Adds an arrival, in nanoseconds of the recorder's clock.
    ///
    /// # Errors
    /// There are too many arrivals, or this one is too far from the first.
    pub(super) fn push(&mut self, ns: i128) -> Result<(), ArrivalsError> {
        if self.offsets.len() >= ARRIVALS_MAX {
            return Err(ArrivalsError::TooMany);
        }
        let origin = *self.origin.get_or_insert(ns);
        let offset = i64::try_from(ns - origin).map_err(|_| ArrivalsError::TooFar)?;
        if self.offsets.is_empty() {
            self.latest = offset;
        }
        if offset < self.latest {
            self.disordered += 1;
            self.back_max = self.back_max.max(self.latest.abs_diff(offset));
        }
        self.latest = self.latest.max(offset);
        self.offsets.push(offset);
        Ok(())
    }

    /// The times in order, counted from the earliest one, or as they are if they are absolute and
    /// not negative.
    pub(super) fn finish(mut self, from_earliest: bool, notes: &mut Vec<Note>) -> Vec<Instant> {
        if self.disordered > 0 {
            let back = Span::from_nanos(self.back_max);
            notes.push(Note::Sorted { count: self.disordered, back });
            self.offsets.sort_unstable();
        }
        let earliest = self.offsets.first().copied().unwrap_or(0);
        let origin = match (from_earliest, self.origin) {
            (false, Some(origin)) => u64::try_from(origin + i128::from(earliest)).unwrap_or(0),
            _ => 0,
        };
        let instant = |offset: i64| Instant::from_nanos(offset.abs_diff(earliest) + origin);
        self.offsets.into_iter().map(instant).collect()
    }
}
