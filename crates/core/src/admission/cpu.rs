//! What is reserved on one CPU.

use super::screen::AdmissionTest;
use super::verdict::Verdict;
use crate::activity::{ActivityParams, Terms};
use crate::share::Share;

/// Names one reservation of a [`Reservations`]; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReservationId(pub(super) u64);

/// What is reserved on one CPU.
#[derive(Clone, Debug)]
pub(super) struct Cpu {
    pub(super) number: u32,
    /// In the order of their ranks.
    pub(super) members: Vec<Member>,
    /// DWCS: of its event server.
    pub(super) events: Option<Share>,
    pub(super) verdict: Verdict,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: ReservationId,
    pub(super) name: String,
    pub(super) params: ActivityParams,
    pub(super) terms: Terms,
}

impl Cpu {
    /// Where a newcomer of these parameters stands among the members: it is created
    /// after them all, so among equals it is the last.
    pub(super) fn place_of(&self, test: &AdmissionTest, params: &ActivityParams) -> usize {
        let key = test.order(params);
        self.members.partition_point(|member| test.order(&member.params) <= key)
    }

    /// The same, but before those of its equals that are among `juniors`.
    pub(super) fn place_before(
        &self,
        test: &AdmissionTest,
        params: &ActivityParams,
        juniors: &[ReservationId],
    ) -> usize {
        let key = test.order(params);
        let end = self.place_of(test, params);
        let junior =
            |member: &&Member| test.order(&member.params) == key && juniors.contains(&member.id);
        end - self.members[..end].iter().rev().take_while(junior).count()
    }

    /// What the members ask for, best first.
    pub(super) fn ranked(&self) -> Vec<(ActivityParams, Terms)> {
        self.members.iter().map(|member| (member.params, member.terms)).collect()
    }

    /// The same with a newcomer at its place.
    pub(super) fn ranked_with(
        &self,
        test: &AdmissionTest,
        params: &ActivityParams,
        terms: &Terms,
    ) -> Vec<(ActivityParams, Terms)> {
        let mut ranked = self.ranked();
        ranked.insert(self.place_of(test, params), (*params, *terms));
        ranked
    }
}
