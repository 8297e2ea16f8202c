//! Draws the parts of a scenario: its set, events, changes and faults.

use crate::arrivals::Arrivals;
use crate::chance::Chance;
use crate::execution::Execution;
use crate::fault::{Fault, Window};
use crate::posting::{PostRank, Posting};
use crate::spec::{SimActivity, SplitLevel};
use std::sync::LazyLock;
use upcall_core::activity::{self, ActivityParams, Claim, GroupId, Terms};
use upcall_core::admission::{Platform, ReservationId, Reservations, Share};
use upcall_core::discipline::{self, Discipline};
use upcall_core::policy::ps::{self, Group};
use upcall_core::time::{Instant, Span};

/// Faults begin and heal in this first part of a run.
pub(super) const FAULTY: Span = Span::from_millis(400);

/// The random stream of a scenario.
pub(super) const PURPOSE: u64 = 1 << 48;
/// Separate streams for the steps of the clock, changes of claims, groups, events, overruns,
/// messages, and processes under policies without budgets. Older seeds keep their other draws,
/// because these features were added later.
pub(super) const PURPOSE_CLOCK: u64 = PURPOSE + 1;
pub(super) const PURPOSE_REWEIGHS: u64 = PURPOSE + 2;
pub(super) const PURPOSE_GROUPS: u64 = PURPOSE + 3;
pub(super) const PURPOSE_EVENTS: u64 = PURPOSE + 4;
pub(super) const PURPOSE_DOMAINS: u64 = PURPOSE + 5;
pub(super) const PURPOSE_OVERRUNS: u64 = PURPOSE + 6;
pub(super) const PURPOSE_MESSAGES: u64 = PURPOSE + 7;
pub(super) const PURPOSE_PROCESSES: u64 = PURPOSE + 8;

/// Draws a scenario part by part.
pub(super) struct Generator {
    pub(super) chance: Chance,
    /// Whether domains may die. An activity that is created again comes after the others, so it is
    /// last among equals. Admission counted on its old position. So these sets have no equals.
    pub(super) deaths: bool,
    /// Number of groups, and the stream that assigns activities to them.
    pub(super) groups: Option<(u16, Chance)>,
    /// The stream of events, if the scenario has events.
    pub(super) events: Option<Chance>,
    /// The stream of messages, if some activities are on demand.
    pub(super) messages: Option<Chance>,
}

/// Proportional share with groups of all kinds.
static GROUPED: LazyLock<Vec<Discipline>> = LazyLock::new(|| {
    let share = |percent: u32| Share::from_ppm(percent * 10_000).map(Claim::Share);
    let alone =
        |claim: Option<Claim>| Group { claim: claim.unwrap_or(Claim::Weight(1)), parent: None };
    let within =
        |parent, weight| Group { claim: Claim::Weight(weight), parent: Some(GroupId(parent)) };
    let sets = [
        vec![alone(share(20))],
        vec![alone(Some(Claim::Weight(3))), within(0, 2)],
        vec![alone(share(30)), alone(share(10)), within(0, 1), within(2, 3), alone(None)],
    ];
    let made =
        sets.into_iter().map(|groups| discipline::ps_with_groups(ps::QUANTUM_DEFAULT, groups));
    made.filter_map(Result::ok).collect()
});

impl Generator {
    /// The same discipline, or one with groups if this seed has them.
    pub(super) fn grouped(
        &mut self,
        discipline: &'static Discipline,
        seed: u64,
    ) -> &'static Discipline {
        let mut chance = Chance::new(seed, PURPOSE_GROUPS);
        if discipline.time_quantum != Some(ps::QUANTUM_DEFAULT) || chance.one_in(2) {
            return discipline;
        }
        let places: Vec<_> = (0..GROUPED.len()).collect();
        let grouped = &GROUPED[chance.one_of(&places)];
        self.groups = u16::try_from(grouped.groups.len()).ok().map(|count| (count, chance));
        grouped
    }

    /// A generator of its own for a feature that was added later.
    pub(super) fn of(seed: u64, purpose: u64, deaths: bool) -> Self {
        let chance = Chance::new(seed, purpose);
        Generator { chance, deaths, groups: None, events: None, messages: None }
    }

    /// Draws whether this seed has the next feature.
    pub(super) fn feature(&mut self) -> bool {
        self.chance.one_in(2)
    }

    pub(super) fn up_to(&mut self, most: Span) -> Span {
        Span::from_nanos(self.chance.between(0, most.as_nanos()))
    }

    pub(super) fn span_or_none(&mut self, most: Span) -> Span {
        if self.feature() { self.up_to(most) } else { Span::ZERO }
    }

    fn count(&mut self, least: u32, most: u32) -> u32 {
        let drawn = self.chance.between(u64::from(least), u64::from(most));
        u32::try_from(drawn).unwrap_or(most)
    }

    /// The activities of a random set that admission accepts, with their CPUs.
    pub(super) fn admitted(
        &mut self,
        discipline: &'static Discipline,
        platform: &Platform,
        (faulty, apart): (bool, bool),
    ) -> (Vec<SimActivity>, Reservations, Vec<ReservationId>) {
        let features = Features {
            offsets: self.feature(),
            short_deadlines: self.feature(),
            odd_periods: self.deaths || self.feature(),
            few_pdus: self.feature(),
            cheap_pdus: self.feature(),
            churn: self.feature(),
            windows: self.feature(),
            shares: self.feature(),
        };
        let mut reservations = Reservations::new(platform.clone(), discipline);
        if apart {
            reservations.start_apart();
        }
        let (mut activities, mut ids) = (Vec::new(), Vec::new());
        for number in 0..self.count(1, 12) {
            let mut activity = self.activity(number, features);
            if let Some((count, chance)) = &mut self.groups
                && activity.terms.share.is_none()
                && !chance.one_in(3)
            {
                let group = chance.between(0, u64::from(*count) - 1);
                activity.terms.group = u16::try_from(group).ok().map(GroupId);
                activity.terms.weight = u32::try_from(chance.between(1, 9)).ok();
            }
            self.post(&mut activity);
            self.release_by_messages(&mut activity);
            let mut trial = reservations.clone();
            let asked = trial.reserve(&activity.name, activity.params, &activity.terms);
            if let Ok(reservation) = asked {
                activity.cpu = reservation.cpu;
                // Admission accepts any activity without a promise, and gives the remaining CPU
                // to one that may miss periods. On a full CPU, accumulated work would never finish.
                let promised = trial.response_max(reservation.id).is_some()
                    || (apart && trial.relies_on_windows(reservation.cpu));
                if (faulty || !promised) && !fits(&activities, &activity, platform) {
                    continue;
                }
                reservations = trial;
                activities.push(activity);
                ids.push(reservation.id);
            }
        }
        (activities, reservations, ids)
    }

    fn activity(&mut self, number: u32, features: Features) -> SimActivity {
        let params = self.params(number, features);
        let mut activity = SimActivity::new(format!("a{number}"), params);
        activity.domain = self.count(0, 3);
        let share = features.shares.then(|| self.share(&params));
        let windows = [ONE_OF_TWO, activity::Window { misses: 1, periods: 4 }];
        activity.terms = Terms {
            share: share.flatten(),
            window: features.windows.then(|| self.chance.one_of(&windows)),
            ..Terms::default()
        };
        if features.few_pdus {
            activity.arrivals = self.arrivals(&params);
        }
        if features.cheap_pdus {
            activity.execution = self.execution(params.pdu_cost);
        }
        if features.churn && self.feature() {
            activity.present = self.presence(params.period);
        }
        activity
    }

    /// Gives most activities events, if this seed has any: rare or frequent, with or without
    /// bursts.
    fn post(&mut self, activity: &mut SimActivity) {
        let Some(chance) = &mut self.events else { return };
        if chance.one_in(4) {
            return;
        }
        activity.terms.wins_ties = chance.one_in(2);
        let period = activity.params.period;
        let every = Span::from_nanos(chance.between(period.as_nanos() / 8, 2 * period.as_nanos()));
        let jitter = Span::from_nanos(chance.between(0, period.as_nanos()));
        let arrivals = match chance.between(0, 2) {
            0 => Arrivals::Poisson { mean: every },
            1 => Arrivals::Jittered { every, jitter },
            _ => Arrivals::Bursty { burst: 3, every: every * 3, jitter },
        };
        let rank = match chance.between(0, 2) {
            0 => PostRank::Fixed(chance.between(0, 3)),
            1 => PostRank::Due(period),
            _ => PostRank::Recorded([3, 1, 2].into()),
        };
        activity.posting = Some(Posting { arrivals, rank });
    }

    /// Makes half of the activities on demand, if this seed has such activities.
    fn release_by_messages(&mut self, activity: &mut SimActivity) {
        let Some(chance) = &mut self.messages else { return };
        if chance.one_in(2) {
            return;
        }
        activity.terms.on_demand = true;
        let ActivityParams { period, batch, .. } = activity.params;
        let jitter = Span::from_nanos(chance.between(0, period.as_nanos()));
        // At most the declared rate. Without a promise nothing else limits the rate, and a random
        // excess would take long to finish.
        activity.arrivals = match chance.between(0, 2) {
            0 => Arrivals::Poisson { mean: period * 2 / batch },
            1 => Arrivals::Jittered { every: period / batch, jitter },
            _ => Arrivals::Bursty { burst: batch * 2, every: period * 2, jitter },
        };
    }

    /// Draws event servers with up to the whole remaining share, if the policy supports them.
    pub(super) fn event_servers(
        &mut self,
        platform: &Platform,
        reservations: &mut Reservations,
    ) -> Vec<(u32, Share)> {
        let Some(chance) = &mut self.events else { return Vec::new() };
        let mut servers = Vec::new();
        for &cpu in &platform.cpus {
            let Some(most) = reservations.event_share(cpu).filter(|_| !chance.one_in(3)) else {
                continue;
            };
            let ppm = chance.between(1, u64::from(most.ppm()));
            let share = u32::try_from(ppm).ok().and_then(Share::from_ppm);
            if let Some(share) = share
                && reservations.reserve_events(cpu, Some(share)).is_ok()
            {
                servers.push((cpu, share));
            }
        }
        servers
    }

    /// Draws a share: at least the activity's load, at most twice that.
    fn share(&mut self, params: &ActivityParams) -> Option<Share> {
        let used = u128::from(params.compute().as_nanos()) * 1_000_000;
        let used_ppm = u64::try_from(used.div_ceil(u128::from(params.period.as_nanos()))).ok()?;
        let share_ppm = self.chance.between(used_ppm, 2 * used_ppm);
        u32::try_from(share_ppm).ok().and_then(Share::from_ppm)
    }

    fn params(&mut self, number: u32, features: Features) -> ActivityParams {
        let periods_ms = [5, 7, 8, 10, 12, 15, 20, 24, 30, 40, 60];
        let period = match features.odd_periods {
            // All periods differ.
            true => {
                Span::from_nanos(self.chance.between(4_000, 60_000) * 1_000 + u64::from(number))
            }
            false => Span::from_millis(self.chance.one_of(&periods_ms)),
        };
        let compute_ns = period.as_nanos() * self.chance.between(1, 40) / 100;
        let batch = self.count(1, 8);
        let quantum = self.count(1, batch);
        let cost = Span::from_nanos(compute_ns / u64::from(batch));
        let mut params = ActivityParams::new(period, cost).batch(batch).quantum(quantum);
        if features.short_deadlines {
            let room = period.saturating_sub(params.compute());
            params.deadline = params.compute() + self.up_to(room);
        }
        if features.offsets {
            params.offset = self.up_to(period);
        }
        params
    }

    fn arrivals(&mut self, params: &ActivityParams) -> Arrivals {
        let every = params.period / params.batch;
        match self.count(0, 4) {
            0 => Arrivals::Periodic { every },
            1 => Arrivals::Jittered { every, jitter: self.up_to(params.period) },
            2 => Arrivals::Poisson { mean: every },
            3 => {
                let (burst, jitter) = (params.batch * 2, self.up_to(params.period));
                Arrivals::Bursty { burst, every: params.period * 2, jitter }
            }
            _ => Arrivals::Saturated,
        }
    }

    /// Draws costs that never exceed the declared one.
    fn execution(&mut self, declared: Span) -> Execution {
        match self.count(0, 2) {
            0 => Execution::Uniform { least: self.up_to(declared), most: declared },
            1 => {
                let costs = (0..self.count(1, 9)).map(|_| self.chance.extreme(declared));
                Execution::Recorded(costs.collect::<Vec<_>>().into())
            }
            _ => Execution::Fixed(declared),
        }
    }

    /// Lets some activities take up to five times what they declared. A quantum stays shorter than
    /// a period (docs/decisions/0016). If there are faults, a CPU has enough for the true costs.
    /// Otherwise the work that accumulates would never finish.
    pub(super) fn overrun(
        &mut self,
        activities: &mut [SimActivity],
        platform: &Platform,
        faulty: bool,
    ) {
        if !self.feature() {
            return;
        }
        for place in 0..activities.len() {
            if self.chance.one_in(3) {
                continue;
            }
            let mut more = activities[place].clone();
            let ActivityParams { pdu_cost: declared, period, quantum, .. } = more.params;
            let room = period.saturating_sub(platform.switch_cost * 2) / quantum;
            let most = (declared * 5).min(room);
            if most <= declared {
                continue;
            }
            let most = declared + self.up_to(most.saturating_sub(declared));
            more.execution = match self.count(0, 2) {
                0 => Execution::Fixed(most),
                1 => Execution::Uniform { least: self.up_to(declared), most },
                _ => {
                    let costs = (0..self.count(1, 9)).map(|_| self.chance.extreme(most));
                    Execution::Recorded(costs.collect::<Vec<_>>().into())
                }
            };
            let others: Vec<_> = (0..).zip(&*activities).filter(|(at, _)| *at != place).collect();
            let others = others.into_iter().map(|(_, other)| other);
            if !faulty || fits(others, &more, platform) {
                activities[place] = more;
            }
        }
    }

    /// Draws changes of shares and weights, as admission grants them. A job may then take as long
    /// as the smallest of its owner's shares allows.
    pub(super) fn reweigh(
        &mut self,
        activities: &mut [SimActivity],
        reservations: &mut Reservations,
        ids: &[ReservationId],
        bounds: &mut [Option<Span>],
    ) {
        if activities.is_empty() || self.feature() {
            return;
        }
        let mut times: Vec<_> = (0..self.count(1, 60)).map(|_| self.up_to(FAULTY)).collect();
        times.sort();
        for time in times {
            let place = self.count(0, u32::try_from(activities.len() - 1).unwrap_or(0)) as usize;
            let activity = &mut activities[place];
            let claim = match activity.terms.share {
                Some(_) => self.share(&activity.params).map(Claim::Share),
                None => Some(Claim::Weight(self.count(1, 50))),
            };
            if let Some(claim) = claim
                && reservations.reweigh(ids[place], claim).is_ok()
            {
                activity.reweighs.push((Instant::ZERO + time, claim));
                bounds[place] = bounds[place].max(reservations.response_max(ids[place]));
            }
        }
    }

    /// Draws one or two absences of at least a period.
    fn presence(&mut self, period: Span) -> Vec<Window> {
        let mut windows = Vec::new();
        let mut from = Instant::ZERO + self.span_or_none(period);
        for _ in 0..self.count(1, 2) {
            let until = from + period + self.up_to(FAULTY);
            windows.push(Window { from, until });
            from = until + period + self.up_to(period);
        }
        windows.push(Window { from, until: Instant::FAR });
        windows
    }

    /// Draws one to four faults within the faulty part.
    pub(super) fn faults(&mut self, activities: &[SimActivity], platform: &Platform) -> Vec<Fault> {
        (0..self.count(1, 4))
            .filter_map(|_| {
                let activity = match activities.len() as u64 {
                    0 => return None,
                    len => usize::try_from(self.chance.between(0, len - 1)).unwrap_or(0),
                };
                let short = self.window(Span::from_millis(10));
                let long = self.window(FAULTY / 2);
                let longest = activities.iter().map(|activity| activity.params.period).max();
                Some(match self.count(u32::from(!self.deaths), 4) {
                    1 if self.feature() => {
                        Fault::LateWakeups { window: long, by_max: platform.wakeup_latency }
                    }
                    1 => Fault::LateWakeups { window: short, by_max: Span::from_millis(5) },
                    2 => {
                        let activity = u32::try_from(activity).unwrap_or(0);
                        Fault::NeverYields { activity, window: short }
                    }
                    0 => {
                        // If the domain came back earlier, its jobs would be closer than a period.
                        let until = long.until.max(long.from + longest.unwrap_or(FAULTY));
                        let window = Window { from: long.from, until };
                        Fault::DomainDies { domain: activities[activity].domain, window }
                    }
                    3 => Fault::LostNotifications { window: long, one_in: self.count(1, 3) },
                    _ => Fault::Stall { window: short },
                })
            })
            .collect()
    }

    /// Draws whether domains are processes, and how long one may go on while better activities of
    /// others wait.
    pub(super) fn split_level(&mut self, discipline: &Discipline) -> Option<SplitLevel> {
        if !discipline.keeps_budgets() || !self.feature() {
            return None;
        }
        let most = if discipline.defers_preemption() { Span::from_millis(4) } else { Span::ZERO };
        let defer_preemption = self.span_or_none(most);
        Some(SplitLevel { handoff_cost: Span::ZERO, defer_preemption })
    }

    /// Draws faults that take a handler or a domain away. If domains are processes, each handler
    /// blocks once in a window: the others pay for the rest of one quantum.
    pub(super) fn absences(&mut self, activities: &[SimActivity], split: bool) -> Vec<Fault> {
        let mut faults = Vec::new();
        let Some(last) = activities.len().checked_sub(1) else { return faults };
        let last = u32::try_from(last).unwrap_or(0);
        if self.feature() {
            let (window, activity) = (self.window(Span::from_millis(40)), self.count(0, last));
            let every = if split { u64::MAX } else { self.chance.between(1, 3) };
            let length = self.up_to(Span::from_millis(if split { 60 } else { 3 }));
            faults.push(Fault::HandlerBlocks { activity, window, every, length });
        }
        if split && self.feature() {
            let domain = activities[self.count(0, last) as usize].domain;
            faults.push(Fault::DomainStops { domain, window: self.window(FAULTY / 2) });
        }
        faults
    }

    /// Draws a fault of the clock for half of the scenarios.
    pub(super) fn clock_step(&mut self) -> Option<Fault> {
        if !self.feature() {
            return None;
        }
        let window = self.window(Span::from_millis(30));
        let by = self.chance.extreme(Span::from_millis(40));
        Some(match self.feature() {
            true => Fault::ClockForward { window, by },
            false => Fault::ClockBack { window, by },
        })
    }

    /// Draws a window of at most `most` within the faulty part.
    fn window(&mut self, most: Span) -> Window {
        let from = Instant::ZERO + self.up_to(FAULTY.saturating_sub(most));
        Window { from, until: from + self.up_to(most) }
    }
}

/// The features that the activities of one seed may have.
#[derive(Clone, Copy)]
struct Features {
    offsets: bool,
    short_deadlines: bool,
    odd_periods: bool,
    few_pdus: bool,
    cheap_pdus: bool,
    churn: bool,
    windows: bool,
    shares: bool,
}

/// Whether a CPU has enough for all its activities and one more, each quantum with two hand-offs,
/// whatever was promised.
fn fits<'a>(
    activities: impl IntoIterator<Item = &'a SimActivity>,
    more: &'a SimActivity,
    platform: &Platform,
) -> bool {
    let there = activities.into_iter().filter(|activity| activity.cpu == more.cpu);
    let used_ppm: u64 = there.chain([more]).map(|activity| used_ppm(activity, platform)).sum();
    used_ppm <= u64::from(platform.cpu_limit.ppm())
}

fn used_ppm(activity: &SimActivity, platform: &Platform) -> u64 {
    let params = &activity.params;
    // Each PDU may be a message of its own.
    let quantum = if activity.terms.on_demand { 1 } else { params.quantum };
    let quanta = u64::from(params.batch.div_ceil(quantum));
    let whole = activity.compute_max() + platform.switch_cost.saturating_mul(2 * quanta);
    (whole.as_nanos() * 1_000_000).div_ceil(params.period.as_nanos())
}

pub(super) const ONE_OF_TWO: activity::Window = activity::Window { misses: 1, periods: 2 };
