//! The owner of an interface: UDP in user space for many flows (docs/decisions/0024-network.md).
//!
//! A handler of the same process upcalls it, or a thread of the daemon. It has one [`Port`], finds
//! the flow of each packet, checks it, and hands it over. What flows send gets its headers here, so
//! no program can send as another one. A call handles a bounded batch, never blocks, and allocates
//! nothing after a flow was bound. It knows neither the scheduler nor programs.
//!
//! ```text
//!             input                                             output
//!   (1) parts from the port, 32 at a time             (6) the first packet of each flow
//!   (2) headers -> flow, or the host itself           (7) the order: by pace, then by weight
//!   (3) flows with a quota: a queue of bounded        (8) the path: link addresses, longest
//!       depth, then by eligible time and deadline         packet; it waits, or is dropped
//!   (4) checksums; note; receive queue                (9) headers; batch to the device
//!   (5) frames that the program released             (10) frames that were sent
//! ```
//!
//! A flow is *shared* if its program is in this process: frames go to it as they are. A flow is
//! *apart* if its program is another process: it has an area of its own, and the owner copies
//! payloads, so it sees no frame of others. Each program can fault its own flow only: the owner
//! closes that flow, and takes back all that it lent.

mod counts;
mod error;
mod input;
mod lent;
mod output;
mod paths;

pub use counts::{FlowCounts, OwnerCounts};
pub use error::OwnerError;
pub use paths::{KernelPaths, Paths};

use std::net::SocketAddr;
use std::sync::Arc;

use upcall_core::time::{Instant, Span};
use upcall_proto::credit::Progress;
use upcall_proto::flow::{BindError, Destination, FlowTable, UDP};
use upcall_proto::host::{Host, HostError, HostSettings};
use upcall_proto::packet::{Datagram, TAGS_MAX};
use upcall_proto::quota::{Meter, Quota};
use upcall_proto::schedule::{PacketSchedule, Service};
use upcall_proto::transmit::{Share, Spread, TransmitOrder};
use upcall_shm::frames::Descriptor;
use upcall_sys::interface::Interface;
use upcall_sys::wake_socket::WakeReceiver;

use super::apart::LentMemory;
use super::device::{Area, Device, DeviceError};
use super::flow::{FlowForm, UdpFlow};
use super::port::{BATCH_FRAMES, Port, Sent};
use lent::Flow;

/// The longest frame in bytes: the greatest frame of an area, with all tags.
const FRAME_BYTES_MAX: usize = 4096 + 4 * TAGS_MAX;

/// Packets that are for no flow, which the host of the interface answers: at most so many at once,
/// and one each millisecond. The rest is dropped, so that a flood of them costs a bounded part.
const CONTROL: Quota = Quota { step_ns: 0, interval_ns: 1_000_000, depth: 64, at_once: 1 };

/// Whose checksums a received packet must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// The right one.
    Right,
    /// The right one, or the one that a sender on this machine leaves to its interface. For virtual
    /// interfaces: veth, TAP, loopback.
    RightOrLeftToInterface,
}

impl Checksums {
    /// Those of an interface: virtual ones carry packets of this machine. A VLAN has a wire.
    pub fn of(interface: &Interface) -> Checksums {
        match interface.is_loopback || matches!(&*interface.kind, "veth" | "tun" | "dummy") {
            true => Checksums::RightOrLeftToInterface,
            false => Checksums::Right,
        }
    }
}

/// How an owner works.
#[derive(Clone, Copy, Debug)]
pub struct OwnerSettings {
    /// The most flows.
    pub flows_max: u32,
    /// The time between two calls of [`Owner::output`], and the rate of the link.
    pub spread: Spread,
    /// Which checksums it accepts.
    pub checksums: Checksums,
}

impl Default for OwnerSettings {
    /// 64 flows, a period of 1 ms, no rate, and only right checksums.
    fn default() -> Self {
        let spread = Spread { period: Span::from_millis(1), link_bits_per_second: None };
        OwnerSettings { flows_max: 64, spread, checksums: Checksums::Right }
    }
}

/// What a flow gets.
#[derive(Clone, Copy, Debug)]
pub struct FlowTerms {
    /// Where its datagrams go, and where those that it sends come from. An unspecified address
    /// stands for every address of the interface; then the owner chooses that of the sent ones.
    pub local: SocketAddr,
    /// How many datagrams it receives, and how many may wait. `None`: all that fit its queue.
    pub receive: Option<Quota>,
    /// When it may send.
    pub send: Share,
    /// The slots of its queues.
    pub form: FlowForm,
}

impl FlowTerms {
    /// A flow that receives all that fits its queue, and sends by weight 1.
    pub fn new(local: SocketAddr) -> FlowTerms {
        FlowTerms { local, receive: None, send: Share::Weight(1), form: FlowForm::default() }
    }
}

/// A packet that waits for its eligible time.
#[derive(Clone, Debug)]
struct Arrived {
    part: Descriptor,
    datagram: Datagram,
    at: Instant,
}

/// The owner of an interface.
#[derive(Debug)]
pub struct Owner<D> {
    port: Port<D>,
    paths: Paths,
    checksums: Checksums,
    table: FlowTable,
    /// As many as were bound at a time, so that a call does not look at all that there may be.
    flows: Vec<Option<Flow>>,
    /// The destination of the packet before, which is that of the next one in most streams.
    last: Option<(Destination, u32)>,
    arrivals: PacketSchedule<Arrived>,
    order: TransmitOrder,
    control: Meter,
    /// The same for ARP and discovery of IPv6.
    discovery: Meter,
    /// The same for datagrams to ports that no flow has.
    refused: Meter,
    /// Arrived, and from `next_part` on without a flow yet.
    parts: Vec<Descriptor>,
    next_part: usize,
    /// With headers, and not taken by the device yet.
    outgoing: Vec<Descriptor>,
    /// For whom each of `outgoing` is sent, if its frame goes back to a flow.
    senders: Vec<Option<u32>>,
    sent: Vec<Sent>,
    /// The one copy of the frame that is looked at.
    packet: Box<[u8]>,
    counts: OwnerCounts,
    /// The flow whose program is woken first in the next call.
    first_shown: usize,
    /// Whether it closed a flow by itself since [`Owner::take_closed`].
    has_closed: bool,
}

impl<D: Device> Owner<D> {
    /// An owner of `port` without flows. Allocates all that it needs.
    pub fn new(port: Port<D>, paths: Paths, settings: OwnerSettings) -> Owner<D> {
        let OwnerSettings { flows_max, spread, checksums } = settings;
        let sent_max = port.area().form().frames as usize;
        Owner {
            port,
            paths,
            checksums,
            table: FlowTable::new(flows_max as usize),
            flows: Vec::with_capacity(flows_max as usize),
            last: None,
            arrivals: PacketSchedule::new(Service::Eligible, flows_max),
            order: TransmitOrder::new(flows_max, spread),
            control: Meter::new(CONTROL),
            discovery: Meter::new(CONTROL),
            refused: Meter::new(CONTROL),
            parts: Vec::with_capacity(BATCH_FRAMES),
            next_part: 0,
            outgoing: Vec::with_capacity(BATCH_FRAMES),
            senders: Vec::with_capacity(BATCH_FRAMES),
            sent: Vec::with_capacity(sent_max),
            packet: vec![0; FRAME_BYTES_MAX].into(),
            counts: OwnerCounts::default(),
            first_shown: 0,
            has_closed: false,
        }
    }

    /// An owner with addresses of its own, which the kernel of this machine must not have: it
    /// answers ARP, discovery and ping, and joins the groups that
    /// [`Host::join`](super::host::Host::join) names. `device` uses the frames of `area`, half
    /// of them to receive into. Allocates all that it needs.
    ///
    /// ```no_run
    /// # extern crate upcall_runtime as upcall;
    /// use upcall::clock;
    /// use upcall::net::host::HostSettings;
    /// use upcall::net::{
    ///     FileDevice, FlowTerms, FrameForm, FrameSize, Owner, OwnerSettings, area,
    /// };
    ///
    /// let area = area(FrameForm { frames: 1024, size: FrameSize::Half })?;
    /// let device = FileDevice::tap(&area, "upcall0")?;
    /// let host = HostSettings::new([2, 0, 0, 0, 0, 1], vec!["10.9.0.2/24".parse()?]);
    /// let mut owner = Owner::with_host(area, device, host, OwnerSettings::default())?;
    /// let (_, mut flow) = owner.bind(FlowTerms::new("10.9.0.2:7".parse()?))?;
    /// // In a handler, in each period. It fails while the TAP is down: `ip link set upcall0 up`.
    /// let _ = owner.process(clock::now(), 64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The settings of the host cannot be.
    pub fn with_host(
        area: Arc<Area>,
        device: D,
        host: HostSettings,
        settings: OwnerSettings,
    ) -> Result<Owner<D>, HostError> {
        let host = Host::new(host)?;
        let receiving_max = area.form().frames / 2;
        let port = Port::new(area, device, receiving_max);
        Ok(Owner::new(port, Paths::Own(Box::new(host)), settings))
    }

    /// [`Owner::input`] and then [`Owner::output`], of at most `most` packets each: 64 is a good
    /// number. Returns how many packets came and left. Call it once in each period of [`Spread`],
    /// with the time of [`clock::now`](crate::clock::now), before the handler takes datagrams. What
    /// flows send goes out with the next call after [`UdpFlow::flush`]. For an answer in the same
    /// period, call [`Owner::input`], let the flows answer, and call [`Owner::output`].
    ///
    /// # Errors
    /// That of the device. Input and output were both tried, and the flows stay: an interface that
    /// is down may come up again.
    pub fn process(&mut self, now: Instant, most: u32) -> Result<(u32, u32), DeviceError> {
        let received = self.input(now, most);
        let sent = self.output(now, most);
        Ok((received?, sent?))
    }

    /// Binds a flow of this process. It is closed when the [`UdpFlow`] is dropped. Returns its
    /// number too. Allocates.
    ///
    /// # Errors
    /// The address is taken, there are as many flows as there may be, or there are too few frames
    /// for it to send.
    pub fn bind(&mut self, terms: FlowTerms) -> Result<(u32, UdpFlow), OwnerError> {
        let slot = self.reserve(terms)?;
        let FlowTerms { local, form, .. } = terms;
        let made = Flow::shared(local, form, &mut self.port, slot);
        match made {
            Ok((flow, end)) => {
                self.begin(slot, terms, flow);
                Ok((slot, end))
            }
            Err(error) => {
                self.table.unbind(destination(local));
                self.port.account().flow_is_gone(slot);
                Err(error)
            }
        }
    }

    /// Binds a flow of another process, which has the area and the queues of `memory`. Their form
    /// counts, not that of `terms`. Returns its number, and the end of its wake-ups to pass to that
    /// process. Allocates.
    ///
    /// # Errors
    /// The address is taken, there are as many flows as there may be, or there is no descriptor for
    /// wake-ups.
    pub fn bind_apart(
        &mut self,
        terms: FlowTerms,
        memory: LentMemory,
    ) -> Result<(u32, WakeReceiver), OwnerError> {
        let slot = self.reserve(terms)?;
        match Flow::apart(terms.local, memory, slot) {
            Ok((flow, wake)) => {
                self.begin(slot, terms, flow);
                Ok((slot, wake))
            }
            Err(error) => {
                self.table.unbind(destination(terms.local));
                Err(error.into())
            }
        }
    }

    /// Closes a flow: its frames are free again. Reads nothing that its program wrote. Does nothing
    /// if there is no such flow. O(frames).
    pub fn unbind(&mut self, slot: u32) {
        let Some(flow) = self.flows.get_mut(slot as usize).and_then(Option::take) else { return };
        self.has_closed = true;
        self.table.unbind(destination(flow.local));
        self.last = None;
        self.order.unbind(slot);
        for arrived in self.arrivals.unbind(slot) {
            self.release(arrived.part.frame);
        }
        self.port.account().flow_is_gone(slot);
        // Packets with headers that the device has not taken: those of the flow were just freed.
        let mut at = 0;
        self.outgoing.retain(|_| {
            at += 1;
            self.senders[at - 1] != Some(slot)
        });
        self.senders.retain(|of| *of != Some(slot));
    }

    /// Whether a flow was closed since the last call: its program dropped its end, or broke a
    /// queue.
    pub fn take_closed(&mut self) -> bool {
        std::mem::take(&mut self.has_closed)
    }

    /// What happened to the packets of a flow. `None`: there is none in this slot.
    pub fn flow_counts(&self, slot: u32) -> Option<FlowCounts> {
        let flow = self.flows.get(slot as usize)?.as_ref()?;
        Some(FlowCounts { queue: self.arrivals.counts(slot), ..flow.counts })
    }

    /// How far a flow is with the packets that came for it. `None`: there is none in this slot.
    pub fn flow_progress(&self, slot: u32) -> Option<Progress> {
        let flow = self.flows.get(slot as usize)?.as_ref()?;
        let FlowCounts { received, receive_full, checksum, .. } = &flow.counts;
        let waiting = self.arrivals.waiting(slot);
        let dropped = self.arrivals.counts(slot).dropped_in_all();
        let arrived = received + receive_full + checksum + dropped + waiting as u64;
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        Some(Progress {
            arrived,
            // What the program was told of errors makes this less by a few, for a while.
            taken: received.saturating_sub(flow.lent.into()),
            room: flow.receive_slots.saturating_sub(flow.lent).saturating_sub(waiting),
        })
    }

    /// What happened to packets without a flow, and to flows.
    pub fn counts(&self) -> OwnerCounts {
        self.counts
    }

    /// The host of the interface, or the kernel's paths.
    pub fn paths(&mut self) -> &mut Paths {
        &mut self.paths
    }

    /// The port, for its account and its drops.
    pub fn port(&mut self) -> &mut Port<D> {
        &mut self.port
    }

    /// Closes all flows and the device. The account has all frames.
    pub fn close(mut self) -> upcall_shm::frames::Account {
        (0..).take(self.flows.len()).for_each(|slot| self.unbind(slot));
        for part in self.parts.split_off(self.next_part.min(self.parts.len())) {
            self.release(part.frame);
        }
        for part in std::mem::take(&mut self.outgoing) {
            self.release(part.frame);
        }
        self.port.close()
    }

    /// Finds a free slot and binds the address to it.
    fn reserve(&mut self, terms: FlowTerms) -> Result<u32, OwnerError> {
        let at = self.flows.iter().position(Option::is_none).unwrap_or(self.flows.len());
        let slot = u32::try_from(at).map_err(|_| BindError::Full)?;
        // The table has room for as many as there may be.
        self.table.bind(destination(terms.local), slot)?;
        if at == self.flows.len() {
            self.flows.push(None);
        }
        Ok(slot)
    }

    fn begin(&mut self, slot: u32, terms: FlowTerms, mut flow: Flow) {
        // Those of the flow before.
        self.arrivals.clear_counts(slot);
        if let Some(quota) = terms.receive {
            self.arrivals.bind(slot, quota);
            flow.has_quota = true;
        }
        self.order.bind(slot, terms.send);
        self.flows[slot as usize] = Some(flow);
        self.last = None;
    }

    /// Frees a frame that the owner has.
    fn release(&mut self, frame: u32) {
        if let Err(error) = self.port.release(frame) {
            // It would be a fault of this file. The frame is with another holder then, and not
            // lost.
            debug_assert!(false, "{error}");
            self.counts.account_errors += 1;
        }
    }

    /// Closes a flow whose program broke a queue.
    fn fault(&mut self, slot: u32) {
        self.counts.faults += 1;
        self.unbind(slot);
    }
}

/// Where the packets of a flow go.
fn destination(local: SocketAddr) -> Destination {
    Destination::new(local.ip(), UDP, local.port())
}
