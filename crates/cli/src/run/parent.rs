//! Runs each domain of a plan in a process of its own: under a daemon in mode upcall, without one
//! in the baseline modes.
//!
//! ```text
//!   (1) processes started, sockets bound --> (2) daemon --> (3) started --> (4) created,
//!   one by one in the order of the file --> (5) run --> (6) senders stopped, drained, merged
//! ```
//!
//! With flows, step (2) is the first one, in the baseline modes too: the daemon has the interfaces.
//!
//! Until step (5) a process that fails ends the whole run. From then on a failure costs only that
//! process's results, and the run is reported as broken. The daemon ranks equal activities in the
//! order of admission. Step (4) therefore lets the activity that comes first in the file win a tie.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use upcall::Mode;
use upcall::clock;
use upcall::time::{Instant, Span};
use upcall_cli::standard_error::say;

use super::daemon;
use super::load::Load;
use super::message::{ChildMessage, ParentMessage, Setup};
use super::notices::{RunNotice, say_class};
use super::process::{Process, unexpected};
use super::steal::steal_ns;
use super::timing::{LEAD, POLL_EVERY, drain_time};
use crate::csv::JobLog;
use crate::exit::Failure;
use crate::live::Live;
use crate::measured::{ActivityResults, Measured, Missing, Progress, RunOptions};
use crate::output::Offence;
use crate::plan::{Plan, Planned};
use crate::spec::Spec;
use crate::trace::TraceFile;
use crate::{outcome, output};

/// How long a process may take after the drain to report its results.
const DONE_WITHIN: Span = Span::from_secs(60);

/// The processes of a run, and what the parent knows of it.
struct Parent<'p, 's> {
    plan: &'p Plan<'s>,
    options: RunOptions,
    processes: Vec<Process>,
    /// For each activity, the index of the process that runs it.
    owners: Vec<usize>,
    rows: Vec<Progress>,
    /// The results of each process, once it reported them.
    parts: Vec<Option<ActivityResults>>,
    notices: Vec<RunNotice>,
    /// What watchdogs did to the domains; also among the notices.
    offences: Vec<Offence>,
    missing: Missing,
    broken: Vec<String>,
    /// Whether this run started the daemon. That daemon itself reports what its watchdog does.
    own_daemon: bool,
    log: &'p mut Option<JobLog>,
    trace: &'p mut Option<TraceFile>,
}

/// See [`super::run`].
///
/// # Errors
/// A part could not be set up. Nothing is left running.
pub fn run(
    spec: &Spec,
    plan: &Plan<'_>,
    options: RunOptions,
    files: (&mut Option<JobLog>, &mut Option<TraceFile>),
    interrupted: &AtomicBool,
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<output::Run, Failure> {
    // Dropped after the processes: the daemon ends when the last of them has gone.
    let (mut socket, mut own) = (None, None);
    // Flows are opened with the sockets, so their daemon is there before.
    if let Some((found, started)) = daemon::for_flows(spec, plan, options.mode)? {
        (socket, own) = (Some(found), started);
    }
    let mut parent = Parent::start(spec, plan, options, files, socket.as_deref())?;
    if options.mode == Mode::Upcall && socket.is_none() {
        let (found, started) = daemon::ensure(spec, plan)?;
        (socket, own) = (Some(found), started);
    }
    parent.own_daemon = own.is_some();
    let attach = socket.as_deref().filter(|_| options.mode == Mode::Upcall);
    let cpus = parent.start_runtimes(attach, spec, || {
        if let Some(own) = &mut own {
            own.mark_attached();
        }
    })?;
    let used = parent.create()?;
    let mut load = Load::start(spec, plan, &used)?;

    started()?;
    parent.begin_files();
    let drops_before = upcall::load::interface_drops();
    let stolen_before_ns = steal_ns(&cpus);
    let start = clock::now() + LEAD;
    load.begin(start);
    parent.begin(start)?;
    say_class(options.mode, real_time(options.mode, parent.own_daemon), &parent.notices);
    let mut live = Live::new(options, plan, start);
    parent.watch(start + options.duration, &mut live, interrupted);

    // The senders stop first, so that nothing arrives after the last handler has run.
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
    Ok(outcome::outcome(plan, options, measured))
}

impl<'p, 's> Parent<'p, 's> {
    /// Starts a process for each domain. Each process binds its sockets, and opens its flows at the
    /// daemon with the socket `flows`.
    fn start(
        spec: &Spec,
        plan: &'p Plan<'s>,
        options: RunOptions,
        (log, trace): (&'p mut Option<JobLog>, &'p mut Option<TraceFile>),
        flows: Option<&Path>,
    ) -> Result<Self, Failure> {
        let domains = plan.domains();
        let owner = |planned: &Planned<'_>| {
            domains.iter().position(|&domain| domain == planned.domain()).unwrap_or_default()
        };
        let owners = plan.activities.iter().map(owner).collect();
        let mut processes = Vec::new();
        for (domain, number) in domains.iter().zip(1..) {
            let mut process = Process::start(domain)?;
            process.send(&ParentMessage::Setup(Box::new(Setup {
                log: log.is_some(),
                traced: trace.is_some().then_some(number),
                flows: flows.map(Path::to_owned),
                ..setup(spec, plan, domain, options)
            })));
            processes.push(process);
        }
        let mut notices = Vec::new();
        for process in &mut processes {
            match process.reply()? {
                ChildMessage::Ready { notices: found } => {
                    notices.extend(found.into_iter().map(RunNotice::new))
                }
                other => return Err(unexpected(process, &other)),
            }
        }
        let rows =
            (0..plan.activities.len()).map(|activity| Progress { activity, ..Progress::default() });
        Ok(Parent {
            plan,
            options,
            rows: rows.collect(),
            parts: domains.iter().map(|_| None).collect(),
            processes,
            owners,
            notices,
            offences: Vec::new(),
            missing: Missing::default(),
            broken: Vec::new(),
            own_daemon: false,
            log,
            trace,
        })
    }

    /// Has each process start its runtime, which attaches to the daemon if there is one. Returns
    /// the CPUs.
    fn start_runtimes(
        &mut self,
        daemon: Option<&Path>,
        spec: &Spec,
        mut attached: impl FnMut(),
    ) -> Result<Vec<u32>, Failure> {
        let mut used = Vec::new();
        for process in &mut self.processes {
            process.send(&ParentMessage::Start { daemon: daemon.map(Path::to_owned) });
            let cpus = match process.reply()? {
                ChildMessage::Started { cpus } => cpus,
                other => return Err(unexpected(process, &other)),
            };
            attached();
            if let Some(socket) = daemon
                && spec.cpus.is_some()
                && !daemon::same(&cpus, &self.plan.platform.cpus)
            {
                // Another daemon has taken the place of the one that was asked.
                return Err(daemon::other_cpus(self.plan, socket, &cpus));
            }
            used = cpus;
        }
        Ok(used)
    }

    /// Has the activities created in the order of the file. Returns the CPUs they run on.
    fn create(&mut self) -> Result<Vec<u32>, Failure> {
        let mut used = Vec::new();
        for (activity, planned) in self.plan.activities.iter().enumerate() {
            for (place, process) in self.processes.iter_mut().enumerate() {
                process.send(&match place == self.owners[activity] {
                    true => ParentMessage::Create { activity },
                    false => ParentMessage::ReserveRemote { activity },
                });
            }
            let process = &mut self.processes[self.owners[activity]];
            match process.reply()? {
                ChildMessage::Created { cpu } => used.push(cpu),
                ChildMessage::Refused { reason, hint } => {
                    let hint = Some(hint).filter(|hint| !hint.is_empty());
                    let name = planned.name().to_owned();
                    let optional = planned.activity.is_optional();
                    return Err(Failure::refused_by_daemon(output::Refusal {
                        name,
                        reason,
                        hint,
                        optional,
                    }));
                }
                other => return Err(unexpected(process, &other)),
            }
        }
        used.sort_unstable();
        used.dedup();
        Ok(used)
    }

    fn begin_files(&mut self) {
        if let Some(log) = self.log {
            log.begin();
        }
        if let Some(trace) = self.trace {
            trace.begin_remote();
        }
    }

    /// Has all processes run from `start` on.
    fn begin(&mut self, start: Instant) -> Result<(), Failure> {
        for process in &mut self.processes {
            process.send(&ParentMessage::Run { at_ns: start.as_nanos() });
        }
        for process in &mut self.processes {
            match process.reply()? {
                ChildMessage::Running { notices, missing } => {
                    self.missing = self.missing.or(missing);
                    for notice in notices {
                        if !self.notices.contains(&notice) {
                            self.notices.push(notice);
                        }
                    }
                }
                other => return Err(unexpected(process, &other)),
            }
        }
        Ok(())
    }

    /// Lets the processes run until `end`, Ctrl-C, or the end of the last process.
    fn watch(&mut self, end: Instant, live: &mut Live, interrupted: &AtomicBool) {
        loop {
            let now = clock::now();
            let any = (0..self.processes.len()).any(|process| !self.is_finished(process));
            if now >= end || interrupted.load(Ordering::Relaxed) || !any {
                return;
            }
            let left: Duration = end.since(now).into();
            std::thread::sleep(left.min(POLL_EVERY));
            for process in 0..self.processes.len() {
                while self.poll_process(process, Duration::ZERO) {}
            }
            live.show(&self.rows);
        }
    }

    /// Has the processes drain and end, and takes their results. Ctrl-C ends the drain.
    fn stop(&mut self, interrupted: &AtomicBool) {
        let drain = drain_time(self.plan);
        for process in &mut self.processes {
            process.send(&ParentMessage::Stop { drain_ns: drain.as_nanos() });
        }
        let give_up = clock::now() + drain + DONE_WITHIN;
        let mut hurried = false;
        for process in 0..self.processes.len() {
            while !self.is_finished(process) {
                if interrupted.load(Ordering::Relaxed) && !std::mem::replace(&mut hurried, true) {
                    self.processes.iter_mut().for_each(|each| each.send(&ParentMessage::EndDrain));
                }
                self.poll_process(process, POLL_EVERY);
                if clock::now() >= give_up && !self.is_finished(process) {
                    self.mark_lost(process, "its process did not report its results");
                }
            }
        }
    }

    /// Whether a process has reported its results or is lost.
    fn is_finished(&self, process: usize) -> bool {
        self.parts[process].is_some()
    }

    /// Takes the next message of a process. Returns `false` if none came `within` this time.
    fn poll_process(&mut self, process: usize, within: Duration) -> bool {
        if self.is_finished(process) {
            return false;
        }
        match self.processes[process].receive(within) {
            Ok(None) => return false,
            Ok(Some(ChildMessage::State { rows, jobs, offences, trace })) => {
                if let Some(file) = self.trace {
                    file.append(&trace);
                }
                self.report_offences(process, offences);
                for row in rows {
                    if let Some(known) = self.rows.get_mut(row.activity) {
                        *known = row;
                    }
                }
                for (activity, line) in jobs {
                    if let (Some(log), Some(planned)) =
                        (self.log.as_mut(), self.plan.activities.get(activity))
                    {
                        log.write(self.options.mode, planned.name(), &line);
                    }
                }
            }
            Ok(Some(ChildMessage::Done(mut part))) if self.is_result_of(process, &part) => {
                self.report_offences(process, std::mem::take(&mut part.offences));
                self.parts[process] = Some(*part);
            }
            Ok(Some(ChildMessage::Failed { message })) => self.mark_lost(process, &message),
            Ok(Some(other)) => self.mark_lost(process, &format!("unexpected message {other:?}")),
            Err(gone) => self.mark_lost(process, &gone),
        }
        true
    }

    /// Prints what the watchdog did to a domain, and keeps the line for the end.
    fn report_offences(&mut self, process: usize, offences: Vec<Offence>) {
        for offence in offences {
            let domain = &self.processes[process].domain;
            let line = format!("domain `{domain}` {}", offence.line);
            if !self.own_daemon {
                say(format_args!("upcall: {line}"));
            }
            let domain = Some(domain.clone());
            self.offences.push(Offence { line: line.clone(), domain, ..offence });
            self.notices.push(RunNotice::new(line));
        }
    }

    /// Whether the results cover exactly the activities of the process.
    fn is_result_of(&self, process: usize, part: &ActivityResults) -> bool {
        let created = |owner: &&usize| **owner == process;
        let is_its = |activity: usize| self.owners.get(activity) == Some(&process);
        part.activities.len() == self.owners.iter().filter(created).count()
            && part.activities.iter().all(|(activity, _)| is_its(*activity))
            && part.streams.iter().all(|(activity, _)| is_its(*activity))
    }

    /// Uses the last known progress of a lost process as its results.
    fn mark_lost(&mut self, process: usize, how: &str) {
        let domain = &self.processes[process].domain;
        self.broken.push(format!("domain `{domain}`: {how} before the run was over"));
        let mut part = ActivityResults::default();
        for (activity, row) in self.rows.iter().enumerate() {
            if self.owners[activity] == process {
                let planned = &self.plan.activities[activity];
                part.activities.push((activity, outcome::last_known(planned, row)));
                part.streams.extend(
                    planned.stream().map(|_| (activity, row.stream.clone().unwrap_or_default())),
                );
            }
        }
        self.parts[process] = Some(part);
    }

    /// Ends the processes. Returns the results of all, the notices and the failures.
    fn end(self) -> (ActivityResults, Vec<String>, Vec<String>) {
        let mut whole = ActivityResults { offences: self.offences, ..Default::default() };
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
        let notices = self.notices.iter().map(ToString::to_string).collect();
        (whole, notices, self.broken)
    }
}

/// The real-time class of the handlers, if this process can tell. A daemon that this run started
/// has the rights of this process.
fn real_time(mode: Mode, own_daemon: bool) -> Option<upcall::RealTime> {
    match mode {
        Mode::Threads => None,
        Mode::Upcall if !own_daemon => None,
        Mode::Upcall | Mode::Fifo => upcall::RealTime::granted().ok(),
    }
}

/// The setup of a child that writes no log and no trace, and has no flows.
fn setup(spec: &Spec, plan: &Plan<'_>, domain: &str, options: RunOptions) -> Setup {
    let costs = plan.activities.iter().map(|planned| planned.params.pdu_cost.as_nanos());
    let responses = plan.activities.iter().map(|planned| planned.response_max);
    let platform = &plan.platform;
    Setup {
        name: spec.source.name().to_owned(),
        text: spec.source.text().to_owned(),
        domain: domain.to_owned(),
        daemon_name: daemon_name(spec, domain),
        flows: None,
        mode: options.mode.name().to_owned(),
        soft: options.soft,
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

/// The name of `domain` at the daemon, which knows domains of many specs: for activities without a
/// `domain` the name of the spec file.
fn daemon_name(spec: &Spec, domain: &str) -> String {
    let is_named = spec.activities().iter().any(|activity| activity.domain() == Some(domain));
    let stem = Path::new(spec.source.name()).file_stem().map(|stem| stem.to_string_lossy());
    stem.filter(|stem| !is_named && !stem.is_empty()).map_or(domain.to_owned(), Into::into)
}
