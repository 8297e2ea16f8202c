//! Flows on an interface of the kernel, with its address: an XDP program sends their packets to an
//! AF_XDP socket (docs/decisions/0024-network.md, section 6).
//!
//! A program with the rights for that opens it, or the daemon for programs without. Everything that
//! is not for a flow goes to the kernel, as before.
//!
//! ```text
//!   (1) open: program attached, AF_XDP socket, its fill ring filled
//!   (2) bind: kernel socket on the port, quota and action of the slot, then the destination
//!   (3) the owner's input and output
//!   (4) unbind: the destination first, then the slot, then the kernel socket
//!   (5) drop: steering ends first; the program goes with its last user, and all of it also if the
//!       process is killed
//! ```
//!
//! The kernel socket of a flow keeps the port from other programs, joins a group where the address
//! is one, and makes the kernel take note of ICMP errors and path MTUs. It is never read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use upcall_core::time::{Instant, Span};
use upcall_proto::credit::{Call, Credit};
use upcall_proto::flow::UDP;
use upcall_proto::packet::LinkAddress;
use upcall_shm::frames::{Account, FrameForm, FrameSize};
use upcall_shm::quota_page::{self, Action, QuotaError};
use upcall_sys::OsError;
use upcall_sys::early_drop::{Destination, Mode, Request};
use upcall_sys::interface;
use upcall_sys::udp::UdpSocket;
use upcall_sys::wake_socket::WakeReceiver;

use super::apart::LentMemory;
use super::choice::{Choice, Chosen, Redirect, choose};
use super::device::{DeviceError, area};
use super::flow::UdpFlow;
use super::owner::{Checksums, FlowTerms, KernelPaths, Owner, OwnerError, OwnerSettings, Paths};
use super::port::Port;
use super::program::{Program, ProgramError, flow_slot};
use super::xdp::XdpDevice;
use super::{Quota, Spread};

/// The number of the AF_XDP socket of queue 0 in the program. Those of the other queues follow.
const SOCKET: u32 = 0;

/// The most flows of an interface: the slots of the program, less some for quotas.
const FLOWS_MAX: u32 = 1000;

/// How an interface is opened. The default suits most.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceSettings {
    /// Frames of the area, for receiving, sending and in flows. Their memory is pinned.
    pub frames: u32,
    /// The most flows. A number above 1000 counts as 1000: the others are for quotas.
    pub flows_max: u32,
    /// How often the owner is called, and the rate of the link.
    pub spread: Spread,
}

impl Default for InterfaceSettings {
    /// 4096 frames of 2 KiB, 64 flows, a period of 1 ms, no rate.
    fn default() -> Self {
        let spread = Spread { period: Span::from_millis(1), link_bits_per_second: None };
        InterfaceSettings { frames: 4096, flows_max: 64, spread }
    }
}

/// An owner of an interface whose address is the kernel's.
///
/// ```no_run
/// # extern crate upcall_runtime as upcall;
/// use upcall::activity::ActivityParams;
/// use upcall::net::{FlowTerms, InterfaceSettings, UdpInterface};
/// use upcall::time::Span;
/// use upcall::{Config, Runtime, clock};
///
/// let mut interface = UdpInterface::open("eth1", InterfaceSettings::default())?;
/// let (_, mut flow) = interface.bind(FlowTerms::new("10.0.0.2:5004".parse()?))?;
///
/// let mut runtime = Runtime::start(Config::default())?;
/// // The cost counts the packets of a period: here up to 64 and their processing.
/// let need = ActivityParams::new(Span::from_millis(1), Span::from_micros(100));
/// let id = runtime.handler("receiver", need, move |batch| {
///     let mut payload = [0; 2048];
///     while batch.proceed() {
///         // An interface that is down may come up again.
///         let _ = interface.process(clock::now(), 64);
///         while let Ok(Some((length, peer, _))) = flow.receive(&mut payload) {
///             // Back to its sender.
///             let _ = flow.send(&payload[..length.min(1472)], peer);
///         }
///         flow.flush();
///     }
/// })?;
/// runtime.run(id)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct UdpInterface {
    /// First, so that no packet comes for a socket that is closed.
    steering: Steering,
    owner: Owner<Box<XdpDevice>>,
    /// Frames processed since the rings were known to be emptied.
    received: u64,
    /// The most frames that wait in the rings.
    ring_frames: u64,
    /// The least time in which receivers can take what arrived: half a period, as a call may be
    /// early or late.
    round: Span,
    next_round: Instant,
    name: String,
    index: u32,
    reason: String,
}

/// A flow whose packets the program sends here.
#[derive(Debug)]
struct Steered {
    /// The kernel socket that keeps the port. It is never read.
    _socket: UdpSocket,
    /// Its keys in the program.
    keys: Vec<Destination>,
    credit: Credit,
}

/// What the program and the kernel know of the flows. Dropping it makes the program forget them.
#[derive(Debug)]
struct Steering {
    program: Program,
    /// How many AF_XDP sockets it has.
    queues: u32,
    /// The link address of the interface.
    link: LinkAddress,
    /// As many as were bound at a time, so that a call does not look at all that there may be.
    flows: Vec<Option<Steered>>,
}

impl UdpInterface {
    /// Opens the interface `name` with an XDP program of its own, and all the receive queues that
    /// it has by now. Blocks for about 0.1 s, in which the kernel verifies the program. Allocates.
    ///
    /// # Errors
    /// See [`InterfaceError`].
    pub fn open(name: &str, settings: InterfaceSettings) -> Result<UdpInterface, InterfaceError> {
        let index = find(name)?.index;
        let program = Program::attach(index, Request::Auto).map_err(InterfaceError::Program)?;
        UdpInterface::open_with(program, name, settings)
    }

    /// As [`UdpInterface::open`], with the program that the interface `name` has. Blocks for some
    /// system calls.
    ///
    /// # Errors
    /// See [`InterfaceError`].
    pub fn open_with(
        program: Program,
        name: &str,
        settings: InterfaceSettings,
    ) -> Result<UdpInterface, InterfaceError> {
        let InterfaceSettings { frames, flows_max, spread } = settings;
        let flows_max = flows_max.min(FLOWS_MAX);
        let found = find(name)?;
        let Some(address) = found.link else {
            return Err(InterfaceError::NoEthernet(name.to_owned()));
        };
        let area = area(FrameForm { frames, size: FrameSize::Half })?;
        // The program sends packets of flows to an AF_XDP socket. No other device would get them.
        let Choice { device, reason } = choose(&area, found.index, Redirect::Attached)?;
        let Chosen::Xdp(device) = device else {
            return Err(InterfaceError::NoAfXdp { name: name.to_owned(), reason });
        };
        let mut queues = SOCKET;
        for socket in device.sockets() {
            program.insert_socket(queues, socket).map_err(InterfaceError::Os)?;
            queues += 1;
        }
        let mode = match (program.mode(), program.native_refusal()) {
            (Mode::Native, _) => "the program runs in the driver".to_owned(),
            (_, Some(refusal)) => format!("the program runs after the driver ({refusal})"),
            (_, None) => "the program runs after the driver".to_owned(),
        };
        let flows = Vec::with_capacity(flows_max as usize);
        let steering = Steering { program, queues, link: address, flows };
        let mut port = Port::new(area, device, frames / 2);
        // Without frames in its fill ring the first packets would be lost.
        port.receive(Instant::ZERO, &mut Vec::new())?;
        let most = u16::try_from(found.mtu_bytes).unwrap_or(u16::MAX);
        let paths = KernelPaths::new(found.index, address, most).map_err(InterfaceError::Os)?;
        let settings = OwnerSettings { flows_max, spread, checksums: Checksums::of(&found) };
        let owner = Owner::new(port, Paths::Kernel(paths), settings);
        let reason = format!("{reason}; {mode}");
        let (name, index) = (name.to_owned(), found.index);
        let (received, ring_frames) = (0, u64::from(frames / 2));
        let (round, next_round) = (spread.period / 2, Instant::ZERO);
        Ok(UdpInterface {
            steering,
            owner,
            received,
            ring_frames,
            round,
            next_round,
            name,
            index,
            reason,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which device it has and why, in one sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Binds a flow of this process ([`Owner::bind`]). Some system calls. Allocates.
    ///
    /// # Errors
    /// As [`UdpInterface::bind_apart`].
    pub fn bind(&mut self, terms: FlowTerms) -> Result<(u32, UdpFlow), InterfaceError> {
        let (terms, socket) = reserve(terms)?;
        let (slot, flow) = self.owner.bind(terms)?;
        self.steer(slot, terms, socket)?;
        Ok((slot, flow))
    }

    /// Binds a flow of another process ([`Owner::bind_apart`]). Returns its number, its address
    /// with its port, and the end of its wake-ups. Some system calls. Allocates.
    ///
    /// # Errors
    /// [`InterfaceError::Bind`]: another program has the port, or the address is not local.
    /// Otherwise as [`Owner::bind`], or the kernel's error.
    pub fn bind_apart(
        &mut self,
        terms: FlowTerms,
        memory: LentMemory,
    ) -> Result<(u32, SocketAddr, WakeReceiver), InterfaceError> {
        let (terms, socket) = reserve(terms)?;
        let (slot, wake) = self.owner.bind_apart(terms, memory)?;
        self.steer(slot, terms, socket)?;
        Ok((slot, terms.local, wake))
    }

    /// Closes a flow. Its packets go to the kernel again.
    pub fn unbind(&mut self, slot: u32) {
        self.steering.end(slot);
        self.owner.unbind(slot);
    }

    /// What the program counted for a flow: packets that were passed to the owner, and dropped
    /// beyond the flow's quota or for want of a socket. No system call.
    pub fn program_counts(&self, slot: u32) -> quota_page::Counters {
        self.steering.program.page().counters(flow_slot(slot))
    }

    /// What the program found in the packets of the interface. No system call.
    pub fn program_outcomes(&self) -> quota_page::Outcomes {
        self.steering.program.page().outcomes()
    }

    /// Closes all flows and the device. The account has all frames of the area then.
    pub fn close(self) -> Account {
        let UdpInterface { steering, owner, .. } = self;
        drop(steering);
        owner.close()
    }

    /// The owner, for its counts and its output. [`UdpInterface::process`] tells the program how
    /// much room the flows have. After it, [`Owner::input`] alone lets no more packets come.
    pub fn owner(&mut self) -> &mut Owner<Box<XdpDevice>> {
        &mut self.owner
    }

    /// As [`Owner::process`]. Steering ends for flows that the owner closed.
    ///
    /// # Errors
    /// As [`Owner::process`].
    pub fn process(&mut self, now: Instant, most: u32) -> Result<(u32, u32), DeviceError> {
        let received = self.owner.input(now, most);
        self.give_credit(now, *received.as_ref().unwrap_or(&most), most);
        let sent = self.owner.output(now, most);
        if self.owner.take_closed() {
            for slot in (0..).take(self.steering.flows.len()) {
                if self.owner.flow_counts(slot).is_none() {
                    self.steering.end(slot);
                }
            }
        }
        Ok((received?, sent?))
    }

    /// Lets the program pass as many packets of each flow as it has room for, after an input that
    /// processed `received` packets of at most `most`.
    fn give_credit(&mut self, now: Instant, received: u32, most: u32) {
        // Fewer than it may: the ring had no more. Or else as many as a ring can hold.
        self.received += u64::from(received);
        let is_emptied = received < most || self.received >= self.ring_frames;
        if is_emptied {
            self.received = 0;
        }
        let is_new_round = now >= self.next_round;
        if is_new_round {
            self.next_round = now + self.round;
        }
        let call = Call { is_new_round, is_emptied };
        for (slot, flow) in (0..).zip(&mut self.steering.flows) {
            let Some(flow) = flow else { continue };
            let Some(progress) = self.owner.flow_progress(slot) else { continue };
            let (of, page) = (flow_slot(slot), self.steering.program.page());
            let limit = flow.credit.limit(page.counters(of).passed, progress, call);
            page.set_limit(of, limit);
        }
    }

    /// Makes the program send the packets of a flow here.
    fn steer(
        &mut self,
        slot: u32,
        terms: FlowTerms,
        socket: UdpSocket,
    ) -> Result<(), InterfaceError> {
        let local = terms.local;
        let mut inserted = Vec::new();
        let of = flow_slot(slot);
        let program = &self.steering.program;
        program.page().clear(of);
        let quota = terms.receive.map(|Quota { interval_ns, step_ns, depth, .. }| {
            quota_page::Quota::new(interval_ns, step_ns, depth.max(1).into())
        });
        let steered = quota.transpose().map_err(InterfaceError::Quota).and_then(|quota| {
            // Quota and action first, so that the first packet has them. A cleared slot has no
            // limit.
            if let Some(quota) = quota {
                program.page().set_quota(of, quota);
            }
            program.page().set_link(of, Some(self.steering.link));
            program.page().set_action(of, Action::Redirect { socket: SOCKET });
            keys(local, self.index)?.into_iter().try_for_each(|key| {
                program.insert(key, of).map_err(InterfaceError::Program)?;
                inserted.push(key);
                Ok(())
            })
        });
        let steered_flow = Steered { _socket: socket, keys: inserted, credit: Credit::default() };
        self.steering.put(slot, steered_flow);
        if steered.is_err() {
            self.unbind(slot);
        }
        steered
    }
}

impl Steering {
    /// Takes note of a flow. Its slot is the first free one, so the list grows by one at most.
    fn put(&mut self, slot: u32, flow: Steered) {
        let at = slot as usize;
        if at >= self.flows.len() {
            self.flows.resize_with(at + 1, || None);
        }
        self.flows[at] = Some(flow);
    }

    /// The packets of a flow go to the kernel again. Nothing happens if there is no such flow.
    fn end(&mut self, slot: u32) {
        // The socket is closed last: until then nobody else can have the port.
        let Some(flow) = self.flows.get_mut(slot as usize).and_then(Option::take) else { return };
        for &key in &flow.keys {
            // No error is known. The packets would be dropped, as those of no flow.
            let _ = self.program.remove(key, flow_slot(slot));
        }
        self.program.page().clear(flow_slot(slot));
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        (0..).take(self.flows.len()).for_each(|slot| self.end(slot));
        for socket in SOCKET..self.queues {
            // No error is known. The socket is closed next.
            let _ = self.program.remove_socket(socket);
        }
    }
}

/// The interface `name` of this network namespace.
fn find(name: &str) -> Result<interface::Interface, InterfaceError> {
    let all = interface::all().map_err(InterfaceError::Os)?;
    let found = all.into_iter().find(|found| found.name == name);
    found.ok_or_else(|| InterfaceError::Missing(name.to_owned()))
}

/// The kernel socket of a flow, and the terms with the port that the kernel chose.
fn reserve(mut terms: FlowTerms) -> Result<(FlowTerms, UdpSocket), InterfaceError> {
    let bind_error = |error| InterfaceError::Bind(terms.local, error);
    let socket = UdpSocket::bind(terms.local).map_err(bind_error)?;
    // It is never read: the least that the kernel allows.
    socket.set_receive_buffer(0).map_err(bind_error)?;
    terms.local.set_port(socket.local_addr().map_err(bind_error)?.port());
    Ok((terms, socket))
}

/// The keys of an address in the map of the program. An unspecified one has a key for each address
/// that the interface has now. The program runs before the kernel forwards, so a key for any
/// address would take packets of others.
fn keys(local: SocketAddr, interface: u32) -> Result<Vec<Destination>, InterfaceError> {
    let key = |address| Destination { address, protocol: UDP, port: local.port() };
    if !local.ip().is_unspecified() {
        return Ok(vec![key(local.ip())]);
    }
    let own = interface::addresses(interface).map_err(InterfaceError::Os)?;
    // A socket of IPv6 on any address gets IPv4 too.
    let fits = |address: &IpAddr| local.is_ipv6() || address.is_ipv4();
    let keys: Vec<Destination> = own.into_iter().filter(fits).map(key).collect();
    if keys.is_empty() { Err(InterfaceError::NoAddress(local)) } else { Ok(keys) }
}

/// Why an interface was not opened, or a flow not bound.
#[non_exhaustive]
pub enum InterfaceError {
    /// There is no interface with this name in this network namespace.
    Missing(String),
    /// The interface has no address of Ethernet.
    NoEthernet(String),
    /// The XDP program was refused, or has the destination for another.
    Program(ProgramError),
    /// The flow is for every address of the interface, which has none of this family.
    NoAddress(SocketAddr),
    /// AF_XDP is refused, so the packets of flows would reach nobody. Another program has the
    /// queue, or a right is missing.
    NoAfXdp {
        /// The interface.
        name: String,
        /// Which device it could have, and why not a better one.
        reason: String,
    },
    /// The device was refused.
    Device(DeviceError),
    /// The port is taken, or the address is not local.
    Bind(SocketAddr, OsError),
    /// The owner refused the flow.
    Owner(OwnerError),
    /// The quota is beyond all bounds.
    Quota(QuotaError),
    /// Another error of the kernel.
    Os(OsError),
}

impl fmt::Display for InterfaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InterfaceError::Missing(name) => {
                write!(f, "there is no interface `{name}` (`upcall net` lists them)")
            }
            InterfaceError::NoEthernet(name) => write!(f, "`{name}` has no address of Ethernet"),
            InterfaceError::NoAddress(local) => {
                write!(f, "{local}: the interface has no address of this family")
            }
            InterfaceError::NoAfXdp { name, reason } => {
                write!(f, "`{name}` has no AF_XDP socket for flows: {reason}")
            }
            InterfaceError::Program(error) => error.fmt(f),
            InterfaceError::Device(error) => error.fmt(f),
            InterfaceError::Bind(address, error) => write!(f, "{address}: {error}"),
            InterfaceError::Owner(error) => error.fmt(f),
            InterfaceError::Quota(error) => error.fmt(f),
            InterfaceError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for InterfaceError {
    /// As `Display`: `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for InterfaceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(match self {
            InterfaceError::Missing(_)
            | InterfaceError::NoEthernet(_)
            | InterfaceError::NoAddress(_)
            | InterfaceError::NoAfXdp { .. } => return None,
            InterfaceError::Program(error) => error,
            InterfaceError::Device(error) => error,
            InterfaceError::Bind(_, error) | InterfaceError::Os(error) => error,
            InterfaceError::Owner(error) => error,
            InterfaceError::Quota(error) => error,
        })
    }
}

impl From<DeviceError> for InterfaceError {
    fn from(error: DeviceError) -> Self {
        InterfaceError::Device(error)
    }
}

impl From<OwnerError> for InterfaceError {
    fn from(error: OwnerError) -> Self {
        InterfaceError::Owner(error)
    }
}
