//! Random machines, sets and faults from one number, and every checker on
//! them.
//!
//! Called by tests and by `upcall sim --vopr N`. Each seed makes one scenario:
//! a machine, a set that admission takes, models and faults. Every feature is
//! left out of about half of the seeds, so that no one hides another (Groce et
//! al., "Swarm testing", ISSTA 2012). A seed that fails fails again, and belongs
//! into `tests/vopr.rs` under a name.

use crate::arrivals::Arrivals;
use crate::chance::Chance;
use crate::checkers::{Checkers, Promises, Violation};
use crate::execution::Execution;
use crate::fault::{Fault, Window};
use crate::outcome::Outcome;
use crate::posting::{PostRank, Posting};
use crate::simulation::Simulation;
use crate::spec::{SimActivity, SimSpec};
use core::fmt;
use std::sync::LazyLock;
use upcall_core::activity::{self, ActivityId, ActivityParams, Claim, GroupId, Terms};
use upcall_core::admission::{Platform, ReservationId, Reservations, Share};
use upcall_core::discipline::{self, Discipline};
use upcall_core::policy::ps::{self, Group};
use upcall_core::scheduler::{Input, Scheduler};
use upcall_core::time::{Instant, Span};

/// Faults begin and heal in this first part of a run.
const FAULTY: Span = Span::from_millis(400);
/// Nothing is wrong in this last part, and everything has settled.
const CALM: Span = Span::from_millis(400);
/// A PS quantum, where the policy has no other (proportional-share-1998 §4.2).
const PS_QUANTUM: Span = Span::from_millis(1);
/// A scenario's purpose of chance.
const PURPOSE: u64 = 1 << 48;
/// Apart from it, so that older seeds keep the rest: the clock's steps, who is reweighed,
/// which groups there are, and what events.
const PURPOSE_CLOCK: u64 = PURPOSE + 1;
const PURPOSE_REWEIGHS: u64 = PURPOSE + 2;
const PURPOSE_GROUPS: u64 = PURPOSE + 3;
const PURPOSE_EVENTS: u64 = PURPOSE + 4;

/// What one seed makes.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// To be simulated.
    pub spec: SimSpec,
    /// For so long.
    pub duration: Span,
    /// And this must hold.
    pub promises: Promises,
}

/// Seeds that all passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many.
    pub seeds: u64,
    /// Jobs completed in them.
    pub jobs: u64,
    /// Events told in them.
    pub events: u64,
}

/// The first seed that did not pass.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Which.
    pub seed: u64,
    /// Under which policy.
    pub policy: &'static str,
    /// What was broken first.
    pub violation: Violation,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} under {}: {}", self.seed, self.policy, self.violation)
    }
}

impl core::error::Error for Failed {}

/// Checks the scenario of each seed in turn.
///
/// # Errors
/// The first seed that failed, and how.
pub fn vopr(
    discipline: &'static Discipline,
    seeds: impl IntoIterator<Item = u64>,
) -> Result<Tally, Failed> {
    let mut tally = Tally::default();
    for seed in seeds {
        let failed = |violation| Failed { seed, policy: discipline.name, violation };
        let outcome = check(scenario(discipline, seed)).map_err(failed)?;
        tally.seeds += 1;
        tally.events += outcome.events;
        tally.jobs += outcome.activities.iter().map(|a| a.counters.completed).sum::<u64>();
    }
    Ok(tally)
}

/// Runs a scenario under every checker.
///
/// # Errors
/// What was broken first.
pub fn check(scenario: Scenario) -> Result<Outcome, Violation> {
    let Scenario { spec, duration, promises } = scenario;
    let at_start = |what| Violation { checker: "spec", at: Instant::ZERO, what };
    let mut checkers = Checkers::all(&spec, &promises);
    let simulation = Simulation::new(spec).map_err(|error| at_start(error.to_string()))?;
    let outcome = simulation.run(duration, &mut |event| checkers.event(event));
    checkers.finish(outcome.end)?;
    Ok(outcome)
}

/// The scenario of a seed, the same on every machine.
pub fn scenario(discipline: &'static Discipline, seed: u64) -> Scenario {
    let mut chance = Chance::new(seed, PURPOSE);
    let deaths = chance.one_in(2);
    let mut events = Chance::new(seed, PURPOSE_EVENTS);
    let events = events.one_in(2).then_some(events);
    let mut maker = Maker { chance, deaths, groups: None, events };
    let cpu_count = u32::try_from(maker.chance.between(1, 3)).unwrap_or(1);
    let faulty = maker.feature();
    // What is nearly full takes very long to work off what piled up.
    let limit_ppm = maker.chance.one_of(&[500_000, 750_000, 900_000, 1_000_000]);
    let limit_ppm = if faulty { limit_ppm.min(900_000) } else { limit_ppm };
    let platform = Platform {
        cpus: (0..cpu_count).collect(),
        cpu_limit: Share::from_ppm(limit_ppm).unwrap_or(Share::WHOLE),
        switch_cost: maker.span_or_none(Span::from_micros(20)),
        wakeup_latency: maker.span_or_none(Span::from_micros(200)),
        defer_preemption: Span::ZERO,
    };
    let discipline = maker.grouped(discipline, seed);
    let (mut activities, mut reservations, ids) = maker.admitted(discipline, &platform, faulty);
    let mut faults = if faulty { maker.faults(&activities, &platform) } else { Vec::new() };
    if faulty {
        maker.chance = Chance::new(seed, PURPOSE_CLOCK);
        faults.extend(maker.clock_step());
    }
    let settled_after = settled_after(&activities, &faults, &platform);
    let steady = activities.iter().all(|activity| activity.present == [Window::ALWAYS])
        && !faults.iter().any(|fault| matches!(fault, Fault::DomainDies { .. }));
    let event_servers = maker.event_servers(&platform, &mut reservations);
    let holds = !as_played(&reservations) || (steady && faults.is_empty() && exact(&activities));
    let mut bounds: Vec<_> = ids.iter().map(|&id| reservations.response_max(id)).collect();
    if discipline.time_quantum.is_some() {
        let chance = Chance::new(seed, PURPOSE_REWEIGHS);
        let mut maker = Maker { chance, deaths, groups: None, events: None };
        maker.reweigh(&mut activities, &mut reservations, &ids, &mut bounds);
    }
    let promises = Promises {
        response_max: bounds.into_iter().map(|bound| bound.filter(|_| holds)).collect(),
        wakeup_latency: platform.wakeup_latency,
        lag_max: steady.then(|| lag_max(&activities, &platform)),
        windows: keeps_windows(discipline) && holds,
        settled_after,
    };
    let spec = SimSpec {
        discipline,
        cpus: platform.cpus.clone(),
        switch_cost: platform.switch_cost,
        activities,
        faults,
        event_servers,
        checked: true,
        seed,
    };
    Scenario { spec, duration: FAULTY + settled_after + CALM, promises }
}

/// Whether a CPU's set was admitted because it was played through from one common
/// start: what is promised holds as played, and in no other order of events
/// (`admission::dwcs`).
fn as_played(reservations: &Reservations) -> bool {
    const PLAYED: [&str; 3] = ["window-slots", "slot-simulation", "window-simulation"];
    reservations.tests().iter().any(|test| test.deciding && PLAYED.contains(&test.name))
}

/// Whether every job has all it may have, costs what was declared, and goes in its turn.
fn exact(activities: &[SimActivity]) -> bool {
    activities.iter().all(|activity| {
        activity.posting.is_none()
            && matches!(activity.arrivals, Arrivals::Saturated)
            && matches!(activity.execution, Execution::Fixed(cost) if cost == activity.params.pdu_cost)
    })
}

/// Whether a policy minds windows: asked of the policy itself.
fn keeps_windows(discipline: &Discipline) -> bool {
    let mut scheduler = Scheduler::new(1, discipline);
    let params = ActivityParams::new(Span::from_millis(1), Span::from_micros(1));
    let terms = Terms { window: Some(ONE_OF_TWO), ..Terms::default() };
    let id = ActivityId(0);
    let created = scheduler.handle(Instant::ZERO, Input::Create { id, params, terms });
    created.is_ok() && scheduler.window_violations(id).is_some()
}

/// Whether a CPU has enough for all that is on it and one more, each quantum
/// with two hand-offs, whatever was promised.
fn fits(activities: &[SimActivity], more: &SimActivity, platform: &Platform) -> bool {
    let there = activities.iter().filter(|activity| activity.cpu == more.cpu);
    let used_ppm: u64 = there.chain([more]).map(|activity| used_ppm(activity, platform)).sum();
    used_ppm <= u64::from(platform.cpu_limit.ppm())
}

fn used_ppm(activity: &SimActivity, platform: &Platform) -> u64 {
    let params = &activity.params;
    let quanta = u64::from(params.batch.div_ceil(params.quantum));
    let whole = params.compute() + platform.switch_cost.saturating_mul(2 * quanta);
    (whole.as_nanos() * 1_000_000).div_ceil(params.period.as_nanos())
}

const ONE_OF_TWO: activity::Window = activity::Window { misses: 1, periods: 2 };

/// One quantum: the longest stretch that nothing interrupts, its hand-off included. A
/// quarter more where weights change (`policy::ps` says why).
fn lag_max(activities: &[SimActivity], platform: &Platform) -> Span {
    let quantum = activities.iter().map(|activity| activity.params.quantum_cost()).max();
    let lag = quantum.unwrap_or(Span::ZERO).max(PS_QUANTUM) + platform.switch_cost;
    let reweighed = activities.iter().any(|activity| !activity.reweighs.is_empty());
    if reweighed { lag + lag / 4 } else { lag }
}

/// How long it takes at most to work off what piled up while faults broke
/// promises: what lay there and what came meanwhile, at the rate that is left.
fn settled_after(activities: &[SimActivity], faults: &[Fault], platform: &Platform) -> Span {
    let breaking = faults.iter().filter(|fault| fault.breaks_promises(platform.wakeup_latency));
    let lost: Span = breaking.map(|fault| fault.window().until.since(fault.window().from)).sum();
    if lost.is_zero() {
        return Span::ZERO;
    }
    let hand_offs = platform.switch_cost * 2;
    let lay: Span = activities.iter().map(|activity| activity.params.compute() + hand_offs).sum();
    let left_ppm = 1_000_000 - platform.cpu_limit.ppm();
    let work = lost + lay * 2;
    Span::from_nanos(work.saturating_mul(1_000_000).as_nanos() / u64::from(left_ppm.max(1)))
}

/// Draws a scenario, part by part.
struct Maker {
    chance: Chance,
    /// Whether domains may die. Who is born again is created after the others,
    /// and then the last among equals; admission took it for what it was. So
    /// such sets have no equals.
    deaths: bool,
    /// How many groups there are, and who is in which.
    groups: Option<(u16, Chance)>,
    /// Whether there are events, and which.
    events: Option<Chance>,
}

/// Proportional share with groups, of all kinds.
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

impl Maker {
    /// The same discipline, or one with groups if this seed has them.
    fn grouped(&mut self, discipline: &'static Discipline, seed: u64) -> &'static Discipline {
        let mut chance = Chance::new(seed, PURPOSE_GROUPS);
        if discipline.time_quantum != Some(ps::QUANTUM_DEFAULT) || chance.one_in(2) {
            return discipline;
        }
        let places: Vec<_> = (0..GROUPED.len()).collect();
        let grouped = &GROUPED[chance.one_of(&places)];
        self.groups = u16::try_from(grouped.groups.len()).ok().map(|count| (count, chance));
        grouped
    }

    /// Whether this seed has the next feature.
    fn feature(&mut self) -> bool {
        self.chance.one_in(2)
    }

    fn up_to(&mut self, most: Span) -> Span {
        Span::from_nanos(self.chance.between(0, most.as_nanos()))
    }

    fn span_or_none(&mut self, most: Span) -> Span {
        if self.feature() { self.up_to(most) } else { Span::ZERO }
    }

    fn count(&mut self, least: u32, most: u32) -> u32 {
        let drawn = self.chance.between(u64::from(least), u64::from(most));
        u32::try_from(drawn).unwrap_or(most)
    }

    /// What admission takes of a random set, with its CPUs.
    fn admitted(
        &mut self,
        discipline: &'static Discipline,
        platform: &Platform,
        faulty: bool,
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
            let mut trial = reservations.clone();
            let asked = trial.reserve(&activity.name, activity.params, &activity.terms);
            if let Ok(reservation) = asked {
                activity.cpu = reservation.cpu;
                // Who is promised nothing is taken whatever it wants, and who may
                // miss periods takes what there is; with all that the CPU has, what
                // piled up would never be worked off.
                let promised = trial.response_max(reservation.id).is_some();
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

    /// Events, if this seed has any, for most: rare or many, in bursts or not.
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

    /// Event servers with up to all that is left, where the policy has any.
    fn event_servers(
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

    /// Of the CPU, at least what it uses, and up to twice that.
    fn share(&mut self, params: &ActivityParams) -> Option<Share> {
        let used = u128::from(params.compute().as_nanos()) * 1_000_000;
        let used_ppm = u64::try_from(used.div_ceil(u128::from(params.period.as_nanos()))).ok()?;
        let share_ppm = self.chance.between(used_ppm, 2 * used_ppm);
        u32::try_from(share_ppm).ok().and_then(Share::from_ppm)
    }

    fn params(&mut self, number: u32, features: Features) -> ActivityParams {
        let periods_ms = [5, 7, 8, 10, 12, 15, 20, 24, 30, 40, 60];
        let period = match features.odd_periods {
            // No two alike.
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

    /// Never dearer than declared.
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

    /// Shares and weights that change now and then, as admission grants it. A job may
    /// then take as long as the smallest of its owner's shares allows.
    fn reweigh(
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

    /// Away once or twice, for a period at least.
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

    /// One to four faults within the faulty part.
    fn faults(&mut self, activities: &[SimActivity], platform: &Platform) -> Vec<Fault> {
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
                        // Born again sooner, its jobs would come closer than a period.
                        let until = long.until.max(long.from + longest.unwrap_or(FAULTY));
                        let window = Window { from: long.from, until };
                        Fault::DomainDies { domain: activities[activity].domain, window }
                    }
                    3 => Fault::LostDoorbells { window: long, one_in: self.count(1, 3) },
                    _ => Fault::Stall { window: short },
                })
            })
            .collect()
    }

    /// The clock goes wrong, in one of two scenarios.
    fn clock_step(&mut self) -> Option<Fault> {
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

    /// A window of at most `most` within the faulty part.
    fn window(&mut self, most: Span) -> Window {
        let from = Instant::ZERO + self.up_to(FAULTY.saturating_sub(most));
        Window { from, until: from + self.up_to(most) }
    }
}

/// What the activities of one seed may have.
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
