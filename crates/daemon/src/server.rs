//! The daemon's socket, and the thread that attaches, admits and detaches domains.
//!
//! `upcalld` and tests use it. One thread of ordinary class makes all changes to the domains and
//! groups. The KLS threads and the [`crate::watchdog`] only read them.
//!
//! ```text
//!   accepted -- (1) Hello --> attached -- (2) Thread, for each CPU --> taking part
//!      |                         |                                        |
//!      +-------------------------+---- (3) Detach, closed, ends, invalid -+--> detached
//! ```
//!
//! 1. The process gets a number and its pages. The server makes the user's groups if it is the
//!    user's first domain.
//! 2. The user area is sealed, so that only its domain can write it. The domain's thread gets the
//!    real-time class, and the peer domains get its area. From here on the domain gets turns.
//! 3. The reservations and the number of the domain are free again. Threads that still exist are
//!    put into the ordinary class. With the user's last domain its groups are closed.
//!
//! The server never waits for a client: it closes the connection of a client that does not read its
//! messages. It handles one message at a time, of the user whose messages took the least time.
//!
//! | module | what |
//! |---|---|
//! | `config`, `event` | how a daemon is set up; the events that it reports |
//! | `session` | connections and their kinds |
//! | `daemon` | the state of the server's thread |
//! | `connections` | accepting connections, receiving and sending messages |
//! | `turns` | whose message comes next |
//! | `closer` | closing connections without waiting |
//! | `names` | texts of clients as the daemon shows them |
//! | `attach` | numbers, pages, virtual processors (1, 2) |
//! | `requests` | requests for places and for the status |
//! | `programs`, `served_programs` | requests of programs, and the ends of their shares |
//! | `packet_quotas`, `flows` | requests for packet quotas and for flows |
//! | `raised_member` | a member as long as its thread is raised |
//! | `offence` | the measures of the watchdog |
//! | `end` | the end of sessions, of groups and of the daemon (3) |

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use upcall_core::admission::Platform;
use upcall_core::time::{Instant, Span};
use upcall_sys::cgroup::CgroupError;
use upcall_sys::inheritance::Boosts;
use upcall_sys::local::Connection;
pub use upcall_sys::local::{Access, Listener};
use upcall_sys::readiness::{Direction, Readiness, Watch};
use upcall_sys::schedule::RealTime;
use upcall_sys::{descriptors, process, schedule};

use crate::cpu::CpuState;
use crate::network::Networks;
use crate::packet_quotas::PacketQuotas;
use crate::programs::Programs;
use crate::reaper::Reaper;
use crate::registry::Registry;
use crate::watchdog::{Rules, Watchdog, cpus_without_domains};
use crate::xdp_programs::XdpPrograms;
use crate::{calibrate, clock};
use closer::Closer;
pub use config::{CONNECTIONS_MAX_DEFAULT, Config, StartError};
pub use daemon::{Daemon, Stopper};
use daemon::{LISTENER, NETWORK, OFFENCES, SESSIONS};
pub use event::{DaemonEvent, Trouble};
use served_programs::ServedPrograms;
use turns::Turns;

mod attach;
mod closer;
mod config;
mod connections;
mod daemon;
mod end;
mod event;
mod flows;
mod names;
mod offence;
mod packet_quotas;
mod programs;
mod raised_member;
mod requests;
mod served_programs;
mod session;
#[cfg(test)]
mod tests;
mod turns;

impl Daemon {
    /// Listens at the socket and starts the watchdog. Finds out whether the real-time class is
    /// granted. Raises the limit of open descriptors of this process to its hard limit. Blocks for
    /// a moment.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        Daemon::start_with(config, None)
    }

    /// As [`Daemon::start`], for a socket that listens already because a service manager has passed
    /// it. The daemon names [`Config::socket`] in messages and does not remove that file at its
    /// end. [`Config::access`] has no effect.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start_at(config: Config, listener: Listener) -> Result<Self, StartError> {
        Daemon::start_with(config, Some(listener))
    }

    fn start_with(config: Config, passed: Option<Listener>) -> Result<Self, StartError> {
        let allowed = check(&config)?;
        let mut events = Vec::new();
        // First: a group that is left may forbid the real-time class.
        clean_up_programs(&mut events);
        let real_time = granted_real_time(&mut events);
        let band = real_time.map(|real_time| real_time.band);
        let switch_cost = match config.switch_cost {
            Some(cost) => cost,
            None => calibrate::handoff_cost(config.cpus[0], band).map_err(StartError::Pages)?,
        };
        let owns_file = passed.is_none();
        let listener = match passed {
            Some(listener) => listener,
            None => listen(&config)?,
        };
        // Before Linux 6.16 the kernel does not know how: see `closer`.
        let refuses_descriptors = listener.refuse_descriptors()?;
        let cpu_states: Vec<_> =
            config.cpus.iter().map(|&cpu| Arc::new(CpuState::new(cpu))).collect();
        let (offences, reports) = Connection::pair()?;
        let watchdog_quit = Arc::new(AtomicBool::new(false));
        let rules = Rules { band, grace: config.grace, kill: config.kill };
        let reports_lost = Arc::new(AtomicU64::new(0));
        let report = offence::sender(reports, reports_lost.clone());
        let mut watchdog =
            Watchdog::new((&cpu_states, &allowed), rules, watchdog_quit.clone(), report);
        if band.is_some() && (!owns_file || config.access != Access::Owner) {
            // A domain may lower its own priority. It must not lend any real-time one.
            match Boosts::record(schedule::FIFO_LEAST) {
                Ok(boosts) => watchdog.watch_lock_waits(boosts),
                Err(error) => events.push(DaemonEvent::Trouble(Trouble::UnseenLocks(error))),
            }
        }
        let watchdog = watchdog.spawn().map_err(StartError::Thread)?;
        let (network_reports, reports) = Connection::pair()?;
        let cpus = cpus_without_domains(&cpu_states, &allowed);
        let networks = Networks::new(config.interfaces.clone(), cpus, band, reports);
        let readiness = Arc::new(Readiness::new()?);
        let watch = |fd, number| Watch::new(&readiness, fd, Direction::Readable, number);
        let now = clock::now();
        Ok(Daemon {
            real_time,
            switch_cost,
            claims_until: now + config.claims_within,
            registry: empty_registry(&config, switch_cost, now),
            cpu_states,
            groups: Vec::new(),
            reaper: Some(Reaper::start().map_err(StartError::Thread)?),
            programs: ServedPrograms::new(
                Programs::new(config.cpus.clone(), config.supervisor.clone()),
                with_own_user(&config.program_users),
                now,
            ),
            xdp_programs: XdpPrograms::default(),
            packet_quotas: PacketQuotas::new(config.interfaces.clone(), config.other_packets),
            networks,
            network_watch: watch(network_reports.as_fd(), NETWORK)?,
            sessions: BTreeMap::new(),
            sessions_ever: 0,
            turns: Turns::default(),
            closer: Closer::default(),
            descriptors_max: descriptors::raise_limit()?,
            accept_from: None,
            looked_at: None,
            refusals: BTreeMap::new(),
            few_descriptors_at: None,
            listener_watch: watch(listener.as_fd(), LISTENER)?,
            offences_watch: watch(offences.as_fd(), OFFENCES)?,
            network_reports,
            readiness,
            listener,
            refuses_descriptors,
            are_plain: false,
            owns_file,
            offences,
            watchdog: Some(watchdog),
            watchdog_quit,
            reports_lost,
            events,
            attached_ever: Arc::default(),
            refused_ever: Arc::default(),
            config,
        })
    }

    /// Serves until it is stopped. Calls `on_event` with each event and the present number of
    /// domains and programs.
    pub fn run(mut self, mut on_event: impl FnMut(&DaemonEvent, usize)) {
        loop {
            self.emit_events(&mut on_event);
            let mut ready = Vec::new();
            let readiness = self.readiness.clone();
            let until = self.look_again_at(clock::now()).map(Instant::as_nanos);
            if !readiness.wait_until(until, |number| ready.push(number)) {
                break;
            }
            ready.into_iter().for_each(|number| self.take_up(number));
            let now = clock::now();
            self.resume_accepting(now);
            self.end_silent(now);
            self.look_at_programs(now);
            self.serve_next();
        }
        self.end_all();
        self.emit_events(&mut on_event);
    }

    fn emit_events(&mut self, on_event: &mut impl FnMut(&DaemonEvent, usize)) {
        for event in std::mem::take(&mut self.events) {
            event.trace();
            let quotas_and_flows = self.packet_quotas.count() + self.networks.count();
            on_event(&event, self.domains() + self.programs.count() + quotas_and_flows);
        }
    }

    fn take_up(&mut self, number: u64) {
        match number {
            LISTENER => {
                let accepted = self.accept();
                self.report_error(accepted);
            }
            OFFENCES => {
                self.take_offences();
                let armed = self.offences_watch.arm();
                self.report_error(armed);
            }
            NETWORK => {
                self.take_network_reports();
                let armed = self.network_watch.arm();
                self.report_error(armed);
            }
            _ => {
                let is_process = !(number - SESSIONS).is_multiple_of(2);
                self.note_ready((number - SESSIONS) / 2, is_process);
            }
        }
    }
}

/// Checks the policy and the CPUs. Returns the CPUs that this process may use.
fn check(config: &Config) -> Result<Vec<u32>, StartError> {
    if !config.discipline.groups.is_empty() {
        return Err(StartError::Groups(config.discipline.name));
    }
    if !config.defer_preemption.is_zero() && !config.discipline.defers_preemption() {
        return Err(StartError::DeferPreemption(config.discipline.name));
    }
    let allowed = schedule::allowed_cpus()?;
    let forbidden = config.cpus.iter().find(|cpu| !allowed.contains(cpu));
    match forbidden.is_some() || config.cpus.is_empty() {
        true => Err(StartError::Cpu(forbidden.copied())),
        false => Ok(allowed),
    }
}

fn listen(config: &Config) -> Result<Listener, StartError> {
    Listener::bind(&config.socket, config.access)
        .map_err(|error| StartError::Listen { socket: config.socket.clone(), error })
}

/// The real-time class, if it is granted. Otherwise adds an event that says how to grant it.
fn granted_real_time(events: &mut Vec<DaemonEvent>) -> Option<RealTime> {
    match RealTime::granted() {
        Ok(granted) => Some(granted),
        Err(refusal) => {
            events.push(DaemonEvent::Trouble(Trouble::NoRealTimeClass(refusal)));
            None
        }
    }
}

/// Removes the groups of programs that killed daemons left.
fn clean_up_programs(events: &mut Vec<DaemonEvent>) {
    match Programs::clean_up() {
        // A daemon without the right to make groups has left none.
        Ok(_) | Err(CgroupError::NoController | CgroupError::NoRight { .. }) => {}
        Err(error) => events.push(DaemonEvent::Trouble(Trouble::LeftGroups(error))),
    }
}

/// The registry of a daemon that starts at `now`.
fn empty_registry(config: &Config, switch_cost: Span, now: Instant) -> Registry {
    let platform = Platform {
        cpus: config.cpus.clone(),
        cpu_limit: config.cpu_limit,
        switch_cost,
        wakeup_latency: config.wakeup_latency,
        defer_preemption: config.defer_preemption,
    };
    let mut registry = Registry::new(config.discipline, platform, config.quota);
    registry.begin_orders_at(first_order(now));
    registry.allow_unscreened(with_own_user(&config.soft_users));
    registry
}

/// These users and the daemon's own.
fn with_own_user(users: &[u32]) -> Vec<u32> {
    users.iter().copied().chain([process::effective_user()]).collect()
}

/// The first place in the order of admission for a daemon that starts at `now`. It is above the
/// places of former daemons, so that new domains do not take places which are still to be claimed.
/// This holds for 99 days from boot if former daemons created at most 250 activities a second.
/// Otherwise a claim may be refused.
fn first_order(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / 4_000_000).unwrap_or(u32::MAX).min(1 << 31)
}
