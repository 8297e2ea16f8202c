//! What a user has of its quota of the CPUs: activities, the shares of groups, and programs.

use std::collections::BTreeMap;

use upcall_core::activity::{ActivityParams, Claim, Terms};
use upcall_core::policy::ps::outermost;
use upcall_core::time::Instant;

use super::error::PlaceError;
use super::{Registry, own_share_ppm, ppm_of};

impl Registry {
    pub(super) fn check_quota(
        &self,
        uid: u32,
        params: &ActivityParams,
        terms: &Terms,
    ) -> Result<(), PlaceError> {
        self.check_share(uid, self.counted_ppm(params, terms))
    }

    /// Whether a user may have a share of a CPU, in millionths, beside what it has.
    ///
    /// # Errors
    /// [`PlaceError::Quota`].
    pub fn check_share(&self, uid: u32, ppm: u64) -> Result<(), PlaceError> {
        let activities_ppm = self.counted_of_user(uid);
        let programs_ppm = self.programs_ppm.get(&uid).copied().unwrap_or_default();
        let others_ppm = programs_ppm.saturating_add(self.events_ppm_of(uid));
        let found_ppm = activities_ppm.saturating_add(others_ppm).saturating_add(ppm);
        let share_max_ppm = self.quota.share_max_ppm;
        match uid == 0 || found_ppm <= share_max_ppm {
            true => Ok(()),
            false => Err(PlaceError::Quota { found_ppm, share_max_ppm }),
        }
    }

    /// What the activities of a user count of its quota. A group with a share counts that share on
    /// each CPU where it has a member, or what its members count if that is more.
    fn counted_of_user(&self, uid: u32) -> u64 {
        let groups = self.known_groups();
        let share_of = |terms: &Terms| {
            let group = outermost(usize::from(terms.group?.0), &groups);
            match groups.get(group)?.claim {
                Claim::Share(share) => Some((group, u64::from(share.ppm()))),
                Claim::Weight(_) => None,
            }
        };
        let mut counted_ppm = 0u64;
        let mut in_groups: BTreeMap<(u32, usize), (u64, u64)> = BTreeMap::new();
        let of_user = self.domains.values().filter(|domain| domain.owner.uid == uid);
        for activity in of_user.flat_map(|domain| domain.activities.values()) {
            let ppm = self.counted_ppm(&activity.params, &activity.terms);
            match share_of(&activity.terms).filter(|_| !activity.unscreened) {
                Some((group, share_ppm)) => {
                    let (_, members_ppm) =
                        in_groups.entry((activity.cpu, group)).or_insert((share_ppm, 0));
                    *members_ppm = members_ppm.saturating_add(ppm);
                }
                None => counted_ppm = counted_ppm.saturating_add(ppm),
            }
        }
        let of_groups = in_groups.into_values().map(|(share_ppm, ppm)| ppm.max(share_ppm));
        of_groups.fold(counted_ppm, u64::saturating_add)
    }

    /// Takes an activity of a group back if the share of the group exceeds the user's quota. The
    /// share counts once on each CPU, so this is known only when the activity has its place.
    pub(super) fn check_group_quota(&mut self, number: u32, order: u32) -> Result<(), PlaceError> {
        let domain = self.domains.get(&number).ok_or(PlaceError::Gone)?;
        let is_member = domain.activities.get(&order).is_some_and(|of| of.terms.group.is_some());
        let checked = if is_member { self.check_share(domain.owner.uid, 0) } else { Ok(()) };
        if checked.is_err() {
            self.close(number, order, Instant::ZERO);
        }
        checked
    }

    /// What an activity counts of its user's quota. A job takes a hand-off at least.
    pub(super) fn counted_ppm(&self, params: &ActivityParams, terms: &Terms) -> u64 {
        let used = ppm_of(params.compute().max(self.reservations.switch_cost()), params.period);
        used.max(if self.by_accounts() { own_share_ppm(terms) } else { 0 })
    }
}
