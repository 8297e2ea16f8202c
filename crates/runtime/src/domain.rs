//! A process as one domain among others: its end of the daemon's socket.
//!
//! Used by [`crate::Runtime`]. A thread of ordinary class listens for what the
//! daemon says; it tells the executors who else is there, and hands answers to
//! whoever asked. Nothing of it is on the path of a hand-off.
//!
//! ```text
//!   Connected -- Hello --> (1) Welcome, VirtualProcessors -- Thread for each --> (2) Attached
//!                                                                     |   ^
//!                                  the daemon ends, or speaks nonsense   |
//!                                                                     v   | Hello, Claims,
//!                                                             (3) Orphaned  Threads (4)
//! ```
//!
//! 1. It has a number and its pages, and runs nothing yet.
//! 2. The daemon knows its threads; it takes part.
//! 3. It goes on with what it has, without turns: each executor by itself. A daemon that
//!    ends in order puts the threads into the ordinary class. After one that was
//!    killed they keep the class they had, for their promises still stand: orphans on
//!    one CPU then share it as FIFO threads of one priority do, the first until it sleeps, and nobody
//!    guards them. What bounds them is what was admitted, and the kernel's limit on the
//!    real-time classes.
//! 4. The listener tries to connect again and again. It claims the places it had, and when the
//!    daemon has taken its threads up, it hands each executor its new virtual processor ([`crate::virtual processor`]).
//!    Until then the executors go on as orphans. A claim that is refused costs
//!    nobody its turn: the activity runs on, with a notice, last among its equals.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::time::Span;
use upcall_shm::kernel_area::Reader;
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{LentMask, Owner};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, ToDaemon, ToDomain, WireError};
use upcall_shm::{DomainId, LayoutError, kernel_area, turn_page, user_area};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::memfd::{MapError, ReadOnlyMapping, SharedMapping};
use upcall_sys::readiness::{self, Direction};

use crate::clock;
use crate::domain::virtual_processor::{Pages, VirtualProcessor, VirtualProcessorControl};
use crate::mailbox::ACTIVITIES_MAX;
use crate::offence::Offence;
use crate::rights::Notice;
use listener::Listener;

mod listener;
mod socket;
pub(crate) mod virtual_processor;

pub use socket::{daemon_answers, daemon_socket, own_daemon_socket, system_daemon_socket};

/// How long the daemon may take for an answer: it is an ordinary thread.
const ANSWER_WITHIN: Span = Span::from_secs(10);
/// A slot for each activity that an executor may have.
const _: () = assert!(user_area::AREA_SLOTS == ACTIVITIES_MAX as usize);

/// Why a process is not a domain.
#[non_exhaustive]
pub enum AttachError {
    /// Nobody listens at the path, or it may not be used.
    Connect {
        /// That path.
        path: PathBuf,
        /// What the system said.
        error: OsError,
    },
    /// The daemon does not want it.
    Rejected(String),
    /// The daemon said nothing in time.
    Silent,
    /// The daemon closed the connection before it had answered: it has ended.
    Closed,
    /// The daemon has gone, and there is no other yet.
    Orphaned,
    /// The daemon said what no daemon of this version does.
    Daemon(String),
    /// Its pages could not be mapped.
    Map(MapError),
    /// The connection failed.
    Os(OsError),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Connect { path, error } => {
                write!(f, "no daemon at {}: {error}", path.display())
            }
            AttachError::Rejected(reason) => {
                write!(f, "the daemon does not attach this process: {reason}")
            }
            AttachError::Silent => f.write_str("the daemon did not answer in time"),
            AttachError::Closed => f.write_str("the daemon ended before it had answered"),
            AttachError::Orphaned => {
                f.write_str("the daemon has gone; nothing new is admitted until another one runs")
            }
            AttachError::Daemon(what) => {
                write!(f, "the daemon is another version or wrong: {what}")
            }
            AttachError::Map(error) => {
                write!(f, "the pages of the daemon cannot be mapped: {error}")
            }
            AttachError::Os(error) => {
                write!(f, "the connection to the daemon failed: {error}")
            }
        }
    }
}

upcall_core::debug_as_display!(AttachError);

impl std::error::Error for AttachError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AttachError::Connect { error, .. } => Some(error),
            AttachError::Map(error) => Some(error),
            AttachError::Os(error) => Some(error),
            _ => None,
        }
    }
}

impl From<OsError> for AttachError {
    fn from(error: OsError) -> Self {
        AttachError::Os(error)
    }
}

impl From<MapError> for AttachError {
    fn from(error: MapError) -> Self {
        AttachError::Map(error)
    }
}

impl From<WireError> for AttachError {
    fn from(error: WireError) -> Self {
        AttachError::Daemon(error.to_string())
    }
}

impl From<LayoutError> for AttachError {
    fn from(error: LayoutError) -> Self {
        AttachError::Daemon(error.to_string())
    }
}

/// A place that the daemon's admission gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) order: u32,
}

/// Why there is none: the reason and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoPlace {
    pub(crate) reason: String,
    pub(crate) hint: String,
}

/// What the daemon gave to begin with.
pub(crate) struct Attached {
    pub(crate) domain: Domain,
    /// The virtual processor on each CPU.
    pub(crate) virtual_processors: Vec<(u32, VirtualProcessor)>,
    /// Whether threads get the real-time class.
    /// What the daemon cannot grant.
    pub(crate) missing: Option<Notice>,
    pub(crate) switch_cost: Span,
}

/// See the module's head. Dropped, it tells the daemon that it detaches.
#[derive(Debug)]
pub(crate) struct Domain {
    holdings: Arc<Mutex<Holdings>>,
    /// `None`: the daemon closed the connection.
    answers: mpsc::Receiver<Option<ToDomain>>,
    offences: mpsc::Receiver<Offence>,
    requests: u64,
    hung_up: Arc<AtomicBool>,
    /// That attached: a copy made by fork(2) must not detach it.
    process: u32,
}

/// What the program's end and the listener both know. Never locked for longer than it takes to
/// send a message.
#[derive(Debug, Default)]
struct Holdings {
    /// `None`: it is an orphan.
    connection: Option<Arc<Connection>>,
    /// Counts attempts to attach. What was granted under one and is not noted when the
    /// next begins is not claimed by it.
    attempts: u64,
    /// The activities that are to be claimed, by their places.
    held: BTreeMap<u32, Held>,
    /// The thread of each CPU.
    threads: BTreeMap<u32, u32>,
    notices: Vec<Notice>,
}

/// An activity as it was admitted.
#[derive(Clone, Debug)]
struct Held {
    cpu: u32,
    unscreened: bool,
    need: Need,
    name: String,
}

fn locked(holdings: &Mutex<Holdings>) -> MutexGuard<'_, Holdings> {
    holdings.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a daemon gives to whom it attaches.
struct Opened {
    connection: Connection,
    /// By CPU.
    virtual_processors: Vec<(u32, VirtualProcessor, VirtualProcessorControl)>,
    orphaned: Arc<AtomicBool>,
    /// What the daemon cannot grant.
    missing: Option<Notice>,
    switch_cost: Span,
}

/// Connects and says hello. Blocks until the daemon has answered.
fn open(path: &Path, name: &str, policy: &str) -> Result<Opened, AttachError> {
    let connection = Connection::connect(path)
        .map_err(|error| AttachError::Connect { path: path.to_owned(), error })?;
    let (name, policy) = (name.to_owned(), policy.to_owned());
    connection.send(&ToDaemon::Hello { name, policy }.encode(), &[])?;
    let (message, _) = next_message(&connection)?;
    let (number, generation, virtual_processor_count, real_time, [switch_cost, defer_preemption]) =
        match message {
            ToDomain::Welcome {
                domain,
                generation,
                virtual_processors,
                real_time,
                switch_cost_ns,
                defer_preemption_ns,
            } => {
                let spans = [switch_cost_ns, defer_preemption_ns].map(Span::from_nanos);
                (domain, generation, virtual_processors, real_time, spans)
            }
            ToDomain::Rejected { reason } => return Err(AttachError::Rejected(reason)),
            other => return Err(out_of_place(&other)),
        };
    let me = DomainId::new(number)
        .filter(|&me| me != DomainId::DAEMON)
        .ok_or_else(|| AttachError::Daemon(format!("domain number {number}")))?;
    let orphaned = Arc::new(AtomicBool::new(false));
    let mut virtual_processors = Vec::new();
    for _ in 0..virtual_processor_count {
        let (message, received) = next_message(&connection)?;
        let ToDomain::VirtualProcessor { cpu } = message else {
            return Err(out_of_place(&message));
        };
        let pages = pages(received, me, generation)?;
        let (virtual_processor, control) =
            VirtualProcessor::new(pages, me, defer_preemption, orphaned.clone());
        virtual_processors.push((cpu, virtual_processor, control));
    }
    let missing =
        (!real_time).then(|| Notice::NoRealTimeDaemon { program: peer_file(&connection) });
    Ok(Opened { connection, virtual_processors, orphaned, missing, switch_cost })
}

/// The file that the daemon runs. `None` if the kernel does not tell this user, or if
/// somebody else listens in the daemon's place, as systemd does for a socket unit.
fn peer_file(connection: &Connection) -> Option<PathBuf> {
    let pid = connection.peer_credentials().ok()?.pid;
    let file = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let is_systemd = file.file_name().is_some_and(|name| name == "systemd");
    (!is_systemd).then_some(file)
}

impl Domain {
    /// Attaches this process under `name`. Blocks until the daemon has answered.
    pub(crate) fn attach(path: &Path, name: &str, policy: &str) -> Result<Attached, AttachError> {
        let Opened { connection, virtual_processors, orphaned, missing, switch_cost } =
            open(path, name, policy)?;
        let (answers_in, answers) = mpsc::channel();
        // Few: who offends too often gets no more turns.
        let (offences_in, offences) = mpsc::channel();
        let connection = Arc::new(connection);
        let holdings = Arc::new(Mutex::new(Holdings {
            connection: Some(connection.clone()),
            ..Holdings::default()
        }));
        let mut listener = Listener {
            path: path.to_owned(),
            name: name.to_owned(),
            policy: policy.to_owned(),
            controls: Vec::new(),
            orphaned,
            holdings: holdings.clone(),
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
            .map_err(|error| AttachError::Daemon(error.to_string()))?;
        let process = std::process::id();
        let domain = Domain { holdings, answers, offences, requests: 0, hung_up, process };
        Ok(Attached { domain, virtual_processors: taken, missing, switch_cost })
    }

    /// Tells the daemon which thread is the virtual processor of a CPU. The daemon
    /// gives it its class.
    pub(crate) fn thread(&self, cpu: u32, tid: u32) -> Result<(), AttachError> {
        let mut holdings = locked(&self.holdings);
        holdings.threads.insert(cpu, tid);
        match &holdings.connection {
            Some(connection) => Ok(connection.send(&ToDaemon::Thread { cpu, tid }.encode(), &[])?),
            // The next daemon is told.
            None => Ok(()),
        }
    }

    /// Asks for a place. Blocks until the daemon has answered.
    pub(crate) fn create(
        &mut self,
        name: &str,
        params: &ActivityParams,
        terms: &Terms,
        unscreened: bool,
    ) -> Result<Result<Place, NoPlace>, AttachError> {
        self.requests += 1;
        let (request, need) = (self.requests, need(params, terms));
        let (connection, attempt) = {
            let holdings = locked(&self.holdings);
            // Of requests that were given up, and of daemons that have gone.
            while self.answers.try_recv().is_ok() {}
            let connection = holdings.connection.clone().ok_or(AttachError::Orphaned)?;
            (connection, holdings.attempts)
        };
        let asked = ToDaemon::Create { request, unscreened, need, name: name.to_owned() };
        connection.send(&asked.encode(), &[])?;
        let within = Duration::from(ANSWER_WITHIN);
        loop {
            match self.answers.recv_timeout(within).map_err(|_| AttachError::Silent)? {
                None => return Err(AttachError::Orphaned),
                Some(ToDomain::Granted { request: of, cpu, order, .. }) if of == request => {
                    let mut holdings = locked(&self.holdings);
                    if holdings.attempts != attempt {
                        return Err(AttachError::Orphaned);
                    }
                    let name = name.to_owned();
                    holdings.held.insert(order, Held { cpu, unscreened, need, name });
                    return Ok(Ok(Place { cpu, order }));
                }
                Some(ToDomain::Refused { request: of, reason, hint }) if of == request => {
                    return Ok(Err(NoPlace { reason, hint }));
                }
                // Of a request that was given up.
                Some(_) => {}
            }
        }
    }

    /// The offences since the last call.
    pub(crate) fn offences(&mut self) -> impl Iterator<Item = Offence> {
        self.offences.try_iter()
    }

    /// Gives a place back. If the daemon has gone, the next is not told of it.
    pub(crate) fn close(&self, order: u32) {
        let mut holdings = locked(&self.holdings);
        holdings.held.remove(&order);
        if let Some(connection) = &holdings.connection {
            let _ = connection.send(&ToDaemon::Close { order }.encode(), &[]);
        }
    }

    /// What there was to say since the last time.
    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut locked(&self.holdings).notices)
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Relaxed: the listener looks again after each wait.
        self.hung_up.store(true, Ordering::Relaxed);
        if self.process != std::process::id() {
            return;
        }
        if let Some(connection) = &locked(&self.holdings).connection {
            // Of a daemon that has gone there is nothing to detach from.
            let _ = connection.send(&ToDaemon::Detach.encode(), &[]);
        }
    }
}

/// Maps what came with a virtual processor: the turn page, the own area to write, the kernel area.
fn pages(received: Received, me: DomainId, generation: u64) -> Result<Pages, AttachError> {
    let mut fds = received.fds.into_iter();
    let (Some(turn), Some(user), Some(kernel)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(AttachError::Daemon("a virtual_processor without its pages".to_owned()));
    };
    let turn = SharedMapping::from_fd(turn, turn_page::PAGE_BYTES)?;
    let again = user.try_clone().map_err(|error| AttachError::Daemon(error.to_string()))?;
    let user = SharedMapping::from_fd(user, user_area::AREA_BYTES)?;
    let lent = SharedMapping::from_fd(again, user_area::AREA_BYTES)?;
    let kernel = ReadOnlyMapping::from_fd(kernel, kernel_area::PAGE_BYTES)?;
    // What cannot be locked may be paged out: the notice of `Runtime` says so.
    let _ = (turn.lock(), user.lock(), lent.lock(), kernel.lock());
    turn.dont_fork()?;
    user.dont_fork()?;
    lent.dont_fork()?;
    kernel.dont_fork()?;
    let user = Owner::create(user, me, generation)?;
    Ok(Pages {
        turn: Arc::new(TurnPage::attach(turn)?),
        mask: Arc::new(LentMask::attach(lent)?),
        user,
        kernel: Reader::attach(kernel)?,
    })
}

/// The next message, waited for.
fn next_message(connection: &Connection) -> Result<(ToDomain, Received), AttachError> {
    let until = clock::now() + ANSWER_WITHIN;
    loop {
        let fd = connection.as_fd();
        if !readiness::wait_until(fd, Direction::Readable, Some(until.as_nanos()))? {
            return Err(AttachError::Silent);
        }
        if let Some(message) = receive(connection)? {
            return Ok(message);
        }
    }
}

/// A message, if one is there.
fn receive(connection: &Connection) -> Result<Option<(ToDomain, Received)>, AttachError> {
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    match connection.receive(&mut buffer) {
        Ok(Received { len: 0, .. }) => Err(AttachError::Closed),
        Ok(received) => Ok(Some((ToDomain::decode(&buffer[..received.len])?, received))),
        Err(error) if error.is_would_block() => Ok(None),
        Err(ReceiveError::Os(error)) => Err(error.into()),
        Err(error) => Err(AttachError::Daemon(error.to_string())),
    }
}

fn out_of_place(message: &ToDomain) -> AttachError {
    AttachError::Daemon(format!("{message:?} out of place"))
}

fn need(params: &ActivityParams, terms: &Terms) -> Need {
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
    }
}
