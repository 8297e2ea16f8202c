//! Models of arriving PDUs, the work of an activity's jobs.
//!
//! An activity is upcalled once per period, whatever arrives. The arrivals decide how many PDUs the
//! job finds. This models a stream whose handler reads all packets of its socket and returns. PDUs
//! that a job does not take wait for the next job. An activity that works ahead
//! (`Terms::workahead_max`, DWS) looks at the end of each job whether the next message, a whole
//! batch, waits already. An activity on demand (`Terms::on_demand`) has no period of its own: while
//! it has nothing to do, the next PDU is a message that releases it.

use crate::chance::Chance;
use std::collections::VecDeque;
use std::sync::Arc;
use upcall_core::time::{Instant, Span};

/// A model of arrivals. Times count from the start of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Each job finds its whole batch.
    Saturated,
    /// One PDU every `every`, the first at 0.
    Periodic {
        /// Above 0.
        every: Span,
    },
    /// As `Periodic`, with each PDU up to `jitter` later. A PDU never overtakes another.
    Jittered {
        /// Above 0.
        every: Span,
        /// The delay is uniform from 0 to this.
        jitter: Span,
    },
    /// PDUs independent of each other, on average `mean` apart.
    Poisson {
        /// Above 0.
        mean: Span,
    },
    /// `burst` PDUs at once, then none for `every` and up to `jitter` more.
    Bursty {
        /// PDUs that arrive together.
        burst: u32,
        /// Above 0.
        every: Span,
        /// The delay is uniform from 0 to this.
        jitter: Span,
    },
    /// PDUs at these times, which must be sorted; no PDU after the last.
    Recorded(Arc<[Instant]>),
}

impl Arrivals {
    /// The error of the model, if it has one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Arrivals::Periodic { every }
            | Arrivals::Jittered { every, .. }
            | Arrivals::Bursty { every, .. }
                if every.is_zero() =>
            {
                Some("arrivals are 0 ns apart, expected at least 1 ns")
            }
            Arrivals::Poisson { mean } if mean.is_zero() => {
                Some("arrivals are 0 ns apart on average, expected at least 1 ns")
            }
            Arrivals::Recorded(at) if !at.is_sorted() => {
                Some("recorded arrivals are not in order of time")
            }
            _ => None,
        }
    }
}

/// The arrivals of one activity over time.
#[derive(Debug)]
pub(crate) struct Source {
    model: Arrivals,
    chance: Chance,
    /// The time of the next PDU.
    next: Instant,
    /// The number of PDUs (or bursts) before it.
    index: u64,
    waiting: u64,
    arrived: u64,
    /// The age above which a PDU is useless.
    stale_after: Option<Span>,
    /// When each recorded PDU arrives logically, by its timestamp.
    logical: Option<Arc<[Instant]>>,
    /// The arrival times of the waiting PDUs. Empty unless `stale_after` is set.
    came: VecDeque<Instant>,
}

impl Source {
    pub(crate) fn new(model: Arrivals, chance: Chance) -> Self {
        let mut source = Source {
            model,
            chance,
            next: Instant::ZERO,
            index: 0,
            waiting: 0,
            arrived: 0,
            stale_after: None,
            logical: None,
            came: VecDeque::new(),
        };
        source.next = source.draw(Instant::ZERO);
        source
    }

    /// Makes [`Source::drop_stale`] drop PDUs older than `age`. Call it before the first arrival.
    pub(crate) fn stale_after(mut self, age: Option<Span>) -> Self {
        self.stale_after = age;
        self
    }

    /// The recorded PDUs have timestamps, which say when they arrive logically.
    pub(crate) fn logical(mut self, logical: Option<Arc<[Instant]>>) -> Self {
        self.logical = logical;
        self
    }

    /// The number of whole messages of `batch` PDUs that wait, and the logical arrival of the first
    /// one if its timestamp is known. `None` if nothing waits.
    pub(crate) fn early(&mut self, now: Instant, batch: u32) -> Option<(u32, Option<Instant>)> {
        self.catch_up(now);
        if self.waiting == 0 || matches!(self.model, Arrivals::Saturated) {
            return None;
        }
        let messages = u32::try_from(self.waiting / u64::from(batch)).unwrap_or(u32::MAX);
        let Some(logical) = &self.logical else { return Some((messages, None)) };
        // Every recorded PDU has an index of its own. The first that waits comes before the others.
        let first = usize::try_from(self.index - self.waiting).ok()?;
        // Each message has its own timestamp.
        Some((messages.min(1), logical.get(first).copied()))
    }

    /// Whether a PDU waits at `now`.
    pub(crate) fn waits(&mut self, now: Instant) -> bool {
        self.catch_up(now);
        self.waiting > 0 || matches!(self.model, Arrivals::Saturated)
    }

    /// Drops the waiting PDUs that are too old, and returns their number.
    pub(crate) fn drop_stale(&mut self, now: Instant) -> u32 {
        let Some(age) = self.stale_after else { return 0 };
        self.catch_up(now);
        let stale = self.came.iter().take_while(|came| **came + age < now).count();
        self.came.drain(..stale);
        self.waiting -= stale as u64;
        u32::try_from(stale).unwrap_or(u32::MAX)
    }

    /// PDUs that arrived by now, including those never taken; 0 for [`Arrivals::Saturated`].
    pub(crate) fn arrived_by(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.arrived
    }

    /// Takes at most `most` of the waiting PDUs.
    pub(crate) fn take(&mut self, now: Instant, most: u32) -> u32 {
        if matches!(self.model, Arrivals::Saturated) {
            return most;
        }
        self.catch_up(now);
        let taken = u32::try_from(self.waiting).unwrap_or(u32::MAX).min(most);
        self.waiting -= u64::from(taken);
        self.came.drain(..self.came.len().min(taken as usize));
        taken
    }

    /// Drops the PDUs that arrived before `now`, because the activity was not present.
    pub(crate) fn discard(&mut self, now: Instant) {
        if now > Instant::ZERO {
            self.catch_up(now - Span::from_nanos(1));
        }
        self.waiting = 0;
        self.came.clear();
    }

    /// The time of the next PDU or burst.
    pub(crate) fn next_at(&self) -> Instant {
        self.next
    }

    /// Advances to the next PDU or burst, and returns the size of this one.
    pub(crate) fn pass(&mut self) -> u64 {
        self.index += 1;
        self.next = self.draw(self.next);
        match self.model {
            Arrivals::Bursty { burst, .. } => u64::from(burst),
            _ => 1,
        }
    }

    /// Counts the arrivals up to `now`. O(1) for each arrival since the last call.
    fn catch_up(&mut self, now: Instant) {
        while self.next <= now && self.next < Instant::FAR {
            let came = self.next;
            let count = self.pass();
            if self.stale_after.is_some() {
                self.came.extend((0..count).map(|_| came));
            }
            self.waiting += count;
            self.arrived += count;
        }
    }

    /// The time of PDU (or burst) `index`, when the previous one came at `last`.
    fn draw(&mut self, last: Instant) -> Instant {
        let up_to =
            |chance: &mut Chance, most: Span| Span::from_nanos(chance.between(0, most.as_nanos()));
        match &self.model {
            Arrivals::Saturated => Instant::FAR,
            Arrivals::Periodic { every } => Instant::ZERO + every.saturating_mul(self.index),
            Arrivals::Jittered { every, jitter } => {
                let on_time = Instant::ZERO + every.saturating_mul(self.index);
                (on_time + up_to(&mut self.chance, *jitter)).max(last)
            }
            Arrivals::Poisson { mean } => last + self.chance.exponential(*mean),
            Arrivals::Bursty { every, jitter, .. } if self.index > 0 => {
                last + *every + up_to(&mut self.chance, *jitter)
            }
            Arrivals::Bursty { jitter, .. } => last + up_to(&mut self.chance, *jitter),
            Arrivals::Recorded(at) => usize::try_from(self.index)
                .ok()
                .and_then(|index| at.get(index).copied())
                .unwrap_or(Instant::FAR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    fn source(model: Arrivals) -> Source {
        assert_eq!(model.fault(), None);
        Source::new(model, Chance::new(7, 0))
    }

    const TEN: Span = Span::from_nanos(10);

    #[test]
    fn pdus_that_are_not_taken_wait() {
        let mut source = source(Arrivals::Periodic { every: TEN });
        assert_eq!(source.take(at(35), 3), 3);
        assert_eq!(source.take(at(39), 3), 1);
        assert_eq!(source.take(at(40), 3), 1);
        assert_eq!(source.arrived_by(at(40)), 5);
        source.discard(at(79));
        assert_eq!((source.take(at(79), 3), source.take(at(80), 3)), (0, 1));
        // An activity that joins at the instant of a PDU receives it.
        source.discard(at(100));
        assert_eq!((source.take(at(100), 3), source.arrived_by(at(100))), (1, 11));
    }

    #[test]
    fn whole_messages_that_wait_come_early() {
        let recorded = || Arrivals::Recorded([at(0), at(1), at(2), at(3), at(30)].into());
        let mut source = source(recorded());
        assert_eq!(source.take(at(0), 2), 1);
        assert_eq!(source.early(at(0), 2), None);
        assert_eq!(source.early(at(3), 2), Some((1, None)));
        assert_eq!(source.early(at(30), 2), Some((2, None)));
        let logical = [at(0), at(10), at(20), at(30), at(40)];
        let mut source = Source::new(recorded(), Chance::new(7, 0)).logical(Some(logical.into()));
        assert_eq!(source.take(at(0), 1), 1);
        assert_eq!(source.early(at(3), 1), Some((1, Some(at(10)))));
        assert_eq!(source.take(at(3), 1), 1);
        assert_eq!(source.early(at(3), 1), Some((1, Some(at(20)))));
    }

    #[test]
    fn only_stale_pdus_are_dropped() {
        let mut source = source(Arrivals::Periodic { every: TEN }).stale_after(Some(TEN * 2));
        assert_eq!((source.drop_stale(at(20)), source.take(at(20), 1)), (0, 1));
        // At 31, PDU 10 is older than 20 ns. At 40, PDU 20 is not.
        assert_eq!(source.drop_stale(at(31)), 1);
        assert_eq!((source.drop_stale(at(40)), source.take(at(40), 9)), (0, 3));
        source.discard(at(60));
        assert_eq!((source.drop_stale(at(90)), source.take(at(90), 9)), (1, 3));
    }

    #[test]
    fn pdus_at_time_zero_are_received() {
        let mut source = source(Arrivals::Recorded([at(0), at(0), at(3)].into()));
        source.discard(at(0));
        assert_eq!(source.take(at(0), 9), 2);
    }

    #[test]
    fn recorded_arrivals_come_as_recorded_and_then_end() {
        let mut source = source(Arrivals::Recorded([at(5), at(5), at(9)].into()));
        let taken = [4, 5, 8, 9, 1_000].map(|now| source.take(at(now), 9));
        assert_eq!(taken, [0, 2, 0, 1, 0]);
        assert!(Arrivals::Recorded([at(5), at(4)].into()).fault().is_some());
    }

    #[test]
    fn a_jittered_arrival_is_late_by_no_more_than_its_jitter() {
        let mut source = source(Arrivals::Jittered { every: TEN, jitter: Span::from_nanos(4) });
        let mut late = 0;
        for n in 0..500 {
            late += n + 1 - source.arrived_by(at(n * 10));
            assert_eq!(source.arrived_by(at(n * 10 + 4)), n + 1);
        }
        // Four out of five are late.
        assert!((360..440).contains(&late), "{late}");
    }

    #[test]
    fn bursts_come_whole_and_apart() {
        let mut source =
            source(Arrivals::Bursty { burst: 4, every: TEN, jitter: Span::from_nanos(5) });
        let counts: Vec<_> = (0..200).map(|now| source.take(at(now), 100)).collect();
        assert!(counts.iter().all(|&count| count == 0 || count == 4));
        let bursts: Vec<_> = (0..200).filter(|&now| counts[now] > 0).collect();
        assert!(bursts.windows(2).all(|pair| (10..=15).contains(&(pair[1] - pair[0]))));
        assert!((13..=20).contains(&bursts.len()), "{}", bursts.len());
    }

    #[test]
    fn poisson_arrivals_keep_their_rate() {
        let mut source = source(Arrivals::Poisson { mean: Span::from_nanos(1_000) });
        // One standard deviation is 100.
        assert!((9_500..10_500).contains(&source.arrived_by(at(10_000_000))));
    }

    #[test]
    fn arrivals_that_never_end_are_refused() {
        assert!(Arrivals::Periodic { every: Span::ZERO }.fault().is_some());
        assert!(Arrivals::Poisson { mean: Span::ZERO }.fault().is_some());
    }
}
