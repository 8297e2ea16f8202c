//! A process as one domain among others: its end of the daemon's socket.
//!
//! Used by [`crate::Runtime`]. A thread of ordinary class listens for what the
//! daemon says; it tells the executives who else is there, and hands answers to
//! whoever asked. Nothing of it is on the path of a hand-off.
//!
//! ```text
//!   Connected -- Hello --> (1) Welcome, Seats -- Thread for each --> (2) Attached
//!                                                                     |
//!                                   the daemon hangs up, or speaks nonsense
//!                                                                     v
//!                                                             (3) Orphaned
//! ```
//!
//! 1. It has a number and its pages, and runs nothing yet.
//! 2. The daemon knows its threads; it takes part.
//! 3. It goes on with what it has, without turns: each executive by itself.

use std::fmt;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rtrb::Producer;
use upcall_core::activity::{ActivityParams, Terms, WorkClass};
use upcall_core::time::Span;
use upcall_shm::kernel_area::Reader;
use upcall_shm::turn_page::TurnPage;
use upcall_shm::user_area::{LentMask, Owner, Peer};
use upcall_shm::wire::{MESSAGE_BYTES_MAX, Need, ToDaemon, ToDomain, WireError};
use upcall_shm::{DomainId, LayoutError, Measure, kernel_area, turn_page, user_area};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, ReceiveError, Received};
use upcall_sys::memfd::{MapError, ReadOnlyMapping, SharedMapping};
use upcall_sys::readiness::{self, Direction};

use crate::clock;
use crate::executive::ACTIVITIES_MAX;
use crate::offence::Offence;
use crate::seat::{Bell, Neighbour, Pages, Seat};

/// How long the daemon may take for an answer: it is an ordinary thread.
const ANSWER_WITHIN: Span = Span::from_secs(10);
/// A slot for each activity that an executive may have.
const _: () = assert!(user_area::PAGE_SLOTS == ACTIVITIES_MAX as usize);

/// Where the daemon is expected: `$UPCALL_SOCKET`; else `upcall.sock` in
/// `$XDG_RUNTIME_DIR`; else `/run/upcall.sock`, where only root can have put one.
pub fn daemon_socket() -> PathBuf {
    let named = |key| std::env::var_os(key).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("UPCALL_SOCKET")
        .or_else(|| named("XDG_RUNTIME_DIR").map(|folder| folder.join("upcall.sock")))
        .unwrap_or_else(|| PathBuf::from("/run/upcall.sock"))
}

/// Whether a daemon listens at `path`. Does not wait for it to say anything.
///
/// # Errors
/// It cannot be told: no right to connect (`EACCES`), a socket of another kind
/// (`EPROTOTYPE`), too many wait (`EAGAIN`), a path that is too long.
pub fn daemon_answers(path: &Path) -> Result<bool, OsError> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    match Connection::connect(path) {
        Ok(_) => Ok(true),
        Err(error) => match std::io::Error::from(error).kind() {
            NotFound | ConnectionRefused => Ok(false),
            _ => Err(error),
        },
    }
}

/// Why a process is not a domain.
#[derive(Debug)]
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
    /// The daemon hung up or said nothing in time.
    Silent,
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
            AttachError::Rejected(reason) => write!(f, "the daemon does not attach it: {reason}"),
            AttachError::Silent => f.write_str("the daemon did not answer"),
            AttachError::Daemon(what) => {
                write!(f, "the daemon is another version or wrong: {what}")
            }
            AttachError::Map(error) => error.fmt(f),
            AttachError::Os(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AttachError {}

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
    /// The seat on each CPU.
    pub(crate) seats: Vec<(u32, Seat)>,
    /// Whether threads get the real-time class.
    pub(crate) real_time: bool,
    pub(crate) switch_cost: Span,
}

/// See the module's head. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Domain {
    connection: Arc<Connection>,
    answers: mpsc::Receiver<ToDomain>,
    offences: mpsc::Receiver<Offence>,
    requests: u64,
    hung_up: Arc<AtomicBool>,
}

impl Domain {
    /// Attaches this process under `name`. Blocks until the daemon has answered.
    pub(crate) fn attach(path: &Path, name: &str, policy: &str) -> Result<Attached, AttachError> {
        let connection = Connection::connect(path)
            .map_err(|error| AttachError::Connect { path: path.to_owned(), error })?;
        let (name, policy) = (name.to_owned(), policy.to_owned());
        connection.send(&ToDaemon::Hello { name, policy }.encode(), &[])?;
        let (message, _) = next_message(&connection)?;
        let (number, generation, seat_count, real_time, switch_cost) = match message {
            ToDomain::Welcome { domain, generation, seats, real_time, switch_cost_ns } => {
                (domain, generation, seats, real_time, Span::from_nanos(switch_cost_ns))
            }
            ToDomain::Rejected { reason } => return Err(AttachError::Rejected(reason)),
            other => return Err(out_of_place(&other)),
        };
        let me = DomainId::new(number)
            .filter(|&me| me != DomainId::DAEMON)
            .ok_or_else(|| AttachError::Daemon(format!("domain number {number}")))?;
        let orphaned = Arc::new(AtomicBool::new(false));
        // Few: who offends too often gets no more turns.
        let (offences_in, offences) = mpsc::channel();
        let mut listener =
            Listener { halls: Vec::new(), orphaned: orphaned.clone(), offences: offences_in };
        let mut seats = Vec::new();
        for _ in 0..seat_count {
            let (message, received) = next_message(&connection)?;
            let ToDomain::Seat { cpu } = message else { return Err(out_of_place(&message)) };
            let pages = pages(received, me, generation)?;
            let (seat, arrivals) = Seat::new(pages, me, orphaned.clone());
            listener.halls.push(Hall { cpu, bell: seat.bell(), arrivals });
            seats.push((cpu, seat));
        }
        let connection = Arc::new(connection);
        let hung_up = Arc::new(AtomicBool::new(false));
        let (answers_in, answers) = mpsc::channel();
        let heard = connection.clone();
        let stop = hung_up.clone();
        std::thread::Builder::new()
            .name("upcall-domain".into())
            .spawn(move || listener.listen(&heard, &answers_in, &stop))
            .map_err(|error| AttachError::Daemon(error.to_string()))?;
        let domain = Domain { connection, answers, offences, requests: 0, hung_up };
        Ok(Attached { domain, seats, real_time, switch_cost })
    }

    /// Tells the daemon which thread is the virtual processor of a CPU. The daemon
    /// gives it its class.
    pub(crate) fn thread(&self, cpu: u32, tid: u32) -> Result<(), AttachError> {
        Ok(self.connection.send(&ToDaemon::Thread { cpu, tid }.encode(), &[])?)
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
        let (request, need, name) = (self.requests, need(params, terms), name.to_owned());
        let asked = ToDaemon::Create { request, unscreened, need, name };
        self.connection.send(&asked.encode(), &[])?;
        let within = Duration::from(ANSWER_WITHIN);
        loop {
            match self.answers.recv_timeout(within).map_err(|_| AttachError::Silent)? {
                ToDomain::Granted { request: of, cpu, order, .. } if of == request => {
                    return Ok(Ok(Place { cpu, order }));
                }
                ToDomain::Refused { request: of, reason, hint } if of == request => {
                    return Ok(Err(NoPlace { reason, hint }));
                }
                // Of a request that was given up.
                _ => {}
            }
        }
    }

    /// The offences since the last call.
    pub(crate) fn offences(&mut self) -> impl Iterator<Item = Offence> {
        self.offences.try_iter()
    }

    /// Gives a place back. If the daemon has gone, there is nobody to tell.
    pub(crate) fn close(&self, order: u32) {
        let _ = self.connection.send(&ToDaemon::Close { order }.encode(), &[]);
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // Relaxed: the listener looks again after each wait.
        self.hung_up.store(true, Ordering::Relaxed);
    }
}

/// One CPU, as the listener knows it.
struct Hall {
    cpu: u32,
    bell: Bell,
    arrivals: Producer<Neighbour>,
}

/// What listens to the daemon.
struct Listener {
    halls: Vec<Hall>,
    orphaned: Arc<AtomicBool>,
    offences: mpsc::Sender<Offence>,
}

/// How long the listener waits before it looks whether it is still wanted.
const LOOK_EVERY: Span = Span::from_millis(100);

impl Listener {
    fn listen(
        mut self,
        connection: &Connection,
        answers: &mpsc::Sender<ToDomain>,
        hung_up: &AtomicBool,
    ) {
        // Relaxed: see `Domain::drop`.
        while !hung_up.load(Ordering::Relaxed) {
            let until = clock::now() + LOOK_EVERY;
            let fd = connection.as_fd();
            match readiness::wait_until(fd, Direction::Readable, Some(until.as_nanos())) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => break,
            }
            match receive(connection) {
                Ok(Some((ToDomain::Peer { cpu, domain, generation }, received))) => {
                    // A peer that cannot be mapped does not take part for this domain.
                    let _ = self.peer(cpu, domain, generation, received);
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
                    let _ = answers.send(message);
                }
                Ok(None) => {}
                Err(_) => break,
            }
        }
        // Relaxed: the bell hands it over.
        self.orphaned.store(true, Ordering::Relaxed);
        self.halls.iter().for_each(|hall| hall.bell.ring());
    }

    fn peer(
        &mut self,
        cpu: u32,
        domain: u32,
        generation: u64,
        received: Received,
    ) -> Result<(), AttachError> {
        let hall = self.halls.iter_mut().find(|hall| hall.cpu == cpu);
        let fd = received.fds.into_iter().next();
        let (Some(hall), Some(fd), Some(domain)) = (hall, fd, DomainId::new(domain)) else {
            return Err(AttachError::Daemon("a peer without its area".to_owned()));
        };
        let mapping = ReadOnlyMapping::from_fd(fd, user_area::AREA_BYTES)?;
        let _ = (mapping.lock(), mapping.dont_fork());
        let area = Peer::attach(mapping, domain, generation)?;
        // Full only if the executive has not looked for dozens of arrivals.
        let mut neighbour = Neighbour { domain, generation, area, is_there: false };
        while let Err(rtrb::PushError::Full(back)) = hall.arrivals.push(neighbour) {
            neighbour = back;
            hall.bell.ring();
            std::thread::sleep(Duration::from_millis(1));
        }
        hall.bell.ring();
        Ok(())
    }
}

/// Maps what came with a seat: the turn page, the own area to write, the kernel area.
fn pages(received: Received, me: DomainId, generation: u64) -> Result<Pages, AttachError> {
    let mut fds = received.fds.into_iter();
    let (Some(turn), Some(user), Some(kernel)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(AttachError::Daemon("a seat without its pages".to_owned()));
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
        Ok(Received { len: 0, .. }) => Err(AttachError::Silent),
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
    }
}
