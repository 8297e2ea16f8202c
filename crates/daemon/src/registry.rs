//! The registry: the attached domains and their reservations.
//!
//! Only the server's thread uses it. The registry decides from numbers: [`Reservations`] tests
//! admission over all domains and CPUs, and the registry enforces quotas. It makes no system call
//! and touches no page.

use std::collections::BTreeMap;

use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::admission::{Platform, Reservation, Reservations};
use upcall_core::admission::{Share, Spot};
use upcall_core::discipline::Discipline;
use upcall_core::time::Span;
use upcall_shm::DOMAINS_MAX;
use upcall_shm::wire::Need;

use crate::ranks::Admitted;
use domain::Activity;
pub use domain::{Domain, Owner};
pub use error::{AttachError, PlaceError};
pub use limits::{ACTIVITIES_MAX, CLAIMED_ORDER_MAX, Quota};
pub use place::{Claimed, Grant, Listed, Usage};

mod domain;
mod error;
mod limits;
mod place;
#[cfg(test)]
mod tests;

/// See the module's head.
#[derive(Debug)]
pub struct Registry {
    discipline: &'static Discipline,
    quota: Quota,
    reservations: Reservations,
    /// By the domain's number.
    domains: BTreeMap<u32, Domain>,
    attached_ever: u64,
    next_order: u32,
}

impl Registry {
    /// An empty registry: no domain, no reservation.
    pub fn new(discipline: &'static Discipline, platform: Platform, quota: Quota) -> Self {
        Registry {
            discipline,
            quota,
            reservations: Reservations::new(platform, discipline),
            domains: BTreeMap::new(),
            attached_ever: 0,
            next_order: 0,
        }
    }

    /// Attaches a domain under the lowest free number. O(domains).
    ///
    /// # Errors
    /// See [`AttachError`]; nothing changed.
    pub fn attach(&mut self, owner: Owner, name: &str, policy: &str) -> Result<u32, AttachError> {
        if !self.discipline.is_named(policy) {
            let (found, expected) = (policy.to_owned(), self.discipline.name);
            return Err(AttachError::Policy { found, expected });
        }
        let of_user = self.domains.values().filter(|domain| domain.owner.uid == owner.uid);
        if of_user.count() >= self.quota.domains_max {
            return Err(AttachError::Quota { domains_max: self.quota.domains_max });
        }
        let free = (1..=DOMAINS_MAX).find(|number| !self.domains.contains_key(number));
        let number = free.ok_or(AttachError::Full)?;
        self.attached_ever += 1;
        let generation = self.attached_ever;
        let (name, activities, unclaimed) = (name.to_owned(), BTreeMap::new(), Vec::new());
        self.domains.insert(number, Domain { generation, owner, name, activities, unclaimed });
        Ok(number)
    }

    /// Detaches a domain and releases all its reservations. O(activities) analyses.
    pub fn detach(&mut self, number: u32) -> Option<Domain> {
        let domain = self.domains.remove(&number)?;
        for activity in domain.activities.values() {
            self.reservations.release(activity.reservation);
        }
        Some(domain)
    }

    /// Reserves a place for an activity on the first CPU where the policy's own test passes. With
    /// `unscreened`, even an activity that fails every test gets a place.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing changed.
    pub fn create(
        &mut self,
        number: u32,
        name: &str,
        need: &Need,
        unscreened: bool,
    ) -> Result<Grant, PlaceError> {
        let uid = self.domains.get(&number).ok_or(PlaceError::Gone)?.owner.uid;
        let (params, terms) = parse_need(need)?;
        self.check_quota(uid, &params)?;
        let asked = self.reservations.reserve(name, params, &terms);
        let refused = asked.is_err();
        let reservation = match asked {
            Ok(reservation) => reservation,
            Err(_) if unscreened => self.reservations.reserve_unscreened(name, params, &terms),
            Err(refusal) => return Err(refusal.into()),
        };
        let order = self.next_order;
        self.next_order += 1;
        let name = name.to_owned();
        let Reservation { id, cpu } = reservation;
        let activity = Activity { reservation: id, cpu, name, params, terms, unscreened: refused };
        self.add_activity(number, order, activity)
    }

    /// Sets the first place in the order of admission to `first`, unless a later one was granted.
    pub fn begin_orders_at(&mut self, first: u32) {
        self.next_order = self.next_order.max(first.min(CLAIMED_ORDER_MAX));
    }

    /// Reserves a place for an activity that a former daemon admitted, on the same CPU and with the
    /// same place in the order of admission. The user's quota applies. The CPU's test must pass,
    /// unless the claim is trusted. For a trusted claim it is enough that the CPU is not used
    /// beyond 100 %.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing is reserved. The domain may still show the activity's rank
    /// without a place (`Registry::admitted`), because the activity keeps running.
    pub fn claim(
        &mut self,
        number: u32,
        name: &str,
        need: &Need,
        claimed: Claimed,
    ) -> Result<Grant, PlaceError> {
        let placed = self.claim_place(number, name, need, claimed);
        if placed.is_err()
            && let Ok((params, terms)) = parse_need(need)
            && let Some(domain) = self.domains.get_mut(&number)
            && domain.unclaimed.iter().filter(|(cpu, _)| *cpu == claimed.cpu).count()
                < ACTIVITIES_MAX
        {
            let rank = admitted(self.discipline, u32::MAX, &params, &terms);
            domain.unclaimed.push((claimed.cpu, rank));
        }
        placed
    }

    fn claim_place(
        &mut self,
        number: u32,
        name: &str,
        need: &Need,
        claimed: Claimed,
    ) -> Result<Grant, PlaceError> {
        let uid = self.domains.get(&number).ok_or(PlaceError::Gone)?.owner.uid;
        let Claimed { cpu, order, unscreened, trusted } = claimed;
        let (params, terms) = parse_need(need)?;
        let held = |domain: &Domain| domain.activities.contains_key(&order);
        if order > CLAIMED_ORDER_MAX || self.domains.values().any(held) {
            return Err(PlaceError::Order(order));
        }
        self.check_quota(uid, &params)?;
        let behind = self.domains.values().flat_map(|domain| domain.activities.range(order..));
        let lower_ranked: Vec<_> = behind.map(|(_, activity)| activity.reservation).collect();
        let spot = Spot { cpu, lower_ranked: &lower_ranked };
        let (reservation, refused) = match self.reservations.reserve_at(spot, name, params, &terms)
        {
            Ok(reservation) => (reservation, false),
            Err(Some(refusal)) if !unscreened && !trusted => return Err(refusal.into()),
            Err(_) => {
                let placed = self.reservations.reserve_unscreened_at(spot, name, params, &terms);
                (placed.ok_or(PlaceError::Cpu(cpu))?, unscreened)
            }
        };
        let Reservation { id, cpu } = reservation;
        let loads = self.reservations.load();
        let utilization = loads.iter().find(|load| load.cpu == cpu).map_or(0.0, |l| l.utilization);
        if utilization > 1.0 && !refused {
            self.reservations.release(id);
            return Err(PlaceError::Full { cpu, utilization });
        }
        let name = name.to_owned();
        let activity = Activity { reservation: id, cpu, name, params, terms, unscreened: refused };
        let grant = self.add_activity(number, order, activity)?;
        self.next_order = self.next_order.max(order + 1);
        Ok(grant)
    }

    /// Adds an activity that has its reservation to its domain. On an error it releases the
    /// reservation.
    fn add_activity(
        &mut self,
        number: u32,
        order: u32,
        activity: Activity,
    ) -> Result<Grant, PlaceError> {
        let (id, cpu) = (activity.reservation, activity.cpu);
        let domain = self.domains.get_mut(&number).ok_or(PlaceError::Gone)?;
        if domain.activities.values().filter(|other| other.cpu == cpu).count() >= ACTIVITIES_MAX {
            self.reservations.release(id);
            return Err(PlaceError::TooMany);
        }
        domain.activities.insert(order, activity);
        Ok(Grant { cpu, order, response_max: self.reservations.response_max(id) })
    }

    /// Releases an activity's place. No effect if the domain has no such activity. One analysis.
    pub fn close(&mut self, number: u32, order: u32) {
        let domain = self.domains.get_mut(&number);
        if let Some(activity) = domain.and_then(|domain| domain.activities.remove(&order)) {
            self.reservations.release(activity.reservation);
        }
    }

    /// The limits that admission sets for a domain on a CPU.
    pub fn usage(&self, number: u32, cpu: u32) -> Usage {
        let activities = self.domains.get(&number).into_iter().flat_map(|d| d.activities.values());
        let mut usage = Usage::default();
        for activity in activities.filter(|activity| activity.cpu == cpu) {
            usage.quantum_max = usage.quantum_max.max(activity.params.quantum_cost());
            usage.share_ppm += used_ppm(&activity.params);
            usage.compute += activity.params.compute();
            usage.unscreened |= activity.unscreened;
        }
        usage
    }

    /// The ranks that a domain may show on a CPU. Allocates.
    pub(crate) fn admitted(&self, number: u32, cpu: u32) -> Vec<Admitted> {
        let Some(domain) = self.domains.get(&number) else { return Vec::new() };
        let here = domain.activities.iter().filter(|(_, activity)| activity.cpu == cpu);
        let admitted =
            here.map(|(&order, of)| admitted(self.discipline, order, &of.params, &of.terms));
        let unclaimed = domain.unclaimed.iter().filter(|(at, _)| *at == cpu);
        admitted.chain(unclaimed.map(|(_, rank)| *rank)).collect()
    }

    /// The domain's generation, which distinguishes it from former domains of the same number.
    pub fn generation(&self, number: u32) -> Option<u64> {
        self.domains.get(&number).map(|domain| domain.generation)
    }

    /// The domain's name.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.domains.get(&number).map(|domain| domain.name.as_str())
    }

    /// The domain with this number.
    pub fn domain(&self, number: u32) -> Option<&Domain> {
        self.domains.get(&number)
    }

    /// The activities of a domain, in the order of admission. O(its activities times all).
    pub fn listed(&self, number: u32) -> impl Iterator<Item = Listed<'_>> {
        let activities = self.domains.get(&number).into_iter().flat_map(|d| &d.activities);
        activities.map(|(&order, activity)| Listed {
            order,
            cpu: activity.cpu,
            name: &activity.name,
            params: &activity.params,
            reserved_ppm: used_ppm(&activity.params),
            response_max: self.reservations.response_max(activity.reservation),
            unscreened: activity.unscreened,
        })
    }

    /// The name of the policy.
    pub fn policy(&self) -> &'static str {
        self.discipline.name
    }

    /// The attached domains, by number.
    pub fn domains(&self) -> impl Iterator<Item = (u32, &Domain)> {
        self.domains.iter().map(|(number, domain)| (*number, domain))
    }

    /// The reservations on all CPUs.
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    fn check_quota(&self, uid: u32, params: &ActivityParams) -> Result<(), PlaceError> {
        if uid == 0 {
            return Ok(());
        }
        let of_user = self.domains.values().filter(|domain| domain.owner.uid == uid);
        let there =
            of_user.flat_map(|domain| domain.activities.values()).map(|a| used_ppm(&a.params));
        let found_ppm = there.sum::<u64>() + used_ppm(params);
        let share_max_ppm = self.quota.share_max_ppm;
        match found_ppm <= share_max_ppm {
            true => Ok(()),
            false => Err(PlaceError::Quota { found_ppm, share_max_ppm }),
        }
    }
}

/// The best ranks that an activity may show, by the keys of the discipline.
fn admitted(
    discipline: &Discipline,
    order: u32,
    params: &ActivityParams,
    terms: &Terms,
) -> Admitted {
    Admitted {
        order,
        key_min: discipline.key_min(params, terms),
        delay: discipline.key_delay(params, terms),
        wins_ties: discipline.wins_ties(terms),
    }
}

/// The share of an activity in millionths of a CPU, rounded up.
fn used_ppm(params: &ActivityParams) -> u64 {
    let compute = u128::from(params.compute().as_nanos()) * u128::from(Share::WHOLE.ppm());
    u64::try_from(compute.div_ceil(u128::from(params.period.as_nanos()))).unwrap_or(u64::MAX)
}

/// Reads the numbers of a request and checks their ranges.
fn parse_need(need: &Need) -> Result<(ActivityParams, Terms), PlaceError> {
    let params = ActivityParams {
        period: Span::from_nanos(need.period_ns),
        deadline: Span::from_nanos(need.deadline_ns),
        offset: Span::from_nanos(need.offset_ns),
        batch: need.batch,
        quantum: need.quantum,
        pdu_cost: Span::from_nanos(need.pdu_cost_ns),
    };
    let params = params.validated().map_err(PlaceError::Params)?;
    let class = match need.class {
        0 => WorkClass::RealTime,
        1 => WorkClass::Interactive,
        2 => WorkClass::Background,
        class => return Err(PlaceError::Class(class)),
    };
    let delay_bound = (need.delay_bound_ns > 0).then(|| Span::from_nanos(need.delay_bound_ns));
    let terms = Terms {
        class,
        workahead_max: need.workahead_max,
        delay_bound,
        on_demand: need.on_demand,
        wins_ties: need.wins_ties,
        ..Terms::default()
    };
    Ok((params, terms))
}
