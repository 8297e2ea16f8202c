//! The daemon's socket, and the thread that attaches, admits and detaches.
//!
//! Used by `upcalld` and by tests. One thread of ordinary class does all that changes
//! who is there; the KLS threads and the [`crate::guardian`] only look at it.
//!
//! ```text
//!   accepted -- (1) Hello --> attached -- (2) Thread, for each CPU --> taking part
//!      |                         |                                        |
//!      +-------------------------+---- (3) hangs up, ends, nonsense ------+--> detached
//! ```
//!
//! 1. It gets a number and its pages; its user's halls are made if it is the first.
//! 2. Its user area is sealed, so that it alone writes it; its thread gets the
//!    real-time class, everyone else its area. From here on it gets turns.
//! 3. What it had reserved is free, its numbers too; its threads, if there still are
//!    any, are of ordinary class. With the last of a user its halls are closed.
//!
//! A client that does not read its answers is hung up on: nothing here waits for one.

use core::fmt;
use core::num::NonZeroU64;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use upcall_core::admission::{Platform, Share};
use upcall_core::policy::Discipline;
use upcall_core::policy::rmdp::RMDP;
use upcall_core::time::{Instant, Span};
use upcall_shm::DomainId;
use upcall_shm::user_area::AREA_BYTES;
use upcall_shm::wire::{MESSAGE_BYTES_MAX, ToDaemon, ToDomain};
pub use upcall_sys::local::Access;
use upcall_sys::local::{Connection, Credentials, Listener, Received};
use upcall_sys::memfd::SharedMapping;
use upcall_sys::process::{PidFd, Signal, ThreadState, thread_state};
use upcall_sys::readiness::{Direction, Readiness, Watch};
use upcall_sys::{OsError, clock, schedule};

use crate::calibrate;
use crate::guardian::{self, Guardian, Measure, Offence, Rules};
use crate::hall::{Hall, HallError, Member, PROXY_GENERATION};
use crate::kls::{self, DOMAIN_PRIORITY, Kls};
use crate::registry::{Claimed, Grant, Owner, PlaceError, Quota, Registry};
use crate::site::Site;
use crate::status::{Scene, Telling};
use crate::usher::{Staffed, Usher};

#[cfg(test)]
mod tests;

/// How a daemon is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens.
    pub socket: PathBuf,
    /// Who may connect.
    pub access: Access,
    /// CPUs that handlers may use.
    pub cpus: Vec<u32>,
    /// Most of a CPU that admission gives away.
    pub cpu_limit: Share,
    /// What admission counts for a hand-off; `None` measures it.
    pub switch_cost: Option<Span>,
    /// Longest wake-up latency that admission allows for.
    pub wakeup_latency: Span,
    /// By which policy: `rmdp`, `rm` or `dws`.
    pub discipline: &'static Discipline,
    /// What one user may have.
    pub quota: Quota,
    /// CPU time beyond its longest quantum that a domain may take to yield.
    pub grace: Span,
    /// Whether one that was demoted is killed.
    pub kill: bool,
    /// For so long from its start on, it takes domains at their word that say what a
    /// former daemon at the socket had admitted ([`Registry::claim`]). Who is new
    /// meanwhile is admitted beside what has been claimed by then.
    pub claims_within: Span,
}

impl Config {
    /// One user's daemon at `socket`, for `cpus`, with what else is usual.
    pub fn new(socket: PathBuf, cpus: Vec<u32>) -> Self {
        Config {
            socket,
            access: Access::Owner,
            cpus,
            cpu_limit: Share::CPU_LIMIT_DEFAULT,
            switch_cost: None,
            wakeup_latency: Span::ZERO,
            discipline: &RMDP,
            quota: Quota { domains_max: upcall_shm::DOMAINS_MAX as usize, share_max_ppm: u64::MAX },
            grace: Span::from_millis(5),
            kill: false,
            claims_within: Span::from_secs(10),
        }
    }
}

/// Something that whoever runs the daemon may want to know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A process became a domain.
    Attached {
        /// Its number.
        domain: u32,
        /// As it said.
        name: String,
        /// Process and user.
        owner: Owner,
    },
    /// A process is not a domain any more.
    Detached {
        /// Its number.
        domain: u32,
        /// As it said.
        name: String,
        /// Why, in a few words.
        reason: String,
    },
    /// A process was not attached, or an activity got no place.
    Refused {
        /// Who asked.
        owner: Owner,
        /// Why.
        reason: String,
    },
    /// The guardian acted.
    Offence {
        /// Against this domain.
        domain: u32,
        /// As it said.
        name: String,
        /// On this CPU.
        cpu: u32,
        /// What it did.
        measure: Measure,
        /// CPU time for which it had kept the CPU.
        held: Span,
    },
    /// A right is missing or something failed; the daemon goes on.
    Trouble(String),
}

/// Why a daemon does not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The socket cannot be listened at.
    Listen {
        /// That one.
        socket: PathBuf,
        /// What the kernel said; `EADDRINUSE`: a daemon is there.
        error: OsError,
    },
    /// A policy whose ranks do not compare across processes.
    Policy(&'static str),
    /// No CPU, or one that this process may not use.
    Cpu(Option<u32>),
    /// The kernel refused.
    Os(OsError),
    /// No memory to measure with.
    Pages(HallError),
    /// A thread did not start.
    Thread(std::io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen { socket, error } => write!(f, "{}: {error}", socket.display()),
            StartError::Policy(policy) => {
                write!(f, "policy `{policy}` across processes, expected rmdp, rm or dws")
            }
            StartError::Cpu(Some(cpu)) => write!(f, "CPU {cpu} may not be used by this process"),
            StartError::Cpu(None) => f.write_str("no CPU to schedule"),
            StartError::Os(error) => error.fmt(f),
            StartError::Pages(error) => error.fmt(f),
            StartError::Thread(error) => write!(f, "a thread did not start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<OsError> for StartError {
    fn from(error: OsError) -> Self {
        StartError::Os(error)
    }
}

/// So many halls of a user on a CPU may be on their way out when it comes back: each has
/// descriptors, of which the daemon has but so many for all.
const LEAVING_MAX: usize = 32;

/// Numbers of watches; a session has two from [`SESSIONS`] on.
const LISTENER: u64 = 0;
const OFFENCES: u64 = 1;
const SESSIONS: u64 = 2;

/// Ends a daemon from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<Readiness>);

impl Stopper {
    /// Makes [`Daemon::run`] return.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// See the module's head.
pub struct Daemon {
    config: Config,
    real_time: bool,
    switch_cost: Span,
    /// The end of [`Config::claims_within`].
    claims_until: Instant,
    registry: Registry,
    sites: Vec<Arc<Site>>,
    /// All halls of all sites.
    halls: Vec<Staffed>,
    /// Until the end.
    usher: Option<Usher>,
    sessions: BTreeMap<u64, Session>,
    sessions_ever: u64,
    readiness: Arc<Readiness>,
    listener: Listener,
    listener_watch: Watch,
    offences: Connection,
    offences_watch: Watch,
    guardian: Option<JoinHandle<()>>,
    guardian_quit: Arc<AtomicBool>,
    events: Vec<Event>,
    attached_ever: Arc<AtomicU64>,
}

/// A connection.
struct Session {
    connection: Connection,
    credentials: Credentials,
    process: PidFd,
    connection_watch: Watch,
    _process_watch: Watch,
    domain: Option<Attached>,
    /// It asked how things stand.
    telling: Option<Telling>,
}

/// A connection that is a domain.
struct Attached {
    number: DomainId,
    generation: NonZeroU64,
    seats: Vec<Seat>,
}

/// A domain on a CPU.
struct Seat {
    hall: Arc<Hall>,
    /// Its area, until its thread is there.
    memory: Option<SharedMapping>,
    /// From its thread on.
    member: Option<Arc<Member>>,
}

/// What ends a session, in a few words.
struct Over(String);

impl<E: fmt::Display> From<E> for Over {
    fn from(error: E) -> Self {
        Over(error.to_string())
    }
}

impl Daemon {
    /// Listens, and starts the guardian. Whether the real-time class is granted is
    /// found out now. Blocks for a moment.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        if !config.discipline.across_domains {
            return Err(StartError::Policy(config.discipline.name));
        }
        let allowed = schedule::allowed_cpus()?;
        let stranger = config.cpus.iter().find(|cpu| !allowed.contains(cpu));
        if stranger.is_some() || config.cpus.is_empty() {
            return Err(StartError::Cpu(stranger.copied()));
        }
        let mut events = Vec::new();
        let real_time = match schedule::fifo_permission(guardian::PRIORITY) {
            Ok(()) => true,
            Err(refusal) => {
                let what = "handlers run in the ordinary class, without guarantees";
                events.push(Event::Trouble(format!("{refusal}: {what}")));
                false
            }
        };
        let switch_cost = match config.switch_cost {
            Some(cost) => cost,
            None => {
                calibrate::handoff_cost(config.cpus[0], real_time).map_err(StartError::Pages)?
            }
        };
        let listener = Listener::bind(&config.socket, config.access)
            .map_err(|error| StartError::Listen { socket: config.socket.clone(), error })?;
        let sites: Vec<_> = config.cpus.iter().map(|&cpu| Arc::new(Site::new(cpu))).collect();
        let (offences, reports) = Connection::pair()?;
        let guardian_quit = Arc::new(AtomicBool::new(false));
        let rules = Rules { real_time, grace: config.grace, kill: config.kill };
        let guardian = Guardian::new((&sites, &allowed), rules, guardian_quit.clone(), {
            // If the server is so far behind, the counts in the kernel area remain.
            move |offence| {
                let _ = reports.send(&encode(&offence), &[]);
            }
        });
        let guardian = std::thread::Builder::new()
            .name("upcall-guardian".into())
            .spawn(move || guardian.run())
            .map_err(StartError::Thread)?;
        let readiness = Arc::new(Readiness::new()?);
        let watch = |fd, number| Watch::new(&readiness, fd, Direction::Readable, number);
        let platform = Platform {
            cpus: config.cpus.clone(),
            cpu_limit: config.cpu_limit,
            switch_cost,
            wakeup_latency: config.wakeup_latency,
        };
        let mut registry = Registry::new(config.discipline, platform, config.quota);
        let now = Instant::from_nanos(clock::monotonic_ns());
        registry.begin_orders_at(first_order(now));
        Ok(Daemon {
            real_time,
            switch_cost,
            claims_until: now + config.claims_within,
            registry,
            sites,
            halls: Vec::new(),
            usher: Some(Usher::start().map_err(StartError::Thread)?),
            sessions: BTreeMap::new(),
            sessions_ever: 0,
            listener_watch: watch(listener.as_fd(), LISTENER)?,
            offences_watch: watch(offences.as_fd(), OFFENCES)?,
            readiness,
            listener,
            offences,
            guardian: Some(guardian),
            guardian_quit,
            events,
            attached_ever: Arc::default(),
            config,
        })
    }

    /// To end it from elsewhere.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.readiness.clone())
    }

    /// How many domains there are.
    pub fn domains(&self) -> usize {
        self.registry.domains().count()
    }

    /// How many have attached so far, to be looked at from elsewhere.
    pub fn attached_ever(&self) -> Arc<AtomicU64> {
        self.attached_ever.clone()
    }

    /// What admission counts for a hand-off.
    pub fn switch_cost(&self) -> Span {
        self.switch_cost
    }

    /// Whether handlers get the real-time class.
    pub fn is_real_time(&self) -> bool {
        self.real_time
    }

    /// Serves until it is stopped, and tells `on_event` what happens, with the number of
    /// domains there are then.
    pub fn run(mut self, mut on_event: impl FnMut(&Event, usize)) {
        loop {
            self.hand_out(&mut on_event);
            let mut ready = Vec::new();
            let readiness = self.readiness.clone();
            if !readiness.wait(|number| ready.push(number)) {
                break;
            }
            ready.into_iter().for_each(|number| self.serve(number));
        }
        self.end_all();
        self.hand_out(&mut on_event);
    }

    fn hand_out(&mut self, on_event: &mut impl FnMut(&Event, usize)) {
        for event in std::mem::take(&mut self.events) {
            on_event(&event, self.domains());
        }
    }

    fn end_all(&mut self) {
        let sessions: Vec<u64> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.end(session, "the daemon ends"));
    }

    fn serve(&mut self, number: u64) {
        match number {
            LISTENER => {
                self.accept();
                let armed = self.listener_watch.arm();
                self.note(armed);
            }
            OFFENCES => {
                self.take_offences();
                let armed = self.offences_watch.arm();
                self.note(armed);
            }
            _ => {
                let session = (number - SESSIONS) / 2;
                let ended = if (number - SESSIONS).is_multiple_of(2) {
                    self.listen_to(session)
                } else {
                    Err(Over("its process has ended".to_owned()))
                };
                if let Err(Over(reason)) = ended {
                    self.end(session, &reason);
                }
            }
        }
    }

    fn note(&mut self, result: Result<(), OsError>) {
        if let Err(error) = result {
            self.events.push(Event::Trouble(error.to_string()));
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok(None) => return,
                Ok(Some(connection)) => {
                    let session = self.welcome(connection);
                    self.note(session);
                }
                Err(error) => {
                    self.events.push(Event::Trouble(error.to_string()));
                    // Out of descriptors, as a rule: not at full speed.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            }
        }
    }

    fn welcome(&mut self, connection: Connection) -> Result<(), OsError> {
        let number = self.sessions_ever;
        let watch = SESSIONS + 2 * number;
        let process = connection.peer_pidfd()?;
        let watched =
            |fd: BorrowedFd<'_>, watch| Watch::new(&self.readiness, fd, Direction::Readable, watch);
        let session = Session {
            credentials: connection.peer_credentials()?,
            connection_watch: watched(connection.as_fd(), watch)?,
            _process_watch: watched(process.as_fd(), watch + 1)?,
            process,
            connection,
            domain: None,
            telling: None,
        };
        self.sessions_ever += 1;
        self.sessions.insert(number, session);
        Ok(())
    }

    /// Takes all messages there are of a session.
    fn listen_to(&mut self, number: u64) -> Result<(), Over> {
        loop {
            if !self.tell(number)? {
                return Ok(());
            }
            let Some(session) = self.sessions.get(&number) else { return Ok(()) };
            let mut buffer = [0; MESSAGE_BYTES_MAX];
            match session.connection.receive(&mut buffer) {
                Ok(Received { len: 0, .. }) => return Err(Over("it hung up".to_owned())),
                Ok(Received { len, .. }) => {
                    let message = ToDaemon::decode(&buffer[..len])?;
                    self.obey(number, message)?;
                }
                Err(error) if error.is_would_block() => {
                    return Ok(session.connection_watch.arm()?);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn obey(&mut self, session: u64, message: ToDaemon) -> Result<(), Over> {
        match message {
            ToDaemon::Hello { name, policy } => self.attach(session, &name, &policy),
            ToDaemon::Thread { cpu, tid } => self.seat(session, cpu, tid),
            ToDaemon::Create { request, unscreened, need, name } => {
                let number = self.domain_of(session)?.number.number();
                let placed = self.registry.create(number, &name, &need, unscreened);
                self.answer(session, request, &name, placed)
            }
            ToDaemon::Claim { request, unscreened, cpu, order, need, name } => {
                let number = self.domain_of(session)?.number.number();
                let trusted = Instant::from_nanos(clock::monotonic_ns()) < self.claims_until;
                let claimed = Claimed { cpu, order, unscreened, trusted };
                let placed = self.registry.claim(number, &name, &need, claimed);
                self.answer(session, request, &name, placed)
            }
            ToDaemon::Close { order } => {
                let number = self.domain_of(session)?.number.number();
                self.registry.close(number, order);
                self.set_limits(session);
                Ok(())
            }
            ToDaemon::Inspect => {
                let real_time = self.real_time;
                let scene = Scene { registry: &self.registry, sites: &self.sites };
                let asking = self.sessions.get_mut(&session).filter(|s| s.domain.is_none());
                let asking = asking.ok_or("a domain asked how things stand")?;
                asking.telling = Some(Telling::begin(&scene, &asking.credentials, real_time));
                Ok(())
            }
        }
    }

    /// Tells a domain whether an activity has a place.
    fn answer(
        &mut self,
        session: u64,
        request: u64,
        name: &str,
        placed: Result<Grant, PlaceError>,
    ) -> Result<(), Over> {
        let answer = match placed {
            Ok(grant) => ToDomain::Granted {
                request,
                cpu: grant.cpu,
                order: grant.order,
                response_max_ns: grant.response_max.map_or(u64::MAX, Span::as_nanos),
            },
            Err(error) => {
                let reason = error.to_string();
                self.refused(session, &format!("{name}: {reason}"));
                ToDomain::Refused { request, reason, hint: error.hint() }
            }
        };
        self.set_limits(session);
        self.say(session, &answer, &[])
    }

    /// Goes on answering an inspector; `false`: it is to be listened to later.
    fn tell(&mut self, number: u64) -> Result<bool, Over> {
        let scene = Scene { registry: &self.registry, sites: &self.sites };
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(false) };
        let Some(telling) = &mut session.telling else { return Ok(true) };
        if telling.go_on(&scene, &session.connection)? {
            session.telling = None;
            // Whatever it asks next comes after what others ask.
            session.connection_watch.arm()?;
        } else if let Some(room) = &telling.room {
            room.arm()?;
        } else {
            let (fd, watch) = (session.connection.as_fd(), SESSIONS + 2 * number);
            telling.room = Some(Watch::new(&self.readiness, fd, Direction::Writable, watch)?);
        }
        Ok(false)
    }

    fn attach(&mut self, session: u64, name: &str, policy: &str) -> Result<(), Over> {
        let Some(Session { credentials, domain, .. }) = self.sessions.get(&session) else {
            return Ok(());
        };
        if domain.is_some() {
            return Err(Over("it said hello twice".to_owned()));
        }
        let owner = Owner { uid: credentials.uid, pid: credentials.pid };
        let number = match self.registry.attach(owner, name, policy) {
            Ok(number) => number,
            Err(error) => {
                let reason = error.to_string();
                return Err(self.rejected(session, reason));
            }
        };
        let seated = self.seats_for(session, owner, number);
        if let Err(Over(reason)) = seated {
            self.registry.detach(number);
            self.close_halls(owner.uid);
            return Err(self.rejected(session, reason));
        }
        // Relaxed: a count.
        self.attached_ever.fetch_add(1, Ordering::Relaxed);
        self.events.push(Event::Attached { domain: number, name: name.to_owned(), owner });
        Ok(())
    }

    /// Makes the pages of a domain on every CPU, and hands them over.
    fn seats_for(&mut self, session: u64, owner: Owner, number: u32) -> Result<(), Over> {
        let id = DomainId::new(number).ok_or("no such number")?;
        let found = self.registry.generation(number).and_then(NonZeroU64::new);
        let generation = found.ok_or("no such domain")?;
        let mut seats = Vec::new();
        for site in self.sites.clone() {
            let hall = self.hall(&site, owner.uid)?;
            // Somebody may be scribbling on it.
            hall.turn.repair();
            // Whoever had the number may have left the turn or the bell as they were.
            if hall.turn.holder() == Ok(id) {
                hall.turn.reset(DomainId::DAEMON);
            }
            let memory = SharedMapping::create_to_seal("upcall-domain", AREA_BYTES)?;
            // Refused is as good as before: such a page may be slow once.
            let _ = memory.lock();
            memory.dont_fork()?;
            seats.push(Seat { hall, memory: Some(memory), member: None });
        }
        let welcome = ToDomain::Welcome {
            domain: number,
            generation: generation.get(),
            seats: u32::try_from(seats.len()).unwrap_or(u32::MAX),
            real_time: self.real_time,
            switch_cost_ns: self.switch_cost.as_nanos(),
        };
        self.say(session, &welcome, &[])?;
        for seat in &seats {
            let Seat { hall, memory: Some(memory), .. } = seat else { continue };
            let fds = [hall.turn.memory().fd(), memory.fd(), hall.kernel_fd.as_fd()];
            self.say(session, &ToDomain::Seat { cpu: hall.cpu }, &fds)?;
        }
        if let Some(session) = self.sessions.get_mut(&session) {
            session.domain = Some(Attached { number: id, generation, seats });
        }
        Ok(())
    }

    /// The hall of a user on a CPU, made if there is none.
    fn hall(&mut self, site: &Arc<Site>, uid: u32) -> Result<Arc<Hall>, Over> {
        if let Some(hall) = site.halls().iter().find(|hall| hall.uid == uid) {
            return Ok(hall.clone());
        }
        let leaving = self.usher.as_ref().map_or(0, |usher| usher.leaving_of(site.cpu, uid));
        if leaving >= LEAVING_MAX {
            let what = "former halls of the user are not freed yet, expected fewer than";
            return Err(Over(format!("{leaving} {what} {LEAVING_MAX}")));
        }
        let hall = Arc::new(Hall::new(site.cpu, uid)?);
        // Before it is a hall of its site: none is without a thread.
        let thread = kls::start(Kls::new(site.clone(), hall.clone(), self.real_time))?;
        site.set_halls(|halls| halls.push(hall.clone()));
        self.halls.push((hall.clone(), thread));
        Ok(hall)
    }

    /// Closes the halls of a user who has no domain any more.
    fn close_halls(&mut self, uid: u32) {
        if self.registry.domains().any(|(_, domain)| domain.owner.uid == uid) {
            return;
        }
        for (hall, thread) in self.halls.extract_if(.., |(hall, _)| hall.uid == uid) {
            self.sites
                .iter()
                .filter(|site| site.cpu == hall.cpu)
                .for_each(|site| site.close(&hall));
            let _ = self.usher.as_mut().map(|usher| usher.see_out((hall, thread)));
        }
    }

    /// A domain's thread of a CPU is there: from now on it takes part.
    fn seat(&mut self, session: u64, cpu: u32, tid: u32) -> Result<(), Over> {
        let real_time = self.real_time;
        let pid = self.sessions.get(&session).map_or(0, |session| session.credentials.pid);
        let Attached { number, generation, seats } = self.domain_of(session)?;
        let (number, generation) = (*number, *generation);
        let seat = seats.iter_mut().find(|seat| seat.hall.cpu == cpu);
        let seat = seat.ok_or("it has no seat there")?;
        let memory = seat.memory.take().ok_or("it has its seat there already")?;
        if thread_state(pid, tid)? == ThreadState::Dead {
            return Err(Over("its thread is not of its process".to_owned()));
        }
        memory.seal_future_writes()?;
        let member = Member::new((number, generation), (pid, tid), memory)?;
        let member = Arc::new(member);
        schedule::pin_thread_of(tid, &[cpu])?;
        if real_time {
            schedule::set_fifo_not_inherited_of(tid, DOMAIN_PRIORITY)?;
        }
        seat.member = Some(member.clone());
        let hall = seat.hall.clone();
        let others = hall.members();
        hall.kernel.attach(number, generation, 0, pid);
        hall.set_members(|members| members.push(member.clone()));
        self.set_limits(session);
        self.introduce(session, &hall, &member, &others)?;
        hall.ring(DomainId::DAEMON);
        Ok(())
    }

    /// Tells a member of the others, and the others of it.
    fn introduce(
        &mut self,
        session: u64,
        hall: &Arc<Hall>,
        member: &Arc<Member>,
        others: &[Arc<Member>],
    ) -> Result<(), Over> {
        let cpu = hall.cpu;
        let (domain, generation) = (0, PROXY_GENERATION.get());
        let proxy = ToDomain::Peer { cpu, domain, generation };
        self.say(session, &proxy, &[hall.proxy_fd.as_fd()])?;
        let peer_of = |member: &Member| ToDomain::Peer {
            cpu,
            domain: member.domain.number(),
            generation: member.generation.get(),
        };
        for other in others {
            let fd = other.area.memory().read_only_fd()?;
            self.say(session, &peer_of(other), &[fd.as_fd()])?;
        }
        let fd = member.area.memory().read_only_fd()?;
        let mut deaf = Vec::new();
        for other in others {
            let Some(to) = self.session_of(other.generation) else { continue };
            if self.say(to, &peer_of(member), &[fd.as_fd()]).is_err() {
                deaf.push(to);
            }
        }
        for session in deaf {
            self.end(session, "it does not listen");
        }
        Ok(())
    }

    /// Tells the kernel areas and the guardian what a domain may do.
    fn set_limits(&self, session: u64) {
        let domain = self.sessions.get(&session).and_then(|session| session.domain.as_ref());
        let Some(Attached { number, seats, .. }) = domain else { return };
        for (hall, member) in seats.iter().filter_map(|s| Some((&s.hall, s.member.as_ref()?))) {
            let usage = self.registry.usage(number.number(), hall.cpu);
            let limits = &member.limits;
            // Relaxed: see `Limits`.
            limits.quantum_ns_max.store(usage.quantum_max.as_nanos(), Ordering::Relaxed);
            limits.share_ppm.store(usage.share_ppm, Ordering::Relaxed);
            limits.compute_ns.store(usage.compute.as_nanos(), Ordering::Relaxed);
            limits.unscreened.store(usage.unscreened, Ordering::Relaxed);
            let admitted = self.registry.admitted(number.number(), hall.cpu);
            let mut ranks = limits.ranks.lock().unwrap_or_else(PoisonError::into_inner);
            ranks.set(admitted, Instant::from_nanos(clock::monotonic_ns()));
            drop(ranks);
            hall.kernel.set_quantum(*number, usage.quantum_max.as_nanos());
        }
    }

    /// Ends a session: what it had is free.
    fn end(&mut self, number: u64, reason: &str) {
        let Some(session) = self.sessions.remove(&number) else { return };
        let Some(Attached { number, seats, .. }) = session.domain else { return };
        for Seat { hall, member, .. } in seats {
            let Some(member) = member else { continue };
            hall.set_members(|members| members.retain(|other| !Arc::ptr_eq(other, &member)));
            hall.kernel.detach(number);
            if self.real_time {
                lower(&session.process, &member);
            }
            if let Ok(turn) = hall.turn.turn()
                && turn.holder() == number
            {
                hall.turn.pass(turn, DomainId::DAEMON);
            }
            hall.ring(DomainId::DAEMON);
        }
        if let Some(domain) = self.registry.detach(number.number()) {
            let (domain, name) = (number.number(), domain.name);
            self.events.push(Event::Detached { domain, name, reason: reason.to_owned() });
        }
        self.close_halls(session.credentials.uid);
    }

    fn take_offences(&mut self) {
        let mut buffer = [0; OFFENCE_BYTES];
        while let Ok(Received { len: OFFENCE_BYTES, .. }) = self.offences.receive(&mut buffer) {
            let Some(offence) = decode(&buffer) else { continue };
            let Some(generation) = NonZeroU64::new(offence.generation) else { continue };
            let Some(session) = self.session_of(generation) else { continue };
            let Offence { cpu, measure, held_ns, .. } = offence;
            let message = ToDomain::Offence { cpu, measure: measure as u32, held_ns };
            // One that does not listen offends enough as it is.
            let _ = self.say(session, &message, &[]);
            let Ok(domain) = self.domain_of(session).map(|domain| domain.number.number()) else {
                continue;
            };
            let name = self.registry.name(domain).unwrap_or_default().to_owned();
            let held = Span::from_nanos(held_ns);
            self.events.push(Event::Offence { domain, name, cpu, measure, held });
            if measure == Measure::Killed
                && let Some(session) = self.sessions.get(&session)
            {
                let killed = session.process.send_signal(Signal::Kill);
                self.note(killed);
            }
        }
    }

    fn domain_of(&mut self, session: u64) -> Result<&mut Attached, Over> {
        let session = self.sessions.get_mut(&session).ok_or("it has gone")?;
        Ok(session.domain.as_mut().ok_or("it did not say hello")?)
    }

    fn session_of(&self, generation: NonZeroU64) -> Option<u64> {
        let found = self.sessions.iter().find(|(_, session)| {
            session.domain.as_ref().is_some_and(|domain| domain.generation == generation)
        });
        found.map(|(number, _)| *number)
    }

    fn say(&self, session: u64, message: &ToDomain, fds: &[BorrowedFd<'_>]) -> Result<(), Over> {
        let Some(session) = self.sessions.get(&session) else { return Ok(()) };
        Ok(session.connection.send(&message.encode(), fds)?)
    }

    /// A domain cannot be attached: it is told so, and its session ends.
    fn rejected(&mut self, session: u64, reason: String) -> Over {
        self.refused(session, &reason);
        let _ = self.say(session, &ToDomain::Rejected { reason: reason.clone() }, &[]);
        Over(reason)
    }

    fn refused(&mut self, session: u64, reason: &str) {
        let Some(Session { credentials, .. }) = self.sessions.get(&session) else { return };
        let owner = Owner { uid: credentials.uid, pid: credentials.pid };
        self.events.push(Event::Refused { owner, reason: reason.to_owned() });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end_all();
        // Relaxed: it looks at every tick.
        self.guardian_quit.store(true, Ordering::Relaxed);
        // With the last domain the last hall was closed.
        drop(self.usher.take());
        let _ = self.guardian.take().map(JoinHandle::join);
        let _ = std::fs::remove_file(&self.config.socket);
    }
}

/// Puts what is left of a domain's thread into the ordinary class. After an exec it is
/// the process's first thread that has its class.
fn lower(process: &PidFd, member: &Member) {
    if process.has_exited() != Ok(false) {
        return;
    }
    if schedule::set_ordinary_of(member.tid).is_err() {
        guardian::lower_leader(member);
    }
}

/// Where a daemon that starts at `now` begins with its places in the order of admission:
/// above those of former ones, so that newcomers do not take what is still to be claimed.
/// That holds for 99 days from boot, and if they created no more than 250 a second; else a claim may be refused.
fn first_order(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / 4_000_000).unwrap_or(u32::MAX).min(1 << 31)
}

const OFFENCE_BYTES: usize = 32;

/// Between two threads of this process.
fn encode(offence: &Offence) -> [u8; OFFENCE_BYTES] {
    let Offence { cpu, generation, measure, held_ns } = *offence;
    let words = [u64::from(cpu), generation, measure as u64, held_ns];
    let mut bytes = [0; OFFENCE_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn decode(bytes: &[u8; OFFENCE_BYTES]) -> Option<Offence> {
    let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    let (cpu, generation) = (u32::try_from(words.next()?).ok()?, words.next()?);
    let measure = Measure::of_number(u32::try_from(words.next()?).ok()?)?;
    Some(Offence { cpu, generation, measure, held_ns: words.next()? })
}
