//! The tests of one CPU under proportional share ([`crate::policy::ps`]).
//!
//! A *real-time* activity has a fixed share `f`, and its deadline is promised. An
//! *adaptive* one has a weight only: it gets what is left, so nothing bounds
//! its response, its deadline serves to report lateness, and it is always admitted.
//! It counts here for its stretches alone, which others may have to wait for. So does a
//! member of a group; the share of its group, or of the one around that, is given
//! away of every CPU where a member is.
//!
//! `share-sum`: the shares together are below 1 (proportional-share-1998
//! §4.3). `cpu-limit`: and at most what is given away of a CPU. What a CPU has
//! given away are its shares, whether they are used or not.
//!
//! `response-time`: with `q` the time quantum, `s` the stretch `b c` of an activity,
//! `r = s max(1, floor(q / s))` its longest request and `S` the hand-off,
//!
//! ```text
//! C' = C + m S                               must be <= f T
//! R  = J + G / f + B
//! J  = max over others (s_j + S), or the wake-up latency, if longer
//! S = 0:  m = 0, G = C + s, or C if the job is one stretch,  B = max over others r_j
//! S > 0:         G = C' + max(q, s),                         B = max over others max(q, s_j) + n S
//! ```
//!
//! - **J.** A release is noticed at the next boundary, or when the CPU wakes.
//! - **G / f.** At a release the activity's lag is 0, so its virtual start is
//!   now: had it not paid by now for the job before, then `C' > f T`, or the job
//!   before was noticed late, by `J` at most, and this one's start is that late
//!   instead, not in addition. The starts move by `u / f` for what is used,
//!   so the last request's virtual deadline is `G / f` after the start, if `G` is what
//!   was used before and that request. Requests end where the job is
//!   expected or declared to, but are whole stretches, so `G < C + s`, whatever was
//!   expected. The virtual time of shares is the service given, and a busy CPU
//!   gives all its time.
//! - **B.** A request is served no later than its virtual deadline and the
//!   longest request of another, which may have begun just before (EEVDF, Stoica et
//!   al. 1996: lags are above `-q` and below `q`). The demand due by a deadline
//!   `D` from activities that start at `t` or later is at most `sum f_j (D - t) <= D - t`,
//!   and none of those that start before `t` is due by `D` if a later deadline was
//!   preferred at `t`.
//!
//! A hand-off is charged to who comes. Its first stretch then ends `S` later, which
//! the policy takes for a longer stretch of up to `s + S`, and a request may end
//! `S` late. A full request then holds at least `1 + (q - 2 s - 3 S) / s` stretches,
//! and at least one; all but three requests of a job are full (its expected,
//! its declared and its last end). That gives `m`, at most the number of
//! stretches. The job is charged for more than was declared, so its last request
//! may be a full one. Each of `n` activities may end one request `S` late.
//!
//! It is a bound, not the worst case: the terms need not come together. It is
//! on the safe side of what the paper's own experiment does (§5), where a share of
//! just `C / T` is asked for and `+-` a quantum accepted: who wants the
//! deadline at the end of the period kept has to ask for a little more than `C / T`.

use super::platform::Platform;
use super::response_time::Response;
use super::test_result::TestResult;
use super::verdict::{Failure, Verdict};
use crate::activity::{ActivityParams, Claim, Terms};
use crate::policy::ps::{Group, group_of, outermost, slice};
use crate::share::Share;
use crate::time::Span;

/// The tests for what runs on `cpu` with a time quantum of `quantum`, in the order given.
pub(crate) fn verdict(
    cpu: u32,
    set: &[(ActivityParams, Terms)],
    platform: &Platform,
    quantum: Span,
    groups: &[Group],
) -> Verdict {
    let shares: Vec<_> = set.iter().map(|(_, terms)| own_share(terms, groups)).collect();
    let bounds: Vec<_> = (0..set.len())
        .map(|index| Bound::of(set, (index, shares[index]), platform, quantum))
        .collect();
    let responses = bounds.iter().map(Bound::response).collect();
    let of_groups: u64 = group_shares(set, groups).map(ppm).sum();
    let sum_ppm = shares.into_iter().flatten().map(ppm).sum::<u64>() + of_groups;
    let whole_ppm = ppm(Share::WHOLE);
    let in_wholes = |ppm: u64| ppm as f64 / whole_ppm as f64;
    let late = latest(set, &bounds);
    let limit_ppm = ppm(platform.cpu_limit);
    let mut tests: Vec<_> = [
        ("share-sum", in_wholes(sum_ppm), in_wholes(whole_ppm - 1)),
        ("response-time", late.map_or(0.0, |(in_deadlines, _)| in_deadlines), 1.0),
        ("cpu-limit", in_wholes(sum_ppm), in_wholes(limit_ppm)),
    ]
    // Quotients of small integers by the same one compare as the integers do.
    .map(|(name, value, bound)| TestResult {
        name,
        cpu,
        passed: value <= bound,
        value,
        bound,
        deciding: false,
    })
    .to_vec();
    // The first that refuses decides; if none does, the one of all shares.
    let refusing = tests.iter().position(|test| !test.passed);
    tests[refusing.unwrap_or(0)].deciding = true;
    let failure = match (refusing, late) {
        (None, _) => None,
        (Some(1), Some((_, failure))) => Some(failure),
        (Some(_), _) => Some(Failure::OverLimit),
    };
    if set.is_empty() {
        tests.clear();
    }
    Verdict { responses, utilization: in_wholes(sum_ppm), tests, failure }
}

fn ppm(share: Share) -> u64 {
    u64::from(share.ppm())
}

/// What it is promised for itself. What a group gets is promised to none of its members.
fn own_share(terms: &Terms, groups: &[Group]) -> Option<Share> {
    terms.share.filter(|_| group_of(terms, groups).is_none())
}

/// The shares of the groups that have a member here.
fn group_shares(set: &[(ActivityParams, Terms)], groups: &[Group]) -> impl Iterator<Item = Share> {
    let mut used = vec![false; groups.len()];
    for group in set.iter().filter_map(|(_, terms)| group_of(terms, groups)) {
        used[outermost(group, groups)] = true;
    }
    groups.iter().zip(used).filter_map(|(group, used)| match group.claim {
        Claim::Share(share) if used => Some(share),
        _ => None,
    })
}

/// What is known of an activity's response.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// Adaptive: nothing but that it takes the compute time.
    Unpromised(Span),
    /// `R`.
    Promised(Span),
    /// `R` of the first job; the share is too small for one in every period.
    FallsBehind(Span),
}

impl Bound {
    fn of(
        set: &[(ActivityParams, Terms)],
        (index, share): (usize, Option<Share>),
        platform: &Platform,
        quantum: Span,
    ) -> Self {
        let params = &set[index].0;
        let Some(share) = share else { return Bound::Unpromised(params.compute()) };
        let switch = platform.switch_cost;
        let (mut noticed, mut waited) = (platform.wakeup_latency, Span::ZERO);
        let others = set.iter().enumerate().filter(|&(at, _)| at != index);
        for stretch in others.map(|(_, (other, _))| other.quantum_cost()) {
            noticed = noticed.max(stretch + switch);
            let longest =
                if switch.is_zero() { slice(stretch, quantum) } else { stretch.max(quantum) };
            waited = waited.max(longest);
        }
        let mut charged = params.compute();
        let mut requested = charged;
        if params.quantum < params.batch {
            requested += params.quantum_cost();
        }
        if !switch.is_zero() {
            charged += switch.saturating_mul(requests_max(params, switch, quantum));
            requested = charged + quantum.max(params.quantum_cost());
            waited += switch.saturating_mul(set.len() as u64);
        }
        let response = noticed + at_share(requested, share) + waited;
        if at_share(charged, share) <= params.period {
            Bound::Promised(response)
        } else {
            Bound::FallsBehind(response)
        }
    }

    fn response(&self) -> Response {
        match *self {
            Bound::Unpromised(compute) => Response::AtLeast(compute),
            Bound::Promised(response) => Response::Bounded(response),
            Bound::FallsBehind(_) => Response::Unbounded,
        }
    }
}

/// `m`: how often a job is handed the CPU at most.
fn requests_max(params: &ActivityParams, switch: Span, quantum: Span) -> u64 {
    let stretches = u64::from(params.batch.div_ceil(params.quantum));
    let stretch = params.quantum_cost();
    let spare = quantum.saturating_sub(stretch * 2 + switch * 3);
    let in_one = 1 + spare.as_nanos() / stretch.as_nanos().max(1);
    (stretches.div_ceil(in_one) + 2).min(stretches)
}

/// The time in which a share amounts to `service`, rounded up.
fn at_share(service: Span, share: Share) -> Span {
    let whole_ppm = u128::from(ppm(Share::WHOLE));
    let ns = (u128::from(service.as_nanos()) * whole_ppm).div_ceil(u128::from(ppm(share)));
    Span::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// The largest promised response in deadlines, and what it would mean.
fn latest(set: &[(ActivityParams, Terms)], bounds: &[Bound]) -> Option<(f64, Failure)> {
    let each = bounds.iter().enumerate().filter_map(|(index, bound)| {
        let deadline = set[index].0.deadline;
        let (response, exact) = match *bound {
            Bound::Unpromised(_) => return None,
            Bound::Promised(response) => (response, true),
            Bound::FallsBehind(response) => (response, false),
        };
        let in_deadlines = response.as_nanos() as f64 / deadline.as_nanos() as f64;
        Some((in_deadlines, Failure::Misses { index, response, deadline, exact }))
    });
    each.max_by(|(a, _), (b, _)| a.total_cmp(b))
}

#[cfg(test)]
mod tests;
