//! Collects recorded arrival times, sorts them, and turns them into times of the simulation. These
//! count from the earliest arrival, or are the recorded ones. If packets have timestamps, it does
//! the same with their logical arrivals.

use super::error::ArrivalsError;
use super::limits::ARRIVALS_MAX;
use super::note::Note;
use upcall::time::{Instant, Span};
use upcall::work::MediaClock;

/// A packet that is further ahead of its timestamp begins a new timeline.
const AHEAD_MAX: Span = Span::from_secs(60);

/// The times in the order they were read.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// The first time that was read; the offsets count from it.
    origin: Option<i128>,
    offsets: Vec<i64>,
    clock: Option<MediaClock>,
    /// If there are timestamps: how much later than its arrival each packet arrives logically, in
    /// ns; negative for earlier.
    later: Vec<i64>,
    latest: i64,
    disordered: u64,
    back_max: u64,
}

impl Timeline {
    /// A timeline of packets with the timestamps of this clock, or without timestamps.
    pub(super) fn new(clock: Option<MediaClock>) -> Self {
        Timeline { clock, ..Timeline::default() }
    }

    /// As [`Timeline::push`], for a packet with this UDP payload.
    pub(super) fn push_packet(&mut self, ns: i128, payload: &[u8]) -> Result<(), ArrivalsError> {
        self.push(ns)?;
        if let Some(clock) = &mut self.clock {
            // A packet without a timestamp arrives logically when it comes.
            let logical = u64::try_from(ns).ok().and_then(|ns| {
                let at = Instant::from_nanos(ns);
                clock.logical_arrival(payload, at, at + AHEAD_MAX)
            });
            let later = logical.map_or(0, |logical| i128::from(logical.as_nanos()) - ns);
            self.later.push(i64::try_from(later).unwrap_or(0));
        }
        Ok(())
    }

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
    /// not negative. Also the logical arrivals, if there are timestamps.
    pub(super) fn finish(
        mut self,
        from_earliest: bool,
        notes: &mut Vec<Note>,
    ) -> (Vec<Instant>, Option<Vec<Instant>>) {
        if self.disordered > 0 {
            let back = Span::from_nanos(self.back_max);
            notes.push(Note::Sorted { count: self.disordered, back });
            self.sort();
        }
        let earliest = self.offsets.first().copied().unwrap_or(0);
        let origin = match (from_earliest, self.origin) {
            (false, Some(origin)) => u64::try_from(origin + i128::from(earliest)).unwrap_or(0),
            _ => 0,
        };
        let instant = |offset: i64| Instant::from_nanos(offset.abs_diff(earliest) + origin);
        let logical = self.clock.is_some().then(|| {
            let both = self.offsets.iter().zip(&self.later);
            both.map(|(&offset, &later)| instant((offset + later).max(earliest))).collect()
        });
        (self.offsets.into_iter().map(instant).collect(), logical)
    }

    /// Sorts by arrival.
    fn sort(&mut self) {
        if self.later.is_empty() {
            self.offsets.sort_unstable();
            return;
        }
        let offsets = core::mem::take(&mut self.offsets);
        let mut both: Vec<_> = offsets.into_iter().zip(core::mem::take(&mut self.later)).collect();
        both.sort_by_key(|(offset, _)| *offset);
        (self.offsets, self.later) = both.into_iter().unzip();
    }
}
