//! The daemon's socket, and the thread that attaches, admits and detaches.
//!
//! Used by `upcalld` and by tests. One thread of ordinary class does all that changes
//! who is there; the KLS threads and the [`crate::watchdog`] only look at it.
//!
//! ```text
//!   accepted -- (1) Hello --> attached -- (2) Thread, for each CPU --> taking part
//!      |                         |                                        |
//!      +-------------------------+---- (3) Detach, closed, ends, nonsense +--> detached
//! ```
//!
//! 1. It gets a number and its pages; its user's halls are made if it is the first.
//! 2. Its user area is sealed, so that it alone writes it; its thread gets the
//!    real-time class, everyone else its area. From here on it gets turns.
//! 3. What it had reserved is free, its numbers too; its threads, if there still are
//!    any, are of ordinary class. With the last of a user its halls are closed.
//!
//! The daemon closes the connection of a client that does not read its answers: nothing
//! here waits for a client.
//!
//! | module | what |
//! |---|---|
//! | `session` | connections, and what is said over them |
//! | `attach` | numbers, pages, seats (1, 2) |
//! | `answer` | requests for places, and how things stand |
//! | `offence` | what the watchdog did |
//! | `event` | what the daemon tells its program, and `tracing` |
//! | `end` | of sessions, of halls, of the daemon (3) |

use core::fmt;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use upcall_core::admission::{Platform, Share};
use upcall_core::discipline::Discipline;
use upcall_core::discipline::RMDP;
use upcall_core::time::{Instant, Span};
use upcall_sys::grant::how_to_grant;
use upcall_sys::local::Connection;
pub use upcall_sys::local::{Access, Listener};
use upcall_sys::readiness::{Direction, Readiness, Watch};
use upcall_sys::schedule::{Band, RealTime};
use upcall_sys::{OsError, schedule};

use crate::hall::HallError;
use crate::registry::{Quota, Registry};
use crate::site::Site;
use crate::usher::{Staffed, Usher};
use crate::watchdog::{Rules, Watchdog};
use crate::{calibrate, clock};
pub use event::Event;
use session::{Over, Session};

mod answer;
mod attach;
mod end;
mod event;
mod offence;
mod session;
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
    /// For so long from its release an activity may be kept waiting by worse ranks of the
    /// domain that has the CPU, which spares hand-offs ([`Platform::defer_preemption`]). Under
    /// `rmdp` only.
    pub defer_preemption: Span,
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
            defer_preemption: Span::ZERO,
            discipline: &RMDP,
            quota: Quota { domains_max: upcall_shm::DOMAINS_MAX as usize, share_max_ppm: u64::MAX },
            grace: Span::from_millis(5),
            kill: false,
            claims_within: Span::from_secs(10),
        }
    }
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
    /// Deferred preemption under a policy whose test does not know it.
    DeferPreemption(&'static str),
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
            StartError::DeferPreemption(policy) => {
                write!(f, "deferred preemption under policy `{policy}`, expected 0 or policy rmdp")
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
    /// `None`: handlers run in the ordinary class.
    real_time: Option<RealTime>,
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
    /// Whether the file of the socket goes with the daemon.
    owns_file: bool,
    listener_watch: Watch,
    offences: Connection,
    offences_watch: Watch,
    watchdog: Option<JoinHandle<()>>,
    watchdog_quit: Arc<AtomicBool>,
    events: Vec<Event>,
    attached_ever: Arc<AtomicU64>,
}

impl Daemon {
    /// Listens, and starts the watchdog. Whether the real-time class is granted is
    /// found out now. Blocks for a moment.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        Daemon::start_with(config, None)
    }

    /// As [`Daemon::start`], for a socket that listens already: a service manager has passed
    /// it. The daemon names [`Config::socket`] in messages, and leaves that file at its end;
    /// [`Config::access`] has no effect.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_at(config: Config, listener: Listener) -> Result<Self, StartError> {
        Daemon::start_with(config, Some(listener))
    }

    fn start_with(config: Config, passed: Option<Listener>) -> Result<Self, StartError> {
        if !config.discipline.compares_across_domains() {
            return Err(StartError::Policy(config.discipline.name));
        }
        if !config.defer_preemption.is_zero() && !config.discipline.defers_preemption() {
            return Err(StartError::DeferPreemption(config.discipline.name));
        }
        let allowed = schedule::allowed_cpus()?;
        let stranger = config.cpus.iter().find(|cpu| !allowed.contains(cpu));
        if stranger.is_some() || config.cpus.is_empty() {
            return Err(StartError::Cpu(stranger.copied()));
        }
        let mut events = Vec::new();
        let real_time = match RealTime::granted() {
            Ok(granted) => Some(granted),
            Err(refusal) => {
                let what = "handlers run in the ordinary class, without guarantees";
                let how = how_to_grant();
                events.push(Event::Trouble(format!("{refusal}: {what}; {how}")));
                None
            }
        };
        let band = real_time.map(|real_time| real_time.band);
        let switch_cost = match config.switch_cost {
            Some(cost) => cost,
            None => calibrate::handoff_cost(config.cpus[0], band).map_err(StartError::Pages)?,
        };
        let owns_file = passed.is_none();
        let listener = match passed {
            Some(listener) => listener,
            None => Listener::bind(&config.socket, config.access)
                .map_err(|error| StartError::Listen { socket: config.socket.clone(), error })?,
        };
        let sites: Vec<_> = config.cpus.iter().map(|&cpu| Arc::new(Site::new(cpu))).collect();
        let (offences, reports) = Connection::pair()?;
        let watchdog_quit = Arc::new(AtomicBool::new(false));
        let rules = Rules { band, grace: config.grace, kill: config.kill };
        let watchdog = Watchdog::new((&sites, &allowed), rules, watchdog_quit.clone(), {
            // If the server is so far behind, the counts in the kernel area remain.
            move |offence| {
                let _ = reports.send(&offence::encode(&offence), &[]);
            }
        });
        let watchdog = std::thread::Builder::new()
            .name("upcall-watchdog".into())
            .spawn(move || watchdog.run())
            .map_err(StartError::Thread)?;
        let readiness = Arc::new(Readiness::new()?);
        let watch = |fd, number| Watch::new(&readiness, fd, Direction::Readable, number);
        let platform = Platform {
            cpus: config.cpus.clone(),
            cpu_limit: config.cpu_limit,
            switch_cost,
            wakeup_latency: config.wakeup_latency,
            defer_preemption: config.defer_preemption,
        };
        let mut registry = Registry::new(config.discipline, platform, config.quota);
        let now = clock::now();
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
            owns_file,
            offences,
            watchdog: Some(watchdog),
            watchdog_quit,
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

    /// By which right handlers get the real-time class, and at which priorities; `None` if
    /// they do not.
    pub fn real_time(&self) -> Option<RealTime> {
        self.real_time
    }

    fn band(&self) -> Option<Band> {
        self.real_time.map(|real_time| real_time.band)
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
            event.trace();
            on_event(&event, self.domains());
        }
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
                // Of a process that has ended, too: its last message may be that it detaches.
                let mut heard = self.listen_to(session);
                let is_process = !(number - SESSIONS).is_multiple_of(2);
                if let Some(session) = self.sessions.get(&session).filter(|_| is_process) {
                    heard = heard.and_then(|()| Err(session.closed()));
                }
                if let Err(Over(reason)) = heard {
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
}

/// Where a daemon that starts at `now` begins with its places in the order of admission:
/// above those of former ones, so that newcomers do not take what is still to be claimed.
/// That holds for 99 days from boot, and if they created no more than 250 a second; else a claim may be refused.
fn first_order(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / 4_000_000).unwrap_or(u32::MAX).min(1 << 31)
}
