//! Events of an activity: when they come, and how urgent they are.
//!
//! Beside its PDUs, and not tied to them: what is posted wakes the CPU and is heard by the
//! policy, what is done is a matter of PDUs. A job or an extra service takes an event for
//! each PDU that it finds or drops, the most urgent first, as a handler does that reads both.

use crate::arrivals::{Arrivals, Source};
use crate::chance::Chance;
use std::sync::Arc;
use upcall_core::time::{Instant, Span};

/// A model of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    /// When they come; any model but [`Arrivals::Saturated`].
    pub arrivals: Arrivals,
    /// How urgent they are.
    pub rank: PostRank,
}

/// The rank of an event: the smaller, the more urgent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostRank {
    /// Always this: a priority of the activity.
    Fixed(u64),
    /// When it must be dealt with: so long after it came, in nanoseconds.
    Due(Span),
    /// One after the other, and from the front again; not empty.
    Recorded(Arc<[u64]>),
}

impl Posting {
    /// What is wrong with the model, if anything is.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match (&self.arrivals, &self.rank) {
            (Arrivals::Saturated, _) => Some("events without end, expected some other arrivals"),
            (_, PostRank::Recorded(ranks)) if ranks.is_empty() => {
                Some("no recorded ranks of events, expected at least one")
            }
            (arrivals, _) => arrivals.fault(),
        }
    }
}

/// The events of one activity as they come.
#[derive(Debug)]
pub(crate) struct Posts {
    source: Source,
    rank: PostRank,
    /// How many came.
    index: u64,
}

impl Posts {
    pub(crate) fn new(posting: &Posting, chance: Chance) -> Self {
        let source = Source::new(posting.arrivals.clone(), chance);
        Posts { source, rank: posting.rank.clone(), index: 0 }
    }

    /// When the next one comes.
    pub(crate) fn next_at(&self) -> Instant {
        self.source.next_at()
    }

    /// How many come next, at the same instant.
    pub(crate) fn count(&mut self) -> u64 {
        self.source.pass()
    }

    /// The rank of one that comes at `at`.
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
