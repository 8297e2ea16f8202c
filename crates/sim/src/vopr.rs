//! Random machines, sets and faults from a seed, under every checker.
//!
//! Tests and `upcall sim --vopr N` use this module. Each seed makes one scenario: a machine, a set
//! that admission accepts, models and faults. Every feature is absent in about half of the seeds,
//! so that no feature hides another (Groce et al., "Swarm testing", ISSTA 2012). A seed that fails
//! once always fails. Add it to `tests/vopr.rs` under a name.

use crate::arrivals::Arrivals;
use crate::chance::Chance;
use crate::checkers::{Checkers, Promises, Violation};
use crate::execution::Execution;
use crate::fault::{Fault, Window};
use crate::outcome::Outcome;
use crate::simulation::Simulation;
use crate::spec::{SimActivity, SimSpec, SplitLevel};
use core::fmt;
use generator::{
    FAULTY, Generator, ONE_OF_TWO, PURPOSE, PURPOSE_CLOCK, PURPOSE_DOMAINS, PURPOSE_EVENTS,
    PURPOSE_MESSAGES, PURPOSE_OVERRUNS, PURPOSE_PROCESSES, PURPOSE_REWEIGHS,
};
use upcall_core::activity::{ActivityId, ActivityParams, Terms};
use upcall_core::admission::{Platform, Reservations, Share};
use upcall_core::discipline::{Discipline, DomainOrder};
use upcall_core::scheduler::{Input, Scheduler};
use upcall_core::time::{Instant, Span};

mod generator;

/// The last part of a run has no faults, and everything has settled.
const CALM: Span = Span::from_millis(400);
/// A PS quantum, if the policy has no other (proportional-share-1998 §4.2).
const PS_QUANTUM: Span = Span::from_millis(1);

/// The scenario of one seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The simulation.
    pub spec: SimSpec,
    /// Length of the run.
    pub duration: Span,
    /// The promises that must hold.
    pub promises: Promises,
}

/// Counts over seeds that all passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of seeds.
    pub seeds: u64,
    /// Completed jobs in them.
    pub jobs: u64,
    /// Emitted events in them.
    pub events: u64,
}

/// The first seed that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    /// The seed.
    pub seed: u64,
    /// Name of the policy.
    pub policy: &'static str,
    /// The first violation.
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
/// The first seed that failed, with the violation.
pub fn vopr(
    discipline: &'static Discipline,
    seeds: impl IntoIterator<Item = u64>,
) -> Result<Counts, Failed> {
    let mut counts = Counts::default();
    for seed in seeds {
        let failed = |violation| Failed { seed, policy: discipline.name, violation };
        let outcome = check(scenario(discipline, seed)).map_err(failed)?;
        counts.seeds += 1;
        counts.events += outcome.events;
        counts.jobs += outcome.activities.iter().map(|a| a.counters.completed).sum::<u64>();
    }
    Ok(counts)
}

/// Runs a scenario under every checker.
///
/// # Errors
/// The first violation.
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
    // The models and random tests of the core have messages under the other policies.
    let mut messages = Chance::new(seed, PURPOSE_MESSAGES);
    let has_messages = !discipline.keeps_budgets() && messages.one_in(2);
    let messages = has_messages.then_some(messages);
    let mut generator = Generator { chance, deaths, groups: None, events, messages };
    let mut domains = Generator::of(seed, PURPOSE_DOMAINS, deaths);
    let mut split_level = domains.split_level(discipline);
    let cpu_count = u32::try_from(generator.chance.between(1, 3)).unwrap_or(1);
    let faulty = generator.feature();
    // A nearly full CPU takes very long to finish accumulated work.
    let limit_ppm = generator.chance.one_of(&[500_000, 750_000, 900_000, 1_000_000]);
    let limit_ppm = if faulty { limit_ppm.min(900_000) } else { limit_ppm };
    let platform = Platform {
        cpus: (0..cpu_count).collect(),
        cpu_limit: Share::from_ppm(limit_ppm).unwrap_or(Share::WHOLE),
        switch_cost: generator.span_or_none(Span::from_micros(20)),
        wakeup_latency: generator.span_or_none(Span::from_micros(200)),
        defer_preemption: split_level.map_or(Span::ZERO, |of| of.defer_preemption),
    };
    let discipline = generator.grouped(discipline, seed);
    let mut processes = Generator::of(seed, PURPOSE_PROCESSES, deaths);
    if !discipline.keeps_budgets() && !faulty {
        split_level = processes.feature().then(SplitLevel::default);
    }
    // Domains that are processes align their releases, so they need no common start.
    let apart = split_level.is_some() && discipline.aligns_releases();
    let (mut activities, mut reservations, ids) =
        generator.admitted(discipline, &platform, (faulty, apart));
    if discipline.keeps_budgets() {
        let mut overruns = Generator::of(seed, PURPOSE_OVERRUNS, deaths);
        overruns.overrun(&mut activities, &platform, faulty);
    }
    let mut faults = if faulty { generator.faults(&activities, &platform) } else { Vec::new() };
    if faulty {
        generator.chance = Chance::new(seed, PURPOSE_CLOCK);
        faults.extend(generator.clock_step());
        faults.extend(domains.absences(&activities, split_level.is_some()));
    }
    let settled_after = settled_after(&activities, &faults, &platform);
    let steady = activities.iter().all(|activity| activity.present == [Window::ALWAYS])
        && !faults.iter().any(|fault| matches!(fault, Fault::DomainDies { .. }));
    let event_servers = generator.event_servers(&platform, &mut reservations);
    let is_split = split_level.is_some() && !discipline.keeps_budgets();
    let holds = !needs_common_start(&reservations)
        || (steady && faults.is_empty() && exact(&activities) && !is_split)
        || apart;
    let mut bounds: Vec<_> = ids.iter().map(|&id| reservations.response_max(id)).collect();
    let takes_away = |fault: &&Fault| split_level.is_some() && fault.is_of_one_domain();
    let absences: Vec<_> = faults.iter().filter(takes_away).copied().collect();
    if !absences.is_empty() || !activities.iter().all(SimActivity::keeps_cost) {
        bounds = bounds_beside(&activities, &absences, &platform, discipline);
    }
    if discipline.time_quantum.is_some() {
        let mut generator = Generator::of(seed, PURPOSE_REWEIGHS, deaths);
        generator.reweigh(&mut activities, &mut reservations, &ids, &mut bounds);
    }
    if is_split && discipline.domain_order() == DomainOrder::Accounts {
        // Admission knows no accounts of domains. Its bounds hold for activities that are alone.
        for (place, bound) in bounds.iter_mut().enumerate() {
            *bound = bound.filter(|_| is_alone(&activities, place));
        }
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
        // Admission counts the cost of a hand-off between domains everywhere.
        switch_cost: match split_level {
            Some(_) => domains.up_to(platform.switch_cost),
            None => platform.switch_cost,
        },
        split_level: split_level.map(|of| SplitLevel { handoff_cost: platform.switch_cost, ..of }),
        activities,
        faults,
        event_servers,
        checked: true,
        seed,
    };
    Scenario { spec, duration: FAULTY + settled_after + CALM, promises }
}

/// The bounds of a set beside faults that take domains away (`absences`), and beside activities
/// that take more than declared. An activity that takes more has no bound. Nor has one for which
/// the following is too late.
///
/// The analysis of admission takes the longest quantum, or the wake-up latency, as the time for
/// which work waits before its rank counts. Here more is added:
///
/// - A handler that comes back finishes its quantum before all others, at most once for each fault
///   (docs/decisions/0008).
/// - An activity over its budget may have begun a quantum just before, as one activity at a time
///   may. That quantum may take longer than admission knows.
/// - An activity that takes more than declared, or that has late jobs, costs its budgets and a
///   quantum that ends over budget (docs/decisions/0016). The next budgets pay that quantum, so it
///   counts once.
fn bounds_beside(
    activities: &[SimActivity],
    absences: &[Fault],
    platform: &Platform,
    discipline: &'static Discipline,
) -> Vec<Option<Span>> {
    let domain_of = |fault: &Fault| match *fault {
        Fault::HandlerBlocks { activity, .. } => Some(activities[activity as usize].domain),
        Fault::DomainStops { domain, .. } => Some(domain),
        _ => None,
    };
    let quantum = |of: &SimActivity| {
        of.quantum_max().max(of.params.quantum_cost()) + platform.switch_cost * 2
    };
    let absent: Vec<u32> = absences.iter().filter_map(domain_of).collect();
    let longest_of =
        |domain: &u32| activities.iter().filter(|of| of.domain == *domain).map(quantum).max();
    let returns: Span = absent.iter().filter_map(longest_of).sum();
    let mut late: Vec<bool> =
        activities.iter().map(|of| !of.keeps_cost() || absent.contains(&of.domain)).collect();
    loop {
        let waits = |cpu: u32| {
            let on_cpu = || activities.iter().zip(&late).filter(|(of, _)| of.cpu == cpu);
            let longest = on_cpu().map(|(of, _)| quantum(of)).max().unwrap_or(Span::ZERO);
            let beyond: Span = on_cpu().filter(|(_, late)| **late).map(|(of, _)| quantum(of)).sum();
            platform.wakeup_latency.max(longest) + beyond + returns
        };
        let bound = |place: usize| {
            let cpu = activities[place].cpu;
            let wakeup_latency = waits(cpu);
            let platform = Platform { cpus: vec![cpu], wakeup_latency, ..platform.clone() };
            let mut alone = Reservations::new(platform, discipline);
            let mut own = None;
            for (at, of) in activities.iter().enumerate().filter(|(_, of)| of.cpu == cpu) {
                let granted = alone.reserve(&of.name, of.params, &of.terms).ok()?;
                own = own.or((at == place).then_some(granted.id));
            }
            alone.response_max(own?).filter(|_| activities[place].keeps_cost())
        };
        let bounds: Vec<_> = (0..activities.len()).map(bound).collect();
        let more = bounds.iter().zip(&late).map(|(bound, late)| *late || bound.is_none()).collect();
        if more == late {
            return bounds;
        }
        late = more;
    }
}

/// Whether no other activity of its CPU has the same domain.
fn is_alone(activities: &[SimActivity], place: usize) -> bool {
    let own = &activities[place];
    let same = |of: &&SimActivity| (of.cpu, of.domain) == (own.cpu, own.domain);
    activities.iter().filter(same).count() == 1
}

/// Whether a CPU's set was admitted by simulation from one common start. The promises then hold
/// in the simulated order of events only (`admission::dwcs`).
fn needs_common_start(reservations: &Reservations) -> bool {
    const TESTS: [&str; 3] = ["window-slots", "slot-simulation", "window-simulation"];
    reservations.tests().iter().any(|test| test.deciding && TESTS.contains(&test.name))
}

/// Whether every job finds its whole batch and has the declared cost, and no event changes the
/// order.
fn exact(activities: &[SimActivity]) -> bool {
    activities.iter().all(|activity| {
        activity.posting.is_none()
            && matches!(activity.arrivals, Arrivals::Saturated)
            && activity.execution == Execution::Fixed(activity.params.pdu_cost)
    })
}

/// Whether a policy supports windows, according to the policy itself.
fn keeps_windows(discipline: &Discipline) -> bool {
    let mut scheduler = Scheduler::new(1, discipline);
    let params = ActivityParams::new(Span::from_millis(1), Span::from_micros(1));
    let terms = Terms { window: Some(ONE_OF_TWO), ..Terms::default() };
    let id = ActivityId(0);
    let created = scheduler.handle(Instant::ZERO, Input::Create { id, params, terms });
    created.is_ok() && scheduler.window_violations(id).is_some()
}

/// One quantum: the longest stretch without preemption, including its hand-off. A quarter more if
/// weights change (see `policy::ps`).
fn lag_max(activities: &[SimActivity], platform: &Platform) -> Span {
    let quantum = activities.iter().map(|activity| activity.params.quantum_cost()).max();
    let lag = quantum.unwrap_or(Span::ZERO).max(PS_QUANTUM) + platform.switch_cost;
    let reweighed = activities.iter().any(|activity| !activity.reweighs.is_empty());
    if reweighed { lag + lag / 4 } else { lag }
}

/// An upper bound of the time to finish the work that accumulated while faults broke promises. The
/// bound is the time to do the accumulated work, and the work that comes meanwhile, at the
/// remaining rate.
fn settled_after(activities: &[SimActivity], faults: &[Fault], platform: &Platform) -> Span {
    let breaking = faults.iter().filter(|fault| fault.breaks_promises(platform.wakeup_latency));
    let lost: Span = breaking.map(|fault| fault.window().until.since(fault.window().from)).sum();
    if lost.is_zero() {
        return Span::ZERO;
    }
    let hand_offs = platform.switch_cost * 2;
    let lay: Span = activities.iter().map(|of| of.compute_max() + hand_offs).sum();
    let left_ppm = 1_000_000 - platform.cpu_limit.ppm();
    let work = lost + lay * 2;
    Span::from_nanos(work.saturating_mul(1_000_000).as_nanos() / u64::from(left_ppm.max(1)))
}
