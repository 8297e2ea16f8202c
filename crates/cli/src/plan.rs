//! `upcall plan`: maps and admits the activities of a spec.
//!
//! `run` uses the same plan, so a run does what `plan` prints.

use upcall::activity::{ActivityParams, GroupId, Terms};
use upcall::admission::{
    Hint, Platform, Refusal, Reservation, ReservationId, Reservations, Share, TestResult,
};
use upcall::discipline::{self, Discipline, DomainOrder};
use upcall::net::Quota;
use upcall::policy::ps;
use upcall::qos::mapping::BULK_DELAY;
use upcall::qos::{MapError, Mapping, StreamSpec, map};
use upcall::time::Span;
use upcall::work::Work;

use crate::exit::Failure;
use crate::output::{self, Promise};
use crate::spec::{Activity, Direction, Spec, Stream, SwitchCost};
use crate::stream::flow::receive_quota;

/// A spec with every number filled in, and the result of admission.
#[derive(Debug)]
pub struct Plan<'s> {
    pub activities: Vec<Planned<'s>>,
    pub platform: Platform,
    pub discipline: &'static Discipline,
    pub output: output::Plan,
    /// Whether a daemon can schedule the plan, with each domain as a process.
    pub takes_daemon: bool,
    /// Why a daemon would refuse the set, where one process may admit more.
    pub refused_by_daemon: Option<String>,
    /// Optional activities that were refused and are not among `activities`.
    pub left_out: Vec<output::Refusal>,
}

/// One mapped activity.
#[derive(Clone, Debug)]
pub struct Planned<'s> {
    pub activity: Activity<'s>,
    /// The mapping, if the activity is a stream.
    pub mapping: Option<Mapping>,
    pub params: ActivityParams,
    pub terms: Terms,
    /// Whether the cost was measured because the spec declares none.
    pub cost_measured: bool,
    /// The CPU it runs on. For a refused activity: the CPU it would run on without admission.
    pub cpu: u32,
    pub refused: bool,
    pub response_max: Option<Span>,
    /// What admission promises to it.
    pub promise: Promise,
    /// The time from a release to the deadline that is judged.
    pub deadline: Span,
}

impl<'s> Planned<'s> {
    pub fn name(&self) -> &'s str {
        self.activity.name()
    }

    pub fn domain(&self) -> &'s str {
        self.activity.domain_name()
    }

    /// The window `x/y`, if windows are promised.
    pub fn window(&self) -> Option<String> {
        let window = self.terms.window.filter(|_| self.promise == Promise::Windows)?;
        Some(format!("{}/{}", window.misses, window.periods))
    }

    /// The stream and its mapping, if the activity is a stream.
    pub fn stream(&self) -> Option<(&'s Stream, &Mapping)> {
        match (self.activity, &self.mapping) {
            (Activity::Stream(stream), Some(mapping)) => Some((stream, mapping)),
            _ => None,
        }
    }
}

/// How a spec is planned.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanOptions {
    /// Whether refused activities are placed as well.
    pub soft: bool,
    /// A policy in place of the spec's.
    pub policy: Option<&'static Discipline>,
    /// Plan for virtual time. The plan measures nothing and asks no machine, so the same spec gives
    /// the same plan everywhere.
    pub virtual_time: bool,
    /// In virtual time: how long a domain may go on while better activities of others wait. Above 0
    /// only with a policy that allows it and several domains.
    pub defer_preemption: Span,
}

/// Maps and admits the activities of a spec.
///
/// # Errors
/// A CPU that does not exist, or a stream without a mapping. Each error names its place in the
/// file.
pub fn plan<'s>(spec: &'s Spec, options: PlanOptions) -> Result<Plan<'s>, Failure> {
    let discipline = discipline(spec, options.policy)?;
    if !discipline.aligns_releases() {
        return plan_for(spec, options, discipline, true);
    }
    // A daemon refuses some sets that one process admits. Then the domains are one process.
    let mut refused_by_daemon = None;
    if has_domains(spec) || !spec.interfaces().is_empty() {
        let plan = plan_for(spec, options, discipline, true)?;
        let Some(refusal) = plan.output.refusals.first() else { return Ok(plan) };
        refused_by_daemon = Some(format!("`{}`: {}", refusal.name, refusal.reason));
    }
    Ok(Plan { refused_by_daemon, ..plan_for(spec, options, discipline, false)? })
}

/// The plan for a daemon, or for one process.
fn plan_for<'s>(
    spec: &'s Spec,
    options: PlanOptions,
    discipline: &'static Discipline,
    takes_daemon: bool,
) -> Result<Plan<'s>, Failure> {
    let platform = match options.virtual_time {
        true => virtual_platform(spec, deferral(spec, discipline, options.defer_preemption)?),
        false => platform(spec, takes_daemon)?,
    };
    let mut activities = Vec::new();
    for activity in spec.activities() {
        let measure = if options.virtual_time { Measure::Never } else { Measure::Undeclared };
        activities.push(map_activity(spec, activity, platform.switch_cost, measure)?);
    }
    set_promises(&mut activities, discipline);
    let mut reservations = Reservations::new(platform.clone(), discipline);
    let domains = domains_with_accounts(&activities, discipline, takes_daemon);
    if !domains.is_empty() || (takes_daemon && discipline.aligns_releases()) {
        reservations.start_apart();
    }
    let Placed { reservations, held, refusals, refused_tests } =
        place_all(&mut activities, reservations, &domains, options.soft);
    let mut tests = reservations.tests();
    for (planned, id) in activities.iter_mut().zip(&held) {
        planned.response_max = id.and_then(|id| reservations.response_max(id));
    }
    // A refused activity shows the failed tests of its CPU in place of the passed ones. An optional
    // one does not, because the set without it is the set that runs.
    for refused in &refused_tests {
        tests.retain(|test| test.cpu != refused.cpu);
    }
    tests.extend(refused_tests);
    let output = output(discipline, &platform, &reservations, &activities, &held, tests, refusals);
    let left_out = Vec::new();
    let refused_by_daemon = None;
    Ok(Plan { activities, platform, discipline, output, takes_daemon, refused_by_daemon, left_out })
}

/// What admission says of all activities.
struct Placed {
    reservations: Reservations,
    /// The reservation of each activity that has one.
    held: Vec<Option<ReservationId>>,
    refusals: Vec<output::Refusal>,
    /// The tests that refused activities failed.
    refused_tests: Vec<TestResult>,
}

/// The CPUs that admission tries for an activity.
#[derive(Clone, Copy)]
enum Target {
    /// All of them, in order, for the domain of this number; 0: domains do not matter.
    FirstFit(u32),
    /// That of another activity. `None`: the other one was refused.
    CpuOf(Option<ReservationId>),
}

/// The domains, if they will be processes with accounts, whose activities share a part of the CPU.
fn domains_with_accounts(
    activities: &[Planned<'_>],
    discipline: &Discipline,
    takes_daemon: bool,
) -> Vec<String> {
    let mut domains: Vec<_> = activities.iter().map(|each| each.domain().to_owned()).collect();
    domains.sort_unstable();
    domains.dedup();
    let have_accounts =
        takes_daemon && discipline.domain_order() == DomainOrder::Accounts && domains.len() > 1;
    if have_accounts { domains } else { Vec::new() }
}

/// Admits one activity after the other. With `soft`, refused ones are placed as well. `domains`:
/// the domains that have accounts.
fn place_all(
    activities: &mut [Planned<'_>],
    reservations: Reservations,
    domains: &[String],
    soft: bool,
) -> Placed {
    let mut all =
        Placed { reservations, held: Vec::new(), refusals: Vec::new(), refused_tests: Vec::new() };
    for at in 0..activities.len() {
        let (before, rest) = activities.split_at_mut(at);
        let planned = &mut rest[0];
        // The spec was checked: the one that is named comes before.
        let is_named = |each: &Planned<'_>| planned.activity.same_cpu_as() == Some(each.name());
        let named = before.iter().position(is_named);
        let domain = domains.iter().position(|domain| domain == planned.domain());
        // As the daemon numbers its domains: from 1 on.
        let first_fit =
            Target::FirstFit(domain.map_or(0, |at| u32::try_from(at + 1).unwrap_or(u32::MAX)));
        let target = named.map_or(first_fit, |named| Target::CpuOf(all.held[named]));
        match reserve(&mut all.reservations, planned, planned.params, target) {
            Ok(reservation) => {
                planned.cpu = reservation.cpu;
                all.held.push(Some(reservation.id));
            }
            Err(refusal) => {
                planned.refused = true;
                all.refuse(planned, target, refusal);
                // The runtime does the same when its admission is off.
                let mut unscreened = all.reservations.clone();
                let placed = reserve_unscreened(&mut unscreened, planned, target);
                let cpu_of_named = named.map_or(0, |named| before[named].cpu);
                planned.cpu = placed.map_or(cpu_of_named, |placed| placed.cpu);
                all.held.push(placed.map(|placed| placed.id).filter(|_| soft));
                if soft {
                    all.reservations = unscreened;
                }
            }
        }
    }
    all
}

impl Placed {
    /// Notes a refusal; `None`: the activity whose CPU it must be on was refused.
    fn refuse(&mut self, planned: &Planned<'_>, target: Target, refusal: Option<Refusal>) {
        let (name, optional) = (planned.name().to_owned(), planned.activity.is_optional());
        let Some(refusal) = refusal else {
            let other = planned.activity.same_cpu_as().unwrap_or_default();
            let reason = format!("it must be on the CPU of `{other}`, which is refused");
            self.refusals.push(output::Refusal { name, reason, hint: None, optional });
            return;
        };
        let reason = refusal.reason.to_string();
        let hint = hint(planned, &refusal, &self.reservations, target);
        self.refusals.push(output::Refusal { name, reason, hint, optional });
        if !optional {
            self.refused_tests.extend(refusal.tests);
        }
    }
}

/// Asks admission for a place with these parameters. An error without a refusal: the activity whose
/// CPU it must be on was refused.
fn reserve(
    reservations: &mut Reservations,
    planned: &Planned<'_>,
    params: ActivityParams,
    target: Target,
) -> Result<Reservation, Option<Refusal>> {
    let (name, terms) = (planned.name(), &planned.terms);
    match target {
        Target::FirstFit(domain) => {
            reservations.reserve_for(domain, name, params, terms).map_err(Some)
        }
        Target::CpuOf(Some(other)) => reservations.reserve_on_cpu_of(other, name, params, terms),
        Target::CpuOf(None) => Err(None),
    }
}

/// A place without the tests. `None`: the activity whose CPU it must be on has none.
fn reserve_unscreened(
    reservations: &mut Reservations,
    planned: &Planned<'_>,
    target: Target,
) -> Option<Reservation> {
    let (name, params, terms) = (planned.name(), planned.params, &planned.terms);
    match target {
        Target::FirstFit(_) => Some(reservations.reserve_unscreened(name, params, terms)),
        Target::CpuOf(other) => {
            reservations.reserve_unscreened_on_cpu_of(other?, name, params, terms)
        }
    }
}

impl<'s> Plan<'s> {
    /// The domains, in the order in which the file first names them.
    pub fn domains(&self) -> Vec<&'s str> {
        let mut domains = Vec::new();
        for domain in self.activities.iter().map(Planned::domain) {
            if !domains.contains(&domain) {
                domains.push(domain);
            }
        }
        domains
    }

    /// Whether each domain is a process with a scheduler of its own.
    pub fn is_split(&self) -> bool {
        self.takes_daemon && self.domains().len() > 1
    }

    /// Whether admission accepted every activity of this plan.
    pub fn is_admitted(&self) -> bool {
        self.left_out.len() == self.output.refusals.len()
    }

    /// The plan without refused optional activities: the set that a scheduler with admission runs.
    pub fn without_refused(&self) -> Self {
        let is_out = |planned: &&Planned<'_>| planned.refused && planned.activity.is_optional();
        let refusals = self.output.refusals.iter();
        Plan {
            activities: self.activities.iter().filter(|each| !is_out(each)).cloned().collect(),
            platform: self.platform.clone(),
            discipline: self.discipline,
            output: self.output.clone(),
            takes_daemon: self.takes_daemon,
            refused_by_daemon: self.refused_by_daemon.clone(),
            left_out: refusals.filter(|refusal| refusal.optional).cloned().collect(),
        }
    }
}

/// Maps the plan of another process again, with the PDU costs and switch cost that the other
/// process found. Measures and admits nothing.
///
/// # Errors
/// The errors of [`plan`], if the spec is not the same.
pub fn mapped<'s>(
    spec: &'s Spec,
    pdu_costs: &[Span],
    switch_cost: Span,
) -> Result<Vec<Planned<'s>>, Failure> {
    let activities = spec.activities();
    if activities.len() != pdu_costs.len() {
        let (found, expected) = (pdu_costs.len(), activities.len());
        return Err(Failure::new(format_args!("found {found} costs, expected {expected}")));
    }
    let each = activities.into_iter().zip(pdu_costs);
    let mapped = each
        .map(|(activity, &cost)| map_activity(spec, activity, switch_cost, Measure::Known(cost)));
    let mut mapped: Vec<_> = mapped.collect::<Result<_, _>>()?;
    set_promises(&mut mapped, spec.policy);
    Ok(mapped)
}

/// Notes what `discipline` promises to each activity, and the deadline by which it is judged.
fn set_promises(activities: &mut [Planned<'_>], discipline: &Discipline) {
    for planned in activities {
        planned.deadline = discipline.relative_deadline(&planned.params, &planned.terms);
        planned.promise = match discipline.promise(&planned.terms) {
            discipline::Promise::Deadlines => Promise::Deadlines,
            discipline::Promise::Windows(_) => Promise::Windows,
            discipline::Promise::Nothing => Promise::Nothing,
        };
    }
}

/// The policy on the command line, or the spec's.
///
/// # Errors
/// The groups of the spec or their names are invalid.
pub fn discipline(
    spec: &Spec,
    policy: Option<&'static Discipline>,
) -> Result<&'static Discipline, Failure> {
    let known = policy.unwrap_or(spec.policy);
    let differs = spec.time_quantum != ps::QUANTUM_DEFAULT || !spec.groups.is_empty();
    if known.takes_groups() && differs {
        let names = spec.groups.iter().map(|group| group.name.clone()).collect();
        let made = discipline::ps_with_groups(spec.time_quantum, groups(spec))
            .and_then(|made| made.naming_groups(names))
            .map_err(Failure::of_error)?;
        // Leaked once in a run of the command, which needs the policy until it ends.
        return Ok(Box::leak(Box::new(made)));
    }
    Ok(known)
}

/// The groups of the spec; each group comes after its parent.
fn groups(spec: &Spec) -> Vec<ps::Group> {
    let place = |name: &String| {
        let at = spec.groups.iter().position(|group| group.name == *name)?;
        u16::try_from(at).ok().map(GroupId)
    };
    let claimed = |group: &crate::spec::Group| ps::Group {
        claim: group.claim,
        parent: group.parent.as_ref().and_then(place),
    };
    spec.groups.iter().map(claimed).collect()
}

/// The CPUs of the spec, or CPU 0. Switches are free unless the spec says what they cost.
fn virtual_platform(spec: &Spec, defer_preemption: Span) -> Platform {
    let mut cpus = spec.cpus.clone().unwrap_or_else(|| vec![0]);
    cpus.truncate(cpu_count(spec));
    Platform {
        cpus,
        cpu_limit: Share::from_ppm(spec.cpu_limit_ppm).unwrap_or(Share::CPU_LIMIT_DEFAULT),
        switch_cost: match spec.switch_cost {
            SwitchCost::Auto => Span::ZERO,
            SwitchCost::Fixed(cost) => cost,
        },
        wakeup_latency: spec.wakeup_latency,
        defer_preemption,
    }
}

/// The deferral of preemption, if the spec and the policy allow it.
///
/// # Errors
/// The policy defers nothing, or there is only one domain.
fn deferral(spec: &Spec, discipline: &Discipline, deferral: Span) -> Result<Span, Failure> {
    if !deferral.is_zero() && !discipline.defers_preemption() {
        return Err(Failure::new(format_args!(
            "--defer-preemption: found policy {}, expected rmdp",
            discipline.name
        )));
    }
    if !deferral.is_zero() && !has_domains(spec) {
        return Err(Failure::new("--defer-preemption: found one domain, expected several"));
    }
    Ok(deferral)
}

/// Most CPUs that the plan uses.
fn cpu_count(spec: &Spec) -> usize {
    spec.cpu_count.and_then(|count| count.try_into().ok()).unwrap_or(usize::MAX)
}

fn platform(spec: &Spec, takes_daemon: bool) -> Result<Platform, Failure> {
    let allowed = upcall::allowed_cpus().map_err(Failure::of_error)?;
    let mut cpus = match &spec.cpus {
        Some(cpus) => cpus.clone(),
        None => upcall::default_cpus().map_err(Failure::of_error)?,
    };
    if let Some(at) = cpus.iter().position(|cpu| !allowed.contains(cpu)) {
        let cpu = cpus[at];
        let span = spec.cpu_spans.get(at).cloned().unwrap_or_default();
        return Err(Failure::of_error(spec.source.error_at(
            span,
            "cpus",
            &format!("CPU {cpu}"),
            &format!("CPUs this process may use, {allowed:?}"),
        )));
    }
    cpus.truncate(cpu_count(spec));
    let switch_cost = switch_cost(spec, takes_daemon, &cpus)?;
    Ok(Platform {
        cpus,
        cpu_limit: Share::from_ppm(spec.cpu_limit_ppm).unwrap_or(Share::CPU_LIMIT_DEFAULT),
        switch_cost,
        wakeup_latency: spec.wakeup_latency,
        defer_preemption: Span::ZERO,
    })
}

/// The switch cost in mode upcall: what a running daemon charges. Without one it is the cost
/// between processes if the spec has several domains, as the daemon that `run` starts will charge
/// it.
fn switch_cost(spec: &Spec, takes_daemon: bool, cpus: &[u32]) -> Result<Span, Failure> {
    if takes_daemon
        && let Ok(socket) = upcall::daemon_socket()
        && let Ok(status) = upcall::status::status(&socket)
    {
        return Ok(Span::from_nanos(status.switch_cost_ns));
    }
    match spec.switch_cost {
        SwitchCost::Fixed(cost) => Ok(cost),
        SwitchCost::Auto if takes_daemon && has_domains(spec) => {
            let cpu = cpus.first().copied().unwrap_or_default();
            let band = upcall::RealTime::granted().ok().map(|real_time| real_time.band);
            upcall_daemon::calibrate::handoff_cost(cpu, band).map_err(Failure::of_error)
        }
        SwitchCost::Auto => Ok(upcall::switch_cost()),
    }
}

/// Whether the spec names more than one domain.
fn has_domains(spec: &Spec) -> bool {
    let domains: Vec<_> = spec.activities().iter().map(|each| each.domain_name()).collect();
    domains.iter().any(|domain| *domain != domains[0])
}

/// How the cost of a stream's PDU is found.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// Measured if the spec declares none.
    Undeclared,
    /// The spec must declare it.
    Never,
    /// Another process already found it.
    Known(Span),
}

fn map_activity<'s>(
    spec: &'s Spec,
    activity: Activity<'s>,
    switch_cost: Span,
    measure: Measure,
) -> Result<Planned<'s>, Failure> {
    match activity {
        Activity::Task(task) => Ok(Planned {
            activity,
            mapping: None,
            params: task.params,
            terms: task.terms,
            cost_measured: false,
            cpu: 0,
            refused: false,
            response_max: None,
            promise: Promise::Deadlines,
            deadline: task.params.deadline,
        }),
        Activity::Stream(stream) => map_stream(spec, stream, switch_cost, measure),
    }
}

/// Maps a stream, at the cost that `measure` finds.
fn map_stream<'s>(
    spec: &'s Spec,
    stream: &'s Stream,
    switch_cost: Span,
    measure: Measure,
) -> Result<Planned<'s>, Failure> {
    let measured = match (stream.cost, measure) {
        (Some(_), _) | (None, Measure::Never) => None,
        (None, Measure::Known(cost)) => Some(cost),
        (None, Measure::Undeclared) => {
            Work::calibrate(stream.work, stream.pdu_bytes, upcall::thread_cpu_ns)
                .map(|measured| measured.cost)
        }
    };
    let cost = stream.cost.or(measured);
    let Some(cost) = cost else {
        return Err(Failure::of_error(spec.source.error_in(
            &stream.place,
            "cost",
            "nothing",
            "the CPU time of a PDU: this work has no sample to measure it by",
        )));
    };
    let mapping = mapping(stream, &stream.stream_spec(cost), switch_cost).map_err(|error| {
        Failure::new(spec.source.error_in(
            &stream.place,
            error.key(),
            &error.to_string(),
            "a stream that can be mapped",
        ))
        .because(error)
    })?;
    Ok(Planned {
        activity: Activity::Stream(stream),
        params: mapping.params,
        terms: Terms {
            workahead_max: stream.workahead,
            backlog: stream.backlog.unwrap_or(stream.class.backlog()),
            ..stream_terms(&mapping.params)
        },
        mapping: Some(mapping),
        cost_measured: measured.is_some(),
        cpu: 0,
        refused: false,
        response_max: None,
        promise: Promise::Deadlines,
        deadline: mapping.params.deadline,
    })
}

/// The mapping of a stream; one that sends is paced.
fn mapping(stream: &Stream, spec: &StreamSpec, switch_cost: Span) -> Result<Mapping, MapError> {
    let mapping = map(spec, switch_cost)?;
    Ok(match &stream.direction {
        Direction::Receive(_) => mapping,
        Direction::Send(_) => mapping.paced(),
    })
}

/// The terms of a stream for policies that need more than parameters. The share is the stream's
/// utilization and half of that again. With a share of exactly C/T a job takes its whole period or
/// more (module head of `admission::ps`).
pub fn stream_terms(params: &ActivityParams) -> Terms {
    let compute = u128::from(params.compute().as_nanos());
    let share_ppm = (compute * 1_500_000).div_ceil(u128::from(params.period.as_nanos()));
    let share = u32::try_from(share_ppm.min(1_000_000)).ok().and_then(Share::from_ppm);
    Terms { share, ..Terms::default() }
}

fn output(
    discipline: &Discipline,
    platform: &Platform,
    reservations: &Reservations,
    activities: &[Planned<'_>],
    held: &[Option<ReservationId>],
    tests: Vec<TestResult>,
    refusals: Vec<output::Refusal>,
) -> output::Plan {
    output::Plan {
        admitted: refusals.iter().all(|refusal| refusal.optional),
        policy: discipline.name,
        cpus: reservations
            .load()
            .iter()
            .map(|load| output::Cpu {
                cpu: load.cpu,
                utilization: load.utilization,
                limit: load.limit,
            })
            .collect(),
        activities: activities
            .iter()
            .zip(held)
            .map(|(planned, id)| planned_output(planned, id.is_some()))
            .collect(),
        tests: tests
            .into_iter()
            .map(|test| output::Test {
                name: test.name,
                cpu: test.cpu,
                passed: test.passed,
                value: test.value.is_finite().then_some(test.value),
                bound: test.bound,
                deciding: test.deciding,
            })
            .collect(),
        refusals,
        switch_cost_ns: platform.switch_cost.as_nanos(),
        wakeup_latency_ns: platform.wakeup_latency.as_nanos(),
    }
}

/// One change that would fit, in the words of the spec. A stream has neither period nor deadline
/// but a delay, which both come from.
fn hint(
    planned: &Planned<'_>,
    refusal: &Refusal,
    reservations: &Reservations,
    target: Target,
) -> Option<String> {
    let found = refusal.hint.as_ref()?;
    let Some((stream, _)) = planned.stream() else { return Some(found.to_string()) };
    let of_delay = |hint: &Hint| {
        matches!(hint, Hint::Period { .. } | Hint::Deadline { .. } | Hint::DelayBound { .. })
    };
    if !of_delay(found) {
        return Some(found.to_string());
    }
    let asked = stream.stream_spec(planned.params.pdu_cost);
    let from = asked.delay.unwrap_or(BULK_DELAY);
    // Tries a quarter more at a time up to twice the delay, then whole multiples of it.
    let quarters = (5..=8).chain((3..=10).map(|times| times * 4));
    let fits = quarters.map(|quarters| from * quarters / 4).find(|&to| {
        let spec = StreamSpec { delay: Some(to), ..asked };
        mapping(stream, &spec, reservations.switch_cost()).is_ok_and(|mapping| {
            reserve(&mut reservations.clone(), planned, mapping.params, target).is_ok()
        })
    });
    fits.map(|to| format!("a delay of {to} instead of {from} would fit"))
}

fn planned_output(planned: &Planned<'_>, placed: bool) -> output::PlannedActivity {
    let params = &planned.params;
    let mapping = planned.mapping.as_ref();
    let direction = planned.stream().map(|(stream, _)| stream.direction.parts());
    let address = |of: &str| {
        let (_, address) = direction.filter(|(key, _)| *key == of)?;
        Some(address.to_string())
    };
    let quota = planned.stream().and_then(|(stream, mapping)| receive_quota(stream, mapping));
    output::PlannedActivity {
        name: planned.name().to_owned(),
        domain: planned.domain().to_owned(),
        cpu: placed.then_some(planned.cpu),
        period_ns: params.period.as_nanos(),
        deadline_ns: planned.deadline.as_nanos(),
        batch: params.batch,
        quantum: params.quantum,
        pdu_cost_ns: params.pdu_cost.as_nanos(),
        compute_ns: params.compute().as_nanos(),
        response_ns_max: planned.response_max.map(Span::as_nanos),
        buffer_bytes: mapping.map_or(0, |mapping| mapping.buffer_bytes),
        bandwidth_bps: mapping.map_or(0, |mapping| mapping.bandwidth_bps),
        cost_measured: planned.cost_measured,
        buffers: mapping.map_or(0, |mapping| mapping.buffers),
        delay_ns_max: mapping.map(|mapping| mapping.delay_max.as_nanos()),
        group: match planned.activity {
            Activity::Task(task) => task.group.clone(),
            Activity::Stream(_) => None,
        },
        same_cpu_as: planned.activity.same_cpu_as().map(str::to_owned),
        receive: address("receive"),
        send: address("send"),
        packet_quota: quota
            .map(|Quota { interval_ns, depth, .. }| output::PacketQuota { interval_ns, depth }),
    }
}
