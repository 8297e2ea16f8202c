//! The tests of one CPU under proportional share ([`crate::policy::ps`]).
//!
//! A *real-time* activity has a fixed share `f`, and its deadline is promised. An *adaptive*
//! activity has only a weight and gets the rest. So nothing bounds its response, its deadline
//! serves to report lateness, and it is always admitted. It counts here only by its stretches, for
//! which others may have to wait. The same holds for a member of a group. The share of its
//! outermost group is granted on every CPU that has a member.
//!
//! `share-sum`: the sum of the shares is below 1 (proportional-share-1998 §4.3). `cpu-limit`: the
//! sum is at most the limit of what is granted of a CPU. A CPU's shares count as granted whether
//! they are used or not.
//!
//! `response-time`: with `q` the time quantum, `s` the stretch `b c` of an activity, `r = s max(1,
//! floor(q / s))` its longest request and `S` the hand-off,
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
//! - **G / f.** At a release the activity's lag is 0, so its virtual start is now. There are two
//!   exceptions, in which the activity has not yet paid for the previous job. Either `C' > f T`, so
//!   the activity falls behind. Or the previous job was noticed late, by at most `J`. Then the
//!   start of this job is late by the same amount, and the delays do not add up. Starts move by
//!   `u / f` for used time. So the virtual deadline of the last request is `G / f` after the start,
//!   where `G` is the earlier use plus that request. Requests end where the job is expected or
//!   declared to end, but are whole stretches. So `G < C + s`, whatever was expected. The virtual
//!   time of shares is the service given, and a busy CPU gives all its time.
//! - **B.** A request is served by its virtual deadline plus the longest request of another
//!   activity, which may have begun just before (EEVDF, Stoica et al. 1996: lags are above `-q` and
//!   below `q`). The demand due by a deadline `D` from activities that start at `t` or later is at
//!   most `sum f_j (D - t) <= D - t`. No activity that starts before `t` is due by `D`, if a later
//!   deadline was preferred at `t`.
//!
//! A hand-off is charged to the activity that gets the CPU. Its first stretch then ends `S` later.
//! The policy takes this for a longer stretch of up to `s + S`, and a request may end `S` late. A
//! full request then holds at least `1 + (q - 2 s - 3 S) / s` stretches, and at least one. All but
//! three requests of a job are full: the exceptions are the requests at its expected end, at its
//! declared end and at its actual end. That gives `m`, at most the number of stretches. The job is
//! charged more than was declared, so its last request may be a full one. Each of `n` activities
//! may end one request `S` late.
//!
//! **Several processes.** The domains of a CPU have accounts of their own, and each divides its
//! part among its activities ([`crate::policy::ps`], *Several processes*). For an activity of
//! domain `d` with the shares `F_d` together, the bound grows:
//!
//! ```text
//! R' = R + (r_d + B_d) / F_d        if the domain has another activity
//! B >= q + wake-up latency, n + 1    ordinary programs are one more client, of requests of q
//! ```
//!
//! `r_d` is the longest request of the domain, and `B_d` that of another activity of it, each with
//! one hand-off. In the
//! service that the domain gets, the activity waits for `B_d` as for another activity of one
//! process. The domain may have begun the request of another activity, and its own account is at
//! most one request behind. Both are service of the domain, which takes `1 / F_d` as long. An
//! activity that is alone in its domain has the account of the domain.
//!
//! The result is a bound, not the worst case: the terms need not occur together. It is stricter
//! than the paper's own experiment (§5), which asks for a share of exactly `C / T` and accepts a
//! deviation of one quantum. For a guaranteed deadline at the end of the period, an activity must
//! ask for slightly more than `C / T`.

use super::platform::Platform;
use super::response_time::Response;
use super::test_result::TestResult;
use super::verdict::{Failure, Verdict};
use crate::activity::{ActivityParams, Claim, Terms};
use crate::policy::ps::{Group, group_of, outermost, slice};
use crate::share::Share;
use crate::time::Span;

/// The tests for the set on `cpu`, in the order given, with a time quantum of `quantum`. `domains`:
/// the domain of each activity, if domains have accounts.
pub(crate) fn verdict(
    cpu: u32,
    set: &[(ActivityParams, Terms)],
    domains: Option<&[u32]>,
    platform: &Platform,
    quantum: Span,
    groups: &[Group],
) -> Verdict {
    let shares: Vec<_> = set.iter().map(|(_, terms)| own_share(terms, groups)).collect();
    let bounds: Vec<_> = (0..set.len())
        .map(|index| {
            let bound = Bound::of(set, (index, shares[index]), platform, (quantum, domains));
            match domains {
                Some(domains) => bound.later_by(in_domain(
                    set,
                    &shares,
                    domains,
                    index,
                    (quantum, platform.switch_cost),
                )),
                None => bound,
            }
        })
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
    // Quotients of small integers with the same divisor compare like the integers.
    .map(|(name, value, bound)| TestResult {
        name,
        cpu,
        passed: value <= bound,
        value,
        bound,
        deciding: false,
    })
    .to_vec();
    // The first test that refuses decides. If none does, the sum of all shares decides.
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

/// The share that is promised to the activity itself. A member of a group has none.
fn own_share(terms: &Terms, groups: &[Group]) -> Option<Share> {
    terms.share.filter(|_| group_of(terms, groups).is_none())
}

/// The shares of the groups that have a member in the set.
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

/// The known bound on an activity's response.
#[derive(Clone, Copy, Debug)]
enum Bound {
    /// Adaptive: no bound except the compute time from below.
    Unpromised(Span),
    /// `R`.
    Promised(Span),
    /// `R` of the first job. The share is too small for one job in every period.
    FallsBehind(Span),
}

impl Bound {
    fn of(
        set: &[(ActivityParams, Terms)],
        (index, share): (usize, Option<Share>),
        platform: &Platform,
        (quantum, domains): (Span, Option<&[u32]>),
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
        if domains.is_some() {
            // Ordinary programs are one more client. A timer ends their turn.
            waited = waited.max(quantum + platform.wakeup_latency);
        }
        let mut charged = params.compute();
        let mut requested = charged;
        if params.quantum < params.batch {
            requested += params.quantum_cost();
        }
        if !switch.is_zero() {
            charged += switch.saturating_mul(requests_max(params, switch, quantum));
            requested = charged + quantum.max(params.quantum_cost());
            let clients = set.len() as u64 + u64::from(domains.is_some());
            waited += switch.saturating_mul(clients);
        }
        let response = noticed + at_share(requested, share) + waited;
        if at_share(charged, share) <= params.period {
            Bound::Promised(response)
        } else {
            Bound::FallsBehind(response)
        }
    }

    /// The same bound, `extra` later.
    fn later_by(self, extra: Span) -> Self {
        match self {
            Bound::Unpromised(compute) => Bound::Unpromised(compute),
            Bound::Promised(response) => Bound::Promised(response + extra),
            Bound::FallsBehind(response) => Bound::FallsBehind(response + extra),
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

/// `(r_d + B_d) / F_d` for an activity of a domain with others; 0 for one that is alone there.
fn in_domain(
    set: &[(ActivityParams, Terms)],
    shares: &[Option<Share>],
    domains: &[u32],
    index: usize,
    (quantum, switch): (Span, Span),
) -> Span {
    let domain_of = |at: usize| domains.get(at).copied().unwrap_or_default();
    let members = (0..set.len()).filter(|&at| domain_of(at) == domain_of(index));
    let (mut longest, mut longest_other, mut ppm_sum) = (Span::ZERO, None, 0);
    for at in members {
        let request = set[at].0.quantum_cost().max(quantum) + switch;
        longest = longest.max(request);
        longest_other = longest_other.max((at != index).then_some(request));
        ppm_sum += shares[at].map_or(0, ppm);
    }
    let share = u32::try_from(ppm_sum).ok().and_then(Share::from_ppm);
    match (longest_other, share) {
        (Some(other), Some(share)) => at_share(longest + other, share),
        _ => Span::ZERO,
    }
}

/// `m`: the most hand-offs to a job.
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

/// The largest promised response in deadlines, and the failure that it would be.
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
