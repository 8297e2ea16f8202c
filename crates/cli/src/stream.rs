//! The end of a stream inside its handler: socket or flow, named processor and loop.

pub mod flow;
mod sizes;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use upcall::Batch;
use upcall::load::SenderPlan;
use upcall::qos::Mapping;
use upcall::time::{Instant, Span};
use upcall::udp::{Receiver, ReceiverOptions, Sender, StreamCounters};
use upcall::work::{MediaClock, Taken, Work, WorkCounters, WorkKind, sample_payload};

use crate::spec::{Direction, Stream};
use sizes::{buffered, made_datagrams, pdus_of_unit};

/// What the processor of a stream counted; complete when its handler is gone.
pub type SharedWorkCounters = Mutex<WorkCounters>;

/// A stream with its open socket or flow.
#[derive(Debug)]
pub enum Endpoint {
    Receive(Box<ReceiveEnd>),
    Send(Box<SendEnd>),
}

#[derive(Debug)]
pub struct ReceiveEnd {
    receiver: Receiver,
    work: Work,
    work_counters: Arc<SharedWorkCounters>,
    /// Most datagrams that one upcall takes while it looks for whole PDUs.
    datagrams_max: u32,
    /// `Some` if the stream may work ahead.
    early: Option<Early>,
    /// Whether a whole PDU was taken and waits for permission to be processed.
    ready: bool,
}

/// How a stream that works ahead finds messages that came early. A message is a whole batch.
#[derive(Debug)]
struct Early {
    /// The logical arrivals by timestamps; `None` if the datagrams have none.
    clock: Option<MediaClock>,
    /// A message that is further ahead of its timestamp begins a new timeline.
    early_max: Span,
}

/// The longest gap between two messages that the timestamps may show, beyond the work ahead.
const GAP_MAX: Span = Span::from_secs(1);

/// Most datagrams that one system call fetches ([`ReceiverOptions::batch_max`]).
const FETCH_MAX: u32 = 1024;

#[derive(Debug)]
pub struct SendEnd {
    sender: Sender,
    work: Work,
    work_counters: Arc<SharedWorkCounters>,
    kind: WorkKind,
    payload: Vec<u8>,
    pdu_bytes: u32,
    datagrams_a_pdu: u32,
    sequence: u32,
}

impl Endpoint {
    /// Opens the stream's socket, or its flow at the daemon with the socket `daemon`. Allocates all
    /// memory that its handler will use.
    ///
    /// # Errors
    /// The system's error: a port in use, or an address that does not belong to this machine. Or
    /// that of the daemon.
    pub fn open(stream: &Stream, mapping: &Mapping, daemon: Option<&Path>) -> io::Result<Self> {
        let work = Work::new(
            stream.work,
            stream.pdu_bytes,
            mapping.params.pdu_cost,
            upcall::thread_cpu_ns,
        );
        let work_counters = Arc::default();
        let datagram_bytes = stream.packet_bytes;
        let datagrams_a_pdu = stream.pdu_bytes.div_ceil(datagram_bytes);
        let batch = mapping.params.batch.saturating_mul(datagrams_a_pdu);
        let (_, address) = stream.direction.parts();
        let flow = match &address.interface {
            None => None,
            Some(interface) => {
                let daemon = daemon.ok_or_else(|| io::Error::other("there is no daemon"))?;
                Some(flow::open(stream, mapping, interface, daemon)?)
            }
        };
        match &stream.direction {
            Direction::Receive(address) => {
                // What came early waits too, and one fetch shows it.
                let ahead = batch.saturating_mul(stream.workahead);
                let options = ReceiverOptions {
                    buffered: buffered(stream, mapping),
                    batch_max: batch.saturating_add(ahead).min(FETCH_MAX.max(batch)),
                    datagram_bytes_max: datagram_bytes,
                    delay_max: stream.delay.unwrap_or(mapping.delay_max),
                };
                let receiver = match flow {
                    Some(flow) => Receiver::from_flow(flow, &options),
                    None => Receiver::bind(address.socket, &options).map_err(io::Error::other)?,
                };
                let end = ReceiveEnd {
                    receiver,
                    work,
                    work_counters,
                    datagrams_max: batch,
                    early: Early::of(stream, mapping),
                    ready: false,
                };
                Ok(Endpoint::Receive(Box::new(end)))
            }
            Direction::Send(peer) => {
                let datagrams_a_pdu = made_datagrams(stream).map_err(io::Error::other)?;
                let batch = mapping.params.batch.saturating_mul(datagrams_a_pdu);
                let sender = match flow {
                    Some(flow) => Sender::from_flow(flow, peer.socket),
                    None => Sender::connect(peer.socket, batch, datagram_bytes)
                        .map_err(io::Error::other)?,
                };
                Ok(Endpoint::Send(Box::new(SendEnd {
                    sender,
                    work,
                    work_counters,
                    kind: stream.work,
                    payload: vec![0; datagram_bytes as usize],
                    pdu_bytes: stream.pdu_bytes,
                    datagrams_a_pdu,
                    sequence: 0,
                })))
            }
        }
    }

    /// The stream's counters, which other threads may read.
    pub fn counters(&self) -> Arc<StreamCounters> {
        match self {
            Endpoint::Receive(end) => end.receiver.counters(),
            Endpoint::Send(end) => end.sender.counters(),
        }
    }

    /// A line about a socket buffer that is smaller than planned, or `None`.
    pub fn shortfall(&self) -> Option<String> {
        let Endpoint::Receive(end) = self else { return None };
        let (asked, granted) = end.receiver.buffer_shortfall()?;
        Some(format!(
            "the socket buffer is {granted} B of the {asked} B planned: bursts may be lost; grant it \
             with `sysctl net.core.rmem_max={}` or the capability cap_net_admin",
            asked.div_ceil(2)
        ))
    }

    /// The processor's counts, filled in when the handler is dropped.
    pub fn work_counters(&self) -> Arc<SharedWorkCounters> {
        match self {
            Endpoint::Receive(end) => end.work_counters.clone(),
            Endpoint::Send(end) => end.work_counters.clone(),
        }
    }

    /// The handler that serves this stream.
    pub fn into_handler(mut self) -> impl FnMut(&mut Batch<'_>) + Send + 'static {
        move |batch| match &mut self {
            Endpoint::Receive(end) => end.upcall(batch),
            Endpoint::Send(end) => end.upcall(batch),
        }
    }
}

impl Early {
    fn of(stream: &Stream, mapping: &Mapping) -> Option<Self> {
        let ahead = mapping.params.period.saturating_mul(u64::from(stream.workahead));
        let early_max = ahead + GAP_MAX;
        let early = Early { clock: MediaClock::of(stream.work), early_max };
        (stream.workahead > 0).then_some(early)
    }
}

impl ReceiveEnd {
    /// Processes what has arrived, one batch at most.
    fn upcall(&mut self, batch: &mut Batch<'_>) {
        if !batch.resumed() {
            self.discard(batch.jobs_skipped());
        }
        let mut datagrams_left = self.datagrams_max;
        // A frame may need several datagrams before it is a PDU. The bound keeps a flood of
        // fragments from holding the CPU between two boundaries.
        while batch.remaining() > 0 && self.gather(&mut datagrams_left) && batch.proceed() {
            self.ready = false;
            // A PDU that cannot be decoded counts as processed: its cost is spent, and the
            // processor counts the error.
            let _ = self.work.process();
            self.receiver.processed();
        }
        self.tell_early(batch);
    }

    /// Reports the messages that wait already. Costs a system call if all that was fetched is
    /// processed.
    fn tell_early(&mut self, batch: &mut Batch<'_>) {
        if self.early.is_none() || !self.receiver.ready() {
            return;
        }
        let messages = self.receiver.waiting() / self.datagrams_max;
        match self.next_logical_arrival() {
            Some(at) => {
                batch.next_logical_arrival(at);
                // Each message has its own timestamp.
                batch.messages_waiting(messages.min(1));
            }
            None => batch.messages_waiting(messages),
        }
    }

    /// The logical arrival of the next datagram, by its timestamp.
    fn next_logical_arrival(&mut self) -> Option<Instant> {
        let Early { clock, early_max } = self.early.as_mut()?;
        let datagram = self.receiver.peek()?;
        let latest = upcall::clock::now() + *early_max;
        clock.as_mut()?.logical_arrival(datagram.payload, datagram.arrival?, latest)
    }

    /// Discards the datagrams of so many jobs. Otherwise the data of later jobs would be late for
    /// ever.
    fn discard(&mut self, jobs: u64) {
        let datagrams = jobs.saturating_mul(u64::from(self.datagrams_max));
        for _ in 0..datagrams {
            if !self.receiver.ready() {
                break;
            }
            let _ = self.receiver.take();
            self.receiver.discarded();
        }
    }

    /// Takes datagrams until a PDU is complete.
    fn gather(&mut self, datagrams_left: &mut u32) -> bool {
        while !self.ready && *datagrams_left > 0 && self.receiver.ready() {
            *datagrams_left -= 1;
            let logical = self.next_logical_arrival();
            let Some(datagram) = self.receiver.take() else { continue };
            match self.work.take(datagram.payload) {
                Taken::Pdu => self.ready = true,
                Taken::More => {}
                Taken::Rejected(_) => self.receiver.discarded(),
            }
            if let Some(at) = logical {
                self.receiver.arrived_logically(at);
            }
        }
        self.ready
    }
}

impl SendEnd {
    /// Makes and sends a batch.
    fn upcall(&mut self, batch: &mut Batch<'_>) {
        while batch.proceed() {
            for _ in 0..self.datagrams_a_pdu {
                let bytes =
                    sample_payload(self.kind, self.pdu_bytes, self.sequence, &mut self.payload);
                self.sequence = self.sequence.wrapping_add(1);
                let payload = &self.payload[..bytes];
                // The cost of making a PDU is spent before the PDU is sent.
                if self.work.take(payload) == Taken::Pdu {
                    let _ = self.work.process();
                }
                self.sender.send(payload);
            }
        }
        self.sender.flush();
    }
}

impl Drop for ReceiveEnd {
    fn drop(&mut self) {
        keep(&self.work_counters, self.work.counters());
    }
}

impl Drop for SendEnd {
    fn drop(&mut self) {
        keep(&self.work_counters, self.work.counters());
    }
}

fn keep(shared: &SharedWorkCounters, counters: WorkCounters) {
    if let Ok(mut kept) = shared.lock() {
        *kept = counters;
    }
}

/// The plan of an embedded sender that feeds this stream as the spec describes.
///
/// # Errors
/// The stream's PDU or packet is too small for the sample.
pub fn sender_plan(stream: &Stream, mapping: &Mapping) -> Result<SenderPlan, String> {
    let (_, address) = stream.direction.parts();
    let pdus_a_unit = pdus_of_unit(stream);
    Ok(SenderPlan {
        target: reachable(address.socket),
        interval: mapping.pdu_interval.saturating_mul(u64::from(pdus_a_unit)),
        burst: pdus_a_unit.saturating_mul(made_datagrams(stream)?),
        pdu_bytes: stream.pdu_bytes,
        datagram_bytes: stream.packet_bytes,
        work: stream.work.to_string(),
    })
}

/// The address to send to for a socket bound to `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(_) if address.ip().is_unspecified() => {
            (std::net::Ipv4Addr::LOCALHOST, address.port()).into()
        }
        SocketAddr::V6(_) if address.ip().is_unspecified() => {
            (std::net::Ipv6Addr::LOCALHOST, address.port()).into()
        }
        address => address,
    }
}
