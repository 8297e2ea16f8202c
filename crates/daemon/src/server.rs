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
//! 1. It gets a number and its pages; its user's groups are made if it is the first.
//! 2. Its user area is sealed, so that it alone writes it; its thread gets the
//!    real-time class, everyone else its area. From here on it gets turns.
//! 3. What it had reserved is free, its numbers too; its threads, if there still are
//!    any, are of ordinary class. With the last of a user its groups are closed.
//!
//! The daemon closes the connection of a client that does not read its answers: nothing
//! here waits for a client.
//!
//! | module | what |
//! |---|---|
//! | `session` | connections, and what is said over them |
//! | `attach` | numbers, pages, virtual_processors (1, 2) |
//! | `requests` | requests for places, and how things stand |
//! | `offence` | what the watchdog did |
//! | `event` | what the daemon tells its program, and `tracing` |
//! | `end` | of sessions, of groups, of the daemon (3) |

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use upcall_core::admission::Platform;
use upcall_core::policy::rmdp::RMDP;
use upcall_core::time::{Instant, Span};
use upcall_sys::grant::how_to_grant;
use upcall_sys::local::Connection;
pub use upcall_sys::local::{Access, Listener};
use upcall_sys::readiness::{Direction, Readiness, Watch};
use upcall_sys::schedule;
use upcall_sys::schedule::RealTime;

use crate::cpu::CpuState;
use crate::reaper::Reaper;
use crate::registry::Registry;
use crate::watchdog::{Rules, Watchdog};
use crate::{calibrate, clock};
pub use config::{Config, StartError};
pub use daemon::{Daemon, Stopper};
use daemon::{LISTENER, OFFENCES, SESSIONS};
pub use event::DaemonEvent;
use session::SessionEnd;

mod attach;
mod config;
mod connections;
mod daemon;
mod end;
mod event;
mod offence;
mod requests;
mod session;
#[cfg(test)]
mod tests;

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
        if !config.discipline.across_domains {
            return Err(StartError::Policy(config.discipline.name));
        }
        if !config.defer_preemption.is_zero() && config.discipline.name != RMDP.name {
            return Err(StartError::DeferPreemption(config.discipline.name));
        }
        let allowed = schedule::allowed_cpus()?;
        let forbidden = config.cpus.iter().find(|cpu| !allowed.contains(cpu));
        if forbidden.is_some() || config.cpus.is_empty() {
            return Err(StartError::Cpu(forbidden.copied()));
        }
        let mut events = Vec::new();
        let real_time = granted_real_time(&mut events);
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
        let cpu_states: Vec<_> =
            config.cpus.iter().map(|&cpu| Arc::new(CpuState::new(cpu))).collect();
        let (offences, reports) = Connection::pair()?;
        let watchdog_quit = Arc::new(AtomicBool::new(false));
        let rules = Rules { band, grace: config.grace, kill: config.kill };
        let watchdog = Watchdog::new((&cpu_states, &allowed), rules, watchdog_quit.clone(), {
            // The server may be so far behind that the socket is full. The report is lost
            // then; the counts in the kernel area remain.
            move |offence| {
                let _ = reports.send(&offence::encode(&offence), &[]);
            }
        });
        let watchdog = watchdog.spawn().map_err(StartError::Thread)?;
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

    /// Serves until it is stopped, and tells `on_event` what happens, with the number of
    /// domains there are then.
    pub fn run(mut self, mut on_event: impl FnMut(&DaemonEvent, usize)) {
        loop {
            self.emit_events(&mut on_event);
            let mut ready = Vec::new();
            let readiness = self.readiness.clone();
            if !readiness.wait(|number| ready.push(number)) {
                break;
            }
            ready.into_iter().for_each(|number| self.serve(number));
        }
        self.end_all();
        self.emit_events(&mut on_event);
    }

    fn emit_events(&mut self, on_event: &mut impl FnMut(&DaemonEvent, usize)) {
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
                self.report_error(armed);
            }
            OFFENCES => {
                self.take_offences();
                let armed = self.offences_watch.arm();
                self.report_error(armed);
            }
            _ => {
                let session = (number - SESSIONS) / 2;
                // Of a process that has ended, too: its last message may be that it detaches.
                let mut result = self.receive_messages(session);
                let is_process = !(number - SESSIONS).is_multiple_of(2);
                if let Some(session) = self.sessions.get(&session).filter(|_| is_process) {
                    result = result.and_then(|()| Err(session.closed()));
                }
                if let Err(SessionEnd(reason)) = result {
                    self.end(session, &reason);
                }
            }
        }
    }
}

/// The real-time class, if it is granted. Otherwise adds an event that says how to grant it.
fn granted_real_time(events: &mut Vec<DaemonEvent>) -> Option<RealTime> {
    match RealTime::granted() {
        Ok(granted) => Some(granted),
        Err(refusal) => {
            let what = "handlers run in the ordinary class, without guarantees";
            let how = how_to_grant();
            events.push(DaemonEvent::Trouble(format!("{refusal}: {what}; {how}")));
            None
        }
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
    registry
}

/// Where a daemon that starts at `now` begins with its places in the order of admission:
/// above those of former ones, so that newcomers do not take what is still to be claimed.
/// That holds for 99 days from boot, and if they created no more than 250 a second; else a claim may be refused.
fn first_order(now: Instant) -> u32 {
    u32::try_from(now.as_nanos() / 4_000_000).unwrap_or(u32::MAX).min(1 << 31)
}
