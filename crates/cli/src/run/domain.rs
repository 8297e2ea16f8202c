//! The process of a domain: it does what its parent's messages say.
//!
//! [`super::process`] starts it; [`super::message`] has the messages. The process ends when its
//! input ends, in every state.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use upcall::admission::Share;
use upcall::time::{Instant, Span};
use upcall::{Attach, Config, CreateError, MemoryLock, Mode, Record, Runtime, clock};
use upcall_sim::trace::Writer;

use super::activities::{Activities, bind, shortfall};
use super::message::{ChildMessage, ParentMessage, Setup};
use super::notices::RunNotice;
use super::timing::POLL_EVERY;
use crate::csv::CsvRow;
use crate::exit::Failure;
use crate::measured::Missing;
use crate::plan::{self, Planned};
use crate::spec::Spec;
use crate::stream::Endpoint;

/// Why the process ends early.
enum End {
    /// The parent reads no more messages.
    ParentGone,
    /// A failure that the parent must learn of.
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        End::Failed(failure)
    }
}

/// Serves one run.
///
/// # Errors
/// The reading thread does not start.
pub fn serve() -> Result<(), Failure> {
    let (messages_in, messages) = mpsc::channel();
    std::thread::Builder::new()
        .name("upcall-messages".into())
        .spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                // The parent runs the same program; a line that cannot be read ends this process.
                let Ok(message) = serde_json::from_str(&line) else { return };
                if messages_in.send(message).is_err() {
                    return;
                }
            }
        })
        .map_err(Failure::of_error)?;
    if let Err(End::Failed(failure)) = run(&messages) {
        // If the parent cannot be reached either, there is nothing left to do.
        let _ = send(&ChildMessage::Failed { message: failure.to_string() });
    }
    Ok(())
}

fn run(messages: &Receiver<ParentMessage>) -> Result<(), End> {
    let setup = match next(messages)? {
        ParentMessage::Setup(setup) => setup,
        other => return Err(unexpected(&other)),
    };
    let mut spec = Spec::parse(&setup.name, setup.text.as_bytes()).map_err(Failure::of_error)?;
    spec.leave_out(&setup.left_out);
    let costs: Vec<Span> = setup.pdu_costs_ns.iter().copied().map(Span::from_nanos).collect();
    let mut plan = plan::mapped(&spec, &costs, Span::from_nanos(setup.switch_cost_ns))?;
    for (planned, response_ns) in plan.iter_mut().zip(&setup.responses_ns_max) {
        planned.response_max = response_ns.map(Span::from_nanos);
    }
    let endpoints = bind_all(&setup, &spec, &plan)?;

    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == setup.mode);
    let mode = mode.ok_or_else(|| Failure::new(format_args!("found mode {}", setup.mode)))?;
    let opened = clock::now();
    let mut activities =
        Activities::new(start(messages, &setup, &spec, mode)?, setup.flows.as_deref());
    let at = create_all(messages, &mut activities, &plan, endpoints)?;
    let header = setup.traced.map(|process| activities.trace_header(&plan, process, opened));
    let writer = header.map(|header| Writer::new(Vec::new(), &header));
    let mut trace = Trace(writer.transpose().map_err(Failure::of_error)?);
    activities.run_at(at).map_err(Failure::of_error)?;
    let notices = activities.runtime.notices().iter().map(RunNotice::from).collect();
    let missing = Missing::of(activities.runtime.notices());
    send(&ChildMessage::Running { notices, missing })?;
    let until = clock::now() + watch(messages, &mut activities, &mut trace, setup.log)?;
    drain(messages, &mut activities, &mut trace, until)?;
    let mut jobs = Vec::new();
    let (part, records) = activities.stop(&plan, mode, |activity, job| {
        if setup.log {
            jobs.push((activity, CsvRow::from(job)));
        }
    });
    for (cpu, record) in &records {
        trace.record(*cpu, record)?;
    }
    let (rows, offences, trace) = (Vec::new(), Vec::new(), trace.packets());
    send(&ChildMessage::State { rows, jobs, offences, trace })?;
    send(&ChildMessage::Done(Box::new(part)))
}

/// Binds the sockets of the domain's streams, opens their flows, and reports that the process is
/// ready. Returns the endpoint of each activity of the domain; a task has none.
fn bind_all(
    setup: &Setup,
    spec: &Spec,
    plan: &[Planned<'_>],
) -> Result<BTreeMap<usize, Option<Endpoint>>, End> {
    let mut endpoints = BTreeMap::new();
    let mut notices = Vec::new();
    for (activity, planned) in plan.iter().enumerate() {
        if planned.domain() == setup.domain {
            let endpoint = bind(spec, planned, setup.flows.as_deref())?;
            notices.extend(shortfall(planned, endpoint.as_ref()));
            endpoints.insert(activity, endpoint);
        }
    }
    send(&ChildMessage::Ready { notices })?;
    Ok(endpoints)
}

/// Starts the runtime, which attaches to the daemon if there is one.
fn start(
    messages: &Receiver<ParentMessage>,
    setup: &Setup,
    spec: &Spec,
    mode: Mode,
) -> Result<Runtime, End> {
    let daemon = match next(messages)? {
        ParentMessage::Start { daemon } => daemon,
        other => return Err(unexpected(&other)),
    };
    let runtime = Runtime::start(Config {
        cpus: setup.cpus.clone(),
        cpu_limit: Share::from_ppm(setup.cpu_limit_ppm).unwrap_or(Share::CPU_LIMIT_DEFAULT),
        switch_cost: Some(Span::from_nanos(setup.switch_cost_ns)),
        wakeup_latency: Span::from_nanos(setup.wakeup_latency_ns),
        discipline: plan::discipline(spec, None)?,
        mode,
        unscreened: setup.soft,
        trace: setup.traced.is_some(),
        memory_lock: MemoryLock::All,
        daemon: daemon.map(|socket| Attach { socket, name: setup.daemon_name.clone() }),
    })
    .map_err(|error| {
        Failure::new(format_args!("domain `{}`: {error}", setup.domain)).because(error)
    })?;
    send(&ChildMessage::Started { cpus: runtime.config().cpus.clone() })?;
    Ok(runtime)
}

/// Creates the requested activities until `Run` comes. Returns when the run begins.
fn create_all(
    messages: &Receiver<ParentMessage>,
    activities: &mut Activities,
    plan: &[Planned<'_>],
    mut endpoints: BTreeMap<usize, Option<Endpoint>>,
) -> Result<Instant, End> {
    loop {
        let activity = match next(messages)? {
            ParentMessage::Create { activity } => activity,
            ParentMessage::ReserveRemote { activity } => {
                let Some(planned) = plan.get(activity) else {
                    return Err(unexpected(&ParentMessage::ReserveRemote { activity }));
                };
                activities.reserve_remote(planned).map_err(Failure::of_error)?;
                continue;
            }
            ParentMessage::Run { at_ns } => return Ok(Instant::from_nanos(at_ns)),
            other => return Err(unexpected(&other)),
        };
        let Some(endpoint) = endpoints.remove(&activity) else {
            return Err(unexpected(&ParentMessage::Create { activity }));
        };
        match activities.create(activity, &plan[activity], endpoint) {
            Ok(()) => {
                let place =
                    activities.handlers().last().and_then(|&last| activities.runtime.place(last));
                let cpu = place.map_or(0, |(cpu, _)| cpu);
                send(&ChildMessage::Created { cpu })?;
            }
            Err(CreateError::RefusedByDaemon { reason, hint }) => {
                send(&ChildMessage::Refused { reason, hint })?;
            }
            Err(error) => return Err(Failure::of_error(error).into()),
        }
    }
}

/// Reports the state until `Stop` comes. Returns how long the drain may take.
fn watch(
    messages: &Receiver<ParentMessage>,
    activities: &mut Activities,
    trace: &mut Trace,
    log: bool,
) -> Result<Span, End> {
    loop {
        match messages.recv_timeout(POLL_EVERY) {
            Ok(ParentMessage::Stop { drain_ns }) => return Ok(Span::from_nanos(drain_ns)),
            Ok(other) => return Err(unexpected(&other)),
            Err(RecvTimeoutError::Disconnected) => return Err(End::ParentGone),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut jobs = Vec::new();
        activities.poll(|activity, job| {
            if log {
                jobs.push((activity, CsvRow::from(job)));
            }
        });
        let offences = activities.offences();
        trace.take_in(activities)?;
        let (rows, trace) = (activities.rows(), trace.packets());
        send(&ChildMessage::State { rows, jobs, offences, trace })?;
    }
}

/// Lets the activities process what has arrived, at most `until` this time.
fn drain(
    messages: &Receiver<ParentMessage>,
    activities: &mut Activities,
    trace: &mut Trace,
    until: Instant,
) -> Result<(), End> {
    loop {
        let received = messages.recv_timeout(POLL_EVERY.min(until.since(clock::now()).into()));
        trace.take_in(activities)?;
        // Any message now, or the end of the input, ends the drain.
        if !matches!(received, Err(RecvTimeoutError::Timeout)) || clock::now() >= until {
            return Ok(());
        }
    }
}

/// The trace, if one is written.
struct Trace(Option<Writer<Vec<u8>>>);

impl Trace {
    /// Empties the trace's rings into the writer before the rings are full.
    fn take_in(&mut self, activities: &mut Activities) -> Result<(), Failure> {
        let mut taken = Ok(());
        activities.runtime.poll_trace(|cpu, record| {
            if taken.is_ok() {
                taken = self.record(cpu, record);
            }
        });
        taken
    }

    fn record(&mut self, cpu: u32, record: &Record) -> Result<(), Failure> {
        self.0
            .as_mut()
            .map_or(Ok(()), |writer| writer.record(cpu, record))
            .map_err(Failure::of_error)
    }

    /// The packets written since the last call.
    fn packets(&mut self) -> Vec<u8> {
        self.0.as_mut().map(|writer| std::mem::take(writer.out_mut())).unwrap_or_default()
    }
}

fn next(messages: &Receiver<ParentMessage>) -> Result<ParentMessage, End> {
    messages.recv().map_err(|_| End::ParentGone)
}

fn send(message: &ChildMessage) -> Result<(), End> {
    let mut line = serde_json::to_vec(message).map_err(Failure::of_error)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line).and_then(|()| stdout.flush()).map_err(|_| End::ParentGone)
}

fn unexpected(message: &ParentMessage) -> End {
    Failure::new(format_args!("unexpected message {message:?}")).into()
}
