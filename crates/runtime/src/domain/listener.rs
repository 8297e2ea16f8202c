//! The thread that receives the daemon's messages, and attaches again after the daemon has gone.
//!
//! [`super::Domain::attach`] starts it; see [`super`] for the states. It is of the ordinary class,
//! and no executor ever waits for it.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use upcall_core::time::Span;
use upcall_shm::user_area::{self, Peer};
use upcall_shm::wire::{ToDaemon, ToDomain};
use upcall_shm::{DomainId, Measure};
use upcall_sys::local::{Connection, Received};
use upcall_sys::memfd::ReadOnlyMapping;
use upcall_sys::readiness::{self, Direction};

use super::attach::{Agreed, Connected, connect, next_message, receive};
use super::attach_state::{AdmittedActivity, AttachState, lock};
use super::control::VirtualProcessorControl;
use super::error::AttachError;
use super::peers::PeerDomain;
use super::virtual_processor::VirtualProcessor;
use crate::clock;
use crate::daemon_fault::DaemonFault;
use crate::offence::Offence;
use crate::rights::Notice;

/// The longest wait before the listener checks whether the domain still exists.
const LOOK_EVERY: Span = Span::from_millis(100);
/// The wait before the first attempt to attach again. Nobody watches the domains meanwhile, and a
/// daemon that failed is back soon as a rule. Each wait is twice the one before.
const FIRST_PAUSE: Span = Span::from_millis(20);
/// The longest wait between two attempts.
const PAUSE_MAX: Span = Span::from_millis(200);
/// The wait after a daemon refused this domain.
const PAUSE_AFTER_REJECTION: Span = Span::from_secs(2);

/// See the module's head.
pub(super) struct Listener {
    pub(super) path: PathBuf,
    /// The domain's name.
    pub(super) name: String,
    pub(super) agreed: Agreed,
    /// The controller end of each executor's virtual processor, with its CPU.
    pub(super) controls: Vec<(u32, VirtualProcessorControl)>,
    /// The flag of the present virtual processors: the daemon is gone.
    pub(super) orphaned: Arc<AtomicBool>,
    pub(super) state: Arc<Mutex<AttachState>>,
    /// `None`: the daemon closed the connection.
    pub(super) answers: mpsc::Sender<Option<ToDomain>>,
    pub(super) offences: mpsc::Sender<Offence>,
    pub(super) hung_up: Arc<AtomicBool>,
}

/// A domain that is attached again, before its executors know.
struct Attachment {
    connection: Arc<Connection>,
    virtual_processors: Vec<(u32, VirtualProcessor)>,
    controls: Vec<(u32, VirtualProcessorControl)>,
    orphaned: Arc<AtomicBool>,
    /// The activities that were claimed, granted or refused.
    claimed: BTreeMap<u32, AdmittedActivity>,
    /// The places that were refused, and why.
    refused: Vec<(u32, String)>,
    /// The CPUs on which the share of the event server was refused, and why.
    events_refused: BTreeMap<u32, String>,
    missing: Option<Notice>,
}

impl Listener {
    /// Runs until the domain is dropped.
    pub(super) fn run(mut self, connection: Arc<Connection>) {
        let mut attached = Some(connection);
        while let Some(connection) = attached.take() {
            self.listen(&connection);
            drop(connection);
            self.become_orphan();
            attached = self.find_daemon();
        }
    }

    fn is_wanted(&self) -> bool {
        // Relaxed: see `Domain::drop`.
        !self.hung_up.load(Ordering::Relaxed)
    }

    /// Receives until the daemon or this process closes the connection.
    fn listen(&mut self, connection: &Connection) {
        while self.is_wanted() {
            self.controls.iter_mut().for_each(|(_, control)| control.clear());
            let until = clock::now() + LOOK_EVERY;
            let fd = connection.as_fd();
            match readiness::wait_until(fd, Direction::Readable, Some(until.as_nanos())) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            match receive(connection) {
                Ok(Some((message, received))) => self.handle_message(message, received),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    fn handle_message(&mut self, message: ToDomain, received: Received) {
        match message {
            ToDomain::Peer { cpu, domain, generation } => {
                // A peer that cannot be mapped does not take part for this domain.
                let _ = introduce(&mut self.controls, (cpu, domain, generation), received);
            }
            ToDomain::Offence { cpu, measure, held_ns } => {
                // An unknown measure comes from a daemon of another version, and is not reported.
                let held = Span::from_nanos(held_ns);
                let offence =
                    Measure::of_number(measure).map(|measure| Offence { cpu, measure, held });
                // While the runtime is being dropped the receiver is gone.
                let _ = offence.map(|offence| self.offences.send(offence));
            }
            message => {
                let _ = self.answers.send(Some(message));
            }
        }
    }

    fn become_orphan(&self) {
        // Relaxed: the notification orders the flag.
        self.orphaned.store(true, Ordering::Relaxed);
        self.controls.iter().for_each(|(_, control)| control.notify());
        let mut state = lock(&self.state);
        state.connection = None;
        // Sent under the lock: a thread that uses the next connection finds this mark before the
        // replies to its own request.
        let _ = self.answers.send(None);
    }

    /// Attaches again, as soon as there is a daemon; `None` once the domain is dropped.
    fn find_daemon(&mut self) -> Option<Arc<Connection>> {
        let mut pause = FIRST_PAUSE;
        loop {
            let until = clock::now() + pause;
            while clock::now() < until {
                std::thread::sleep(Duration::from(until.since(clock::now()).min(LOOK_EVERY)));
                if !self.is_wanted() {
                    return None;
                }
            }
            pause = match self.attach_again() {
                Ok(attachment) => return Some(self.take_up(attachment)),
                Err(
                    AttachError::Rejected(_)
                    | AttachError::Descriptor(_)
                    | AttachError::Daemon(_)
                    | AttachError::Wire(_)
                    | AttachError::Receive(_)
                    | AttachError::Layout(_),
                ) => PAUSE_AFTER_REJECTION,
                Err(_) => (pause * 2).min(PAUSE_MAX),
            };
        }
    }

    /// Says hello, claims the places of this domain's activities, and hands its threads over.
    /// Meanwhile the executors go on as orphans.
    fn attach_again(&self) -> Result<Attachment, AttachError> {
        let connected = connect(&self.path, &self.name, &self.agreed)?;
        let Connected { connection, virtual_processors: all, orphaned, missing, .. } = connected;
        let (claimed, events, threads) = {
            let mut state = lock(&self.state);
            state.attempts += 1;
            (state.admitted.clone(), state.events.clone(), state.threads.clone())
        };
        let (mut virtual_processors, mut controls) = (Vec::new(), Vec::new());
        for (cpu, virtual_processor, control) in all {
            // The domain has no thread on other CPUs.
            if self.controls.iter().any(|(own, _)| *own == cpu) {
                virtual_processors.push((cpu, virtual_processor));
                controls.push((cpu, control));
            }
        }
        let (found, wanted) = (virtual_processors.len(), self.controls.len());
        if found < wanted || threads.len() < wanted {
            return Err(DaemonFault::CpusMissing { found, wanted }.into());
        }
        let mut refused = Vec::new();
        for (&order, activity) in &claimed {
            if let Some(reason) = claim(&connection, order, activity)? {
                refused.push((order, reason));
            }
        }
        let mut events_refused = BTreeMap::new();
        for (cpu, share_ppm) in events {
            if let Some(reason) = claim_events(&connection, cpu, share_ppm)? {
                events_refused.insert(cpu, reason);
            }
        }
        for (&cpu, &tid) in &threads {
            connection.send(&ToDaemon::Thread { cpu, tid }.encode(), &[])?;
        }
        // The domain takes part on a CPU once the daemon names itself there as a peer.
        let mut awaited = threads.len();
        while awaited > 0 {
            let (message, received) = next_message(&connection)?;
            let ToDomain::Peer { cpu, domain, generation } = message else { continue };
            introduce(&mut controls, (cpu, domain, generation), received)?;
            awaited -= usize::from(domain == DomainId::DAEMON.number());
        }
        let connection = Arc::new(connection);
        Ok(Attachment {
            connection,
            virtual_processors,
            controls,
            orphaned,
            claimed,
            refused,
            events_refused,
            missing,
        })
    }

    /// Hands the new virtual processors to the executors.
    fn take_up(&mut self, attachment: Attachment) -> Arc<Connection> {
        let Attachment {
            connection,
            virtual_processors,
            controls,
            orphaned,
            claimed,
            refused,
            events_refused,
            missing,
        } = attachment;
        let mut state = lock(&self.state);
        // Activities that the program closed meanwhile.
        for &order in claimed.keys().filter(|order| !state.admitted.contains_key(order)) {
            let _ = connection.send(&ToDaemon::Close { order }.encode(), &[]);
        }
        let unclaimed: Vec<u32> = refused.iter().map(|(order, _)| *order).collect();
        for (order, reason) in refused {
            if let Some(AdmittedActivity { name: activity, .. }) = state.admitted.remove(&order) {
                state.notices.push(Notice::NotTakenOver { activity, reason });
            }
        }
        for (cpu, reason) in &events_refused {
            state.events.remove(cpu);
            let (cpu, reason) = (*cpu, reason.clone());
            state.notices.push(Notice::NoEventServer { cpu, reason });
        }
        state.notices.extend(missing);
        state.connection = Some(connection.clone());
        drop(state);
        self.orphaned = orphaned;
        let mut old = std::mem::replace(&mut self.controls, controls);
        for (cpu, mut virtual_processor) in virtual_processors {
            virtual_processor.set_unclaimed(unclaimed.clone());
            if events_refused.contains_key(&cpu) {
                virtual_processor.end_event_server();
            }
            let (mut old, mut new) = (old.iter_mut(), self.controls.iter_mut());
            let of_cpu = |control: &&mut (u32, VirtualProcessorControl)| control.0 == cpu;
            if let (Some((_, old)), Some((_, new))) = (old.find(of_cpu), new.find(of_cpu)) {
                old.replace(Box::new(virtual_processor), new);
            }
        }
        connection
    }
}

/// Claims a place. Returns the daemon's reason if it refuses. Blocks until the daemon has replied.
fn claim(
    connection: &Connection,
    order: u32,
    activity: &AdmittedActivity,
) -> Result<Option<String>, AttachError> {
    let AdmittedActivity { cpu, unscreened, need, name } = activity.clone();
    let request = u64::from(order);
    let asked = ToDaemon::Claim { request, unscreened, cpu, order, need, name };
    connection.send(&asked.encode(), &[])?;
    match next_message(connection)?.0 {
        ToDomain::Granted { cpu: at, order: of, .. } if (at, of) == (cpu, order) => Ok(None),
        ToDomain::Refused { reason, .. } => Ok(Some(reason)),
        other => Err(DaemonFault::out_of_place(other).into()),
    }
}

/// Claims the share of the event server on a CPU, as [`claim`] does.
fn claim_events(
    connection: &Connection,
    cpu: u32,
    share_ppm: u32,
) -> Result<Option<String>, AttachError> {
    let request = u64::from(cpu);
    connection.send(&ToDaemon::ReserveEvents { request, cpu, share_ppm }.encode(), &[])?;
    match next_message(connection)?.0 {
        ToDomain::EventsReserved { .. } => Ok(None),
        ToDomain::Refused { reason, .. } => Ok(Some(reason)),
        other => Err(DaemonFault::out_of_place(other).into()),
    }
}

/// Hands the executor of `cpu` a peer domain with its generation.
fn introduce(
    controls: &mut [(u32, VirtualProcessorControl)],
    (cpu, domain, generation): (u32, u32, u64),
    received: Received,
) -> Result<(), AttachError> {
    let control = controls.iter_mut().find(|(own, _)| *own == cpu);
    let fd = received.fds.into_iter().next();
    let (Some((_, control)), Some(fd), Some(domain)) = (control, fd, DomainId::new(domain)) else {
        return Err(DaemonFault::AreaMissing.into());
    };
    let mapping = ReadOnlyMapping::from_fd(fd, user_area::AREA_BYTES)?;
    let _ = (mapping.lock(), mapping.dont_fork());
    let area = Peer::attach(mapping, domain, generation)?;
    control.introduce(PeerDomain { domain, generation, area, is_present: false });
    Ok(())
}
