//! The results of a run.

use upcall_core::scheduler::Counters;
use upcall_core::time::{Instant, Span};

/// The result of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The end of the run: the requested duration.
    pub end: Instant,
    /// The activities, in the order of the spec.
    pub activities: Vec<ActivityOutcome>,
    /// The CPUs, in the order of the spec.
    pub cpus: Vec<CpuOutcome>,
    /// Number of emitted events.
    pub events: u64,
}

/// The result of one activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActivityOutcome {
    /// The scheduler's own counters, over all lives of its domain. A job counts as missed if its
    /// deadline passed before the end and it was not done.
    pub counters: Counters,
    /// PDUs that arrived; 0 for saturated arrivals.
    pub arrived: u64,
    /// Response times of the completed jobs.
    pub responses: Responses,
    /// CPU time of its handler, including hand-offs to it.
    pub busy: Span,
    /// Least and greatest lag at its upcalls and returns; `None` if the policy knows no lag.
    pub lag_ns: Option<(i64, i64)>,
    /// Events that were lost because the queue was full.
    pub events_lost: u64,
    /// Windows with more misses than allowed, if the policy knows windows. Counts only the last
    /// life of its domain.
    pub window_violations: Option<u64>,
}

/// The result of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuOutcome {
    /// Its number.
    pub cpu: u32,
    /// Switches from one activity to another, including the first upcall.
    pub switches: u64,
    /// Switches from one domain to another, including the first upcall.
    pub domain_switches: u64,
    /// Time awake, including stalls.
    pub busy: Span,
    /// Time spent in hand-offs, a part of `busy`.
    pub switching: Span,
}

/// All response times of an activity's completed jobs: exact, eight bytes per job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Responses {
    /// Sorted once `sort` was called; nothing is added afterwards.
    ns: Vec<u64>,
}

impl Responses {
    pub(crate) fn note(&mut self, response: Span) {
        self.ns.push(response.as_nanos());
    }

    pub(crate) fn sort(&mut self) {
        self.ns.sort_unstable();
    }

    /// Number of responses.
    pub fn count(&self) -> usize {
        self.ns.len()
    }

    /// Number of responses above `bound`. O(n).
    pub fn above(&self, bound: Span) -> u64 {
        self.ns.iter().filter(|&&ns| ns > bound.as_nanos()).count() as u64
    }

    /// The least response that `percent` of all responses do not exceed (nearest rank); `None` if
    /// there are no responses. `percent` is 1 to 100. O(1).
    pub fn percentile(&self, percent: u32) -> Option<Span> {
        let rank = (self.ns.len() * percent.clamp(1, 100) as usize).div_ceil(100);
        self.ns.get(rank.checked_sub(1)?).map(|&ns| Span::from_nanos(ns))
    }

    /// The longest response.
    pub fn max(&self) -> Option<Span> {
        self.percentile(100)
    }

    /// All responses, the shortest first.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.ns.iter().map(|&ns| Span::from_nanos(ns))
    }
}

/// Adds the counters of two lives of one activity.
pub(crate) fn sum_of(a: &Counters, b: &Counters) -> Counters {
    Counters {
        jobs: a.jobs + b.jobs,
        completed: a.completed + b.completed,
        misses: a.misses + b.misses,
        skipped: a.skipped + b.skipped,
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
