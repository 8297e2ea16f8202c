//! Each domain of a plan in a process of its own: under a daemon, or where the kernel
//! decides without one.
//!
//! ```text
//!   (1) processes started, sockets bound --> (2) daemon --> (3) started --> (4) created,
//!   one by one in the order of the file --> (5) run --> (6) senders stopped, drained, merged
//! ```
//!
//! Up to (5) a process that fails ends the whole; from then on it costs only its own
//! part, and the run is reported as broken. The daemon ranks equals in the order of
//! admission, so (4) makes ties go to the activity that stands first in the file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use upcall::Mode;
use upcall::clock;
use upcall::time::{Instant, Span};
use upcall_cli::standard_error::say;

use super::load::Load;
use super::message::{FromDomain, Setup, ToDomain};
use super::process::{Process, out_of_place};
use super::steal::steal_ns;
use super::{
    LEAD, Measured, Missing, Order, POLL_EVERY, Part, Row, daemon, domains, drain_time, say_class,
};
use crate::csv::JobLog;
use crate::exit::Failure;
use crate::live::Live;
use crate::plan::{Plan, Planned};
use crate::spec::Spec;
use crate::trace::TraceFile;
use crate::{outcome, output};

/// How long a process may take beyond the drain to say how it went.
const DONE_WITHIN: Span = Span::from_secs(60);

/// The processes of a run, and what is known of it.
struct Parent<'p, 's> {
    plan: &'p Plan<'s>,
    order: Order,
    processes: Vec<Process>,
    /// Where each activity's process is among these.
    homes: Vec<usize>,
    rows: Vec<Row>,
    /// What each process did, once it said so.
    parts: Vec<Option<Part>>,
    notices: Vec<String>,
    missing: Missing,
    broken: Vec<String>,
    /// The daemon is this run's own, and says itself what its watchdog does.
    own_daemon: bool,
    log: &'p mut Option<JobLog>,
    trace: &'p mut Option<TraceFile>,
}

/// See [`super::run`].
///
/// # Errors
/// Something could not be set up; nothing is left running.
pub fn run(
    spec: &Spec,
    plan: &Plan<'_>,
    order: Order,
    files: (&mut Option<JobLog>, &mut Option<TraceFile>),
    interrupted: &AtomicBool,
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<output::Run, Failure> {
    // Dropped after the processes: it ends when the last has gone.
    let (mut socket, mut own) = (None, None);
    let mut parent = Parent::start(spec, plan, order, files)?;
    if order.mode == Mode::Upcall {
        let (found, started) = daemon::ensure(plan)?;
        (socket, own) = (Some(found), started);
    }
    parent.own_daemon = own.is_some();
    let cpus = parent.launch(socket.as_deref(), spec, || {
        if let Some(own) = &mut own {
            own.joined();
        }
    })?;
    let used = parent.create()?;
    let mut load = Load::start(spec, plan, &used)?;

    started()?;
    if let Some(log) = parent.log {
        log.begin();
    }
    if let Some(trace) = parent.trace {
        trace.begin_elsewhere();
    }
    let drops_before = upcall::load::interface_drops();
    let stolen_before_ns = steal_ns(&cpus);
    let start = clock::now() + LEAD;
    load.begin(start);
    parent.begin(start)?;
    // A daemon of this run's own has the rights that this process has.
    let class = match order.mode {
        Mode::Threads => None,
        Mode::Upcall if own.is_none() => None,
        Mode::Upcall | Mode::Fifo => upcall::RealTime::granted().ok(),
    };
    say_class(order.mode, class, &parent.notices);
    let mut live = Live::new(order, plan, start);
    parent.watch(start + order.duration, &mut live, interrupted);

    // Load first, so that nothing arrives that nobody was to process.
    let senders = load.stop_senders()?;
    let end = clock::now();
    parent.stop(interrupted);
    live.finish();
    let missing = parent.missing;
    let (part, notices, broken) = parent.end();
    let measured = Measured {
        part,
        senders,
        background: load.stop(),
        duration: end.since(start),
        interrupted: interrupted.load(Ordering::Relaxed),
        notices,
        missing,
        interface_drops: upcall::load::interface_drops().saturating_sub(drops_before),
        steal_ns: steal_ns(&cpus).saturating_sub(stolen_before_ns),
        broken,
        cpus,
        alone: socket.is_none() || own.is_some(),
    };
    Ok(outcome::outcome(plan, order, measured))
}

impl<'p, 's> Parent<'p, 's> {
    /// Starts a process for each domain, and has them bind their sockets.
    fn start(
        spec: &Spec,
        plan: &'p Plan<'s>,
        order: Order,
        (log, trace): (&'p mut Option<JobLog>, &'p mut Option<TraceFile>),
    ) -> Result<Self, Failure> {
        let domains = domains(plan);
        let home = |planned: &Planned<'_>| {
            domains.iter().position(|&domain| domain == planned.domain()).unwrap_or_default()
        };
        let homes = plan.activities.iter().map(home).collect();
        let mut processes = Vec::new();
        for (domain, number) in domains.iter().zip(1..) {
            let mut process = Process::start(domain)?;
            process.say(&ToDomain::Setup(Setup {
                log: log.is_some(),
                traced: trace.is_some().then_some(number),
                ..setup(spec, plan, domain, order)
            }));
            processes.push(process);
        }
        let mut notices = Vec::new();
        for process in &mut processes {
            match process.answer()? {
                FromDomain::Ready { notices: found } => notices.extend(found),
                other => return Err(out_of_place(process, &other)),
            }
        }
        let rows = (0..plan.activities.len()).map(|activity| Row { activity, ..Row::default() });
        Ok(Parent {
            plan,
            order,
            rows: rows.collect(),
            parts: domains.iter().map(|_| None).collect(),
            processes,
            homes,
            notices,
            missing: Missing::default(),
            broken: Vec::new(),
            own_daemon: false,
            log,
            trace,
        })
    }

    /// Has all start, and attach to the daemon if there is one: on which CPUs.
    fn launch(
        &mut self,
        daemon: Option<&Path>,
        spec: &Spec,
        mut joined: impl FnMut(),
    ) -> Result<Vec<u32>, Failure> {
        let mut used = Vec::new();
        for process in &mut self.processes {
            process.say(&ToDomain::Start { daemon: daemon.map(Path::to_owned) });
            let cpus = match process.answer()? {
                FromDomain::Started { cpus } => cpus,
                other => return Err(out_of_place(process, &other)),
            };
            joined();
            if let Some(socket) = daemon
                && spec.cpus.is_some()
                && !same(&cpus, &self.plan.platform.cpus)
            {
                return Err(Failure::new(format_args!(
                    "the daemon at {} schedules CPUs {cpus:?}, the spec names {:?}",
                    socket.display(),
                    self.plan.platform.cpus
                )));
            }
            used = cpus;
        }
        Ok(used)
    }

    /// Has the activities created in the order of the file: the CPUs they are on.
    fn create(&mut self) -> Result<Vec<u32>, Failure> {
        let mut used = Vec::new();
        for (activity, planned) in self.plan.activities.iter().enumerate() {
            for (place, process) in self.processes.iter_mut().enumerate() {
                process.say(&match place == self.homes[activity] {
                    true => ToDomain::Create { activity },
                    false => ToDomain::Elsewhere { activity },
                });
            }
            let process = &mut self.processes[self.homes[activity]];
            match process.answer()? {
                FromDomain::Created { cpu } => used.push(cpu),
                FromDomain::Refused { reason, hint } => {
                    let hint = Some(hint).filter(|hint| !hint.is_empty());
                    let name = planned.name().to_owned();
                    let optional = planned.activity.is_optional();
                    return Err(Failure::refused(output::Refusal { name, reason, hint, optional }));
                }
                other => return Err(out_of_place(process, &other)),
            }
        }
        used.sort_unstable();
        used.dedup();
        Ok(used)
    }

    /// Has all run from `start` on.
    fn begin(&mut self, start: Instant) -> Result<(), Failure> {
        for process in &mut self.processes {
            process.say(&ToDomain::Run { at_ns: start.as_nanos() });
        }
        for process in &mut self.processes {
            match process.answer()? {
                FromDomain::Running { notices, missing } => {
                    self.missing = self.missing.or(missing);
                    for notice in notices {
                        if !self.notices.contains(&notice) {
                            self.notices.push(notice);
                        }
                    }
                }
                other => return Err(out_of_place(process, &other)),
            }
        }
        Ok(())
    }

    /// Lets them run until `end`, Ctrl-C, or the last of them has gone.
    fn watch(&mut self, end: Instant, live: &mut Live, interrupted: &AtomicBool) {
        loop {
            let now = clock::now();
            let any = (0..self.processes.len()).any(|process| !self.is_over(process));
            if now >= end || interrupted.load(Ordering::Relaxed) || !any {
                return;
            }
            let left: Duration = end.since(now).into();
            std::thread::sleep(left.min(POLL_EVERY));
            for process in 0..self.processes.len() {
                while self.take_in(process, Duration::ZERO) {}
            }
            live.show(&self.rows);
        }
    }

    /// Has them drain and end, and hears how it went; at once after Ctrl-C.
    fn stop(&mut self, interrupted: &AtomicBool) {
        let drain = drain_time(self.plan);
        for process in &mut self.processes {
            process.say(&ToDomain::Stop { drain_ns: drain.as_nanos() });
        }
        let give_up = clock::now() + drain + DONE_WITHIN;
        let mut hurried = false;
        for process in 0..self.processes.len() {
            while !self.is_over(process) {
                if interrupted.load(Ordering::Relaxed) && !std::mem::replace(&mut hurried, true) {
                    self.processes.iter_mut().for_each(|each| each.say(&ToDomain::Hurry));
                }
                self.take_in(process, POLL_EVERY);
                if clock::now() >= give_up && !self.is_over(process) {
                    self.lose(process, "its process did not say how it went");
                }
            }
        }
    }

    /// Whether a process has said all it will.
    fn is_over(&self, process: usize) -> bool {
        self.parts[process].is_some()
    }

    /// Takes in what a process says next, if it does so within `within`.
    fn take_in(&mut self, process: usize, within: Duration) -> bool {
        if self.is_over(process) {
            return false;
        }
        match self.processes[process].hear(within) {
            Ok(None) => return false,
            Ok(Some(FromDomain::State { rows, jobs, offences, trace })) => {
                if let Some(file) = self.trace {
                    file.append(&trace);
                }
                self.offended(process, offences);
                for row in rows {
                    if let Some(known) = self.rows.get_mut(row.activity) {
                        *known = row;
                    }
                }
                for (activity, line) in jobs {
                    if let (Some(log), Some(planned)) =
                        (self.log.as_mut(), self.plan.activities.get(activity))
                    {
                        log.write(self.order.mode, planned.name(), &line);
                    }
                }
            }
            Ok(Some(FromDomain::Done(mut part))) if self.is_of(process, &part) => {
                self.offended(process, std::mem::take(&mut part.offences));
                self.parts[process] = Some(*part);
            }
            Ok(Some(FromDomain::Failed { message })) => self.lose(process, &message),
            Ok(Some(other)) => self.lose(process, &format!("{other:?} out of place")),
            Err(gone) => self.lose(process, &gone),
        }
        true
    }

    /// The watchdog acted against a domain: said once, and noted for the end.
    fn offended(&mut self, process: usize, offences: Vec<String>) {
        for offence in offences {
            let line = format!("domain `{}` {offence}", self.processes[process].domain);
            if !self.own_daemon {
                say(format_args!("upcall: {line}"));
            }
            self.notices.push(line);
        }
    }

    /// Whether a part is what the process was to do.
    fn is_of(&self, process: usize, part: &Part) -> bool {
        let created = |home: &&usize| **home == process;
        let is_its = |activity: usize| self.homes.get(activity) == Some(&process);
        part.activities.len() == self.homes.iter().filter(created).count()
            && part.activities.iter().all(|(activity, _)| is_its(*activity))
            && part.streams.iter().all(|(activity, _)| is_its(*activity))
    }

    /// What was seen of a process that is lost stands in for what it did.
    fn lose(&mut self, process: usize, how: &str) {
        let domain = &self.processes[process].domain;
        self.broken.push(format!("domain `{domain}`: {how} before the run was over"));
        let mut part = Part::default();
        for (activity, row) in self.rows.iter().enumerate() {
            if self.homes[activity] == process {
                let planned = &self.plan.activities[activity];
                part.activities.push((activity, outcome::seen(planned, row)));
                part.streams.extend(
                    planned.stream().map(|_| (activity, row.stream.clone().unwrap_or_default())),
                );
            }
        }
        self.parts[process] = Some(part);
    }

    /// One part of all, notices, and what broke. Ends the processes.
    fn end(self) -> (Part, Vec<String>, Vec<String>) {
        let mut whole = Part::default();
        for part in self.parts.into_iter().flatten() {
            whole.activities.extend(part.activities);
            whole.streams.extend(part.streams);
            whole.stuck.extend(part.stuck);
            whole.switches.activity += part.switches.activity;
            whole.switches.domain += part.switches.domain;
            whole.switches.kernel += part.switches.kernel;
        }
        whole.activities.sort_by_key(|(activity, _)| *activity);
        whole.streams.sort_by_key(|(activity, _)| *activity);
        (whole, self.notices, self.broken)
    }
}

/// Without a log or a trace.
fn setup(spec: &Spec, plan: &Plan<'_>, domain: &str, order: Order) -> Setup {
    let costs = plan.activities.iter().map(|planned| planned.params.pdu_cost.as_nanos());
    let responses = plan.activities.iter().map(|planned| planned.response_max);
    let platform = &plan.platform;
    Setup {
        name: spec.source.name().to_owned(),
        text: spec.source.text().to_owned(),
        domain: domain.to_owned(),
        mode: order.mode.name().to_owned(),
        soft: order.soft,
        left_out: plan.left_out.iter().map(|refusal| refusal.name.clone()).collect(),
        pdu_costs_ns: costs.collect(),
        responses_ns_max: responses.map(|response| response.map(Span::as_nanos)).collect(),
        cpus: platform.cpus.clone(),
        cpu_limit_ppm: platform.cpu_limit.ppm(),
        switch_cost_ns: platform.switch_cost.as_nanos(),
        wakeup_latency_ns: platform.wakeup_latency.as_nanos(),
        log: false,
        traced: None,
    }
}

fn same(found: &[u32], expected: &[u32]) -> bool {
    found.len() == expected.len() && found.iter().all(|cpu| expected.contains(cpu))
}
