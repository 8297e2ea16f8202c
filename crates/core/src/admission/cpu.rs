//! The reservations on one CPU.

use super::load::CpuLoad;
use super::platform::Platform;
use super::program::CpuPrograms;
use super::response_time;
use super::screen::AdmissionTest;
use super::verdict::{Failure, Verdict};
use crate::activity::{ActivityParams, Terms};
use crate::share::Share;
use crate::time::Span;
use std::borrow::Cow;

/// Identifies one reservation of a [`Reservations`](super::Reservations); never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub(super) u64);

/// The reservations on one CPU.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub(super) number: u32,
    /// In the order of their ranks.
    pub(super) members: Vec<Member>,
    /// DWCS: the share of its event server.
    pub(super) events: Option<Share>,
    /// What programs have of it ([`super::program`]).
    pub(super) programs: CpuPrograms,
    pub(super) verdict: Verdict,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: ReservationId,
    pub(super) name: String,
    pub(super) params: ActivityParams,
    pub(super) terms: Terms,
    pub(super) user: u32,
}

impl Cpu {
    /// The platform with the limit of this CPU: without what programs have.
    pub(super) fn platform<'p>(&self, platform: &'p Platform) -> Cow<'p, Platform> {
        if self.programs.reserved_ppm == 0 {
            return Cow::Borrowed(platform);
        }
        let left = platform.cpu_limit.ppm().saturating_sub(self.programs.reserved_ppm).max(1);
        let cpu_limit = Share::from_ppm(left).unwrap_or(platform.cpu_limit);
        Cow::Owned(Platform { cpu_limit, ..platform.clone() })
    }

    /// The load of the CPU with these activities, of which the tests say so much.
    pub(super) fn load_of(
        &self,
        ranked: &[ActivityParams],
        utilization: f64,
        platform: &Platform,
    ) -> CpuLoad {
        let costs = response_time::granted(ranked, platform);
        let costs = costs.iter().map(|demand| Span::from_nanos(demand.cost_ns));
        let burst = costs.fold(Span::ZERO, |sum, cost| sum + cost);
        CpuLoad { cpu: self.number, utilization, limit: platform.cpu_limit.as_f64(), burst }
    }

    /// The verdict, which fails if the set breaks the promise to a program. A deadline that is
    /// missed is told first: it does not depend on programs.
    pub(super) fn with_programs(
        &self,
        verdict: Verdict,
        set: &[(ActivityParams, Terms)],
        platform: &Platform,
    ) -> Verdict {
        let none_missed = matches!(verdict.failure, None | Some(Failure::OverLimit));
        if self.programs.timed.is_empty() || !none_missed {
            return verdict;
        }
        let ranked: Vec<_> = set.iter().map(|(params, _)| *params).collect();
        let load = self.load_of(&ranked, verdict.utilization, platform);
        match self.programs.broken_by(&load) {
            None => verdict,
            Some((index, supplied)) => {
                let failure = Some(Failure::BreaksProgram { index, supplied });
                Verdict { failure, ..verdict }
            }
        }
    }

    /// The place of a new activity with these parameters among the members. It is created last, so
    /// it is the last among equals.
    pub(super) fn place_of(&self, test: &AdmissionTest, params: &ActivityParams) -> usize {
        let key = test.order(params);
        self.members.partition_point(|member| test.order(&member.params) <= key)
    }

    /// Like [`Self::place_of`], but before the last equals, as long as they are in `lower_ranked`.
    pub(super) fn place_before(
        &self,
        test: &AdmissionTest,
        params: &ActivityParams,
        lower_ranked: &[ReservationId],
    ) -> usize {
        let key = test.order(params);
        let end = self.place_of(test, params);
        let ranks_lower = |member: &&Member| {
            test.order(&member.params) == key && lower_ranked.contains(&member.id)
        };
        end - self.members[..end].iter().rev().take_while(ranks_lower).count()
    }

    /// The parameters of the members, best rank first.
    pub(super) fn ranked(&self) -> Vec<(ActivityParams, Terms)> {
        self.members.iter().map(|member| (member.params, member.terms)).collect()
    }

    /// The user of each member, best rank first.
    pub(super) fn users(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.user).collect()
    }

    /// Like [`Self::ranked`] and [`Self::users`], with a new activity of a user at `place`.
    pub(super) fn set_with(
        &self,
        place: usize,
        (params, terms, user): (&ActivityParams, &Terms, u32),
    ) -> (Vec<(ActivityParams, Terms)>, Vec<u32>) {
        let (mut ranked, mut users) = (self.ranked(), self.users());
        ranked.insert(place, (*params, *terms));
        users.insert(place, user);
        (ranked, users)
    }
}
