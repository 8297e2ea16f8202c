//! The reservations on one CPU.

use super::platform::Platform;
use super::screen::AdmissionTest;
use super::verdict::Verdict;
use crate::activity::{ActivityParams, Terms};
use crate::share::Share;
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
    /// What programs have of it, in millionths ([`super::program`]).
    pub(super) programs_ppm: u32,
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
        if self.programs_ppm == 0 {
            return Cow::Borrowed(platform);
        }
        let left = platform.cpu_limit.ppm().saturating_sub(self.programs_ppm).max(1);
        let cpu_limit = Share::from_ppm(left).unwrap_or(platform.cpu_limit);
        Cow::Owned(Platform { cpu_limit, ..platform.clone() })
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
