//! The demand of the real-time activities of one CPU, and what blocks them. The head of [`super`]
//! proves the sums that are computed here.
//!
//! Only `super` uses this module. Every product and sum is checked; an overflow means that there is
//! no answer.

use crate::activity::{ActivityParams, Terms, WorkClass};
use crate::admission::ahead::part_of;
use crate::admission::isolation::{JOBS_AHEAD, ROOT, Users, is_isolated, job_cost};
use crate::admission::platform::Platform;
use crate::admission::response_time::{Steps, blocking, greatest_common_divisor};
use crate::admission::utilization::{self, Demand};
use crate::policy::dws::delay_bound;
use crate::share::Share;
use crate::time::Span;
use core::cmp::Ordering;

/// The result of the demand-bound test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Every deadline is kept.
    Kept,
    /// In an interval of `length_ns`, the demand exceeds the time by `excess_ns`.
    Late { length_ns: u64, excess_ns: u64 },
    /// The demand is more than the CPU has.
    Overloaded,
    /// The steps ran out, or time exceeded the range of 584 years.
    Undecided,
}

/// The real-time activities of one CPU, and what blocks them.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) streams: Vec<Stream>,
    /// Quanta that block intervals shorter than their `reach_ns`, sorted by `reach_ns`.
    /// `longest_ns` is the longest blocking of all quanta with at least this reach.
    blockers: Vec<Blocker>,
    /// The blocking of intervals of any length.
    standing_ns: u64,
    /// The users of the streams, if they are isolated, each with its longest quantum and what it
    /// may take once. Else empty.
    users: Vec<(u32, u64)>,
    /// What each of them may take in any time, in millionths of the CPU.
    grace_ppm: u64,
    /// The activities of isolated users that are not real time. A domain can claim to work for a
    /// stream while it works for one of these.
    claimants: Vec<Claimant>,
}

#[derive(Debug)]
pub(super) struct Stream {
    /// Its index in the set.
    pub(super) index: usize,
    user: u32,
    /// `D_i`.
    pub(super) deadline_ns: u64,
    /// `T_i`.
    pub(super) period_ns: u64,
    /// `C'_i`.
    cost_ns: u64,
    /// `q_i`.
    last_ns: u64,
}

impl Stream {
    /// The demand of its messages that arrive and are due within `length_ns`.
    pub(super) fn demand(&self, length_ns: u64) -> Option<u64> {
        match length_ns.checked_sub(self.deadline_ns) {
            Some(rest_ns) => (rest_ns / self.period_ns + 1).checked_mul(self.cost_ns),
            None => Some(0),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Claimant {
    user: u32,
    cost_ns: u64,
    period_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Blocker {
    reach_ns: u64,
    longest_ns: u64,
}

impl Load {
    pub(super) fn of(
        set: &[(ActivityParams, Terms)],
        users: Users<'_>,
        platform: &Platform,
    ) -> Self {
        let switch_ns = platform.switch_cost.as_nanos();
        let real_time = |(_, terms): &&(ActivityParams, Terms)| terms.class == WorkClass::RealTime;
        let preemptible = |params: &ActivityParams| params.quantum < params.batch;
        let longest_preemptible = set
            .iter()
            .filter(|(params, _)| preemptible(params))
            .filter(real_time)
            .map(|(params, terms)| delay_bound(params, terms))
            .max();
        let (mut streams, mut blockers, mut claimants) = (Vec::new(), Vec::new(), Vec::new());
        let mut standing_ns = platform.wakeup_latency.as_nanos();
        for (index, (params, terms)) in set.iter().enumerate() {
            let quantum = platform.switch_cost + params.quantum_cost();
            let longest_ns = quantum.as_nanos().saturating_sub(1);
            if terms.class != WorkClass::RealTime {
                standing_ns = standing_ns.max(longest_ns);
                claimants.push(Claimant {
                    user: users.user_of(index),
                    cost_ns: job_cost(params, platform).as_nanos(),
                    period_ns: params.period.as_nanos(),
                });
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
                user: users.user_of(index),
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
        let grace_ppm = users.isolation.map_or(0, |isolation| isolation.share.ppm().into());
        let users = graces(set, &streams, users, platform);
        claimants.retain(|claimant| users.iter().any(|(user, _)| *user == claimant.user));
        Load { streams, blockers, standing_ns, users, grace_ppm, claimants }
    }

    pub(super) fn demands(&self) -> Vec<Demand> {
        let demand =
            |stream: &Stream| Demand { cost_ns: stream.cost_ns, period_ns: stream.period_ns };
        self.streams.iter().map(demand).collect()
    }

    /// `B(t)`.
    pub(super) fn blocking(&self, length_ns: u64) -> u64 {
        let at = self.blockers.partition_point(|blocker| blocker.reach_ns <= length_ns);
        let longest_ns = self.blockers.get(at).map_or(0, |blocker| blocker.longest_ns);
        longest_ns.max(self.standing_ns)
    }

    /// Whether the domain of `stream` may run ahead of its reservation at the cost of `user`.
    fn may_be_ahead(&self, stream: &Stream, user: u32) -> bool {
        !self.users.is_empty() && is_isolated(user, stream.user)
    }

    /// The longest quanta and graces of the users from which `user` is isolated, in `length_ns`.
    fn graces(&self, user: u32, length_ns: u64) -> u64 {
        let others = self.users.iter().filter(|(other, _)| is_isolated(user, *other));
        let grace_ns = part_of(length_ns, self.grace_ppm);
        others
            .fold(0, |sum: u64, (_, once_ns)| sum.saturating_add(*once_ns).saturating_add(grace_ns))
    }

    /// The work of the claimants of other users in `length_ns`.
    fn claimed(&self, user: u32, length_ns: u64) -> Option<u64> {
        let others = self.claimants.iter().filter(|of| is_isolated(user, of.user));
        others.into_iter().try_fold(0, |sum: u64, of| {
            sum.checked_add((length_ns / of.period_ns + 1 + JOBS_AHEAD).checked_mul(of.cost_ns)?)
        })
    }

    /// What must fit into `length_ns` so that `user` keeps the deadlines at its end.
    fn due(&self, user: u32, length_ns: u64) -> Option<u64> {
        let base_ns = self.blocking(length_ns).checked_add(self.graces(user, length_ns))?;
        let base_ns = base_ns.checked_add(self.claimed(user, length_ns)?)?;
        self.streams.iter().try_fold(base_ns, |sum, stream| {
            let demand_ns = match self.may_be_ahead(stream, user) {
                true => {
                    (length_ns / stream.period_ns + 1 + JOBS_AHEAD).checked_mul(stream.cost_ns)?
                }
                false => stream.demand(length_ns)?,
            };
            sum.checked_add(demand_ns)
        })
    }

    /// The most that must fit into `length_ns`, over all users with deadlines in it.
    fn due_max(&self, length_ns: u64) -> Option<u64> {
        if self.users.is_empty() {
            return self.due(ROOT, length_ns);
        }
        let has_deadline = |user: u32| {
            let mut own = self.streams.iter().filter(|stream| stream.user == user);
            own.any(|stream| stream.deadline_ns <= length_ns)
        };
        let users = self.users.iter().map(|(user, _)| *user).filter(|&user| has_deadline(user));
        users.map(|user| self.due(user, length_ns)).try_fold(0, |most, due| Some(most.max(due?)))
    }

    /// Runs the test; returns the outcome and the horizon.
    pub(super) fn decide(&self, steps: &mut Steps) -> (Outcome, u64) {
        let fullness = utilization::compare(&self.demands(), Share::WHOLE);
        if fullness == Ordering::Greater {
            return (Outcome::Overloaded, 0);
        }
        let Some(horizon_ns) = self.horizon(fullness, steps) else {
            return (Outcome::Undecided, 0);
        };
        (self.search(horizon_ns, steps).unwrap_or(Outcome::Undecided), horizon_ns)
    }

    /// No interval of this length or longer needs to be examined.
    fn horizon(&self, fullness: Ordering, steps: &mut Steps) -> Option<u64> {
        let longest_ns = self.streams.iter().map(|stream| stream.deadline_ns).max().unwrap_or(0);
        if fullness == Ordering::Less {
            let with_any_ns = self.busy_max(self.blocking(0), steps)?;
            return Some(with_any_ns.min(self.busy_max(self.standing_ns, steps)?.max(longest_ns)));
        }
        if !self.users.is_empty() {
            // The graces never end, so nothing repeats.
            return None;
        }
        if self.standing_ns == 0 {
            return Some(self.busy_max(0, steps)?.max(longest_ns));
        }
        let hyperperiod_ns = self.streams.iter().try_fold(1u64, |lcm, stream| {
            lcm.checked_mul(stream.period_ns / greatest_common_divisor(lcm, stream.period_ns))
        })?;
        // The first deadlines after the longest one belong to the part that repeats.
        longest_ns.checked_add(hyperperiod_ns)?.checked_add(1)
    }

    /// The longest [`Self::busy`] of all users.
    fn busy_max(&self, blocking_ns: u64, steps: &mut Steps) -> Option<u64> {
        if self.users.is_empty() {
            return self.busy(ROOT, blocking_ns, steps);
        }
        let mut users = self.users.iter().map(|(user, _)| *user);
        users.try_fold(0, |most_ns, user| Some(self.busy(user, blocking_ns, steps)?.max(most_ns)))
    }

    /// The longest time in which work is pending that concerns `user`, after blocking of
    /// `blocking_ns`.
    fn busy(&self, user: u32, blocking_ns: u64, steps: &mut Steps) -> Option<u64> {
        let pending = |length_ns: u64, jobs: &dyn Fn(u64) -> u64| {
            let base_ns = blocking_ns.checked_add(self.graces(user, length_ns))?;
            let base_ns = base_ns.checked_add(self.claimed(user, length_ns)?)?;
            self.streams.iter().try_fold(base_ns, |sum, stream| {
                let ahead = if self.may_be_ahead(stream, user) { JOBS_AHEAD } else { 0 };
                let jobs = jobs(stream.period_ns).checked_add(ahead)?;
                sum.checked_add(jobs.checked_mul(stream.cost_ns)?)
            })
        };
        let mut busy_ns = pending(0, &|_| 1)?;
        loop {
            steps.spend(self.streams.len() + self.claimants.len())?;
            let next_ns = pending(busy_ns, &|period_ns| busy_ns.div_ceil(period_ns))?;
            if next_ns == busy_ns {
                return Some(busy_ns);
            }
            busy_ns = next_ns;
        }
    }

    /// Searches below the horizon for an interval with too much demand.
    fn search(&self, horizon_ns: u64, steps: &mut Steps) -> Option<Outcome> {
        let mut below_ns = horizon_ns;
        while let Some(length_ns) = self.deadline_before(below_ns) {
            let terms = self.streams.len() + self.claimants.len();
            steps.spend((1 + self.users.len().max(1)) * terms)?;
            let due_ns = self.due_max(length_ns)?;
            if due_ns > length_ns {
                return Some(Outcome::Late { length_ns, excess_ns: due_ns - length_ns });
            }
            // In intervals from `due_ns` up to `length_ns` the demand is no larger, and it fits.
            below_ns = due_ns;
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

    /// Examines the arrivals of `own` that can have the worst response.
    pub(super) fn worst_response(
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
        let blocking_ns = self.blocking(due_ns).checked_add(self.graces(own.user, due_ns))?;
        let claimed_ns = self.claimed(own.user, due_ns)?;
        let base_ns = blocking_ns.checked_add(claimed_ns)?.checked_add(own_ns)?;
        let base_ns = base_ns.checked_sub(own.last_ns)?;
        let mut begin_ns = base_ns;
        loop {
            steps.spend(self.streams.len())?;
            let others = self.streams.iter().filter(|other| other.index != own.index);
            let next_ns = others.into_iter().try_fold(base_ns, |sum, other| {
                let arrived = begin_ns / other.period_ns + 1;
                if self.may_be_ahead(other, own.user) {
                    return sum.checked_add((arrived + JOBS_AHEAD).checked_mul(other.cost_ns)?);
                }
                let arrived_ns = arrived.checked_mul(other.cost_ns)?;
                sum.checked_add(arrived_ns.min(other.demand(due_ns)?))
            })?;
            if next_ns == begin_ns {
                return begin_ns.checked_add(own.last_ns);
            }
            begin_ns = next_ns;
        }
    }
}

/// The users of the streams, each with its longest quantum and what it may take once. Empty if they
/// trust each other, or if there is only one.
fn graces(
    set: &[(ActivityParams, Terms)],
    streams: &[Stream],
    users: Users<'_>,
    platform: &Platform,
) -> Vec<(u32, u64)> {
    let Some(isolation) = users.isolation else { return Vec::new() };
    let mut graces: Vec<(u32, u64)> = Vec::new();
    for (index, (params, _)) in set.iter().enumerate() {
        let (user, once) = (users.user_of(index), blocking(params, platform) + isolation.grace);
        if !streams.iter().any(|stream| stream.user == user) {
            continue;
        }
        match graces.iter_mut().find(|(of, _)| *of == user) {
            Some((_, most_ns)) => *most_ns = once.as_nanos().max(*most_ns),
            None => graces.push((user, once.as_nanos())),
        }
    }
    if graces.len() > 1 { graces } else { Vec::new() }
}
