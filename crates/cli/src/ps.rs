//! `upcall ps`: the state of a running daemon, as JSON or as tables.
//!
//! Called by `main`. `upcall top` uses the same words for states. The program that asks is no
//! domain, so it takes no part in scheduling.

use std::path::{Path, PathBuf};

use comfy_table::Table;
use serde::Serialize;
use upcall::status::{
    ActivityState, ActivityStatus, DomainStatus, ProgramStatus, Status, StatusError,
    VirtualProcessorState, VirtualProcessorStatus, status,
};

use crate::exit::Failure;
use crate::show;
use flows::{FlowOutput, OwnedInterfaceOutput};
use packet_quotas::PacketQuotaOutput;
use unreachable::unreachable;

pub mod flows;
pub mod packet_quotas;
#[cfg(test)]
mod tests;
mod unreachable;

/// The output of `--json`. Documented in docs/observing.md.
#[derive(Debug, Serialize)]
pub struct Output {
    policy: String,
    real_time: bool,
    switch_cost_ns: u64,
    cpus: Vec<Cpu>,
    domains: Vec<Domain>,
    programs: Vec<Program>,
    packet_quotas: Vec<PacketQuotaOutput>,
    owned_interfaces: Vec<OwnedInterfaceOutput>,
    flows: Vec<FlowOutput>,
    hidden_domains: u32,
}

#[derive(Debug, Serialize)]
struct Cpu {
    cpu: u32,
    utilization: f64,
    limit: f64,
    used_ns: u64,
}

#[derive(Debug, Serialize)]
struct Domain {
    domain: u32,
    generation: u64,
    name: String,
    pid: u32,
    uid: u32,
    at_ns: u64,
    state: &'static str,
    fault: Option<String>,
    utilization: f64,
    used_ns: u64,
    #[serde(flatten)]
    counters: Counters,
    virtual_processors: Vec<VirtualProcessor>,
    activities: Vec<Activity>,
}

#[derive(Debug, Serialize)]
struct Counters {
    offences: u64,
    handoffs: u64,
    upcalls: u64,
    switches: u64,
    jobs: u64,
    misses: u64,
    pdus: u64,
    slack_ns_min: Option<i64>,
}

#[derive(Debug, Serialize)]
struct VirtualProcessor {
    cpu: u32,
    tid: u32,
    state: &'static str,
    fault: Option<String>,
    utilization: f64,
    /// Under ps.
    part: Option<f64>,
    lag_ns: Option<i64>,
    used_ns: u64,
    #[serde(flatten)]
    counters: Counters,
}

#[derive(Debug, Serialize)]
struct Activity {
    name: String,
    order: u32,
    cpu: u32,
    period_ns: u64,
    deadline_ns: u64,
    batch: u32,
    quantum: u32,
    pdu_cost_ns: u64,
    utilization: f64,
    response_ns_max: Option<u64>,
    admitted: bool,
    state: &'static str,
    next_release_ns: Option<u64>,
    /// Under ps.
    lag_ns: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Program {
    id: u64,
    name: String,
    pid: u32,
    uid: u32,
    cpu: u32,
    share: Option<f64>,
    weight: Option<u32>,
    used_ns: u64,
    processes: u32,
    burst_ns: u64,
    quantum_ns: u64,
    at_ns: u64,
}

/// The daemon's socket: `named`, or the one that this user's programs find.
///
/// # Errors
/// There is no daemon, and another user owns the folder of this user's socket: as one line.
pub fn socket(named: Option<&Path>) -> Result<PathBuf, Failure> {
    match named {
        Some(named) => Ok(named.to_owned()),
        None => upcall::daemon_socket().map_err(failed),
    }
}

fn failed(error: upcall::FolderError) -> Failure {
    Failure::new(format_args!("upcall: {error}")).because(error)
}

/// Asks the daemon for its status.
///
/// # Errors
/// There is no daemon, or it does not reply: as one line.
pub fn fetch_status(socket: &Path) -> Result<Status, Failure> {
    status(socket).map_err(|error| failed_request(socket, error))
}

/// The failure of a request to the daemon at `socket`, as one line.
pub fn failed_request(socket: &Path, error: StatusError) -> Failure {
    match error {
        StatusError::Connect { path, error } => {
            let error = std::io::Error::from_raw_os_error(error.raw_os_error());
            Failure::new(format_args!("upcall: {}", unreachable(&path, &error))).because(error)
        }
        error => Failure::new(format_args!("upcall: {}: {error}", socket.display())).because(error),
    }
}

impl Output {
    pub fn of(status: &Status) -> Self {
        let virtual_processors =
            || status.domains.iter().flat_map(|domain| &domain.virtual_processors);
        let used_ns = |cpu| {
            let there =
                virtual_processors().filter(|virtual_processor| virtual_processor.cpu == cpu);
            there.map(|virtual_processor| virtual_processor.used_ns).fold(0, u64::saturating_add)
        };
        let cpus = status.cpus.iter().map(|cpu| Cpu {
            cpu: cpu.cpu,
            utilization: part(cpu.reserved_ppm),
            limit: part(cpu.limit_ppm),
            used_ns: used_ns(cpu.cpu),
        });
        Output {
            policy: status.policy.clone(),
            real_time: status.real_time,
            switch_cost_ns: status.switch_cost_ns,
            cpus: cpus.collect(),
            domains: status.domains.iter().map(Domain::of).collect(),
            programs: status.programs.iter().map(Program::of).collect(),
            packet_quotas: status.packet_quotas.iter().map(PacketQuotaOutput::of).collect(),
            owned_interfaces: status
                .owned_interfaces
                .iter()
                .map(OwnedInterfaceOutput::of)
                .collect(),
            flows: status.flows.iter().map(FlowOutput::of).collect(),
            hidden_domains: status.hidden_domains,
        }
    }
}

impl Domain {
    fn of(status: &DomainStatus) -> Self {
        Domain {
            domain: status.domain,
            generation: status.generation,
            name: status.name.clone(),
            pid: status.pid,
            uid: status.uid,
            at_ns: status.at_ns,
            state: domain_state(status),
            fault: status.fault().map(str::to_owned),
            utilization: part(status.reserved_ppm()),
            used_ns: status.used_ns(),
            counters: Counters::of(status.counters(), status.offences()),
            virtual_processors: status
                .virtual_processors
                .iter()
                .map(VirtualProcessor::of)
                .collect(),
            activities: status.activities.iter().map(Activity::of).collect(),
        }
    }
}

impl Counters {
    fn of(counters: upcall::status::DomainCounters, offences: u64) -> Self {
        Counters {
            offences,
            handoffs: counters.handoffs,
            upcalls: counters.upcalls,
            switches: counters.switches,
            jobs: counters.jobs,
            misses: counters.misses,
            pdus: counters.pdus,
            slack_ns_min: Some(counters.slack_ns_min).filter(|&ns| ns != i64::MAX),
        }
    }
}

impl VirtualProcessor {
    fn of(status: &VirtualProcessorStatus) -> Self {
        VirtualProcessor {
            cpu: status.cpu,
            tid: status.tid,
            state: virtual_processor_state(status.state),
            fault: Some(status.fault.clone()).filter(|fault| !fault.is_empty()),
            utilization: part(status.reserved_ppm),
            part: status.part_ppm.map(part),
            lag_ns: status.lag_ns,
            used_ns: status.used_ns,
            counters: Counters::of(status.counters, status.offences),
        }
    }
}

impl Activity {
    fn of(status: &ActivityStatus) -> Self {
        let known = |ns: u64| Some(ns).filter(|&ns| ns != u64::MAX);
        Activity {
            name: status.name.clone(),
            order: status.order,
            cpu: status.cpu,
            period_ns: status.period_ns,
            deadline_ns: status.deadline_ns,
            batch: status.batch,
            quantum: status.quantum,
            pdu_cost_ns: status.pdu_cost_ns,
            utilization: part(status.reserved_ppm),
            response_ns_max: known(status.response_ns_max),
            admitted: !status.unscreened,
            state: activity_state(status.state),
            next_release_ns: known(status.next_release_ns),
            lag_ns: status.lag_ns,
        }
    }
}

impl Program {
    fn of(status: &ProgramStatus) -> Self {
        let given = |number: u32| Some(number).filter(|&number| number > 0);
        Program {
            id: status.id,
            name: status.name.clone(),
            pid: status.pid,
            uid: status.uid,
            cpu: status.cpu,
            share: given(status.share_ppm).map(|ppm| part(ppm.into())),
            weight: given(status.weight),
            used_ns: status.used_ns,
            processes: status.processes,
            burst_ns: status.burst_ns,
            quantum_ns: status.quantum_ns,
            at_ns: status.at_ns,
        }
    }
}

/// The status as tables: one of CPUs, one of domains, one of activities, and one of programs, one
/// of packet quotas and one of flows if there are any.
pub fn tables(status: &Status) -> String {
    let (cpus, domains, activities) = (cpus(status), domains(status), activities(status));
    let programs = match status.programs.is_empty() {
        true => String::new(),
        false => format!("\n{}\n", programs(status)),
    };
    let quotas = match status.packet_quotas.as_slice() {
        [] => String::new(),
        quotas => format!("\n{}\n", packet_quotas::table(quotas)),
    };
    let flows = flows::text(&status.owned_interfaces, &status.flows);
    let (policy, cost) = (show::visible(&status.policy), show::span(status.switch_cost_ns));
    let hidden = hidden(status).map_or_else(String::new, |line| format!("\n{line}\n"));
    format!(
        "{cpus}\n\npolicy: {policy}\nhand-off cost: {cost}\n\n{domains}\n\n{activities}\n{programs}\
         {quotas}{flows}{hidden}"
    )
}

fn cpus(status: &Status) -> Table {
    let mut cpus = show::table(&["CPU", "reserved", "limit"], 0);
    for cpu in &status.cpus {
        let (reserved, limit) = (percent(cpu.reserved_ppm), percent(cpu.limit_ppm));
        cpus.add_row([cpu.cpu.to_string(), reserved, limit]);
    }
    cpus
}

fn domains(status: &Status) -> Table {
    let header = [
        "domain",
        "name",
        "state",
        "PID",
        "UID",
        "reserved",
        "CPU time",
        "offences",
        "turns passed",
        "upcalls",
        "switches",
        "ended",
        "missed",
        "worst slack",
        "lag",
    ];
    let shown = shown_columns(&header, status);
    let mut domains = show::table(shown, 3);
    for domain in &status.domains {
        let counters = domain.counters();
        let cells = [
            domain.domain.to_string(),
            show::visible(&domain.name),
            domain_state(domain).to_owned(),
            domain.pid.to_string(),
            domain.uid.to_string(),
            percent(domain.reserved_ppm()),
            show::span(domain.used_ns()),
            domain.offences().to_string(),
            counters.handoffs.to_string(),
            counters.upcalls.to_string(),
            counters.switches.to_string(),
            counters.jobs.to_string(),
            counters.misses.to_string(),
            slack(counters.slack_ns_min),
            lag(domain.lag_ns()),
        ];
        domains.add_row(cells.into_iter().take(shown.len()));
    }
    domains
}

fn activities(status: &Status) -> Table {
    let header = [
        "activity", "domain", "state", "CPU", "period", "deadline", "batch", "cost", "reserved",
        "next", "lag",
    ];
    let shown = shown_columns(&header, status);
    let mut activities = show::table(shown, 3);
    for (domain, activity) in activities_of(status) {
        let cells = [
            show::visible(&activity.name),
            show::visible(&domain.name),
            activity_state(activity.state).to_owned(),
            activity.cpu.to_string(),
            show::span(activity.period_ns),
            show::span(activity.deadline_ns),
            activity.batch.to_string(),
            show::span(activity.pdu_cost_ns),
            percent(activity.reserved_ppm),
            release_in(domain, activity),
            lag(activity.lag_ns),
        ];
        activities.add_row(cells.into_iter().take(shown.len()));
    }
    activities
}

/// The columns without the last one, the lag, if nothing has a lag.
fn shown_columns<'h, 'c>(header: &'h [&'c str], status: &Status) -> &'h [&'c str] {
    if has_lags(status) { header } else { &header[..header.len() - 1] }
}

/// Whether the policy of the daemon has lags.
pub fn has_lags(status: &Status) -> bool {
    upcall::discipline::by_name(&status.policy).is_some_and(upcall::discipline::Discipline::has_lag)
}

/// A lag as text: the CPU time that is owed, negative if it was had in advance.
pub fn lag(lag_ns: Option<i64>) -> String {
    lag_ns.map_or_else(|| "-".to_owned(), slack)
}

fn programs(status: &Status) -> Table {
    let header = [
        "program",
        "name",
        "PID",
        "UID",
        "CPU",
        "share",
        "weight",
        "CPU time",
        "processes",
        "quantum",
    ];
    let mut programs = show::table(&header, 2);
    for program in &status.programs {
        let or_dash = |number: u32, shown: String| match number {
            0 => "-".to_owned(),
            _ => shown,
        };
        programs.add_row([
            program.id.to_string(),
            show::visible(&program.name),
            program.pid.to_string(),
            program.uid.to_string(),
            program.cpu.to_string(),
            or_dash(program.share_ppm, percent(program.share_ppm.into())),
            or_dash(program.weight, program.weight.to_string()),
            show::span(program.used_ns),
            program.processes.to_string(),
            show::span(program.quantum_ns),
        ]);
    }
    programs
}

/// A line about the domains that are not shown; `None` if all are shown.
pub fn hidden(status: &Status) -> Option<String> {
    let (domains, are) = match status.hidden_domains {
        0 => return None,
        1 => ("1 domain".to_owned(), "is"),
        count => (format!("{count} domains"), "are"),
    };
    Some(format!(
        "{domains} of other users {are} not shown: only root and the daemon's user see all"
    ))
}

/// Each activity with its domain.
pub fn activities_of(status: &Status) -> impl Iterator<Item = (&DomainStatus, &ActivityStatus)> {
    let domains = status.domains.iter();
    domains.flat_map(|domain| domain.activities.iter().map(move |activity| (domain, activity)))
}

/// The state of a domain, in one word.
pub fn domain_state(domain: &DomainStatus) -> &'static str {
    match (domain.fault(), domain.state()) {
        (Some(_), _) => "fault",
        (None, Some(state)) => virtual_processor_state(state),
        (None, None) => "attaching",
    }
}

fn virtual_processor_state(state: VirtualProcessorState) -> &'static str {
    match state {
        VirtualProcessorState::Attached => "attached",
        VirtualProcessorState::Blocked => "blocked",
        VirtualProcessorState::Stopped => "stopped",
        VirtualProcessorState::Demoted => "demoted",
    }
}

/// The state of an activity, in one word.
pub fn activity_state(state: ActivityState) -> &'static str {
    match state {
        ActivityState::Free => "unknown",
        ActivityState::Suspended => "suspended",
        ActivityState::Waiting => "waiting",
        ActivityState::Ready => "ready",
        ActivityState::Running => "running",
    }
}

/// The time from the domain's status to the next release.
pub fn release_in(domain: &DomainStatus, activity: &ActivityStatus) -> String {
    match activity.next_release_ns {
        u64::MAX => "-".to_owned(),
        at_ns => show::span(at_ns.saturating_sub(domain.at_ns)),
    }
}

/// A share of a CPU for people.
pub fn percent(ppm: u64) -> String {
    format!("{:.1} %", ppm as f64 / 1e4)
}

/// The least slack, or `-` if no job has ended yet.
pub fn slack(ns: i64) -> String {
    if ns == i64::MAX { "-".to_owned() } else { show::slack(ns) }
}

fn part(ppm: u64) -> f64 {
    ppm as f64 / 1e6
}
