//! The cost of a PDU, and the progress of a job.
//!
//! The simulated CPU uses this module. The cost of PDU `i` of an activity depends only on `i`, not
//! on when the PDU runs. So a piece of work can be planned to its end, stopped anywhere and
//! resumed, with the same result.

use crate::chance::{scaled, word};
use std::sync::Arc;
use upcall_core::time::Span;

/// A model of the CPU time per PDU. It may differ from the declared cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Execution {
    /// The same cost for every PDU.
    Fixed(Span),
    /// A uniform cost from `least` to `most`.
    Uniform {
        /// The cheapest PDU.
        least: Span,
        /// The most expensive PDU; not below `least`.
        most: Span,
    },
    /// These costs in order, repeated from the front; not empty.
    Recorded(Arc<[Span]>),
}

impl Execution {
    /// The cost of the most expensive PDU.
    pub(crate) fn most(&self) -> Span {
        match self {
            Execution::Fixed(cost) => *cost,
            Execution::Uniform { most, .. } => *most,
            Execution::Recorded(costs) => costs.iter().copied().max().unwrap_or(Span::ZERO),
        }
    }

    /// The error of the model, if it has one.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self {
            Execution::Uniform { least, most } if least > most => {
                Some("the least cost of a PDU is above the greatest")
            }
            Execution::Recorded(costs) if costs.is_empty() => {
                Some("no recorded costs, expected at least one")
            }
            _ => None,
        }
    }
}

/// The progress of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// PDUs that are complete.
    pub(crate) pdu: u32,
    /// CPU time spent in the PDU after them.
    pub(crate) into: Span,
}

/// The costs of one job's PDUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs<'a> {
    pub(crate) execution: &'a Execution,
    /// The random stream of the activity.
    pub(crate) stream: u64,
    /// Number of the job's first PDU among all PDUs of the activity.
    pub(crate) first: u64,
}

impl Costs<'_> {
    /// The cost of the job's PDU number `pdu`.
    pub(crate) fn of(&self, pdu: u32) -> Span {
        let index = self.first.wrapping_add(u64::from(pdu));
        match self.execution {
            Execution::Fixed(cost) => *cost,
            Execution::Uniform { least, most } => {
                let extra = scaled(word(self.stream, index), most.as_nanos() - least.as_nanos());
                *least + Span::from_nanos(extra)
            }
            Execution::Recorded(costs) => {
                usize::try_from(index % costs.len() as u64).map_or(costs[0], |index| costs[index])
            }
        }
    }

    /// The first end of a step at or after `limit` of work from `start`, and the work until there.
    /// A step is `step` PDUs, counted from the job's first PDU. The end of the job, at `total`,
    /// also ends a step. The work has at least one PDU, if any is left.
    ///
    /// O(1) for fixed costs, otherwise O(PDUs until there).
    #[inline]
    pub(crate) fn first_stop(
        &self,
        start: Position,
        step: u32,
        total: u32,
        limit: Span,
    ) -> (u32, Span) {
        if start.pdu >= total {
            return (total, Span::ZERO);
        }
        let next_stop = |pdu: u32| (pdu - pdu % step).saturating_add(step).min(total);
        let mut stop = next_stop(start.pdu);
        if let Execution::Fixed(cost) = *self.execution {
            let work_to = |stop: u32| (cost * (stop - start.pdu)).saturating_sub(start.into);
            let short_ns = limit.saturating_sub(work_to(stop)).as_nanos();
            if short_ns == 0 || stop == total {
                return (stop, work_to(stop));
            }
            let steps = short_ns.div_ceil((cost * step).as_nanos().max(1));
            let ahead = u32::try_from(steps.saturating_mul(u64::from(step))).unwrap_or(u32::MAX);
            stop = stop.saturating_add(ahead).min(total);
            return (stop, work_to(stop));
        }
        let (mut pdu, mut work) = (start.pdu, Span::ZERO);
        loop {
            while pdu < stop {
                work += self.of(pdu);
                pdu += 1;
            }
            let left = work.saturating_sub(start.into);
            if stop == total || left >= limit {
                return (stop, left);
            }
            stop = next_stop(stop);
        }
    }

    /// The position that `work` reaches from `start`, at most `total`. As fast as `first_stop`.
    pub(crate) fn after(&self, start: Position, work: Span, total: u32) -> Position {
        let mut into = start.into + work;
        let mut pdu = start.pdu;
        if let Execution::Fixed(cost) = *self.execution
            && !cost.is_zero()
        {
            let done = into.as_nanos() / cost.as_nanos();
            let done = u32::try_from(done).unwrap_or(u32::MAX).min(total - pdu);
            return match pdu + done {
                pdu if pdu == total => Position { pdu, into: Span::ZERO },
                pdu => Position { pdu, into: into.saturating_sub(cost * done) },
            };
        }
        while pdu < total {
            let cost = self.of(pdu);
            if into < cost {
                return Position { pdu, into };
            }
            into = into.saturating_sub(cost);
            pdu += 1;
        }
        Position { pdu, into: Span::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ns(ns: u64) -> Span {
        Span::from_nanos(ns)
    }

    proptest! {
        /// The fast path for fixed costs gives the same as a recording of these costs.
        #[test]
        fn fixed_costs_equal_recorded_ones(
            cost in 0u64..9, total in 1u32..30, step in 1u32..12, pdu in 0u32..30,
            into in 0u64..9, limit in 0u64..200,
        ) {
            let fixed = Execution::Fixed(ns(cost));
            let listed = Execution::Recorded([ns(cost)].into());
            let start = Position { pdu: pdu.min(total - 1), into: ns(into.min(cost)) };
            let [quick, slow] =
                [&fixed, &listed].map(|execution| Costs { execution, stream: 0, first: 5 });
            let stop = quick.first_stop(start, step, total, ns(limit));
            if cost > 0 {
                prop_assert_eq!(stop, slow.first_stop(start, step, total, ns(limit)));
            }
            let work = ns(limit);
            prop_assert_eq!(quick.after(start, work, total), slow.after(start, work, total));
        }

        /// Stopping anywhere and resuming ends where an uninterrupted run ends.
        #[test]
        fn a_stop_keeps_the_end(seed in any::<u64>(), total in 1u32..20, cut in 0u64..300) {
            let execution = Execution::Uniform { least: ns(3), most: ns(20) };
            let costs = Costs { execution: &execution, stream: seed, first: 40 };
            let start = Position::default();
            let (_, whole) = costs.first_stop(start, total, total, Span::ZERO);
            let cut = ns(cut.min(whole.as_nanos()));
            let midway = costs.after(start, cut, total);
            let (stop, rest) = costs.first_stop(midway, total, total, Span::ZERO);
            prop_assert_eq!((stop, cut + rest), (total, whole));
            prop_assert_eq!(costs.after(midway, rest, total).pdu, total);
        }
    }

    #[test]
    fn a_stop_is_the_end_of_the_first_quantum_at_or_after_the_limit() {
        let execution = Execution::Fixed(ns(10));
        let costs = Costs { execution: &execution, stream: 0, first: 0 };
        let stop = |limit| costs.first_stop(Position::default(), 3, 8, ns(limit));
        assert_eq!(stop(0), (3, ns(30)));
        assert_eq!(stop(30), (3, ns(30)));
        assert_eq!(stop(31), (6, ns(60)));
        assert_eq!(stop(61), (8, ns(80)));
        assert_eq!(stop(u64::MAX), (8, ns(80)));
    }
}
