//! The registry: the attached domains and their reservations.
//!
//! Only the server's thread uses it. The registry decides from numbers: [`Reservations`] tests
//! admission over all domains and CPUs, and the registry enforces quotas. It makes no system call
//! and touches no page.

use std::collections::BTreeMap;

use upcall_core::activity::{ActivityParams, PERIOD_MAX, Terms, Window, WorkClass};
use upcall_core::admission::program::CpuPrograms;
use upcall_core::admission::{Platform, Reason, Refusal, Reservation, ReservationId, Reservations};
use upcall_core::admission::{Share, Spot};
use upcall_core::discipline::{Discipline, DomainOrder};
use upcall_core::time::{Instant, Span};
use upcall_shm::DOMAINS_MAX;
use upcall_shm::user_area::UNRESERVED;
use upcall_shm::wire::Need;

use crate::enforcement::ISOLATION;
use crate::ranks::Admitted;
use domain::Activity;
pub use domain::{Domain, Owner};
pub use error::{AttachError, DefineError, GroupConflict, PlaceError};
use group::KnownGroup;
use limits::ANALYSIS_STEPS_MAX;
pub use limits::{ACTIVITIES_MAX, Quota};
pub use place::{Claimed, Grant, Listed, Parts, Usage};

mod domain;
mod error;
mod events;
mod group;
mod groups;
mod limits;
mod place;
mod quota;
mod shares;
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
    /// The first place that this daemon grants. Former daemons granted those below.
    first_order: u32,
    next_order: u32,
    /// DWCS: when the windows of all activities that have left a CPU are over.
    windows_end: BTreeMap<u32, Instant>,
    /// The users who may run activities that admission refuses. Root may, too.
    soft_users: Vec<u32>,
    /// The shares of each user's programs, in millionths of a CPU.
    programs_ppm: BTreeMap<u32, u64>,
    /// PS: the groups with members, by their numbers in [`Terms::group`].
    groups: Vec<KnownGroup>,
}

impl Registry {
    /// An empty registry: no domain, no reservation.
    pub fn new(discipline: &'static Discipline, platform: Platform, quota: Quota) -> Self {
        let mut reservations = Reservations::new(platform, discipline);
        reservations.limit_steps(ANALYSIS_STEPS_MAX);
        reservations.isolate_users(ISOLATION);
        reservations.start_apart();
        Registry {
            discipline,
            quota,
            reservations,
            domains: BTreeMap::new(),
            attached_ever: 0,
            first_order: 0,
            next_order: 0,
            windows_end: BTreeMap::new(),
            soft_users: Vec::new(),
            programs_ppm: BTreeMap::new(),
            groups: Vec::new(),
        }
    }

    /// Tells what programs have now: of each CPU; and each user's shares, in millionths of a CPU.
    /// Admission and quotas leave that out from now on.
    pub fn set_programs(
        &mut self,
        of_cpus: impl IntoIterator<Item = (u32, CpuPrograms)>,
        of_users: BTreeMap<u32, u64>,
    ) {
        for (cpu, programs) in of_cpus {
            self.reservations.set_programs(cpu, programs);
        }
        self.programs_ppm = of_users;
    }

    /// Sets the users who, beside root, may run activities that admission refuses.
    pub fn allow_unscreened(&mut self, soft_users: Vec<u32>) {
        self.soft_users = soft_users;
    }

    /// Attaches a domain under the lowest free number. O(domains).
    ///
    /// # Errors
    /// See [`AttachError`]; nothing changed.
    pub fn attach(&mut self, owner: Owner, name: &str, policy: &str) -> Result<u32, AttachError> {
        let expected = self.discipline.agreed();
        if policy != expected {
            let found = policy.to_owned();
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
        let (name, activities, events) = (name.to_owned(), BTreeMap::new(), BTreeMap::new());
        let (left, groups) = (Vec::new(), Vec::new());
        let domain = Domain { generation, owner, name, activities, events, left, groups };
        self.domains.insert(number, domain);
        Ok(number)
    }

    /// Detaches a domain at `now` and releases all its reservations. At most two analyses a CPU.
    pub fn detach(&mut self, number: u32, now: Instant) -> Option<Domain> {
        let domain = self.domains.remove(&number)?;
        let places = domain.activities.values().filter_map(|activity| activity.place);
        self.reservations.release_all(&places.collect::<Vec<_>>());
        domain.activities.values().for_each(|of| self.note_window(of, now));
        domain.events.keys().for_each(|&cpu| self.update_events(cpu));
        Some(domain)
    }

    /// Reserves a place for an activity on the first CPU where the policy's own test passes. With
    /// `unscreened`, even an activity that fails every test gets a place, if its user has the
    /// right. It has no reservation then, and its rank must be below all others
    /// ([`Rank::below_all`](upcall_shm::user_area::Rank::below_all)). So it weakens no test. A need
    /// with [`Need::only_cpu`] gets its place on that CPU or none.
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
        let (params, mut terms) = parse_need(need)?;
        terms.group = self.known_group(number, need.group)?;
        self.check_quota(uid, &params, &terms)?;
        let order = self.fresh_order()?;
        let only_cpu = need.only_cpu;
        match self.reserve_where_it_may((number, uid), name, (params, &terms), only_cpu)? {
            Ok(Reservation { id, cpu }) => {
                let (name, place) = (name.to_owned(), Some(id));
                let activity = Activity { place, cpu, name, params, terms, unscreened: false };
                let grant = self.add_activity(number, order, activity)?;
                self.check_group_quota(number, order)?;
                self.next_order = order + 1;
                Ok(grant)
            }
            Err(refusal) if !unscreened => Err(refusal.into()),
            Err(refusal) if !self.may_run_unscreened(uid) => {
                Err(PlaceError::NoRight { uid, refusal: Box::new(refusal) })
            }
            Err(_) => {
                let cpu = only_cpu.unwrap_or_else(|| self.least_used_cpu(number, uid));
                let order = (UNRESERVED..u32::MAX).find(|&order| !self.is_taken(order));
                let order = order.ok_or(PlaceError::OrdersUsedUp)?;
                self.place_below_all((number, uid), name, (cpu, order), (params, terms))
            }
        }
    }

    /// Reserves on the first CPU where the test passes and the domain has a thread, or on
    /// `only_cpu`. Returns the refusal of admission inside.
    fn reserve_where_it_may(
        &mut self,
        (number, uid): (u32, u32),
        name: &str,
        (params, terms): (ActivityParams, &Terms),
        only_cpu: Option<u32>,
    ) -> Result<Result<Reservation, Refusal>, PlaceError> {
        let left = self.domains.get(&number).map_or(&[][..], |domain| &domain.left);
        let may_be_of_others = self.by_accounts() || self.has_events_of_others(uid);
        if left.is_empty() && only_cpu.is_none() && !may_be_of_others {
            return Ok(self.reservations.reserve_for(uid, name, params, terms));
        }
        let cpus: Vec<u32> = match only_cpu {
            Some(cpu) => vec![cpu],
            None => self.reservations.load().iter().map(|load| load.cpu).collect(),
        };
        // A platform has a CPU.
        let mut last = PlaceError::NoThread(cpus[0]);
        for cpu in cpus.into_iter().filter(|cpu| !left.contains(cpu)) {
            if self.is_of_other_user(cpu, uid) {
                last = PlaceError::OtherUser(cpu);
                continue;
            }
            let spot = Spot { cpu, lower_ranked: &[], user: self.user_or_domain(number, uid) };
            last = match self.reservations.reserve_at(spot, name, params, terms) {
                Ok(reservation) => return Ok(Ok(reservation)),
                Err(Some(refusal)) => refusal.into(),
                Err(None) => PlaceError::Cpu(cpu),
            };
        }
        match last {
            PlaceError::Refused(refusal) => Ok(Err(*refusal)),
            error => Err(error),
        }
    }

    /// Places an activity without a reservation. Admission counts one quantum of it, because a
    /// quantum of a worse rank delays the others, if that fits.
    fn place_below_all(
        &mut self,
        (number, uid): (u32, u32),
        name: &str,
        (cpu, order): (u32, u32),
        (params, terms): (ActivityParams, Terms),
    ) -> Result<Grant, PlaceError> {
        if self.is_of_other_user(cpu, uid) {
            return Err(PlaceError::OtherUser(cpu));
        }
        let quantum = ActivityParams::new(PERIOD_MAX, params.quantum_cost());
        let background = Terms { class: WorkClass::Background, ..Terms::default() };
        let spot = Spot { cpu, lower_ranked: &[], user: self.user_or_domain(number, uid) };
        let place = match self.reservations.reserve_at(spot, name, quantum, &background) {
            Ok(reservation) => Some(reservation.id),
            Err(None) => return Err(PlaceError::Cpu(cpu)),
            Err(Some(_)) => None,
        };
        let name = name.to_owned();
        let activity = Activity { place, cpu, name, params, terms, unscreened: true };
        self.add_activity(number, order, activity)
    }

    /// Whether the user may run what admission refuses.
    fn may_run_unscreened(&self, uid: u32) -> bool {
        uid == 0 || self.soft_users.contains(&uid)
    }

    /// The least used CPU where the domain has a thread, and where its user `uid` may have
    /// activities.
    fn least_used_cpu(&self, number: u32, uid: u32) -> u32 {
        let loads = self.reservations.load();
        let has_thread = |cpu: u32| !self.has_left(number, cpu) && !self.is_of_other_user(cpu, uid);
        let here = loads.iter().filter(|load| has_thread(load.cpu));
        let least = here.min_by(|a, b| a.utilization.total_cmp(&b.utilization));
        // A platform has a CPU, and a domain without threads is refused before.
        least.map_or(0, |load| load.cpu)
    }

    /// Sets the first place in the order of admission that this daemon grants. Only places below it
    /// can be claimed. For an empty registry.
    pub fn begin_orders_at(&mut self, first: u32) {
        self.first_order = first;
        self.next_order = first;
    }

    /// The next place in the order of admission. O(activities) once the places were used up.
    fn fresh_order(&self) -> Result<u32, PlaceError> {
        if self.next_order < UNRESERVED {
            return Ok(self.next_order);
        }
        let orders = self.domains.values().flat_map(|domain| domain.activities.keys());
        let last = orders.copied().filter(|&order| order < UNRESERVED).max();
        let next = last.map_or(self.first_order, |last| self.first_order.max(last + 1));
        if next < UNRESERVED { Ok(next) } else { Err(PlaceError::OrdersUsedUp) }
    }

    fn has_left(&self, number: u32, cpu: u32) -> bool {
        self.domains.get(&number).is_some_and(|domain| domain.left.contains(&cpu))
    }

    fn is_taken(&self, order: u32) -> bool {
        self.domains.values().any(|domain| domain.activities.contains_key(&order))
    }

    /// Reserves a place for an activity that a former daemon admitted, on the same CPU and with the
    /// same place in the order of admission. The claim must come in time. The user's quota applies,
    /// and all deadlines on the CPU must be kept. The limit of the CPU may be lower than at the
    /// former daemon, so up to 100 % may be claimed. An activity without a reservation gets its
    /// place as in [`Registry::create`].
    ///
    /// # Errors
    /// See [`PlaceError`]; nothing changed. The activity may run on with a rank below all others,
    /// as any activity may.
    pub fn claim(
        &mut self,
        number: u32,
        name: &str,
        need: &Need,
        claimed: Claimed,
    ) -> Result<Grant, PlaceError> {
        let uid = self.domains.get(&number).ok_or(PlaceError::Gone)?.owner.uid;
        let Claimed { cpu, order, unscreened, in_time } = claimed;
        if !in_time {
            return Err(PlaceError::Late);
        }
        if self.has_left(number, cpu) {
            return Err(PlaceError::NoThread(cpu));
        }
        let (params, mut terms) = parse_need(need)?;
        terms.group = self.known_group(number, need.group)?;
        let is_below_all = unscreened && order >= UNRESERVED && self.may_run_unscreened(uid);
        if (order >= self.first_order && !is_below_all) || self.is_taken(order) {
            return Err(PlaceError::Order(order));
        }
        self.check_quota(uid, &params, &terms)?;
        if is_below_all {
            return self.place_below_all((number, uid), name, (cpu, order), (params, terms));
        }
        let id = self.reserve_claimed((number, uid, name), (cpu, order), params, &terms)?;
        let (name, place) = (name.to_owned(), Some(id));
        let activity = Activity { place, cpu, name, params, terms, unscreened: false };
        let grant = self.add_activity(number, order, activity)?;
        self.check_group_quota(number, order)?;
        Ok(grant)
    }

    fn reserve_claimed(
        &mut self,
        (number, uid, name): (u32, u32, &str),
        (cpu, order): (u32, u32),
        params: ActivityParams,
        terms: &Terms,
    ) -> Result<ReservationId, PlaceError> {
        let behind = self.domains.values().flat_map(|domain| domain.activities.range(order..));
        let lower_ranked: Vec<_> = behind.filter_map(|(_, activity)| activity.place).collect();
        if self.is_of_other_user(cpu, uid) {
            return Err(PlaceError::OtherUser(cpu));
        }
        let spot =
            Spot { cpu, lower_ranked: &lower_ranked, user: self.user_or_domain(number, uid) };
        match self.reservations.reserve_at(spot, name, params, terms) {
            Ok(reservation) => return Ok(reservation.id),
            Err(Some(refusal)) if !matches!(refusal.reason, Reason::OverLimit { .. }) => {
                return Err(refusal.into());
            }
            Err(_) => {}
        }
        let placed = self.reservations.reserve_unscreened_at(spot, name, params, terms);
        let id = placed.ok_or(PlaceError::Cpu(cpu))?.id;
        let loads = self.reservations.load();
        let utilization = loads.iter().find(|load| load.cpu == cpu).map_or(0.0, |l| l.utilization);
        if utilization > 1.0 {
            self.reservations.release(id);
            return Err(PlaceError::Full { cpu, utilization });
        }
        Ok(id)
    }

    /// Adds an activity to its domain. On an error it releases the activity's place.
    fn add_activity(
        &mut self,
        number: u32,
        order: u32,
        activity: Activity,
    ) -> Result<Grant, PlaceError> {
        let Activity { place, cpu, unscreened, .. } = activity;
        let domain = self.domains.get_mut(&number).ok_or(PlaceError::Gone)?;
        if domain.activities.values().filter(|other| other.cpu == cpu).count() >= ACTIVITIES_MAX {
            self.reservations.release_all(place.as_slice());
            return Err(PlaceError::TooMany);
        }
        domain.activities.insert(order, activity);
        let place = place.filter(|_| !unscreened);
        let response_max = place.and_then(|id| self.reservations.response_max(id));
        let not_before = self.not_before(cpu);
        Ok(Grant { cpu, order, response_max, not_before })
    }

    /// Releases an activity's place at `now`. No effect if the domain has no such activity. One
    /// analysis.
    pub fn close(&mut self, number: u32, order: u32, now: Instant) {
        let domain = self.domains.get_mut(&number);
        if let Some(activity) = domain.and_then(|domain| domain.activities.remove(&order)) {
            self.reservations.release_all(activity.place.as_slice());
            self.note_window(&activity, now);
        }
    }

    /// Releases all places of a domain on a CPU where its thread has ended, at `now`. From now on
    /// the domain gets none there. At most two analyses.
    pub fn leave(&mut self, number: u32, cpu: u32, now: Instant) {
        let Some(domain) = self.domains.get_mut(&number) else { return };
        let all = std::mem::take(&mut domain.activities);
        let (here, elsewhere): (BTreeMap<_, _>, _) =
            all.into_iter().partition(|(_, of)| of.cpu == cpu);
        domain.activities = elsewhere;
        domain.left.push(cpu);
        let had_events = domain.events.remove(&cpu).is_some();
        let places: Vec<_> = here.values().filter_map(|activity| activity.place).collect();
        self.reservations.release_all(&places);
        here.values().for_each(|activity| self.note_window(activity, now));
        if had_events {
            self.update_events(cpu);
        }
    }

    /// What the activities of a domain have reserved on a CPU, in millionths of it. As
    /// [`Usage::share_ppm`], except under PS: there it is the sum of its shares.
    pub fn reserved_ppm(&self, number: u32, cpu: u32) -> u64 {
        if !self.by_accounts() {
            return self.usage(number, cpu).share_ppm;
        }
        let here = self.listed(number).filter(|listed| listed.cpu == cpu);
        here.map(|listed| listed.reserved_ppm).sum()
    }

    /// The limits that admission sets for a domain on a CPU.
    pub fn usage(&self, number: u32, cpu: u32) -> Usage {
        let activities = self.domains.get(&number).into_iter().flat_map(|d| d.activities.values());
        let here: Vec<_> = activities.filter(|activity| activity.cpu == cpu).collect();
        let reserves = here.iter().any(|activity| !activity.unscreened);
        let mut usage = Usage { reserves, ..Usage::default() };
        let switch_cost = self.reservations.switch_cost();
        for activity in here {
            if activity.place.is_some() {
                usage.quantum_max = usage.quantum_max.max(activity.params.quantum_cost());
            }
            if !activity.unscreened || !reserves {
                usage.share_ppm += used_ppm(&activity.params);
                usage.compute += activity.params.compute();
            }
            if !activity.unscreened {
                // Admission counts at least one for each job. No more than the job itself counts:
                // jobs of 1 ns would otherwise reserve the CPU time of many hand-offs.
                let hand_offs = switch_cost.min(activity.params.compute());
                usage.hand_offs_ppm += ppm_of(hand_offs, activity.params.period);
                usage.hand_offs += hand_offs;
            }
        }
        let events = self.domains.get(&number).and_then(|domain| domain.events.get(&cpu));
        usage.share_ppm += events.map_or(0, |share| u64::from(share.ppm()));
        usage.reserves |= events.is_some();
        if self.by_accounts() {
            // A domain may use what others leave. The accounts limit all of them together, and
            // leave ordinary programs the part above the limit of the CPU.
            let limit = self.reservations.limit_of(cpu);
            usage.share_ppm = limit.map_or(0, |share| u64::from(share.ppm()));
            usage.hand_offs_ppm = 0;
        }
        usage
    }

    /// The ranks that a domain may show on a CPU. Allocates.
    pub(crate) fn admitted(&self, number: u32, cpu: u32) -> Vec<Admitted> {
        let Some(domain) = self.domains.get(&number) else { return Vec::new() };
        // Requests are no ranks, so an activity without a reservation shows them too.
        let by_accounts = self.by_accounts();
        let reserved =
            |activity: &Activity| activity.cpu == cpu && (by_accounts || !activity.unscreened);
        let here = domain.activities.iter().filter(|(_, activity)| reserved(activity));
        here.map(|(&order, of)| admitted(self.discipline, order, &of.params, &of.terms)).collect()
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
            reserved_ppm: match activity.unscreened {
                true => 0,
                false if self.by_accounts() => own_share_ppm(&activity.terms),
                false => used_ppm(&activity.params),
            },
            response_max: (activity.place.filter(|_| !activity.unscreened))
                .and_then(|id| self.reservations.response_max(id)),
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
}

/// The share of an activity itself, in millionths. A member of a group has none.
fn own_share_ppm(terms: &Terms) -> u64 {
    terms.share.filter(|_| terms.group.is_none()).map_or(0, |share| share.ppm().into())
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
        // Under PS the word of the event shows a lag.
        wins_ties: discipline.wins_ties(terms)
            || discipline.domain_order() == DomainOrder::Accounts,
    }
}

/// The share of an activity in millionths of a CPU, rounded up.
fn used_ppm(params: &ActivityParams) -> u64 {
    ppm_of(params.compute(), params.period)
}

/// What `span` in each `period` is, in millionths of the CPU, rounded up.
fn ppm_of(span: Span, period: Span) -> u64 {
    let parts = u128::from(span.as_nanos()) * u128::from(Share::WHOLE.ppm());
    u64::try_from(parts.div_ceil(u128::from(period.as_nanos()))).unwrap_or(u64::MAX)
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
    if need.share_ppm > Share::WHOLE.ppm() {
        return Err(PlaceError::Portion);
    }
    let delay_bound = (need.delay_bound_ns > 0).then(|| Span::from_nanos(need.delay_bound_ns));
    let terms = Terms {
        class,
        workahead_max: need.workahead_max,
        delay_bound,
        on_demand: need.on_demand,
        wins_ties: need.wins_ties,
        share: Share::from_ppm(need.share_ppm),
        weight: (need.weight > 0).then_some(need.weight),
        window: (need.window_periods > 0)
            .then_some(Window { misses: need.window_misses, periods: need.window_periods }),
        ..Terms::default()
    };
    Ok((params, terms))
}
