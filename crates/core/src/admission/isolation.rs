//! What users may take from each other beyond their reservations, and what that delays.
//!
//! A daemon lets a domain run ahead of its reservation for a while, because it cannot tell at once
//! whether others kept the domain from the CPU before (docs/threat-model.md, "Two jobs at once").
//! While a domain of another user waits, the domains of one user together may take beyond their
//! reservations: one job of each activity, a second one if they saved it while others had the CPU,
//! the longest quantum, and a grace. Admission counts that against the activities of other users.
//! Inside one user nobody counts: its programs trust each other. Nobody counts root either, because
//! root may do anything.
//!
//! In the analysis of an activity `i` of user `u`, each user `v` counts that is neither `u` nor
//! root and has an activity that may go before `i`. A domain can claim to work for its best rank
//! while it works for another one. So all activities of `v` count as better than `i`. In a time `t`
//! that user takes, beyond the jobs of its activities before `i`:
//!
//! ```text
//! X_i(t) = sum over v of ( sum over k of v of 2 C'_k                      two jobs ahead
//!                        + sum over k of v behind i of ceil(t / T_k) C'_k
//!                        + the longest quantum of v + G + g t )           [`Isolation`]
//! ```

use super::ahead::Ahead;
use super::platform::Platform;
use super::response_time::{Steps, blocking};
use super::utilization::Demand;
use crate::activity::ActivityParams;
use crate::share::Share;
use crate::time::Span;

/// What a daemon lets a user take beyond its reservations while a domain of another user waits,
/// beside two jobs of each of its activities and its longest quantum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// `G`: CPU time, once.
    pub grace: Span,
    /// `g`: a share of the CPU for as long as the other one waits.
    pub share: Share,
}

/// The users of a set on one CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Users<'a> {
    /// The user of each activity of the set, in its order.
    pub(super) of: &'a [u32],
    /// `None`: the activities trust each other.
    pub(super) isolation: Option<Isolation>,
}

impl Users<'_> {
    /// All activities trust each other.
    pub(super) const ONE: Users<'static> = Users { of: &[], isolation: None };

    /// Whether activities of several users are isolated from each other.
    pub(super) fn are_isolated(&self) -> bool {
        self.isolation.is_some() && self.of.windows(2).any(|pair| pair[0] != pair[1])
    }

    /// `X_i` of each activity of `set`; nothing if one user has them all. `None` if the steps ran
    /// out.
    pub(super) fn ahead(
        self,
        set: &[ActivityParams],
        wins_ties: &[bool],
        platform: &Platform,
        steps: &mut Steps,
    ) -> Option<Vec<Ahead>> {
        let Some(isolation) = self.isolation.filter(|_| self.are_isolated()) else {
            return Some(Vec::new());
        };
        let of_each = |index| self.ahead_of(isolation, (set, wins_ties), index, (platform, steps));
        (0..set.len()).map(of_each).collect()
    }

    /// `X_i` of `set[index]`. The activities in front of it in `set` may go before it, and those of
    /// its period that win ties. O(activities times users).
    fn ahead_of(
        self,
        isolation: Isolation,
        (set, wins_ties): (&[ActivityParams], &[bool]),
        index: usize,
        (platform, steps): (&Platform, &mut Steps),
    ) -> Option<Ahead> {
        let overtakes = |at: usize| wins_ties[at] && set[at].period == set[index].period;
        let is_better = |at: usize| at < index || overtakes(at);
        let better = (0..set.len()).filter(|&at| is_better(at)).map(|at| self.of[at]);
        let mut others: Vec<u32> =
            better.filter(|&user| is_isolated(self.of[index], user)).collect();
        others.sort_unstable();
        others.dedup();
        steps.spend(set.len().saturating_mul(1 + others.len()))?;
        let mut ahead = Ahead::default();
        for user in others {
            let mut quantum = Span::ZERO;
            for at in self.of_user(user) {
                let job = job_cost(&set[at], platform);
                ahead.once += job.saturating_mul(JOBS_AHEAD);
                if !is_better(at) {
                    let period_ns = set[at].period.as_nanos();
                    ahead.behind.push(Demand { cost_ns: job.as_nanos(), period_ns });
                }
                quantum = quantum.max(blocking(&set[at], platform));
            }
            ahead.once += quantum + isolation.grace;
            ahead.grace_ppm += u64::from(isolation.share.ppm());
        }
        Some(ahead)
    }

    /// The user of an activity of the set.
    pub(super) fn user_of(self, index: usize) -> u32 {
        self.of.get(index).map_or(ROOT, |&user| user)
    }

    /// The places of a user's activities in the set.
    fn of_user(self, user: u32) -> impl Iterator<Item = usize> {
        (0..self.of.len()).filter(move |&at| self.of[at] == user)
    }
}

/// May do anything, so nobody is isolated from it.
pub(super) const ROOT: u32 = 0;
/// How many jobs of each activity a user may be ahead: one, and a saved one.
pub(super) const JOBS_AHEAD: u64 = 2;

/// Whether `user` is isolated from `other`.
pub(super) fn is_isolated(user: u32, other: u32) -> bool {
    other != user && other != ROOT
}

/// `C'` of a job that may interrupt others.
pub(super) fn job_cost(params: &ActivityParams, platform: &Platform) -> Span {
    params.compute() + platform.switch_cost.saturating_mul(2)
}

#[cfg(test)]
mod tests;
