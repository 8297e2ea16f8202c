//! Flows on the interfaces of a daemon: UDP in user space for programs without rights
//! (docs/decisions/0024-network.md, section 7).
//!
//! The server's thread uses [`Networks`]. Each interface with flows has a network thread
//! ([`thread`]), which owns it. Each flow belongs to a session and ends with it.
//!
//! ```text
//!   idle -- (1) first flow --> owned -- (2) last flow ends --> closing -- (3) --> idle
//!                               |  |
//!                 (4) killed <--+  +-- (5) the interface is gone: its sessions end --> (2)
//! ```
//!
//! 1. The server attaches the XDP program, unless packet quotas have it there, and opens the
//!    device. Both take about 0.1 s. Then the network thread has the interface.
//! 2. The thread closes flows and device, counts the frames, and ends. The server does not wait.
//! 3. The server takes note of the frames. The next flow waits for the thread that ends.
//! 4. The kernel closes the descriptors of a process that ends: program, device and sockets are
//!    gone, and it gets all packets again.
//! 5. So they do if a program breaks the queues of its flow; then its session alone.
//!
//! The server and a network thread exchange commands and counts in memory behind a lock
//! ([`exchange`]). The network thread never waits for it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use upcall_runtime::net::{FlowTerms, InterfaceSettings, LentMemory, UdpInterface};
use upcall_shm::wire::{FlowCounts, FlowStatus, OwnedInterfaceStatus};
use upcall_sys::early_drop::Request;
use upcall_sys::local::Connection;
use upcall_sys::schedule::Band;
use upcall_sys::{OsError, clock, interface};

use crate::xdp_programs::XdpPrograms;
pub(crate) use bounds::FLOWS_MAX;
use bounds::{
    DEPTHS_MAX, DEPTHS_OF_USER_MAX, FLOWS_OF_USER_MAX, FRAMES, FRAMES_OF_ALL_MAX,
    FRAMES_OF_USER_MAX, PORT_LEAST,
};
pub(crate) use exchange::BoundFlow;
use exchange::{Command, Exchange};
pub(crate) use refusal::FlowRefusal;
pub(crate) use thread::Closed;

mod bounds;
mod exchange;
mod refusal;
pub(crate) mod report;
mod thread;

/// The interfaces of a daemon, and the flows on them.
pub(crate) struct Networks {
    /// The names that the operator gave.
    names: Vec<String>,
    /// The CPUs where network threads run. Empty: anywhere.
    cpus: Vec<u32>,
    /// `None`: they stay ordinary threads.
    band: Option<Band>,
    /// For the server's thread.
    reports: Arc<Connection>,
    owned: BTreeMap<String, Owned>,
    closing: Vec<Owned>,
    closed: Vec<(String, Closed)>,
    flows: BTreeMap<u64, Held>,
    threads_ever: u64,
}

/// An interface and its network thread.
struct Owned {
    name: String,
    number: u64,
    index: u32,
    path: String,
    exchange: Arc<Exchange>,
    thread: JoinHandle<Closed>,
}

/// Who asks for a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker {
    pub(crate) session: u64,
    pub(crate) uid: u32,
    pub(crate) pid: u32,
}

/// A flow of a session.
struct Held {
    asker: Asker,
    interface: String,
    local: SocketAddr,
    frames: u32,
    /// [`waiting_max`].
    waiting: u32,
}

/// A flow that has ended.
pub(crate) struct EndedFlow {
    pub(crate) asker: Asker,
    pub(crate) interface: String,
    pub(crate) local: SocketAddr,
    /// Up to 32 periods of the network thread old.
    pub(crate) counts: FlowCounts,
}

impl Networks {
    /// No flows, for a daemon with these interfaces. Opens nothing before the first flow.
    pub(crate) fn new(
        mut names: Vec<String>,
        cpus: Vec<u32>,
        band: Option<Band>,
        reports: Connection,
    ) -> Self {
        names.sort();
        names.dedup();
        Networks {
            names,
            cpus,
            band,
            reports: Arc::new(reports),
            owned: BTreeMap::new(),
            closing: Vec::new(),
            closed: Vec::new(),
            flows: BTreeMap::new(),
            threads_ever: 0,
        }
    }

    /// How many flows there are.
    pub(crate) fn count(&self) -> usize {
        self.flows.len()
    }

    /// Opens a flow on the interface `name` with `memory`, which has the form of `terms`. Returns
    /// what its program needs, and the path of its packets in one sentence. Blocks: see the head of
    /// the module.
    ///
    /// # Errors
    /// See [`FlowRefusal`]. Then nothing has changed.
    pub(crate) fn open(
        &mut self,
        name: &str,
        terms: FlowTerms,
        (asker, memory): (Asker, LentMemory),
        programs: &mut XdpPrograms,
    ) -> Result<(BoundFlow, String), FlowRefusal> {
        self.check(name, &terms, asker)?;
        let index = interface::index(name).map_err(FlowRefusal::Missing)?;
        let terms = on_interface(terms, index, &asker)?;
        let is_new = self.own(name, index, programs)?;
        let Some(owned) = self.owned.get(name) else { return Err(FlowRefusal::Silent) };
        let memory = Box::new(memory);
        let command = Command::Bind { session: asker.session, terms, memory };
        match owned.exchange.ask(command, asker.session) {
            Ok(bound) => {
                let (_, local, _) = bound;
                let held = Held {
                    asker,
                    interface: name.to_owned(),
                    local,
                    frames: frames_of(&terms),
                    waiting: waiting_max(&terms),
                };
                let path = owned.path.clone();
                self.flows.insert(asker.session, held);
                Ok((bound, path))
            }
            Err(refusal) => {
                if is_new {
                    self.close(name);
                }
                Err(refusal)
            }
        }
    }

    /// Ends the flow of a session, if it has one. Does not wait for the network thread.
    pub(crate) fn end(&mut self, session: u64) -> Option<EndedFlow> {
        let Held { asker, interface, local, .. } = self.flows.remove(&session)?;
        let mut counts = FlowCounts::default();
        if let Some(owned) = self.owned.get(&interface) {
            counts = owned.exchange.counts(session);
            owned.exchange.order(Command::Unbind { session });
        }
        if self.flows.values().all(|held| held.interface != interface) {
            self.close(&interface);
        }
        Some(EndedFlow { asker, interface, local, counts })
    }

    /// The interfaces whose threads have ended and were waited for, with their frames.
    pub(crate) fn take_closed(&mut self) -> Vec<(String, Closed)> {
        std::mem::take(&mut self.closed)
    }

    /// Waits for all threads of interfaces without flows. Blocks for some milliseconds each.
    pub(crate) fn finish(&mut self) {
        for Owned { name, thread, .. } in self.closing.drain(..) {
            self.closed.extend(thread.join().ok().map(|closed| (name, closed)));
        }
    }

    /// Takes the thread with this number, which has said that it ends.
    pub(crate) fn take_ended(&mut self, number: u64) -> Option<(String, Closed)> {
        let at = self.closing.iter().position(|owned| owned.number == number)?;
        let Owned { name, thread, .. } = self.closing.remove(at);
        Some((name, thread.join().ok()?))
    }

    /// The interfaces with flows, and all flows.
    pub(crate) fn status(&self) -> (Vec<OwnedInterfaceStatus>, Vec<FlowStatus>) {
        let owned = |owned: &Owned| OwnedInterfaceStatus {
            interface: owned.name.clone(),
            path: owned.path.clone(),
            ..owned.exchange.interface()
        };
        let flow = |(session, held): (&u64, &Held)| FlowStatus {
            pid: held.asker.pid,
            uid: held.asker.uid,
            local: held.local,
            counts: self
                .owned
                .get(&held.interface)
                .map(|owned| owned.exchange.counts(*session))
                .unwrap_or_default(),
            at_ns: clock::monotonic_ns(),
            interface: held.interface.clone(),
        };
        (self.owned.values().map(owned).collect(), self.flows.iter().map(flow).collect())
    }

    /// Checks what a peer has sent, apart from its address, and whether it may have one more flow.
    ///
    /// # Errors
    /// See [`FlowRefusal`].
    pub(crate) fn check(
        &self,
        name: &str,
        terms: &FlowTerms,
        asker: Asker,
    ) -> Result<(), FlowRefusal> {
        if !self.names.iter().any(|known| known == name) {
            return Err(FlowRefusal::NoInterface { known: self.names.clone() });
        }
        refusal::check(terms)?;
        if asker.uid != 0 && (1..PORT_LEAST).contains(&terms.local.port()) {
            return Err(FlowRefusal::Port { least: PORT_LEAST });
        }
        let (waiting, frames) = (waiting_max(terms), frames_of(terms));
        let of_user = || self.flows.values().filter(|held| held.asker.uid == asker.uid);
        if of_user().count() >= FLOWS_OF_USER_MAX {
            return Err(FlowRefusal::FlowsOfUser { most: FLOWS_OF_USER_MAX });
        }
        if of_user().map(|held| held.frames).sum::<u32>() + frames > FRAMES_OF_USER_MAX {
            return Err(FlowRefusal::FramesOfUser { most: FRAMES_OF_USER_MAX });
        }
        let of_flows = of_user().map(|held| held.waiting).sum::<u32>();
        if of_flows.saturating_add(waiting) > DEPTHS_OF_USER_MAX {
            return Err(FlowRefusal::DepthsOfUser { most: DEPTHS_OF_USER_MAX });
        }
        let here = || self.flows.values().filter(|held| held.interface == name);
        let is_full = here().count() >= FLOWS_MAX as usize
            || here().map(|held| held.waiting).sum::<u32>() + waiting > DEPTHS_MAX
            || self.flows.values().map(|held| held.frames).sum::<u32>() + frames
                > FRAMES_OF_ALL_MAX;
        if is_full { Err(FlowRefusal::Full) } else { Ok(()) }
    }

    /// Makes sure that a network thread has the interface. Returns whether it was just started.
    fn own(
        &mut self,
        name: &str,
        index: u32,
        programs: &mut XdpPrograms,
    ) -> Result<bool, FlowRefusal> {
        if self.owned.get(name).is_some_and(|owned| owned.index == index) {
            return Ok(false);
        }
        if self.owned.contains_key(name) {
            // Another interface had the name. The sessions of its flows end.
            return Err(FlowRefusal::Replaced);
        }
        // The kernel gives the queue to one socket at a time.
        if self.closing.iter().any(|owned| owned.index == index) {
            self.finish();
        }
        let program = programs.of(index, Request::Auto).map_err(FlowRefusal::Program)?;
        let settings =
            InterfaceSettings { frames: FRAMES, flows_max: FLOWS_MAX, ..Default::default() };
        let opened = UdpInterface::open_with(program, name, settings);
        let opened = opened.map_err(FlowRefusal::Interface)?;
        let path = opened.reason().to_owned();
        let (exchange, number) = (Arc::new(Exchange::default()), self.threads_ever);
        self.threads_ever += 1;
        let with_server = (exchange.clone(), self.reports.clone(), number);
        let thread = thread::spawn(opened, with_server, self.cpus.clone(), self.band);
        let thread = thread.map_err(FlowRefusal::Thread)?;
        let name = name.to_owned();
        self.owned.insert(name.clone(), Owned { name, number, index, path, exchange, thread });
        Ok(true)
    }

    /// Lets the thread of an interface end.
    fn close(&mut self, name: &str) {
        if let Some(owned) = self.owned.remove(name) {
            owned.exchange.quit();
            self.closing.push(owned);
        }
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        let names: Vec<String> = self.owned.keys().cloned().collect();
        names.iter().for_each(|name| self.close(name));
        self.finish();
    }
}

/// The frames of a flow with checked terms.
fn frames_of(terms: &FlowTerms) -> u32 {
    terms.form.receive_slots + terms.form.transmit_slots
}

/// The most datagrams of a flow that wait for their eligible times.
fn waiting_max(terms: &FlowTerms) -> u32 {
    terms.receive.map_or(0, |quota| quota.depth.saturating_sub(quota.at_once.max(1)) + 1)
}

/// The terms with an address of the interface. An unspecified one stands for all of them.
fn on_interface(mut terms: FlowTerms, index: u32, asker: &Asker) -> Result<FlowTerms, FlowRefusal> {
    let ip = terms.local.ip();
    let refused = |error: OsError| FlowRefusal::Missing(error);
    if !ip.is_unspecified() && !interface::addresses(index).map_err(refused)?.contains(&ip) {
        tracing::debug!(event = "flow", pid = asker.pid, %ip, "the address is not local");
        return Err(FlowRefusal::NotLocal(ip));
    }
    if let (SocketAddr::V6(local), IpAddr::V6(ip)) = (&mut terms.local, ip)
        && ip.is_unicast_link_local()
    {
        local.set_scope_id(index);
    }
    Ok(terms)
}
