//! Models of an activity's events: when they come, and how urgent they are.
//!
//! Events are separate from PDUs. A posted event wakes the CPU, and the policy takes it into
//! account. The work itself is PDUs. A job or an extra service takes one event for each PDU that it
//! finds or drops, the most urgent first, like a handler that reads both.

use crate::arrivals::{Arrivals, Source};
use crate::chance::Chance;
use std::sync::Arc;
use upcall_core::time::{Instant, Span};

/// A model of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    /// The times of the events; any model but [`Arrivals::Saturated`].
    pub arrivals: Arrivals,
    /// The urgency of the events.
    pub rank: PostRank,
}

/// The rank of an event; a smaller one is more urgent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostRank {
    /// The same rank always: a priority of the activity.
    Fixed(u64),
    /// The deadline of the event, this long after it came, in nanoseconds.
    Due(Span),
    /// These ranks in order, repeated from the front; not empty.
    Recorded(Arc<[u64]>),
}

impl Posting {
    /// The error of the model, if it has one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match (&self.arrivals, &self.rank) {
            (Arrivals::Saturated, _) => Some("events cannot be saturated, expected other arrivals"),
            (_, PostRank::Recorded(ranks)) if ranks.is_empty() => {
                Some("no recorded ranks of events, expected at least one")
            }
            (arrivals, _) => arrivals.fault(),
        }
    }
}

/// The events of one activity over time.
#[derive(Debug)]
pub(crate) struct Posts {
    source: Source,
    rank: PostRank,
    /// Number of events so far.
    index: u64,
}

impl Posts {
    pub(crate) fn new(posting: &Posting, chance: Chance) -> Self {
        let source = Source::new(posting.arrivals.clone(), chance);
        Posts { source, rank: posting.rank.clone(), index: 0 }
    }

    /// The time of the next event or burst.
    pub(crate) fn next_at(&self) -> Instant {
        self.source.next_at()
    }

    /// Advances, and returns the number of events at this instant.
    pub(crate) fn count(&mut self) -> u64 {
        self.source.pass()
    }

    /// The rank of an event that comes at `at`.
    pub(crate) fn rank(&mut self, at: Instant) -> u64 {
        let index = self.index;
        self.index += 1;
        match &self.rank {
            PostRank::Fixed(rank) => *rank,
            PostRank::Due(span) => (at + *span).as_nanos(),
            PostRank::Recorded(ranks) => {
                usize::try_from(index % ranks.len() as u64).map_or(ranks[0], |at| ranks[at])
            }
        }
    }
}
