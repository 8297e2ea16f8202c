//! What a run came to.

use upcall_core::scheduler::Counters;
use upcall_core::time::{Instant, Span};

/// The end of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it ended: the duration that was asked for.
    pub end: Instant,
    /// In the order of the spec.
    pub activities: Vec<ActivityOutcome>,
    /// In the order of the spec.
    pub cpus: Vec<CpuOutcome>,
    /// How many events were told.
    pub events: u64,
}

/// What one activity came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityOutcome {
    /// The scheduler's own count, over all lives of its domain. Jobs whose
    /// deadline passed undone before the end are missed.
    pub counters: Counters,
    /// PDUs that came; 0 where the arrivals are saturated.
    pub arrived: u64,
    /// Of the completed jobs.
    pub responses: Responses,
    /// CPU time its handler had, hand-offs to it included.
    pub busy: Span,
    /// Least and greatest lag at its upcalls and returns; `None` if the policy
    /// knows none.
    pub lag_ns: Option<(i64, i64)>,
    /// Events that found as many waiting as there is room for.
    pub events_lost: u64,
    /// Windows with more misses than allowed, if the policy knows windows. Of
    /// the last life of its domain.
    pub window_violations: Option<u64>,
}

/// What one CPU came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOutcome {
    /// Its number.
    pub cpu: u32,
    /// How often it went from one activity to another, the first time included.
    pub switches: u64,
    /// How often it went from one domain to another, the first time included.
    pub domain_switches: u64,
    /// Time it was not asleep, stalls included.
    pub busy: Span,
    /// Time that went into hand-offs; part of `busy`.
    pub switching: Span,
}

/// All response times of an activity's completed jobs: exact, eight bytes a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    /// In order once `sort` was called, and nothing is added after.
    ns: Vec<u64>,
}

impl Responses {
    pub(crate) fn note(&mut self, response: Span) {
        self.ns.push(response.as_nanos());
    }

    pub(crate) fn sort(&mut self) {
        self.ns.sort_unstable();
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ns.len()
    }

    /// How many exceed `bound`. O(n).
    pub fn above(&self, bound: Span) -> u64 {
        self.ns.iter().filter(|&&ns| ns > bound.as_nanos()).count() as u64
    }

    /// The least response that `percent` of all do not exceed (nearest rank);
    /// `None` if there are none. `percent` is 1 to 100. O(1).
    pub fn percentile(&self, percent: u32) -> Option<Span> {
        let rank = (self.ns.len() * percent.clamp(1, 100) as usize).div_ceil(100);
        self.ns.get(rank.checked_sub(1)?).map(|&ns| Span::from_nanos(ns))
    }

    /// The longest.
    pub fn max(&self) -> Option<Span> {
        self.percentile(100)
    }

    /// All of them, the shortest first.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.ns.iter().map(|&ns| Span::from_nanos(ns))
    }
}

/// What two lives of one activity come to together.
pub(crate) fn together(a: &Counters, b: &Counters) -> Counters {
    Counters {
        jobs: a.jobs + b.jobs,
        completed: a.completed + b.completed,
        misses: a.misses + b.misses,
        overruns: a.overruns + b.overruns,
        preemptions: a.preemptions + b.preemptions,
        pdus: a.pdus + b.pdus,
        slack_ns_min: a.slack_ns_min.min(b.slack_ns_min),
        response_max: a.response_max.max(b.response_max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut responses = Responses::default();
        assert_eq!(responses.percentile(50), None);
        for ns in [50, 15, 40, 20, 35] {
            responses.note(Span::from_nanos(ns));
        }
        responses.sort();
        let ns = |percent| responses.percentile(percent).unwrap().as_nanos();
        // The example of Wikipedia's "Percentile" (nearest-rank method).
        assert_eq!([5, 30, 40, 50, 100].map(ns), [15, 20, 20, 35, 50]);
    }
}
