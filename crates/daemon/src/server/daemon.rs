//! The state of the server's thread: its sockets, sessions, groups and reservations.
//!
//! Only that thread uses it. The sibling modules add methods to [`Daemon`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use upcall_core::time::{Instant, Span};
use upcall_sys::OsError;
use upcall_sys::local::{Connection, Listener};
use upcall_sys::readiness::{Readiness, Watch};
use upcall_sys::schedule::{Band, RealTime};

use super::closer::Closer;
use super::config::Config;
use super::event::{DaemonEvent, Trouble};
use super::served_programs::ServedPrograms;
use super::session::Session;
use super::turns::Turns;
use crate::cpu::CpuState;
use crate::network::Networks;
use crate::packet_quotas::PacketQuotas;
use crate::reaper::{GroupWithThread, Reaper};
use crate::registry::Registry;
use crate::xdp_programs::XdpPrograms;

/// Numbers of readiness watches. Each session has two, from [`SESSIONS`] on.
pub(super) const LISTENER: u64 = 0;
pub(super) const OFFENCES: u64 = 1;
pub(super) const NETWORK: u64 = 2;
pub(super) const SESSIONS: u64 = 3;

/// Stops a daemon from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(pub(super) Arc<Readiness>);

impl Stopper {
    /// Makes [`Daemon::run`] return.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// The daemon. See the module [`crate::server`].
pub struct Daemon {
    pub(super) config: Config,
    /// `None`: handlers run in the ordinary class.
    pub(super) real_time: Option<RealTime>,
    pub(super) switch_cost: Span,
    /// The end of [`Config::claims_within`].
    pub(super) claims_until: Instant,
    pub(super) registry: Registry,
    pub(super) cpu_states: Vec<Arc<CpuState>>,
    /// The groups of all CPUs.
    pub(super) groups: Vec<GroupWithThread>,
    /// `None` once the daemon has ended.
    pub(super) reaper: Option<Reaper>,
    pub(super) programs: ServedPrograms,
    pub(super) xdp_programs: XdpPrograms,
    pub(super) packet_quotas: PacketQuotas,
    pub(super) networks: Networks,
    pub(super) network_reports: Connection,
    pub(super) network_watch: Watch,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) sessions_ever: u64,
    pub(super) turns: Turns,
    pub(super) closer: Closer,
    /// The limit of open descriptors.
    pub(super) descriptors_max: u64,
    /// `None`: the listener's watch is armed, or its connections are being accepted.
    pub(super) accept_from: Option<Instant>,
    /// The last look for silent connections.
    pub(super) looked_at: Option<Instant>,
    /// The refusals of each user since a time, to report only some.
    pub(super) refusals: BTreeMap<u32, (Instant, u32)>,
    pub(super) few_descriptors_at: Option<Instant>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) listener: Listener,
    /// Whether the kernel refuses descriptors from clients that connect from now on.
    pub(super) refuses_descriptors: bool,
    /// Whether it has done so since before all connections that wait: then to close one of them
    /// cannot block.
    pub(super) are_plain: bool,
    /// Whether the daemon removes the socket's file at its end.
    pub(super) owns_file: bool,
    pub(super) listener_watch: Watch,
    pub(super) offences: Connection,
    pub(super) offences_watch: Watch,
    pub(super) watchdog: Option<JoinHandle<()>>,
    pub(super) watchdog_quit: Arc<AtomicBool>,
    /// Reports of the watchdog that found no room in the socket.
    pub(super) reports_lost: Arc<AtomicU64>,
    pub(super) events: Vec<DaemonEvent>,
    pub(super) attached_ever: Arc<AtomicU64>,
    pub(super) refused_ever: Arc<AtomicU64>,
}

impl Daemon {
    /// A handle that stops the daemon from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.readiness.clone())
    }

    /// The number of attached domains.
    pub fn domains(&self) -> usize {
        self.registry.domains().count()
    }

    /// The number of domains attached, programs admitted, packet quotas set and flows opened so
    /// far, readable from other threads.
    pub fn attached_ever(&self) -> Arc<AtomicU64> {
        self.attached_ever.clone()
    }

    /// The number of connections, processes, activities and programs refused so far, also of those
    /// that were not reported, readable from other threads.
    pub fn refused_ever(&self) -> Arc<AtomicU64> {
        self.refused_ever.clone()
    }

    /// The cost of a hand-off in admission.
    pub fn switch_cost(&self) -> Span {
        self.switch_cost
    }

    /// The right by which handlers get the real-time class, and their priorities; `None` if they
    /// run in the ordinary class.
    pub fn real_time(&self) -> Option<RealTime> {
        self.real_time
    }

    pub(super) fn band(&self) -> Option<Band> {
        self.real_time.map(|real_time| real_time.band)
    }

    pub(super) fn report_error(&mut self, result: Result<(), OsError>) {
        if let Err(error) = result {
            self.events.push(DaemonEvent::Trouble(Trouble::Os(error)));
        }
    }
}
