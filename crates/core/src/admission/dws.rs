//! The hard variant of DWS: an exact demand-bound test for earliest deadline
//! first with non-preemptive quanta and work ahead.
//!
//! What is analysed is what [`crate::scheduler`] does under [`crate::policy::dws`].
//! A real-time activity `i` has messages whose logical arrivals are at least
//! `T_i` apart, each due `D_i` after (`D_i` may be longer than `T_i`); a message
//! costs `C_i`, in quanta of which the longest takes `b_i c_i`. Any message may
//! be there up to `workahead_max` periods before its logical arrival. Interactive
//! and background activities come when they like; nothing is promised to them,
//! and nothing is given away to them. Time is discrete, in nanoseconds.
//!
//! ```text
//! h(t)  = sum over i of max(0, floor((t - D_i) / T_i) + 1) C'_i
//! B(t)  = max of S + b_j c_j - 1 over j with D_j > t, the same over j that is not
//!         real time, S - 1 if anyone works ahead, and the wake-up latency
//! passes if h(t) + B(t) <= t for every t = D_i + k T_i in the horizon
//! ```
//!
//! **Why that is enough.** Suppose a deadline `d` is missed. Let `t0` be the last
//! moment up to which every message that has logically arrived and is due by `d`
//! was done. From `t0` to `d` one of these is always pending, so what is begun
//! then is due by `d`, and logically arrived since `t0`: at most `h(d - t0)`. Beside
//! it there is only what runs at `t0` already, one quantum. It began at least 1 ns
//! before, and with `t = d - t0` it is one of these:
//!
//! - a quantum of an interactive or background activity;
//! - a critical quantum due after `d`. It arrived before `t0`, so `D_j > t`;
//! - a workahead quantum of a message due after `d`. Messages are done in order,
//!   so every earlier message of its activity is done, and of the demand that
//!   `h(t)` has for it **nothing is left**. If `D_j <= t`, that demand is `C'_j` at
//!   least, more than the quantum: this also goes for an activity's own quantum
//!   ahead. Such a quantum makes room, it takes none. If `D_j > t`, it blocks like a
//!   critical one;
//! - a workahead quantum of a message due by `d`. It logically arrives at `t0` or
//!   after, or it would have been done: its work is in `h(t)`, and only the hand-off
//!   to it may not be, `S - 1`.
//!
//! So working ahead costs nobody anything but that hand-off, whatever the limit:
//! its quantum is one that must be reckoned with anyway. This stands in for the simulation under worst-case load by which the paper
//! admits (split-level-1991 §3.4): the interval from `t0` on, with all arrivals at
//! its begin and the longest quantum a nanosecond before, is that worst load, for
//! each length of time at once.
//!
//! **Why no less would do.** With `S` = 0 and a punctual CPU those phases exist: `j`
//! begins its first quantum at `t0 - 1`, all others arrive at `t0`. (If `D_j = t + 1`, it
//! is due at `d` itself and blocks only from ahead; but then `C'_j` is in `h(t + 1)`,
//! and a set refused for `t` is refused for `t + 1`, too.) So a set that is refused
//! misses a deadline in some phases, if its messages cost what they may.
//!
//! **Hand-offs.** Going to another activity costs `S`, spent before its quantum;
//! nothing is preempted meanwhile. A message is gone to once after it has become
//! critical. A return to a message `x` that yielded: `x` yielded to the best,
//! `h`, which is due earlier and became critical during `x`'s last quantum, or it
//! would have been taken before `x`. A message becomes critical once, so each return
//! can be charged to a different `h`, whose delay bound is shorter than that of `x`.
//! So `C'_j = C_j + 2S` if any longer delay bound belongs to one with more than one
//! quantum, else `C_j + S`. It is a bound: with hand-offs that cost the test is
//! sufficient.
//!
//! **Late wake-ups.** As in `response_time`: a CPU that sleeps runs no quantum,
//! and when it wakes it takes in all arrivals before it chooses. The longer counts.
//!
//! **The horizon.** With blocking of at most `B`, something is always pending for
//! no longer than the least `L = B + sum of ceil(L / T_i) C'_i`, and no interval
//! above is longer. From the longest delay bound on only blocking that does not
//! depend on `t` is left, often none. So `t` counts below `L(B(0))`, and below the
//! longer of `max D_i` and `L(B(max D_i))`. If the sum of `C'/T` is exactly 1
//! and such blocking is not 0, there is no `L`; but from `max D_i` on all repeats
//! with the hyperperiod, and one is looked at. The search goes from long intervals to
//! short ones and skips those that the demand of a longer one already covers
//! (Zhang and Burns, "Schedulability analysis for real-time systems with EDF
//! scheduling", IEEE Transactions on Computers 58, 2009), here one stretch of
//! constant blocking after the other. It is bounded by [`Steps`]; without an answer
//! the set is refused.
//!
//! **Worst responses.** For a message of `i` that arrives `a` after `t0` (Spuri,
//! INRIA report 2772, 1996; with quanta: George, Rivierre and Spuri, INRIA report
//! 2966, 1996):
//!
//! ```text
//! W_i(a) = B(a + D_i) + (floor(a / T_i) + 1) C'_i - q_i
//!          + sum over other j of min(floor(W_i(a) / T_j) + 1, jobs of j due by a + D_i) C'_j
//! R_i    = max over a of W_i(a) + q_i - a
//! ```
//!
//! with `q_i` the last quantum and `a` such that `a + D_i = D_j + k T_j`. It is a
//! safe bound: who is due at the same moment is counted as coming before, where
//! the order of creation might put it behind. `R_i <= D_i` for all `i` if and only
//! if the test passes, and if the steps do not suffice for some `R_i`, `D_i` stands
//! for it where the test has passed. To non-real-time activities no bound is given.

use super::response_time::{Response, Steps, greatest_common_divisor};
use super::utilization::{self, Demand};
use super::verdict::{Failure, TestResult, Verdict, share};
use super::{Platform, Share};
use crate::activity::{ActivityParams, Terms, WorkClass};
use crate::time::Span;
use core::cmp::Ordering;

#[cfg(test)]
mod tests;

/// From the logical arrival of a message to its deadline.
pub(crate) fn delay_bound(params: &ActivityParams, terms: &Terms) -> Span {
    terms.delay_bound.unwrap_or(params.deadline)
}

/// The shortest delay bound that `set[index]` can be offered on one CPU, with what
/// the others of `set` are promised; what it asks for itself does not matter.
/// `None` if there is none, if `index` is out of range or not real time, or if
/// the steps of one analysis did not suffice. Allocates.
///
/// With hand-offs that cost, a shorter one may exist: what is offered is
/// tested, but the charge for hand-offs depends on the order of the delay
/// bounds. The CPU limit is not looked at.
pub fn delay_bound_offered(
    set: &[(ActivityParams, Terms)],
    index: usize,
    platform: &Platform,
) -> Option<Span> {
    let (params, terms) = set.get(index)?;
    if terms.class != WorkClass::RealTime {
        return None;
    }
    let mut trial = set.to_vec();
    let steps = &mut Steps::of_analysis();
    let mut fits = |bound_ns: u64| {
        trial[index].1.delay_bound = Some(Span::from_nanos(bound_ns));
        match Load::of(&trial, platform).decide(steps).0 {
            Outcome::Kept => Some(true),
            // None of its own messages is due in it: no bound is long enough.
            Outcome::Late { length_ns, .. } if length_ns < bound_ns => None,
            Outcome::Late { .. } => Some(false),
            Outcome::Overloaded | Outcome::Undecided => None,
        }
    };
    let (mut refused_ns, mut fits_ns) = (0, params.period.as_nanos());
    while !fits(fits_ns)? {
        (refused_ns, fits_ns) = (fits_ns, fits_ns.checked_mul(2)?);
    }
    while fits_ns - refused_ns > 1 {
        let middle_ns = refused_ns.midpoint(fits_ns);
        if fits(middle_ns)? {
            fits_ns = middle_ns;
        } else {
            refused_ns = middle_ns;
        }
    }
    Some(Span::from_nanos(fits_ns))
}

/// What admission says of a set on one CPU, in any order.
pub(crate) fn verdict(
    cpu: u32,
    set: &[(ActivityParams, Terms)],
    platform: &Platform,
    steps: &mut Steps,
) -> Verdict {
    let load = Load::of(set, platform);
    let demands = load.demands();
    let (utilization, within_limit) = share(&demands, platform.cpu_limit);
    let (outcome, horizon_ns) = load.decide(steps);
    let mut responses = vec![Response::AtLeast(Span::ZERO); set.len()];
    load.respond(outcome, horizon_ns, steps, &mut responses);
    let failure = load.failure(outcome, &responses, within_limit);
    let mut tests = Vec::new();
    if !set.is_empty() {
        let by_limit = failure == Some(Failure::OverLimit);
        let (whole, fits) = share(&demands, Share::WHOLE);
        let demand = load.value(outcome, &responses);
        tests.extend(
            [
                ("demand-bound", outcome == Outcome::Kept, demand, 1.0, !by_limit),
                ("utilization", fits, whole, 1.0, false),
                ("cpu-limit", within_limit, utilization, platform.cpu_limit.as_f64(), by_limit),
            ]
            .map(|(name, passed, value, bound, deciding)| TestResult {
                name,
                cpu,
                passed,
                value,
                bound,
                deciding,
            }),
        );
    }
    Verdict { responses, utilization, tests, failure }
}

/// What the demand-bound test finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Every deadline is kept.
    Kept,
    /// In an interval of `length_ns`, `excess_ns` more is due than can be done.
    Late { length_ns: u64, excess_ns: u64 },
    /// More is asked of the CPU than it has.
    Overloaded,
    /// The steps ran out, or time left the range of 584 years.
    Undecided,
}

/// The real-time activities of one CPU, and what blocks them.
#[derive(Debug)]
struct Load {
    streams: Vec<Stream>,
    /// Quanta that block intervals shorter than `reach_ns`, shortest reach first,
    /// with the longest blocking among those that reach as far.
    blockers: Vec<Blocker>,
    /// What blocks intervals of any length.
    standing_ns: u64,
}

#[derive(Debug)]
struct Stream {
    /// Its place in the set.
    index: usize,
    /// `D_i`.
    deadline_ns: u64,
    /// `T_i`.
    period_ns: u64,
    /// `C'_i`.
    cost_ns: u64,
    /// `q_i`.
    last_ns: u64,
}

impl Stream {
    /// The demand of its messages that arrive and are due within `length_ns`.
    fn demand(&self, length_ns: u64) -> Option<u64> {
        match length_ns.checked_sub(self.deadline_ns) {
            Some(rest_ns) => (rest_ns / self.period_ns + 1).checked_mul(self.cost_ns),
            None => Some(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Blocker {
    reach_ns: u64,
    longest_ns: u64,
}

impl Load {
    fn of(set: &[(ActivityParams, Terms)], platform: &Platform) -> Self {
        let switch_ns = platform.switch_cost.as_nanos();
        let real_time = |(_, terms): &&(ActivityParams, Terms)| terms.class == WorkClass::RealTime;
        let preemptible = |params: &ActivityParams| params.quantum < params.batch;
        let longest_preemptible = set
            .iter()
            .filter(|(params, _)| preemptible(params))
            .filter(real_time)
            .map(|(params, terms)| delay_bound(params, terms))
            .max();
        let (mut streams, mut blockers) = (Vec::new(), Vec::new());
        let mut standing_ns = platform.wakeup_latency.as_nanos();
        for (index, (params, terms)) in set.iter().enumerate() {
            let quantum = platform.switch_cost + params.quantum_cost();
            let longest_ns = quantum.as_nanos().saturating_sub(1);
            if terms.class != WorkClass::RealTime {
                standing_ns = standing_ns.max(longest_ns);
                continue;
            }
            let bound = delay_bound(params, terms);
            if terms.workahead_max > 0 {
                standing_ns = standing_ns.max(switch_ns.saturating_sub(1));
            }
            blockers.push(Blocker { reach_ns: bound.as_nanos(), longest_ns });
            let returns = longest_preemptible.is_some_and(|longest| longest > bound);
            let hand_offs = platform.switch_cost.saturating_mul(1 + u64::from(returns));
            let last = params.pdu_cost.saturating_mul(u64::from(params.last_quantum()));
            let unpreempted = if preemptible(params) { Span::ZERO } else { platform.switch_cost };
            streams.push(Stream {
                index,
                deadline_ns: bound.as_nanos(),
                period_ns: params.period.as_nanos(),
                cost_ns: (params.compute() + hand_offs).as_nanos(),
                last_ns: (last + unpreempted).as_nanos(),
            });
        }
        blockers.sort_by_key(|blocker| blocker.reach_ns);
        let mut longest_ns = 0;
        for blocker in blockers.iter_mut().rev() {
            longest_ns = longest_ns.max(blocker.longest_ns);
            blocker.longest_ns = longest_ns;
        }
        Load { streams, blockers, standing_ns }
    }

    fn demands(&self) -> Vec<Demand> {
        let demand =
            |stream: &Stream| Demand { cost_ns: stream.cost_ns, period_ns: stream.period_ns };
        self.streams.iter().map(demand).collect()
    }

    /// `B(t)`, and the shortest interval from which on to `t` it is the same.
    fn blocking(&self, length_ns: u64) -> (u64, u64) {
        let at = self.blockers.partition_point(|blocker| blocker.reach_ns <= length_ns);
        let longest_ns = self.blockers.get(at).map_or(0, |blocker| blocker.longest_ns);
        let from_ns = self.blockers[..at].last().map_or(0, |blocker| blocker.reach_ns);
        (longest_ns.max(self.standing_ns), from_ns)
    }

    /// The test, and the horizon it found.
    fn decide(&self, steps: &mut Steps) -> (Outcome, u64) {
        let fullness = utilization::compare(&self.demands(), Share::WHOLE);
        if fullness == Ordering::Greater {
            return (Outcome::Overloaded, 0);
        }
        let Some(horizon_ns) = self.horizon(fullness, steps) else {
            return (Outcome::Undecided, 0);
        };
        (self.search(horizon_ns, steps).unwrap_or(Outcome::Undecided), horizon_ns)
    }

    /// No interval as long as this, or longer, needs to be looked at.
    fn horizon(&self, fullness: Ordering, steps: &mut Steps) -> Option<u64> {
        let longest_ns = self.streams.iter().map(|stream| stream.deadline_ns).max().unwrap_or(0);
        if fullness == Ordering::Less {
            let with_any_ns = self.busy(self.blocking(0).0, steps)?;
            return Some(with_any_ns.min(self.busy(self.standing_ns, steps)?.max(longest_ns)));
        }
        if self.standing_ns == 0 {
            return Some(self.busy(0, steps)?.max(longest_ns));
        }
        let hyperperiod_ns = self.streams.iter().try_fold(1u64, |lcm, stream| {
            lcm.checked_mul(stream.period_ns / greatest_common_divisor(lcm, stream.period_ns))
        })?;
        // The first deadlines after the longest one belong to the stretch that repeats.
        longest_ns.checked_add(hyperperiod_ns)?.checked_add(1)
    }

    /// The longest time something is pending behind `blocking_ns`.
    fn busy(&self, blocking_ns: u64, steps: &mut Steps) -> Option<u64> {
        let pending = |jobs: &dyn Fn(u64) -> u64| {
            self.streams.iter().try_fold(blocking_ns, |sum, stream| {
                sum.checked_add(jobs(stream.period_ns).checked_mul(stream.cost_ns)?)
            })
        };
        let mut busy_ns = pending(&|_| 1)?;
        loop {
            steps.spend(self.streams.len())?;
            let next_ns = pending(&|period_ns| busy_ns.div_ceil(period_ns))?;
            if next_ns == busy_ns {
                return Some(busy_ns);
            }
            busy_ns = next_ns;
        }
    }

    /// Looks for an interval below the horizon in which too much is due.
    fn search(&self, horizon_ns: u64, steps: &mut Steps) -> Option<Outcome> {
        let mut below_ns = horizon_ns;
        while let Some(length_ns) = self.deadline_before(below_ns) {
            steps.spend(2 * self.streams.len())?;
            let (blocking_ns, from_ns) = self.blocking(length_ns);
            let due_ns = self
                .streams
                .iter()
                .try_fold(blocking_ns, |sum, stream| sum.checked_add(stream.demand(length_ns)?))?;
            if due_ns > length_ns {
                return Some(Outcome::Late { length_ns, excess_ns: due_ns - length_ns });
            }
            // In an interval from `due_ns` up to `length_ns` no more is due, and while
            // the blocking is the same that fits.
            below_ns = due_ns.max(from_ns);
        }
        Some(Outcome::Kept)
    }

    /// The longest interval below `length_ns` that ends with a deadline.
    fn deadline_before(&self, length_ns: u64) -> Option<u64> {
        let last = |stream: &Stream| {
            let room_ns = length_ns.checked_sub(1)?.checked_sub(stream.deadline_ns)?;
            Some(stream.deadline_ns + room_ns / stream.period_ns * stream.period_ns)
        };
        self.streams.iter().filter_map(last).max()
    }

    /// Fills in the worst response of each, with part of the steps if they
    /// decide nothing.
    fn respond(
        &self,
        outcome: Outcome,
        horizon_ns: u64,
        steps: &mut Steps,
        responses: &mut [Response],
    ) {
        let mut part;
        let steps = if outcome == Outcome::Kept {
            part = steps.take_part(4);
            &mut part
        } else {
            steps
        };
        for stream in &self.streams {
            let mut worst_ns = 0;
            let found = match outcome {
                Outcome::Overloaded => None,
                Outcome::Undecided => None,
                _ => self.worst_response(stream, horizon_ns, &mut worst_ns, steps),
            };
            responses[stream.index] = match (found, outcome) {
                (Some(()), _) => Response::Bounded(Span::from_nanos(worst_ns)),
                (None, Outcome::Kept) => Response::Bounded(Span::from_nanos(stream.deadline_ns)),
                (None, Outcome::Overloaded) => Response::Unbounded,
                (None, _) => Response::AtLeast(Span::from_nanos(worst_ns)),
            };
        }
    }

    /// Goes through the arrivals of `own` that can be its worst.
    fn worst_response(
        &self,
        own: &Stream,
        horizon_ns: u64,
        worst_ns: &mut u64,
        steps: &mut Steps,
    ) -> Option<()> {
        for other in &self.streams {
            // The first of its deadlines that `own` can share.
            let mut arrival_ns = match own.deadline_ns.checked_sub(other.deadline_ns) {
                Some(ahead_ns) => ahead_ns.next_multiple_of(other.period_ns) - ahead_ns,
                None => other.deadline_ns - own.deadline_ns,
            };
            while arrival_ns < horizon_ns {
                let end_ns = self.latest_end(own, arrival_ns, steps)?;
                *worst_ns = end_ns.saturating_sub(arrival_ns).max(*worst_ns);
                arrival_ns = arrival_ns.checked_add(other.period_ns)?;
            }
        }
        Some(())
    }

    /// `W_i(a) + q_i`.
    fn latest_end(&self, own: &Stream, arrival_ns: u64, steps: &mut Steps) -> Option<u64> {
        let due_ns = arrival_ns.checked_add(own.deadline_ns)?;
        let own_ns = (arrival_ns / own.period_ns + 1).checked_mul(own.cost_ns)?;
        let base_ns = self.blocking(due_ns).0.checked_add(own_ns)?.checked_sub(own.last_ns)?;
        let mut begin_ns = base_ns;
        loop {
            steps.spend(self.streams.len())?;
            let others = self.streams.iter().filter(|other| other.index != own.index);
            let next_ns = others.into_iter().try_fold(base_ns, |sum, other| {
                let arrived_ns = (begin_ns / other.period_ns + 1).checked_mul(other.cost_ns)?;
                sum.checked_add(arrived_ns.min(other.demand(due_ns)?))
            })?;
            if next_ns == begin_ns {
                return begin_ns.checked_add(own.last_ns);
            }
            begin_ns = next_ns;
        }
    }

    fn failure(
        &self,
        outcome: Outcome,
        responses: &[Response],
        within_limit: bool,
    ) -> Option<Failure> {
        // With no stream nothing is late, and nothing is given away.
        let first = self.streams.first()?;
        match outcome {
            Outcome::Kept if within_limit => None,
            Outcome::Kept => Some(Failure::OverLimit),
            Outcome::Overloaded => Some(Failure::FallsBehind { index: first.index }),
            Outcome::Undecided => Some(Failure::Undecided { index: first.index }),
            Outcome::Late { length_ns, excess_ns } => {
                let late = self.streams.iter().filter_map(|stream| {
                    let (response, exact) = match responses[stream.index] {
                        Response::Bounded(response) => (response, true),
                        Response::AtLeast(response) => (response, false),
                        Response::Unbounded => return None,
                    };
                    let (index, deadline) = (stream.index, Span::from_nanos(stream.deadline_ns));
                    let in_deadlines = response.as_nanos() as f64 / stream.deadline_ns as f64;
                    let late = Failure::Misses { index, response, deadline, exact };
                    (response > deadline).then_some((in_deadlines, late))
                });
                let latest = late.max_by(|(a, _), (b, _)| a.total_cmp(b));
                Some(latest.map_or_else(|| self.last_in(length_ns, excess_ns), |(_, late)| late))
            }
        }
    }

    /// Where the steps did not suffice to see who is late: who is due at the end of
    /// the interval in which too much is due.
    fn last_in(&self, length_ns: u64, excess_ns: u64) -> Failure {
        let due = |stream: &&Stream| {
            let rest_ns = length_ns.checked_sub(stream.deadline_ns);
            rest_ns.is_some_and(|rest_ns| rest_ns % stream.period_ns == 0)
        };
        // Invariant: `search` looks at intervals that end with a deadline only.
        let victim = self.streams.iter().find(due).unwrap_or(&self.streams[0]);
        let deadline = Span::from_nanos(victim.deadline_ns);
        let response = deadline + Span::from_nanos(excess_ns);
        Failure::Misses { index: victim.index, response, deadline, exact: false }
    }

    /// The largest response in delay bounds; where none is known to be late, what is
    /// due in the worst interval by its length.
    fn value(&self, outcome: Outcome, responses: &[Response]) -> f64 {
        let in_deadlines = |stream: &Stream| match responses[stream.index] {
            Response::Bounded(response) | Response::AtLeast(response) => {
                response.as_nanos() as f64 / stream.deadline_ns as f64
            }
            Response::Unbounded => f64::INFINITY,
        };
        let largest = self.streams.iter().map(in_deadlines).fold(0.0, f64::max);
        match outcome {
            Outcome::Kept => largest,
            Outcome::Late { length_ns, excess_ns } => {
                largest.max(1.0 + excess_ns as f64 / length_ns as f64).max(1f64.next_up())
            }
            Outcome::Overloaded | Outcome::Undecided => f64::INFINITY,
        }
    }
}
