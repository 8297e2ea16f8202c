//! The exact test: worst response times under fixed priorities with delayed preemption.
//!
//! The test analyses what [`crate::scheduler`] does under RMDP. Each job of activity `i` consists
//! of quanta of `b` PDUs; the last one is shorter if `b` does not divide `B`. Ranks are fixed and
//! strict. Preemption happens only between two quanta: the model of fixed preemption points (Burns
//! 1994; Bril, Lukkien and Verhaegh, "Worst-case response time analysis of real-time tasks under
//! fixed-priority scheduling with deferred preemption", Real-Time Systems 42, 2009). Time is
//! discrete, in nanoseconds.
//!
//! For `i`, with periods `T`, costs `C'` (see below), and `j < i` for the better ranks:
//!
//! ```text
//! B_i   = max over worse ranks j of (S + b_j c_j) - 1, or the wake-up latency, if longer
//! L_i   = B_i + sum over j <= i of ceil((L_i + P) / T_j) C'_j
//! W_i,k = B_i + (k+1) C'_i - q_i + sum over j < i of (floor((W_i,k + P) / T_j) + 1) C'_j
//! R_i   = max over k with k T_i < L_i + P of W_i,k + q_i - k T_i + P
//! ```
//!
//! `L_i` and `W_i,k` are the least solutions of their equations. The *active period* `L_i` is the
//! longest time in which work of `i` or better is always pending. `W_i,k` is the last moment at
//! which its job `k` can be preempted; `q_i` is its last quantum. All jobs of the active period
//! must be examined, because the last quantum of a job pushes other work into the next job. So the
//! first job need not be the worst, even if every job meets its deadline.
//!
//! **Blocking.** A quantum of worse rank must have begun before the active period, hence the `- 1`
//! nanosecond. If the CPU sleeps at a release, the job waits instead for the thread to wake: at
//! most `wakeup_latency`. A CPU that sleeps runs no quantum, and when it wakes it sees all releases
//! before it picks. So the two exclude each other and the longer one counts.
//!
//! **Deferral.** With `P` above 0, a domain that has the CPU may continue with its own worse ranks
//! while all activities that outrank them were released less than `P` ago (decision 0014). Call a
//! job *eligible* when it begins, or `P` after its release if that is earlier. A job that begins
//! then outranks all eligible jobs, and the analysis holds with eligible in place of released: to
//! the other ranks, the release of a job jitters by `P`. This is a bound, because not every job
//! meets worse ranks of the domain that has the CPU.
//!
//! **Hand-offs.** A hand-off to another activity costs `S`, spent before its quantum and without
//! preemption. There are two kinds. The first kind is the first upcall of a job: one hand-off for
//! each job. The second kind is a return to a job `x` that yielded. `x` began its quantum when
//! nothing better was ready. So the job `h` to which it yielded was released since, and began at
//! that moment. A job begins once, so each return can be charged to a different `h` of better rank
//! than `x`. So in the analysis of `i`
//!
//! - a job of `i` costs `C_i + S`, because a job of `i` interrupts no job that matters to `i`;
//! - a job of `j < i` costs `C_j + 2S`. It costs `C_j + S` if no activity ranked between it
//!   (exclusive) and `i` (inclusive) has more than one quantum, because then no job that it could
//!   interrupt ever returns;
//! - a blocking quantum is preceded by a hand-off, which blocks as well;
//! - if `i` has only one quantum, its hand-off cannot be preempted either, and counts towards
//!   `q_i`.
//!
//! This is a bound. Suppose that the last quantum began after `W`. Then the CPU spent all of `[0,
//! W)` on blocking, on jobs released by `W`, on hand-offs charged to them, and on `i` up to its
//! last quantum. By the equation these fill exactly `[0, W)`. So at `W` nothing better is pending,
//! no return is owed, and the last quantum begins. With `S` = 0 the test is exact, because phases
//! exist that make every term occur: all ranks up to `i` are released together, one nanosecond
//! after the longest quantum of worse rank began. Cheaper PDUs and shorter batches never increase a
//! response.
//!
//! **Users.** If the activities belong to several users, `X_i(t)` is added to each of the sums:
//! what the other users may take beyond their reservations in a time `t` ([`super::isolation`]). If
//! the demand and these graces fill the CPU, the search ends with the steps.
//!
//! **Ties that events win.** An activity that [`wins_ties`](crate::activity::Terms) may go before
//! any other activity of its period. So in the analysis of `i`, activities of the same period with
//! `wins_ties` that rank behind `i` count as better ranks, too. They rank between the other better
//! ranks and `i`. All of the above holds. They preempt no activity of that period, and only shorter
//! periods preempt them ([`crate::policy::rmdp`]). So each return is still charged to a release to
//! which no activity has yielded before. This is a bound and not exact, because no event need come.
//!
//! **Full CPUs.** Where the sum of `C'/T` is above 1, there is no bound. Where it is exactly 1 and
//! `B_i` is not 0, the active period never ends, but everything in it repeats with the hyperperiod.
//! Then the jobs of one hyperperiod are examined. Close below 1, the active period may be too long
//! to search. [`Steps`] bound the search, and its answer is [`Response::AtLeast`] then.

use super::ahead::Ahead;
use super::platform::Platform;
use super::utilization::{self, Demand};
use crate::activity::ActivityParams;
use crate::share::Share;
use crate::time::Span;
use core::cmp::Ordering;

/// The worst response of an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The exact worst response.
    Bounded(Span),
    /// The worst response of the jobs that were examined before the steps ran out.
    AtLeast(Span),
    /// The response grows with every job: the demand is more than the CPU has.
    Unbounded,
}

/// The work that an analysis may still do, in terms of the sums above.
#[derive(Debug)]
pub(crate) struct Steps(u64);

/// The steps of one analysis. All of them take a fraction of a second. A hundred activities that
/// fill three quarters of a CPU take a twentieth of them.
pub(super) const STEPS_MAX: u64 = 10_000_000;

impl Steps {
    /// The steps of one analysis of a CPU.
    pub(crate) fn of_analysis() -> Self {
        Steps::up_to(STEPS_MAX)
    }

    pub(super) fn up_to(steps_max: u64) -> Self {
        Steps(steps_max)
    }

    /// Takes the remaining steps divided by `divisor`, for an analysis that decides nothing.
    pub(super) fn take_part(&mut self, divisor: u64) -> Steps {
        let part = self.0 / divisor;
        self.0 -= part;
        Steps(part)
    }

    pub(super) fn spend(&mut self, terms: usize) -> Option<()> {
        self.0 = self.0.checked_sub(terms as u64)?;
        Some(())
    }
}

/// The worst response of each activity of one CPU, best rank first. `wins_ties` has one value per
/// activity. So has `ahead`, unless all activities trust each other: then it is empty. Lazy: an
/// activity is analysed when its response is asked for.
pub(super) fn responses<'a>(
    ranked: &'a [ActivityParams],
    wins_ties: &'a [bool],
    ahead: &'a [Ahead],
    platform: &'a Platform,
    steps: &'a mut Steps,
) -> impl Iterator<Item = Response> + 'a {
    let all = granted(ranked, platform);
    let fullness = utilization::compare(&all, Share::WHOLE);
    (0..ranked.len()).map(move |index| {
        let level = Level::of(ranked, wins_ties, ahead, (index, platform));
        let fullness = match fullness {
            // No level has more demand than the last one, and only the last one has all of it.
            Ordering::Less => Ordering::Less,
            Ordering::Equal if level.demands.len() == ranked.len() => Ordering::Equal,
            Ordering::Equal => Ordering::Less,
            Ordering::Greater => utilization::compare(&level.demands, Share::WHOLE),
        };
        level.worst_response(fullness, steps)
    })
}

/// The demand of all activities of one CPU, hand-offs included.
pub(super) fn granted(ranked: &[ActivityParams], platform: &Platform) -> Vec<Demand> {
    match ranked.len() {
        0 => Vec::new(),
        count => Level::of(ranked, &[], &[], (count - 1, platform)).demands,
    }
}

/// The inputs of one activity's analysis.
#[derive(Debug)]
struct Level {
    /// `B_i`, and what other users may take once beyond their reservations.
    blocking_ns: u64,
    /// `P`.
    defer_preemption_ns: u64,
    /// What they may take beyond them in any time.
    ahead: Ahead,
    /// `C'` and `T` of all better ranks, then of the activity itself.
    demands: Vec<Demand>,
    /// `q_i`.
    last_ns: u64,
}

impl Level {
    fn of(
        ranked: &[ActivityParams],
        wins_ties: &[bool],
        ahead: &[Ahead],
        (index, platform): (usize, &Platform),
    ) -> Self {
        let switch_ns = platform.switch_cost.as_nanos();
        let preemptible = |params: &ActivityParams| params.quantum < params.batch;
        let demand = |params: &ActivityParams, switches: u64| Demand {
            cost_ns: params.compute().as_nanos().saturating_add(switch_ns.saturating_mul(switches)),
            period_ns: params.period.as_nanos(),
        };
        let own = &ranked[index];
        let mut demands = vec![demand(own, 1)];
        let mut returns = preemptible(own);
        let overtakes = |place: &usize| {
            wins_ties.get(*place) == Some(&true) && ranked[*place].period == own.period
        };
        let (overtaking, worse): (Vec<_>, Vec<_>) =
            (index + 1..ranked.len()).partition(|place| overtakes(place));
        let better = (0..index).chain(overtaking);
        for params in better.rev().map(|place| &ranked[place]) {
            demands.push(demand(params, 1 + u64::from(returns)));
            returns |= preemptible(params);
        }
        demands.reverse();
        let blocking = worse.iter().map(|&place| blocking(&ranked[place], platform)).max();
        let blocking_ns = blocking.map_or(0, |span| span.as_nanos().saturating_sub(1));
        let ahead = ahead.get(index).cloned().unwrap_or_default();
        let last = own.pdu_cost.saturating_mul(u64::from(own.last_quantum()));
        let unpreempted_ns = if preemptible(own) { 0 } else { switch_ns };
        Level {
            blocking_ns: (blocking_ns.max(platform.wakeup_latency.as_nanos()))
                .saturating_add(ahead.once.as_nanos()),
            defer_preemption_ns: platform.defer_preemption.as_nanos(),
            ahead,
            demands,
            last_ns: last.as_nanos().saturating_add(unpreempted_ns),
        }
    }

    fn worst_response(&self, fullness: Ordering, steps: &mut Steps) -> Response {
        if fullness == Ordering::Greater {
            return Response::Unbounded;
        }
        let delay_ns = self.blocking_ns.saturating_add(self.defer_preemption_ns);
        let repeats = self.ahead.behind.is_empty() && self.ahead.grace_ppm == 0;
        let endless = fullness == Ordering::Equal && delay_ns > 0 && repeats;
        // A hyperperiod that overflows is longer than any search.
        let search_ns = if endless { self.hyperperiod().unwrap_or(u64::MAX) } else { u64::MAX };
        let mut worst_ns = 0;
        match self.search(search_ns, &mut worst_ns, steps) {
            Some(()) => Response::Bounded(Span::from_nanos(worst_ns)),
            None => Response::AtLeast(Span::from_nanos(worst_ns)),
        }
    }

    /// Examines the jobs of the active period that are released before `search_ns`. `None` if the
    /// steps ran out, or if time exceeded the range of 584 years.
    fn search(&self, search_ns: u64, worst_ns: &mut u64, steps: &mut Steps) -> Option<()> {
        let (own, better) = self.demands.split_last()?;
        let terms = self.demands.len() + self.ahead.behind.len();
        // Grows towards `L_i` as far as needed to decide whether the next job belongs to the active
        // period.
        let mut active_ns = self
            .demands
            .iter()
            .try_fold(self.blocking_ns, |sum, demand| sum.checked_add(demand.cost_ns))?;
        let mut release_ns: u64 = 0;
        let mut own_ns = self.blocking_ns.checked_add(own.cost_ns)?.checked_sub(self.last_ns)?;
        let mut start_ns = own_ns;
        while release_ns < search_ns {
            loop {
                let until_ns = active_ns.checked_add(self.defer_preemption_ns)?;
                if until_ns > release_ns {
                    break;
                }
                steps.spend(terms)?;
                let jobs = |t: u64| until_ns.div_ceil(t);
                let next_ns = pending(self.blocking_ns, &self.demands, jobs)?
                    .checked_add(self.ahead.in_time(until_ns, jobs)?)?;
                if next_ns == active_ns {
                    return Some(());
                }
                active_ns = next_ns;
            }
            loop {
                steps.spend(terms)?;
                let until_ns = start_ns.checked_add(self.defer_preemption_ns)?;
                let jobs = |t: u64| until_ns / t + 1;
                let next_ns = pending(own_ns, better, jobs)?
                    .checked_add(self.ahead.in_time(until_ns, jobs)?)?;
                if next_ns == start_ns {
                    break;
                }
                start_ns = next_ns;
            }
            let end_ns =
                start_ns.checked_add(self.last_ns)?.checked_add(self.defer_preemption_ns)?;
            *worst_ns = end_ns.saturating_sub(release_ns).max(*worst_ns);
            release_ns = release_ns.checked_add(own.period_ns)?;
            own_ns = own_ns.checked_add(own.cost_ns)?;
            // The last quantum of the next job begins at least a job later.
            start_ns = start_ns.checked_add(own.cost_ns)?;
        }
        Some(())
    }

    /// The least common multiple of the periods.
    fn hyperperiod(&self) -> Option<u64> {
        self.demands.iter().try_fold(1u64, |lcm, demand| {
            let divisor = greatest_common_divisor(lcm, demand.period_ns);
            lcm.checked_mul(demand.period_ns / divisor)
        })
    }
}

/// The longest stretch of an activity without a preemption point, its hand-off included.
pub(super) fn blocking(params: &ActivityParams, platform: &Platform) -> Span {
    platform.switch_cost + params.quantum_cost()
}

/// `base_ns` plus `jobs(T)` jobs of each demand.
fn pending(base_ns: u64, demands: &[Demand], jobs: impl Fn(u64) -> u64) -> Option<u64> {
    demands.iter().try_fold(base_ns, |sum, demand| {
        sum.checked_add(jobs(demand.period_ns).checked_mul(demand.cost_ns)?)
    })
}

pub(super) fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
