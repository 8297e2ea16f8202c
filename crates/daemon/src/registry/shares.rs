//! What PS needs of the registry: the parts of a CPU that its domains have, and other claims of
//! activities (docs/decisions/0022).

use upcall_core::activity::Claim;
use upcall_core::admission::Share;
use upcall_core::discipline::DomainOrder;
use upcall_core::policy::ps::{self, DomainClaim};
use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
use upcall_shm::wire::Portion;

use super::Registry;
use super::domain::Activity;
use super::error::PlaceError;
use super::place::{Grant, Parts};

impl Registry {
    /// Whether accounts put the domains in one order (PS).
    pub(super) fn by_accounts(&self) -> bool {
        self.discipline.domain_order() == DomainOrder::Accounts
    }

    /// PS: the longest service of a domain at a time.
    pub fn time_quantum(&self) -> Option<Span> {
        self.discipline.time_quantum.filter(|_| self.by_accounts())
    }

    /// As admission tells activities apart: by their user, or by their domain under PS.
    pub(super) fn user_or_domain(&self, number: u32, uid: u32) -> u32 {
        if self.by_accounts() { number } else { uid }
    }

    /// Whether another user has activities on a CPU, under PS, whose accounts divide the CPU of one
    /// user; or an event server, under DWCS.
    pub(super) fn is_of_other_user(&self, cpu: u32, uid: u32) -> bool {
        if self.has_events_of_other(cpu, uid) {
            return true;
        }
        let others = self.domains.values().filter(|domain| domain.owner.uid != uid);
        let mut theirs = others.flat_map(|domain| domain.activities.values());
        self.by_accounts() && theirs.any(|activity| activity.cpu == cpu)
    }

    /// PS: the parts of a CPU and of its groups. `None` under another policy. O(activities +
    /// domains * groups).
    pub fn parts(&self, cpu: u32) -> Option<Parts> {
        if !self.by_accounts() {
            return None;
        }
        let limit_ppm = self.reservations.limit_of(cpu).map_or(0, Share::ppm);
        let above_ppm = Share::WHOLE.ppm() - limit_ppm;
        let groups = self.known_groups();
        let claim_of = |domain: u32, activity: &Activity| match activity.unscreened {
            // It has no reservation, so its share does not count.
            true => DomainClaim { domain, group: None, claim: Claim::Weight(1) },
            false => DomainClaim::of(domain, &activity.terms, &groups),
        };
        let mut claims = Vec::new();
        for (&number, domain) in &self.domains {
            let here = domain.activities.values().filter(|activity| activity.cpu == cpu);
            claims.extend(here.map(|activity| claim_of(number, activity)));
        }
        // Claims of a former daemon may have more than the limit. Every share is kept.
        let parts = ps::Parts::new(&groups, &claims, above_ppm);
        let of_domain = |(number, share)| Some((DomainId::new(number)?, share));
        let of_group = |(number, group, part)| {
            let of_domain = self.number_in_domain(number, group)?;
            Some((DomainId::new(number)?, of_domain, part))
        };
        Some(Parts {
            of_domains: parts.of_domains.into_iter().filter_map(of_domain).collect(),
            of_groups: parts.of_groups.into_iter().filter_map(of_group).collect(),
            ordinary: parts.kept,
        })
    }

    /// PS: gives an activity another share or weight, if admission grants it.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing changed.
    pub fn reweigh(
        &mut self,
        number: u32,
        order: u32,
        portion: Portion,
    ) -> Result<Grant, PlaceError> {
        let domain = self.domains.get(&number).ok_or(PlaceError::Gone)?;
        let activity = domain.activities.get(&order).ok_or(PlaceError::NoActivity(order))?;
        let claim = match portion {
            Portion::Share(ppm) => Claim::Share(Share::from_ppm(ppm).ok_or(PlaceError::Portion)?),
            Portion::Weight(0) => return Err(PlaceError::Portion),
            Portion::Weight(weight) => Claim::Weight(weight),
        };
        let (uid, cpu, terms) = (domain.owner.uid, activity.cpu, activity.terms);
        let terms = terms.claiming(claim);
        if let (Some(terms), Claim::Share(_)) = (terms, claim) {
            let before_ppm = self.counted_ppm(&activity.params, &activity.terms);
            let more_ppm = self.counted_ppm(&activity.params, &terms).saturating_sub(before_ppm);
            self.check_share(uid, more_ppm)?;
        }
        let place = activity.place.filter(|_| !activity.unscreened);
        let Some(id) = place else { return Err(PlaceError::NoActivity(order)) };
        self.reservations.reweigh(id, claim)?;
        let domain = self.domains.get_mut(&number).ok_or(PlaceError::Gone)?;
        if let (Some(activity), Some(terms)) = (domain.activities.get_mut(&order), terms) {
            activity.terms = terms;
        }
        let response_max = self.reservations.response_max(id);
        Ok(Grant { cpu, order, response_max, not_before: Instant::ZERO })
    }

    /// The name of an activity.
    pub fn name_of(&self, number: u32, order: u32) -> Option<&str> {
        let activity = self.domains.get(&number)?.activities.get(&order)?;
        Some(&activity.name)
    }
}
