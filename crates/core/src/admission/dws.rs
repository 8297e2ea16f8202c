//! The hard variant of DWS: an exact demand-bound test for earliest deadline first with
//! non-preemptive quanta and work ahead.
//!
//! The test analyses what [`crate::scheduler`] does under [`crate::policy::dws`]. A real-time
//! activity `i` has messages whose logical arrivals are at least `T_i` apart. Each message is due
//! `D_i` after its logical arrival (`D_i` may be longer than `T_i`). A message costs `C_i`, in
//! quanta of which the longest takes `b_i c_i`. Any message may come up to `workahead_max` periods
//! before its logical arrival. Interactive and background activities have work at any time; they
//! are promised nothing and reserve nothing. Time is discrete, in nanoseconds.
//!
//! ```text
//! h(t)  = sum over i of max(0, floor((t - D_i) / T_i) + 1) C'_i
//! B(t)  = max of S + b_j c_j - 1 over j with D_j > t, the same over j that is not
//!         real time, S - 1 if any activity works ahead, and the wake-up latency
//! passes if h(t) + B(t) <= t for every t = D_i + k T_i in the horizon
//! ```
//!
//! **Why the test is sufficient.** Suppose a deadline `d` is missed. Let `t0` be the last moment up
//! to which every message that has logically arrived and is due by `d` was done. From `t0` to `d`
//! such a message is always pending. So every quantum that begins in that time belongs to a message
//! due by `d` that logically arrived since `t0`: at most `h(d - t0)`. The only other work is the
//! one quantum that runs at `t0` already. It began at least 1 ns before. With `t = d - t0` it is
//! one of these:
//!
//! - a quantum of an interactive or background activity;
//! - a critical quantum of a message due after `d`. The message arrived before `t0`, so `D_j > t`;
//! - a workahead quantum of a message due after `d`. Messages are done in order, so every earlier
//!   message of its activity is done, and of the demand that `h(t)` has for the activity **nothing
//!   is left**. If `D_j <= t`, that demand is at least `C'_j`, more than the quantum. This also
//!   holds if `j` is the activity that misses. Such a quantum is work that is done early, so it
//!   frees time instead of taking it. If `D_j > t`, it blocks like a critical one;
//! - a workahead quantum of a message due by `d`. The message logically arrives at `t0` or after,
//!   because it would have been done otherwise. So its work is in `h(t)`. Only the hand-off to it
//!   may be missing there: `S - 1`.
//!
//! So working ahead costs the others only that hand-off, whatever the limit; its quantum is counted
//! in any case. This replaces the simulation under worst-case load by which the paper admits
//! (split-level-1991 §3.4). The interval from `t0` on, with all arrivals at its start and the
//! longest quantum a nanosecond before, is that worst load for every length of time at once.
//!
//! **Why the test is necessary.** With `S` = 0 and a punctual CPU these phases exist: `j` begins
//! its first quantum at `t0 - 1`, and all others arrive at `t0`. (If `D_j = t + 1`, `j` is due at
//! `d` itself and blocks only if it works ahead. But then `C'_j` is in `h(t + 1)`, and a set
//! refused for `t` is refused for `t + 1` too.) So a set that is refused misses a deadline in some
//! phases, if its messages cost what they may.
//!
//! **Hand-offs.** A hand-off to another activity costs `S`, spent before its quantum and without
//! preemption. The first hand-off to a message after it became critical costs one `S` a message.
//! Any other hand-off is a return to an `x` that yielded when it was critical. It yielded to the
//! best message `h`. That message is due earlier and became critical during the last quantum of
//! `x`, because it would have been taken before `x` otherwise. A message becomes critical once. So
//! each return can be charged to a different `h`, whose delay bound is shorter than that of `x`. So
//! `C'_j = C_j + 2S` if any activity with a longer delay bound has more than one quantum, else `C_j
//! + S`. This is a bound: if hand-offs cost time, the test is sufficient but not necessary.
//!
//! **Late wake-ups.** As in `response_time`, a CPU that sleeps runs no quantum, and when it wakes
//! it sees all arrivals before it picks. So either the quantum or the latency blocks, and the
//! longer one counts.
//!
//! **The horizon.** With blocking of at most `B`, the longest time in which work is always pending
//! is the least solution of `L = B + sum of ceil(L / T_i) C'_i`. No interval from `t0` to `d` is
//! longer. From the longest delay bound on, only blocking that does not depend on `t` is left,
//! often none. So only a `t` below `L(B(0))`, and below the longer of `max D_i` and
//! `L(B(max D_i))`, must be examined. If the sum of `C'/T` is exactly 1 and such blocking is not 0,
//! there is no `L`. But from `max D_i` on everything repeats with the hyperperiod, and one
//! hyperperiod is searched. The search goes from long intervals to short ones. It skips those that
//! the demand of a longer one covers (Zhang and Burns, "Schedulability analysis for real-time
//! systems with EDF scheduling", IEEE Transactions on Computers 58, 2009). This is valid because
//! `h + B` never falls: at `t = D_j` the activity `j` ceases to block, but from then on `h` has its
//! whole message, which is more than its quantum. `Steps` bound the search; a set without an answer
//! is refused.
//!
//! **Users.** If the activities belong to several users, the test holds for each user `u` with its
//! own demand: each activity `k` of another user (not root) has `(floor(t / T_k) + 3) C'_k` in
//! place of its part of `h(t)`, because it may be two jobs ahead, and may claim to be due earlier.
//! For each of these users the longest quantum and a grace are added (module `isolation`). These
//! sums never fall either, and only users with a `D_i` up to `t` count.
//!
//! **Worst responses.** For a message of `i` that arrives `a` after `t0` (Spuri, INRIA report 2772,
//! 1996; with quanta: George, Rivierre and Spuri, INRIA report 2966, 1996):
//!
//! ```text
//! W_i(a) = B(a + D_i) + (floor(a / T_i) + 1) C'_i - q_i
//!          + sum over other j of min(floor(W_i(a) / T_j) + 1, jobs of j due by a + D_i) C'_j
//! R_i    = max over a of W_i(a) + q_i - a
//! ```
//!
//! with `q_i` the last quantum and `a` such that `a + D_i = D_j + k T_j`. This is a safe bound:
//! messages due at the same moment count as earlier, although the order of creation might put them
//! later. `R_i <= D_i` for all `i` if and only if the test passes. If the test has passed and the
//! steps do not suffice for some `R_i`, `D_i` replaces it. Activities that are not real-time get no
//! bound.

use super::isolation::Users;
use super::platform::Platform;
use super::response_time::{Response, Steps};
use super::test_result::TestResult;
use super::verdict::{Failure, Verdict, share};
use crate::activity::{ActivityParams, Terms, WorkClass};
use crate::share::Share;
use crate::time::Span;
use load::{Load, Outcome, Stream};

mod load;
#[cfg(test)]
mod tests;

/// The shortest delay bound that admission can offer `set[index]` on one CPU, so that the promises
/// to the others of `set` hold. The bound that `set[index]` asks for does not matter. `None` if
/// there is no such bound, or if `index` is out of range or not real time. Also `None` if any
/// parameters are out of range, or if the steps of one analysis did not suffice. Allocates.
///
/// If hand-offs cost time, a shorter bound may exist: the offered bound is tested, but the charge
/// for hand-offs depends on the order of the delay bounds. The CPU limit is ignored.
pub fn delay_bound_offered(
    set: &[(ActivityParams, Terms)],
    index: usize,
    platform: &Platform,
) -> Option<Span> {
    shortest_delay_bound((set, Users::ONE), index, platform, &mut Steps::of_analysis())
}

/// As [`delay_bound_offered`], within `steps`.
pub(super) fn shortest_delay_bound(
    (set, users): (&[(ActivityParams, Terms)], Users<'_>),
    index: usize,
    platform: &Platform,
    steps: &mut Steps,
) -> Option<Span> {
    let (params, terms) = set.get(index)?;
    let valid = set.iter().all(|(params, _)| params.validated().is_ok());
    if terms.class != WorkClass::RealTime || !valid {
        return None;
    }
    let mut trial = set.to_vec();
    let mut fits = |bound_ns: u64| {
        trial[index].1.delay_bound = Some(Span::from_nanos(bound_ns));
        match Load::of(&trial, users, platform).decide(steps).0 {
            Outcome::Kept => Some(true),
            // No message of its own is due in this interval, so no bound is long enough.
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

/// The verdict on a set on one CPU, in any order.
pub(crate) fn verdict(
    cpu: u32,
    (set, users): (&[(ActivityParams, Terms)], Users<'_>),
    platform: &Platform,
    steps: &mut Steps,
) -> Verdict {
    let load = Load::of(set, users, platform);
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

impl Load {
    /// Computes the worst response of each activity. If the outcome does not depend on the
    /// responses, this uses only part of the steps.
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
                Outcome::Overloaded | Outcome::Undecided => None,
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

    fn failure(
        &self,
        outcome: Outcome,
        responses: &[Response],
        within_limit: bool,
    ) -> Option<Failure> {
        // Without a stream nothing is late, and nothing is granted.
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

    /// The steps did not suffice to find a late activity. Names the one that is due at the end of
    /// the interval with too much demand.
    fn last_in(&self, length_ns: u64, excess_ns: u64) -> Failure {
        let due = |stream: &&Stream| {
            let rest_ns = length_ns.checked_sub(stream.deadline_ns);
            rest_ns.is_some_and(|rest_ns| rest_ns % stream.period_ns == 0)
        };
        // Invariant: `search` examines only intervals that end with a deadline.
        let victim = self.streams.iter().find(due).unwrap_or(&self.streams[0]);
        let deadline = Span::from_nanos(victim.deadline_ns);
        let response = deadline + Span::from_nanos(excess_ns);
        Failure::Misses { index: victim.index, response, deadline, exact: false }
    }

    /// The largest response, as a multiple of the delay bound. If the test failed, at least the
    /// demand of the interval with too much demand, relative to its length.
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
