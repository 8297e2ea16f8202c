//! The thread that hears what the daemon says, and finds the next one when it has gone.
//!
//! Started by [`super::Domain::attach`]; see there for the states. Of ordinary class: an
//! executor never waits for it.

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

use super::{AttachError, Held, Holdings, Opened};
use super::{locked, next_message, open, out_of_place, receive};
use crate::clock;
use crate::domain::virtual_processor::{PeerDomain, VirtualProcessor, VirtualProcessorControl};
use crate::offence::Offence;
use crate::rights::Notice;

/// How long the listener waits before it looks whether it is still wanted.
const LOOK_EVERY: Span = Span::from_millis(100);
/// Looks from one attempt to attach again to the next.
const LOOKS_BETWEEN: u32 = 2;
/// The same after a daemon answered that this domain is nothing for it.
const LOOKS_AFTER_REJECTION: u32 = 20;

/// See the module's head.
pub(super) struct Listener {
    pub(super) path: PathBuf,
    /// Of the domain.
    pub(super) name: String,
    pub(super) policy: String,
    /// The other end of each executor's virtual processor, by CPU.
    pub(super) controls: Vec<(u32, VirtualProcessorControl)>,
    /// Of the present virtual processors.
    pub(super) orphaned: Arc<AtomicBool>,
    pub(super) holdings: Arc<Mutex<Holdings>>,
    pub(super) answers: mpsc::Sender<Option<ToDomain>>,
    pub(super) offences: mpsc::Sender<Offence>,
    pub(super) hung_up: Arc<AtomicBool>,
}

/// A domain among others again, but that its executors do not know.
struct Attachment {
    connection: Arc<Connection>,
    virtual_processors: Vec<(u32, VirtualProcessor)>,
    controls: Vec<(u32, VirtualProcessorControl)>,
    orphaned: Arc<AtomicBool>,
    /// Claimed, whether with success or not.
    claimed: BTreeMap<u32, Held>,
    /// Places that were refused, and why.
    refused: Vec<(u32, String)>,
    missing: Option<Notice>,
}

impl Listener {
    /// Until the domain is given up.
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

    /// Until the daemon or this process hangs up.
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
                Ok(Some((ToDomain::Peer { cpu, domain, generation }, received))) => {
                    // A peer that cannot be mapped does not take part for this domain.
                    let _ = introduce(&mut self.controls, (cpu, domain, generation), received);
                }
                Ok(Some((ToDomain::Offence { cpu, measure, held_ns }, _))) => {
                    // A measure that is not known here is another version's.
                    let held = Span::from_nanos(held_ns);
                    let offence =
                        Measure::of_number(measure).map(|measure| Offence { cpu, measure, held });
                    // Nobody listens when the runtime is just being dropped.
                    let _ = offence.map(|offence| self.offences.send(offence));
                }
                Ok(Some((message, _))) => {
                    let _ = self.answers.send(Some(message));
                }
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    fn become_orphan(&self) {
        // Relaxed: the bell hands it over.
        self.orphaned.store(true, Ordering::Relaxed);
        self.controls.iter().for_each(|(_, control)| control.notify());
        let mut holdings = locked(&self.holdings);
        holdings.connection = None;
        // Under the lock: who has the next connection has this one behind it.
        let _ = self.answers.send(None);
    }

    /// Attaches again, as soon as there is a daemon; `None`: it is not wanted any more.
    fn find_daemon(&mut self) -> Option<Arc<Connection>> {
        let mut looks = LOOKS_BETWEEN;
        loop {
            for _ in 0..looks {
                std::thread::sleep(Duration::from(LOOK_EVERY));
                if !self.is_wanted() {
                    return None;
                }
            }
            looks = match self.attach_again() {
                Ok(attachment) => return Some(self.take_up(attachment)),
                Err(AttachError::Rejected(_) | AttachError::Daemon(_)) => LOOKS_AFTER_REJECTION,
                Err(_) => LOOKS_BETWEEN,
            };
        }
    }

    /// Says hello, claims what this domain had, and gives its threads over. The
    /// executors go on as orphans meanwhile.
    fn attach_again(&self) -> Result<Attachment, AttachError> {
        let opened = open(&self.path, &self.name, &self.policy)?;
        let Opened { connection, virtual_processors: all, orphaned, missing, .. } = opened;
        let (claimed, threads) = {
            let mut holdings = locked(&self.holdings);
            holdings.attempts += 1;
            (holdings.held.clone(), holdings.threads.clone())
        };
        let (mut virtual_processors, mut controls) = (Vec::new(), Vec::new());
        for (cpu, virtual_processor, control) in all {
            // On other CPUs it has no thread.
            if self.controls.iter().any(|(own, _)| *own == cpu) {
                virtual_processors.push((cpu, virtual_processor));
                controls.push((cpu, control));
            }
        }
        if virtual_processors.len() < self.controls.len() || threads.len() < self.controls.len() {
            let what = format!(
                "it schedules {} of {} CPUs",
                virtual_processors.len(),
                self.controls.len()
            );
            return Err(AttachError::Daemon(what));
        }
        let mut refused = Vec::new();
        for (&order, held) in &claimed {
            if let Some(reason) = claim(&connection, order, held)? {
                refused.push((order, reason));
            }
        }
        for (&cpu, &tid) in &threads {
            connection.send(&ToDaemon::Thread { cpu, tid }.encode(), &[])?;
        }
        // It is taking part on a CPU when it hears of the daemon as one of the others.
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
            missing,
        } = attachment;
        let mut holdings = locked(&self.holdings);
        // Closed meanwhile.
        for &order in claimed.keys().filter(|order| !holdings.held.contains_key(order)) {
            let _ = connection.send(&ToDaemon::Close { order }.encode(), &[]);
        }
        let unclaimed: Vec<u32> = refused.iter().map(|(order, _)| *order).collect();
        for (order, reason) in refused {
            if let Some(Held { name: activity, .. }) = holdings.held.remove(&order) {
                holdings.notices.push(Notice::NotTakenOver { activity, reason });
            }
        }
        holdings.notices.extend(missing);
        holdings.connection = Some(connection.clone());
        drop(holdings);
        self.orphaned = orphaned;
        let mut old = std::mem::replace(&mut self.controls, controls);
        for (cpu, mut virtual_processor) in virtual_processors {
            virtual_processor.set_unclaimed(unclaimed.clone());
            let (mut old, mut new) = (old.iter_mut(), self.controls.iter_mut());
            let of_cpu = |control: &&mut (u32, VirtualProcessorControl)| control.0 == cpu;
            if let (Some((_, old)), Some((_, new))) = (old.find(of_cpu), new.find(of_cpu)) {
                old.replace(Box::new(virtual_processor), new);
            }
        }
        connection
    }
}

/// Claims a place: `Some` reason if it is refused. Blocks until the daemon has answered.
fn claim(connection: &Connection, order: u32, held: &Held) -> Result<Option<String>, AttachError> {
    let Held { cpu, unscreened, need, name } = held.clone();
    let request = u64::from(order);
    let asked = ToDaemon::Claim { request, unscreened, cpu, order, need, name };
    connection.send(&asked.encode(), &[])?;
    match next_message(connection)?.0 {
        ToDomain::Granted { cpu: at, order: of, .. } if (at, of) == (cpu, order) => Ok(None),
        ToDomain::Refused { reason, .. } => Ok(Some(reason)),
        other => Err(out_of_place(&other)),
    }
}

/// Tells the executor of a CPU that there is another domain, with a generation.
fn introduce(
    controls: &mut [(u32, VirtualProcessorControl)],
    (cpu, domain, generation): (u32, u32, u64),
    received: Received,
) -> Result<(), AttachError> {
    let control = controls.iter_mut().find(|(own, _)| *own == cpu);
    let fd = received.fds.into_iter().next();
    let (Some((_, control)), Some(fd), Some(domain)) = (control, fd, DomainId::new(domain)) else {
        return Err(AttachError::Daemon("a peer without its area".to_owned()));
    };
    let mapping = ReadOnlyMapping::from_fd(fd, user_area::AREA_BYTES)?;
    let _ = (mapping.lock(), mapping.dont_fork());
    let area = Peer::attach(mapping, domain, generation)?;
    control.introduce(PeerDomain { domain, generation, area, is_there: false });
    Ok(())
}
