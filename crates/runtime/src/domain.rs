//! A process as one domain among others: its end of the daemon's socket.
//!
//! [`crate::Runtime`] uses it. A thread of ordinary class, the listener, receives the daemon's
//! messages. It reports new peer domains to the executors, and hands replies to the threads that
//! made the requests. A hand-off does not involve it.
//!
//! ```text
//!   Connected -- Hello --> (1) Welcome, VirtualProcessors -- Thread for each --> (2) Attached
//!                                                                     |   ^
//!                                the daemon ends, or breaks the protocol  |
//!                                                                     v   | Hello, Claims,
//!                                                             (3) Orphaned  Threads (4)
//! ```
//!
//! 1. The domain has a number and its pages, and runs nothing yet.
//! 2. The daemon knows the domain's threads, and the domain takes part.
//! 3. The domain goes on without turns: each executor runs as if it were alone on its CPU. A daemon
//!    that ends in order puts the threads into the ordinary class. After a daemon that was killed
//!    the threads keep their class, because what was promised to the activities still stands.
//!    Orphans on one CPU then share it as FIFO threads of one priority do: the first runs until it
//!    sleeps. No watchdog guards them. What was admitted bounds them, and the kernel's limit on the
//!    real-time classes.
//! 4. The listener tries to connect again and again. It claims the places of the domain's
//!    activities. When the daemon has attached the domain's threads, the listener hands each
//!    executor its new virtual processor ([`virtual_processor`]). Until then the executors go on as
//!    orphans. A claim that is refused costs no other activity its turn. The refused activity runs
//!    on, with a notice, last among its equals.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use upcall_core::activity::{ActivityParams, Claim, Terms, WorkClass};
use upcall_core::admission::Share;
use upcall_core::discipline::{Discipline, DomainOrder};
use upcall_core::policy::ps::Group;
use upcall_core::time::{Instant, Span};
use upcall_shm::wire::{Need, Portion, ToDaemon, ToDomain};

use crate::daemon_fault::DaemonFault;
use crate::offence::Offence;
use crate::rights::Notice;
use attach::{ANSWER_WITHIN, Agreed, Connected, connect};
use attach_state::{AdmittedActivity, AttachState, lock};
use error::AttachError;
use listener::Listener;
use virtual_processor::VirtualProcessor;

mod accounts;
mod attach;
mod attach_state;
mod control;
pub(crate) mod error;
mod interruptions;
mod listener;
mod pages;
mod peers;
pub(crate) mod socket;
pub(crate) mod virtual_processor;
mod woken_peers;

/// A place that the daemon's admission gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) order: u32,
    /// The first release must not come before.
    pub(crate) not_before: Instant,
}

/// Why the daemon's admission gave no place: the reason and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub(crate) reason: String,
    pub(crate) hint: String,
}

/// The results of an attach: the domain, its virtual processors, and the daemon's settings.
pub(crate) struct Attached {
    pub(crate) domain: Domain,
    /// The virtual processor on each CPU.
    pub(crate) virtual_processors: Vec<(u32, VirtualProcessor)>,
    /// The right that the daemon cannot grant.
    pub(crate) missing: Option<Notice>,
    pub(crate) switch_cost: Span,
}

/// See the module's head. When it is dropped, it tells the daemon that the domain detaches.
#[derive(Debug)]
pub(crate) struct Domain {
    state: Arc<Mutex<AttachState>>,
    /// `None`: the daemon closed the connection.
    answers: mpsc::Receiver<Option<ToDomain>>,
    offences: mpsc::Receiver<Offence>,
    requests: u64,
    hung_up: Arc<AtomicBool>,
    /// The process that attached: a copy made by fork(2) must not detach it.
    process: u32,
}

impl Domain {
    /// Attaches this process under `name`. Blocks until the daemon has answered.
    pub(crate) fn attach(
        path: &Path,
        name: &str,
        discipline: &Discipline,
    ) -> Result<Attached, AttachError> {
        let by_accounts = discipline.domain_order() == DomainOrder::Accounts;
        let time_quantum = discipline.time_quantum.filter(|_| by_accounts);
        let (policy, groups) = (discipline.agreed(), groups_of(discipline));
        let agreed = Agreed { policy, time_quantum, groups };
        let Connected { connection, virtual_processors, orphaned, missing, switch_cost } =
            connect(path, name, &agreed)?;
        let (answers_in, answers) = mpsc::channel();
        // This queue stays short: a domain with too many offences gets no more turns.
        let (offences_in, offences) = mpsc::channel();
        let connection = Arc::new(connection);
        let state = Arc::new(Mutex::new(AttachState {
            connection: Some(connection.clone()),
            ..AttachState::default()
        }));
        let mut listener = Listener {
            path: path.to_owned(),
            name: name.to_owned(),
            agreed,
            controls: Vec::new(),
            orphaned,
            state: state.clone(),
            answers: answers_in,
            offences: offences_in,
            hung_up: Arc::new(AtomicBool::new(false)),
        };
        let hung_up = listener.hung_up.clone();
        let mut taken = Vec::new();
        for (cpu, virtual_processor, control) in virtual_processors {
            listener.controls.push((cpu, control));
            taken.push((cpu, virtual_processor));
        }
        std::thread::Builder::new()
            .name("upcall-domain".into())
            .spawn(move || listener.run(connection))
            .map_err(AttachError::Thread)?;
        let process = std::process::id();
        let domain = Domain { state, answers, offences, requests: 0, hung_up, process };
        Ok(Attached { domain, virtual_processors: taken, missing, switch_cost })
    }

    /// Tells the daemon the thread of the virtual processor of a CPU. The daemon gives the thread
    /// its class.
    pub(crate) fn thread(&self, cpu: u32, tid: u32) -> Result<(), AttachError> {
        let mut state = lock(&self.state);
        state.threads.insert(cpu, tid);
        match &state.connection {
            Some(connection) => Ok(connection.send(&ToDaemon::Thread { cpu, tid }.encode(), &[])?),
            // The listener tells the next daemon.
            None => Ok(()),
        }
    }

    /// Asks for a place, on `only_cpu` if there is one. Blocks until the daemon has answered.
    pub(crate) fn create(
        &mut self,
        name: &str,
        (params, terms): (&ActivityParams, &Terms),
        only_cpu: Option<u32>,
        unscreened: bool,
    ) -> Result<Result<Place, NoPlace>, AttachError> {
        let need = need(params, terms, only_cpu);
        let name = name.to_owned();
        let asked = |request| ToDaemon::Create { request, unscreened, need, name: name.clone() };
        let (place, attempt) = match self.ask(asked)? {
            Ok(granted) => granted,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut state = lock(&self.state);
        if state.attempts != attempt {
            return Err(AttachError::Orphaned);
        }
        let activity = AdmittedActivity { cpu: place.cpu, unscreened, need, name };
        state.admitted.insert(place.order, activity);
        Ok(Ok(place))
    }

    /// Asks for another share or weight of an activity. Blocks until the daemon has answered.
    pub(crate) fn reweigh(
        &mut self,
        order: u32,
        claim: Claim,
    ) -> Result<Result<Place, NoPlace>, AttachError> {
        let portion = portion_of(claim);
        let asked = |request| ToDaemon::Reweigh { request, order, portion };
        let (place, attempt) = match self.ask(asked)? {
            Ok(granted) => granted,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut state = lock(&self.state);
        if state.attempts != attempt {
            return Err(AttachError::Orphaned);
        }
        if let Some(AdmittedActivity { need, .. }) = state.admitted.get_mut(&order) {
            (need.share_ppm, need.weight) = match portion {
                Portion::Share(ppm) => (ppm, 0),
                Portion::Weight(weight) => (0, weight),
            };
        }
        Ok(Ok(place))
    }

    /// Asks for another share of the event server on a CPU; `None` gives the share back. Blocks
    /// until the daemon has answered.
    pub(crate) fn reserve_events(
        &mut self,
        cpu: u32,
        share: Option<Share>,
    ) -> Result<Result<(), NoPlace>, AttachError> {
        let share_ppm = share.map_or(0, Share::ppm);
        let asked = |request| ToDaemon::ReserveEvents { request, cpu, share_ppm };
        let attempt = match self.request(asked)? {
            Ok((_, attempt)) => attempt,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut state = lock(&self.state);
        if state.attempts != attempt {
            return Err(AttachError::Orphaned);
        }
        match share_ppm {
            0 => state.events.remove(&cpu),
            ppm => state.events.insert(cpu, ppm),
        };
        Ok(Ok(()))
    }

    /// Sends a request about a place, by its number. Blocks until the daemon has answered. Also
    /// returns which attachment the place belongs to.
    fn ask(
        &mut self,
        asked: impl FnOnce(u64) -> ToDaemon,
    ) -> Result<Result<(Place, u64), NoPlace>, AttachError> {
        match self.request(asked)? {
            Ok((ToDomain::Granted { cpu, order, not_before_ns, .. }, attempt)) => {
                let not_before = Instant::from_nanos(not_before_ns);
                Ok(Ok((Place { cpu, order, not_before }, attempt)))
            }
            Ok((other, _)) => Err(DaemonFault::out_of_place(other).into()),
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Sends a request, by its number. Blocks until the daemon has answered. Returns what it
    /// granted, and of which attachment.
    fn request(
        &mut self,
        asked: impl FnOnce(u64) -> ToDaemon,
    ) -> Result<Result<(ToDomain, u64), NoPlace>, AttachError> {
        self.requests += 1;
        let request = self.requests;
        let (connection, attempt) = {
            let state = lock(&self.state);
            // Answers to requests that were given up, and of daemons that have gone.
            while self.answers.try_recv().is_ok() {}
            let connection = state.connection.clone().ok_or(AttachError::Orphaned)?;
            (connection, state.attempts)
        };
        connection.send(&asked(request).encode(), &[])?;
        let within = Duration::from(ANSWER_WITHIN);
        loop {
            match self.answers.recv_timeout(within).map_err(|_| AttachError::Silent)? {
                None => return Err(AttachError::Orphaned),
                Some(
                    granted @ (ToDomain::Granted { request: of, .. }
                    | ToDomain::EventsReserved { request: of }),
                ) if of == request => return Ok(Ok((granted, attempt))),
                Some(ToDomain::Refused { request: of, reason, hint }) if of == request => {
                    return Ok(Err(NoPlace { reason, hint }));
                }
                // This answers a request that was given up.
                Some(_) => {}
            }
        }
    }

    /// The offences since the last call.
    pub(crate) fn offences(&mut self) -> impl Iterator<Item = Offence> {
        self.offences.try_iter()
    }

    /// Gives a place back. If the daemon has gone, the listener does not claim the place at the
    /// next daemon.
    pub(crate) fn close(&self, order: u32) {
        let mut state = lock(&self.state);
        state.admitted.remove(&order);
        if let Some(connection) = &state.connection {
            let _ = connection.send(&ToDaemon::Close { order }.encode(), &[]);
        }
    }

    /// The notices since the last call.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.state).notices)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Relaxed: the listener looks again after each wait.
        self.hung_up.store(true, Ordering::Relaxed);
        if self.process != std::process::id() {
            return;
        }
        if let Some(connection) = &lock(&self.state).connection {
            // A daemon that has gone needs no message.
            let _ = connection.send(&ToDaemon::Detach.encode(), &[]);
        }
    }
}

fn portion_of(claim: Claim) -> Portion {
    match claim {
        Claim::Share(share) => Portion::Share(share.ppm()),
        Claim::Weight(weight) => Portion::Weight(weight),
    }
}

/// The definition of each group, in their order.
fn groups_of(discipline: &Discipline) -> Vec<ToDaemon> {
    let define = |(at, group): (usize, &Group)| ToDaemon::Group {
        parent: group.parent.map(|parent| parent.0.into()),
        // A weight of 0 counts as 1.
        portion: match portion_of(group.claim) {
            Portion::Weight(weight) => Portion::Weight(weight.max(1)),
            share @ Portion::Share(_) => share,
        },
        name: discipline.group_names.get(at).cloned().unwrap_or_default(),
    };
    discipline.groups.iter().enumerate().map(define).collect()
}

fn need(params: &ActivityParams, terms: &Terms, only_cpu: Option<u32>) -> Need {
    Need {
        period_ns: params.period.as_nanos(),
        deadline_ns: params.deadline.as_nanos(),
        offset_ns: params.offset.as_nanos(),
        batch: params.batch,
        quantum: params.quantum,
        pdu_cost_ns: params.pdu_cost.as_nanos(),
        class: match terms.class {
            WorkClass::RealTime => 0,
            WorkClass::Interactive => 1,
            WorkClass::Background => 2,
        },
        workahead_max: terms.workahead_max,
        delay_bound_ns: terms.delay_bound.map_or(0, Span::as_nanos),
        on_demand: terms.on_demand,
        wins_ties: terms.wins_ties,
        share_ppm: terms.share.map_or(0, Share::ppm),
        weight: terms.weight.unwrap_or(0),
        window_misses: terms.window.map_or(0, |window| window.misses),
        window_periods: terms.window.map_or(0, |window| window.periods),
        group: terms.group.map(|group| group.0.into()),
        only_cpu,
    }
}
