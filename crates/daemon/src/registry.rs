//! Who is attached, and what they have reserved.
//!
//! Used by the daemon's main thread alone. It decides from numbers: admission over all
//! domains and CPUs is [`Reservations`], quotas are kept here. It makes no system
//! call and touches no page.

use core::fmt;
use std::collections::BTreeMap;

use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::admission::{Platform, Refusal, Reservation, ReservationId, Reservations};
use upcall_core::admission::{Share, Spot};
use upcall_core::discipline::Discipline;
use upcall_core::time::Span;
use upcall_shm::DOMAINS_MAX;
use upcall_shm::wire::Need;

use crate::ranks::Admitted;

#[cfg(test)]
mod tests;

/// Most activities of a domain on one CPU: the slots of its user area.
pub const ACTIVITIES_MAX: usize = upcall_shm::user_area::AREA_SLOTS;

/// What one user may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Domains at a time.
    pub domains_max: usize,
    /// Of the CPUs all together, in millionths of one CPU; root is not bound by it.
    pub share_max_ppm: u64,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The process.
    pub pid: u32,
}

/// A domain that is attached.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Tells it from the one that had its number before.
    pub generation: u64,
    /// Whose it is.
    pub owner: Owner,
    /// For people.
    pub name: String,
    activities: BTreeMap<u32, Activity>,
    /// What it claimed in vain and runs on, last among equals: where, and its rank.
    unclaimed: Vec<(u32, Admitted)>,
}

#[derive(Clone, Debug)]
struct Activity {
    reservation: ReservationId,
    cpu: u32,
    name: String,
    params: ActivityParams,
    terms: Terms,
    /// Admission refused it.
    unscreened: bool,
}

/// An activity with a place, for whoever looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'r> {
    /// Its place in the order of admission.
    pub order: u32,
    /// Where it runs.
    pub cpu: u32,
    /// As its domain calls it.
    pub name: &'r str,
    /// What it needs.
    pub params: &'r ActivityParams,
    /// Of the CPU, in millionths.
    pub reserved_ppm: u64,
    /// Worst response as admitted now; `None` where nothing is promised.
    pub response_max: Option<Span>,
    /// Admission refused it.
    pub unscreened: bool,
}

/// What a domain may use of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The longest time it may go on after it was asked to yield.
    pub quantum_max: Span,
    /// Of the CPU, in millionths.
    pub share_ppm: u64,
    /// One job of each of its activities.
    pub compute: Span,
    /// Some of it admission refused: nothing is promised.
    pub unscreened: bool,
}

/// An activity with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// On this CPU.
    pub cpu: u32,
    /// Its place in the order of admission, and its name.
    pub order: u32,
    /// Worst response as admitted now; `None` where nothing is promised.
    pub response_max: Option<Span>,
}

/// An activity that a domain says it has had since before this daemon was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Where it runs.
    pub cpu: u32,
    /// Its place in the order of admission, as the former daemon granted it.
    pub order: u32,
    /// To be placed even if the tests fail, now as then.
    pub unscreened: bool,
    /// Taken at its word: the CPU's own test need not pass again. What the former
    /// daemon promised stands, though this one may have measured a dearer hand-off, or
    /// have admitted newcomers meanwhile.
    pub trusted: bool,
}

/// No order above this is claimed: there always are fresh ones beyond.
pub const CLAIMED_ORDER_MAX: u32 = 3 << 30;

/// See the module's head.
#[derive(Debug)]
pub struct Registry {
    discipline: &'static Discipline,
    quota: Quota,
    reservations: Reservations,
    /// By number.
    domains: BTreeMap<u32, Domain>,
    attached_ever: u64,
    created_ever: u32,
}

/// Why a domain cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// It counts on another policy.
    Policy {
        /// That one.
        found: String,
        /// The daemon's.
        expected: &'static str,
    },
    /// All numbers are taken.
    Full,
    /// Its user has as many as it may.
    Quota {
        /// That many.
        domains_max: usize,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Policy { found, expected } => {
                write!(f, "the daemon schedules by `{expected}`, the domain counts on `{found}`")
            }
            AttachError::Full => {
                write!(f, "{DOMAINS_MAX} domains are attached, which is all")
            }
            AttachError::Quota { domains_max } => {
                write!(f, "the user has {domains_max} domains, which is its quota")
            }
        }
    }
}

impl core::error::Error for AttachError {}

/// Why an activity gets no place.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PlaceError {
    /// No such domain: it was detached meanwhile.
    Gone,
    /// Numbers outside their ranges.
    Need(String),
    /// Admission said no: the reason, and what would fit.
    Refused {
        /// In a line.
        reason: String,
        /// In a line, or empty.
        hint: String,
    },
    /// Its user would have more of the CPUs than it may.
    Quota {
        /// In millionths of a CPU, with this one.
        found_ppm: u64,
        /// And the most.
        share_max_ppm: u64,
    },
    /// The domain's slots on that CPU are taken.
    TooMany,
    /// It claims a place that somebody has, or that nobody can have had.
    Order(u32),
    /// It claims a place on a CPU that is not scheduled here.
    Cpu(u32),
    /// With what it claims, the CPU would have more to do than it can.
    Full {
        /// That one.
        cpu: u32,
        /// With this one, of 1.
        utilization: f64,
    },
}

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlaceError::Gone => f.write_str("the domain is not attached any more"),
            PlaceError::Need(what) => f.write_str(what),
            PlaceError::Refused { reason, .. } => f.write_str(reason),
            PlaceError::Quota { found_ppm, share_max_ppm } => write!(
                f,
                "the user would have {} % of a CPU, its quota is {} %",
                *found_ppm as f64 / 1e4,
                *share_max_ppm as f64 / 1e4
            ),
            PlaceError::TooMany => {
                write!(f, "the domain has {ACTIVITIES_MAX} activities on the CPU, which is all")
            }
            PlaceError::Order(order) => write!(
                f,
                "place {order} in the order of admission is taken, or above {CLAIMED_ORDER_MAX}"
            ),
            PlaceError::Cpu(cpu) => write!(f, "CPU {cpu} is not among those of the daemon"),
            PlaceError::Full { cpu, utilization } => {
                write!(f, "CPU {cpu} would be used to {:.1} %, expected 100", utilization * 100.0)
            }
        }
    }
}

impl core::error::Error for PlaceError {}

impl From<Refusal> for PlaceError {
    fn from(refusal: Refusal) -> Self {
        let hint = refusal.hint.map(|hint| hint.to_string()).unwrap_or_default();
        PlaceError::Refused { reason: refusal.reason.to_string(), hint }
    }
}

impl PlaceError {
    /// What would fit, in a line, or nothing.
    pub fn hint(&self) -> String {
        match self {
            PlaceError::Refused { hint, .. } => hint.clone(),
            _ => String::new(),
        }
    }
}

impl Registry {
    /// Nobody attached, nothing reserved.
    pub fn new(discipline: &'static Discipline, platform: Platform, quota: Quota) -> Self {
        Registry {
            discipline,
            quota,
            reservations: Reservations::new(platform, discipline),
            domains: BTreeMap::new(),
            attached_ever: 0,
            created_ever: 0,
        }
    }

    /// Gives a domain the lowest free number. O(domains).
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

    /// All that the domain has reserved is free again. O(activities) analyses.
    pub fn detach(&mut self, number: u32) -> Option<Domain> {
        let domain = self.domains.remove(&number)?;
        for activity in domain.activities.values() {
            self.reservations.release(activity.reservation);
        }
        Some(domain)
    }

    /// Reserves a place on the first CPU where the policy's own test passes.
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
        let (params, terms) = wanted(need)?;
        self.check_quota(uid, &params)?;
        let asked = self.reservations.reserve(name, params, &terms);
        let refused = asked.is_err();
        let reservation = match asked {
            Ok(reservation) => reservation,
            Err(_) if unscreened => self.reservations.reserve_unscreened(name, params, &terms),
            Err(refusal) => return Err(refusal.into()),
        };
        let order = self.created_ever;
        self.created_ever += 1;
        let name = name.to_owned();
        let Reservation { id, cpu } = reservation;
        let activity = Activity { reservation: id, cpu, name, params, terms, unscreened: refused };
        self.enter(number, order, activity)
    }

    /// Fresh places in the order of admission begin at `first`, if none was given yet.
    pub fn begin_orders_at(&mut self, first: u32) {
        self.created_ever = self.created_ever.max(first.min(CLAIMED_ORDER_MAX));
    }

    /// Reserves a place for an activity that a former daemon had admitted, just where
    /// it was. Its user's quota binds as ever. The CPU's test must pass, unless the claim
    /// is trusted: then it is enough that the CPU is not used beyond 100 %.
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing is reserved, but what it runs on in no place is no lie
    /// (`Registry::admitted`).
    pub fn claim(
        &mut self,
        number: u32,
        name: &str,
        need: &Need,
        claimed: Claimed,
    ) -> Result<Grant, PlaceError> {
        let placed = self.claim_place(number, name, need, claimed);
        if placed.is_err()
            && let Ok((params, terms)) = wanted(need)
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
        let (params, terms) = wanted(need)?;
        let held = |domain: &Domain| domain.activities.contains_key(&order);
        if order > CLAIMED_ORDER_MAX || self.domains.values().any(held) {
            return Err(PlaceError::Order(order));
        }
        self.check_quota(uid, &params)?;
        let behind = self.domains.values().flat_map(|domain| domain.activities.range(order..));
        let juniors: Vec<_> = behind.map(|(_, activity)| activity.reservation).collect();
        let spot = Spot { cpu, lower_ranked: &juniors };
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
        let grant = self.enter(number, order, activity)?;
        self.created_ever = self.created_ever.max(order + 1);
        Ok(grant)
    }

    /// Notes an activity that has its reservation, or releases it.
    fn enter(&mut self, number: u32, order: u32, activity: Activity) -> Result<Grant, PlaceError> {
        let (id, cpu) = (activity.reservation, activity.cpu);
        let domain = self.domains.get_mut(&number).ok_or(PlaceError::Gone)?;
        if domain.activities.values().filter(|other| other.cpu == cpu).count() >= ACTIVITIES_MAX {
            self.reservations.release(id);
            return Err(PlaceError::TooMany);
        }
        domain.activities.insert(order, activity);
        Ok(Grant { cpu, order, response_max: self.reservations.response_max(id) })
    }

    /// Gives a place back; no effect if the domain has no such. One analysis.
    pub fn close(&mut self, number: u32, order: u32) {
        let domain = self.domains.get_mut(&number);
        if let Some(activity) = domain.and_then(|domain| domain.activities.remove(&order)) {
            self.reservations.release(activity.reservation);
        }
    }

    /// What a domain may use of a CPU, as admitted.
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

    /// Which ranks a domain may show on a CPU. Allocates.
    pub(crate) fn admitted(&self, number: u32, cpu: u32) -> Vec<Admitted> {
        let Some(domain) = self.domains.get(&number) else { return Vec::new() };
        let here = domain.activities.iter().filter(|(_, activity)| activity.cpu == cpu);
        let admitted =
            here.map(|(&order, of)| admitted(self.discipline, order, &of.params, &of.terms));
        let unclaimed = domain.unclaimed.iter().filter(|(at, _)| *at == cpu);
        admitted.chain(unclaimed.map(|(_, rank)| *rank)).collect()
    }

    /// What tells a domain from the one that had its number before.
    pub fn generation(&self, number: u32) -> Option<u64> {
        self.domains.get(&number).map(|domain| domain.generation)
    }

    /// What a domain is called.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.domains.get(&number).map(|domain| domain.name.as_str())
    }

    /// The domain with this number.
    pub fn domain(&self, number: u32) -> Option<&Domain> {
        self.domains.get(&number)
    }

    /// What a domain has, in the order of admission. O(its activities times all).
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

    /// What the policy is called.
    pub fn policy(&self) -> &'static str {
        self.discipline.name
    }

    /// The domains there are, by number.
    pub fn domains(&self) -> impl Iterator<Item = (u32, &Domain)> {
        self.domains.iter().map(|(number, domain)| (*number, domain))
    }

    /// What is reserved on all CPUs.
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

impl Domain {
    /// Order, name and CPU of each of its activities.
    pub fn activities(&self) -> impl Iterator<Item = (u32, &str, u32)> {
        self.activities
            .iter()
            .map(|(order, activity)| (*order, activity.name.as_str(), activity.cpu))
    }
}

/// The best ranks that an activity may have, by the keys of the discipline.
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

/// Millionths of a CPU, rounded up.
fn used_ppm(params: &ActivityParams) -> u64 {
    let compute = u128::from(params.compute().as_nanos()) * u128::from(Share::WHOLE.ppm());
    u64::try_from(compute.div_ceil(u128::from(params.period.as_nanos()))).unwrap_or(u64::MAX)
}

/// What the numbers of a message say, if they are in range.
fn wanted(need: &Need) -> Result<(ActivityParams, Terms), PlaceError> {
    let params = ActivityParams {
        period: Span::from_nanos(need.period_ns),
        deadline: Span::from_nanos(need.deadline_ns),
        offset: Span::from_nanos(need.offset_ns),
        batch: need.batch,
        quantum: need.quantum,
        pdu_cost: Span::from_nanos(need.pdu_cost_ns),
    };
    let params = params.validated().map_err(|error| PlaceError::Need(error.to_string()))?;
    let class = match need.class {
        0 => WorkClass::RealTime,
        1 => WorkClass::Interactive,
        2 => WorkClass::Background,
        class => return Err(PlaceError::Need(format!("class {class}, expected 0, 1 or 2"))),
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
