//! What users may take from each other beyond their reservations, and what that delays.
//!
//! A daemon lets a domain run ahead of its reservation for a while, because it cannot tell at once
//! whether others kept the domain from the CPU before (docs/threat-model.md, "Two jobs at once").
//! While a domain of another user waits, all domains of one user together may take beyond their
//! reservations: one job of each activity, the longest quantum, and a grace. Admission counts that
//! against the activities of other users. Inside one user nobody counts: its programs trust each
//! other. Nobody counts root either, because root may do anything.
//!
//! In the analysis of an activity `i` of user `u`, each user `v` counts that is neither `u` nor
//! root and has an activity that may go before `i`. A domain can claim to work for its best rank
//! while it works for another one. So all activities of `v` count as better than `i`:
//!
//! ```text
//! X_i = sum over v of ( sum over k of v of C'_k                          one job ahead
//!                     + sum over k of v behind i of ceil(D_i / T_k) C'_k
//!                     + the longest quantum of v + G + g D_i )           [`Isolation`]
//! ```
//!
//! `X_i` is added to the blocking `B_i`. It bounds what `v` can take for all responses up to `D_i`,
//! and a longer response is refused.

use super::platform::Platform;
use super::response_time::{Steps, blocking};
use crate::activity::ActivityParams;
use crate::share::Share;
use crate::time::Span;

/// What a daemon grants a user beyond the reservations while a domain of another user waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// `G`: CPU time.
    pub grace: Span,
    /// `g`: a share of the CPU.
    pub share: Share,
}

impl Isolation {
    /// `g` of a span, rounded up.
    pub(super) fn part_of(self, span: Span) -> Span {
        let parts = u128::from(span.as_nanos()) * u128::from(self.share.ppm());
        // A share is at most the whole.
        Span::from_nanos(u64::try_from(parts.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
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

    /// `X_i` of each activity of `set`; nothing if one user has them all. `None` if the steps ran
    /// out.
    pub(super) fn delays(
        self,
        set: &[ActivityParams],
        wins_ties: &[bool],
        platform: &Platform,
        steps: &mut Steps,
    ) -> Option<Vec<Span>> {
        let has_others = self.of.windows(2).any(|pair| pair[0] != pair[1]);
        if self.isolation.is_none() || !has_others {
            return Some(Vec::new());
        }
        let delay = |index| {
            steps.spend(set.len())?;
            Some(self.delay(set, wins_ties, index, platform))
        };
        (0..set.len()).map(delay).collect()
    }

    /// `X_i` of `set[index]`. The activities in front of it in `set` may go before it, and those of
    /// its period that win ties. O(activities times users).
    fn delay(
        self,
        set: &[ActivityParams],
        wins_ties: &[bool],
        index: usize,
        platform: &Platform,
    ) -> Span {
        let Some(isolation) = self.isolation else { return Span::ZERO };
        let deadline = set[index].deadline;
        let overtakes = |at: usize| wins_ties[at] && set[at].period == set[index].period;
        let is_better = |at: usize| at < index || overtakes(at);
        let better = (0..set.len()).filter(|&at| is_better(at)).map(|at| self.of[at]);
        let mut others: Vec<u32> =
            better.filter(|&user| user != self.of[index] && user != ROOT).collect();
        others.sort_unstable();
        others.dedup();
        let mut delay = Span::ZERO;
        for user in others {
            let mut quantum = Span::ZERO;
            for at in self.of_user(user) {
                let job = set[at].compute() + platform.switch_cost.saturating_mul(2);
                let periods = deadline.as_nanos().div_ceil(set[at].period.as_nanos());
                delay += if is_better(at) { job } else { job.saturating_mul(1 + periods) };
                quantum = quantum.max(blocking(&set[at], platform));
            }
            delay += quantum + isolation.grace + isolation.part_of(deadline);
        }
        delay
    }

    /// The places of a user's activities in the set.
    fn of_user(self, user: u32) -> impl Iterator<Item = usize> {
        (0..self.of.len()).filter(move |&at| self.of[at] == user)
    }
}

/// May do anything, so nobody is isolated from it.
pub(super) const ROOT: u32 = 0;

#[cfg(test)]
mod tests;
