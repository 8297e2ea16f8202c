//! All tests of one CPU, and which of them decides.

use super::bounds;
use super::isolation::Users;
use super::platform::Platform;
use super::response_time::{self, Response, Steps};
use super::test_result::TestResult;
use super::utilization::{self, Demand};
use crate::activity::{ActivityParams, Terms, Window};
use crate::share::Share;
use crate::time::Span;
use core::cmp::Ordering;

/// The outcome of all tests of one CPU.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// The response of each activity, best rank first.
    pub responses: Vec<Response>,
    /// The utilization, hand-offs included.
    pub utilization: f64,
    /// Empty for a CPU with nothing on it.
    pub tests: Vec<TestResult>,
    /// `None`: every deadline is kept, within the limit.
    pub failure: Option<Failure>,
}

/// Why a CPU cannot take a set. `index` counts ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// This activity ends last, compared with its deadline.
    Misses { index: usize, response: Span, deadline: Span, exact: bool },
    /// The best rank whose response grows without bound.
    FallsBehind { index: usize },
    /// All deadlines would be kept, but more would be granted than the limit.
    OverLimit,
    /// The response of this activity was not found within the step limit.
    Undecided { index: usize },
    /// The periods that may not be missed need more time than the CPU has.
    WindowsOverCpu,
    /// The window of this activity is not always kept.
    ViolatesWindow { index: usize, window: Window },
    /// Jobs are missed, and no test shows that only permitted misses occur.
    WindowsUnproven,
    /// A program gets so much in its period, less than its cost. `index` counts the programs of
    /// the CPU that have a period.
    BreaksProgram { index: usize, supplied: Span },
}

impl Verdict {
    /// Applies the tests for fixed priorities to the set on `cpu`, best rank first: with preemption
    /// at the ends of quanta if `delayed`, anywhere if not.
    pub(crate) fn of_fixed_priority(
        cpu: u32,
        (set, users): (&[(ActivityParams, Terms)], Users<'_>),
        platform: &Platform,
        steps: &mut Steps,
        delayed: bool,
    ) -> Self {
        let wins_ties: Vec<_> = set.iter().map(|(_, terms)| terms.wins_ties).collect();
        let asked: Vec<_> = set.iter().map(|(params, _)| *params).collect();
        // A daemon permits quanta as they were asked for.
        let ahead = users.ahead(&asked, &wins_ties, platform, steps);
        let ranked: Vec<_> = asked.iter().map(|p| if delayed { *p } else { divided(p) }).collect();
        let ranked = ranked.as_slice();
        let responses: Vec<_> = match ahead {
            Some(ahead) => {
                response_time::responses(ranked, &wins_ties, &ahead, platform, steps).collect()
            }
            None => vec![Response::AtLeast(Span::ZERO); set.len()],
        };
        let (utilization, within_limit) =
            share(&response_time::granted(ranked, platform), platform.cpu_limit);
        let failure = failure(ranked, &responses, within_limit);
        let mut tests = Vec::new();
        if !ranked.is_empty() {
            tests = bounds::tests(cpu, ranked, utilization, platform);
            let by_limit = failure == Some(Failure::OverLimit);
            let value = value(ranked, &responses);
            let limit = platform.cpu_limit.as_f64();
            tests.extend([
                TestResult {
                    name: "response-time",
                    cpu,
                    passed: value <= 1.0,
                    value,
                    bound: 1.0,
                    deciding: !by_limit,
                },
                TestResult {
                    name: "cpu-limit",
                    cpu,
                    passed: within_limit,
                    value: utilization,
                    bound: limit,
                    deciding: by_limit,
                },
            ]);
        }
        Verdict { responses, utilization, tests, failure }
    }

    /// The value of the deciding test relative to its bound: above 1 if the test fails. If the
    /// value is infinite, the result grows with the utilization instead.
    pub(super) fn excess(&self) -> f64 {
        let deciding = self.tests.iter().find(|test| test.deciding);
        match deciding.map_or(0.0, |test| test.value / test.bound) {
            excess if excess.is_finite() => excess,
            _ => 1e15 * (1.0 + self.utilization),
        }
    }
}

/// The same demand in quanta of a nanosecond, so that preemption is possible anywhere. A job of
/// more than 4 s has quanta of a few nanoseconds, and its demand is rounded up.
fn divided(params: &ActivityParams) -> ActivityParams {
    let compute_ns = params.compute().as_nanos();
    let unit_ns = compute_ns.div_ceil(u64::from(u32::MAX)).max(1);
    let batch = u32::try_from(compute_ns.div_ceil(unit_ns)).unwrap_or(u32::MAX);
    ActivityParams { batch, quantum: 1, pdu_cost: Span::from_nanos(unit_ns), ..*params }
}

/// The sum of the demands, and whether it is within the limit. The comparison is exact. A sum that
/// was rounded to the other side of the limit is corrected.
pub(super) fn share(demands: &[Demand], limit: Share) -> (f64, bool) {
    let sum = utilization::sum(demands);
    let order = utilization::compare(demands, limit);
    let limit = limit.as_f64();
    match order {
        Ordering::Greater => (sum.max(limit.next_up()), false),
        Ordering::Equal => (limit, true),
        Ordering::Less => (sum.min(limit), true),
    }
}

/// The largest response, in deadlines.
fn value(ranked: &[ActivityParams], responses: &[Response]) -> f64 {
    let in_deadlines = |(params, &response): (&ActivityParams, &Response)| {
        let known = match response {
            Response::Bounded(response) => response,
            Response::AtLeast(response) if response > params.deadline => response,
            Response::AtLeast(_) | Response::Unbounded => return f64::INFINITY,
        };
        known.as_nanos() as f64 / params.deadline.as_nanos() as f64
    };
    ranked.iter().zip(responses).map(in_deadlines).fold(0.0, f64::max)
}

fn failure(
    ranked: &[ActivityParams],
    responses: &[Response],
    within_limit: bool,
) -> Option<Failure> {
    if let Some(index) = responses.iter().position(|response| *response == Response::Unbounded) {
        return Some(Failure::FallsBehind { index });
    }
    let misses = responses.iter().zip(ranked).enumerate().filter_map(|(index, (found, params))| {
        let (response, exact) = match *found {
            Response::Bounded(response) => (response, true),
            Response::AtLeast(response) => (response, false),
            Response::Unbounded => return None,
        };
        let deadline = params.deadline;
        let late = Failure::Misses { index, response, deadline, exact };
        let in_deadlines = response.as_nanos() as f64 / deadline.as_nanos() as f64;
        (response > deadline).then_some((in_deadlines, late))
    });
    if let Some((_, late)) = misses.max_by(|(a, _), (b, _)| a.total_cmp(b)) {
        return Some(late);
    }
    if !within_limit {
        return Some(Failure::OverLimit);
    }
    let undecided = responses.iter().position(|found| matches!(found, Response::AtLeast(_)));
    undecided.map(|index| Failure::Undecided { index })
}
