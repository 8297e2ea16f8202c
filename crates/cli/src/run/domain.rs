//! The process of a domain: what its parent says, it does.
//!
//! Started by [`super::process`]; the messages are in [`super::message`]. It ends when
//! its input does, wherever it is.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use upcall::admission::Share;
use upcall::time::{Instant, Span};
use upcall::{Attach, Config, CreateError, MemoryLock, Mode, Record, Runtime, clock};
use upcall_sim::trace::Writer;

use super::activities::{Activities, bind, shortfall};
use super::message::{FromDomain, Setup, ToDomain};
use super::{Missing, POLL_EVERY};
use crate::csv::Line;
use crate::exit::Failure;
use crate::plan::{self, Planned};
use crate::spec::Spec;
use crate::stream::Endpoint;

/// Why it does not go on.
enum Over {
    /// Nobody listens any more.
    Unheard,
    /// To be told.
    Failed(Failure),
}

impl From<Failure> for Over {
    fn from(failure: Failure) -> Self {
        Over::Failed(failure)
    }
}

/// Serves one run.
///
/// # Errors
/// The thread that reads does not start.
pub fn serve() -> Result<(), Failure> {
    let (orders_in, orders) = mpsc::channel();
    std::thread::Builder::new()
        .name("upcall-orders".into())
        .spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                // The parent is this program: what cannot be read ends it.
                let Ok(order) = serde_json::from_str(&line) else { return };
                if orders_in.send(order).is_err() {
                    return;
                }
            }
        })
        .map_err(Failure::new)?;
    if let Err(Over::Failed(failure)) = run(&orders) {
        // If that is not heard either, so be it.
        let _ = say(&FromDomain::Failed { message: failure.to_string() });
    }
    Ok(())
}

fn run(orders: &Receiver<ToDomain>) -> Result<(), Over> {
    let setup = match next(orders)? {
        ToDomain::Setup(setup) => setup,
        other => return Err(out_of_place(&other)),
    };
    let mut spec = Spec::parse(&setup.name, setup.text.as_bytes()).map_err(Failure::new)?;
    spec.leave_out(&setup.left_out);
    let costs: Vec<Span> = setup.pdu_costs_ns.iter().copied().map(Span::from_nanos).collect();
    let mut plan = plan::mapped(&spec, &costs, Span::from_nanos(setup.switch_cost_ns))?;
    for (planned, response_ns) in plan.iter_mut().zip(&setup.responses_ns_max) {
        planned.response_max = response_ns.map(Span::from_nanos);
    }
    let mut endpoints = BTreeMap::new();
    let mut notices = Vec::new();
    for (activity, planned) in plan.iter().enumerate() {
        if planned.domain() == setup.domain {
            let endpoint = bind(&spec, planned)?;
            notices.extend(shortfall(planned, endpoint.as_ref()));
            endpoints.insert(activity, endpoint);
        }
    }
    say(&FromDomain::Ready { notices })?;

    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == setup.mode);
    let mode = mode.ok_or_else(|| Failure::new(format_args!("found mode {}", setup.mode)))?;
    let opened = clock::now();
    let mut ours = Activities::new(start(orders, &setup, &spec, mode)?);
    let at = create_all(orders, &mut ours, &plan, endpoints)?;
    let header = setup.traced.map(|process| ours.trace_header(&plan, process, opened));
    let writer = header.map(|header| Writer::new(Vec::new(), &header));
    let mut trace = Trace(writer.transpose().map_err(Failure::new)?);
    ours.run_at(at).map_err(Failure::new)?;
    let notices = ours.runtime.notices().iter().map(ToString::to_string).collect();
    let missing = Missing::of(ours.runtime.notices());
    say(&FromDomain::Running { notices, missing })?;
    let until = clock::now() + watch(orders, &mut ours, &mut trace, setup.log)?;
    loop {
        let heard = orders.recv_timeout(POLL_EVERY.min(until.since(clock::now()).into()));
        trace.take_in(&mut ours)?;
        // Anything that is said now, or the end of the input, ends it.
        if !matches!(heard, Err(RecvTimeoutError::Timeout)) || clock::now() >= until {
            break;
        }
    }
    let mut jobs = Vec::new();
    let (part, records) = ours.stop(&plan, mode, |activity, job| {
        if setup.log {
            jobs.push((activity, Line::from(job)));
        }
    });
    for (cpu, record) in &records {
        trace.record(*cpu, record)?;
    }
    let (rows, offences, trace) = (Vec::new(), Vec::new(), trace.packets());
    say(&FromDomain::State { rows, jobs, offences, trace })?;
    say(&FromDomain::Done(Box::new(part)))
}

/// Starts the runtime, which attaches to the daemon if there is one.
fn start(
    orders: &Receiver<ToDomain>,
    setup: &Setup,
    spec: &Spec,
    mode: Mode,
) -> Result<Runtime, Over> {
    let daemon = match next(orders)? {
        ToDomain::Start { daemon } => daemon,
        other => return Err(out_of_place(&other)),
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
        daemon: daemon.map(|socket| Attach { socket, name: setup.domain.clone() }),
    })
    .map_err(|error| Failure::new(format_args!("domain `{}`: {error}", setup.domain)))?;
    say(&FromDomain::Started { cpus: runtime.config().cpus.clone() })?;
    Ok(runtime)
}

/// Creates what is asked for until it is to run: when.
fn create_all(
    orders: &Receiver<ToDomain>,
    ours: &mut Activities,
    plan: &[Planned<'_>],
    mut endpoints: BTreeMap<usize, Option<Endpoint>>,
) -> Result<Instant, Over> {
    loop {
        let activity = match next(orders)? {
            ToDomain::Create { activity } => activity,
            ToDomain::Elsewhere { activity } => {
                let Some(planned) = plan.get(activity) else {
                    return Err(out_of_place(&ToDomain::Elsewhere { activity }));
                };
                let need = (planned.params, planned.terms);
                let reserved = ours.runtime.reserve_remote(planned.name(), need);
                reserved.map_err(Failure::new)?;
                continue;
            }
            ToDomain::Run { at_ns } => return Ok(Instant::from_nanos(at_ns)),
            other => return Err(out_of_place(&other)),
        };
        let Some(endpoint) = endpoints.remove(&activity) else {
            return Err(out_of_place(&ToDomain::Create { activity }));
        };
        match ours.create(activity, &plan[activity], endpoint) {
            Ok(()) => {
                let place = ours.handlers().last().and_then(|&last| ours.runtime.place(last));
                let cpu = place.map_or(0, |(cpu, _)| cpu);
                say(&FromDomain::Created { cpu })?;
            }
            Err(CreateError::RefusedByDaemon { reason, hint }) => {
                say(&FromDomain::Refused { reason, hint })?;
            }
            Err(error) => return Err(Failure::new(error).into()),
        }
    }
}

/// Tells how it goes until it is to stop: how long it may drain.
fn watch(
    orders: &Receiver<ToDomain>,
    ours: &mut Activities,
    trace: &mut Trace,
    log: bool,
) -> Result<Span, Over> {
    loop {
        match orders.recv_timeout(POLL_EVERY) {
            Ok(ToDomain::Stop { drain_ns }) => return Ok(Span::from_nanos(drain_ns)),
            Ok(other) => return Err(out_of_place(&other)),
            Err(RecvTimeoutError::Disconnected) => return Err(Over::Unheard),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut jobs = Vec::new();
        ours.poll(|activity, job| {
            if log {
                jobs.push((activity, Line::from(job)));
            }
        });
        let offences = ours.offences();
        trace.take_in(ours)?;
        let (rows, trace) = (ours.rows(), trace.packets());
        say(&FromDomain::State { rows, jobs, offences, trace })?;
    }
}

/// The trace, if there is to be one.
struct Trace(Option<Writer<Vec<u8>>>);

impl Trace {
    /// Writes what the trace's rings hold before they are full.
    fn take_in(&mut self, ours: &mut Activities) -> Result<(), Failure> {
        let mut taken = Ok(());
        ours.runtime.poll_trace(|cpu, record| {
            if taken.is_ok() {
                taken = self.record(cpu, record);
            }
        });
        taken
    }

    fn record(&mut self, cpu: u32, record: &Record) -> Result<(), Failure> {
        self.0.as_mut().map_or(Ok(()), |writer| writer.record(cpu, record)).map_err(Failure::new)
    }

    /// What was written since the last call.
    fn packets(&mut self) -> Vec<u8> {
        self.0.as_mut().map(|writer| std::mem::take(writer.out_mut())).unwrap_or_default()
    }
}

fn next(orders: &Receiver<ToDomain>) -> Result<ToDomain, Over> {
    orders.recv().map_err(|_| Over::Unheard)
}

fn say(message: &FromDomain) -> Result<(), Over> {
    let mut line = serde_json::to_vec(message).map_err(Failure::new)?;
    line.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&line).and_then(|()| stdout.flush()).map_err(|_| Over::Unheard)
}

fn out_of_place(order: &ToDomain) -> Over {
    Failure::new(format_args!("{order:?} out of place")).into()
}
