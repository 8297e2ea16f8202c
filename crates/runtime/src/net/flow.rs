//! The program's end of a UDP flow: datagrams in frames, by four queues (rtu-1996 §7.2).
//!
//! A handler has it and calls it at each upcall. No call here blocks, allocates, or makes a system
//! call. Who does not look in each period waits ([`wait`]).
//! The owner of the interface ([`super::Owner`]) has the other end, in the same process or in the
//! daemon. The owner checks all that comes from here, and this end all that comes from the owner.
//!
//! ```text
//!   (1) take: the oldest datagram         (4) outgoing: a free frame
//!   (2) payload: its bytes in the frame   (5) fill it
//!   (3) release: the owner's again        (6) send: to a peer
//!                (7) flush: shows the owner what was released and sent
//! ```

mod wait;

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_shm::frames::queue::{Queue, Reader, Writer};
use upcall_shm::frames::{Descriptor, FrameForm, FrameSize, HEADROOM_BYTES, Note, NoteKind, queue};
use upcall_shm::stream::Payload;
use upcall_shm::{LayoutError, PeerFault};
use upcall_sys::OsError;
use upcall_sys::local::Connection;
use upcall_sys::memfd::{MapError, SharedMapping};
use upcall_sys::wake_socket::WakeReceiver;

use super::device::Area;

/// One queue of a flow in memory of its own.
pub(super) type Ring = SharedMapping;

/// The number that tells a queue from earlier ones in its memory. Here each queue has new memory.
pub(super) const GENERATION: u64 = 1;

/// How a flow is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowForm {
    /// Datagrams that the flow can hold for its program, a power of two up to 65536.
    pub receive_slots: u32,
    /// Frames that the program has for sending, a power of two up to 65536.
    pub transmit_slots: u32,
}

impl Default for FlowForm {
    /// 256 to receive and 64 to send.
    fn default() -> Self {
        FlowForm { receive_slots: 256, transmit_slots: 64 }
    }
}

/// The memory of the four queues.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) receive: Ring,
    pub(super) received: Ring,
    pub(super) transmit: Ring,
    pub(super) transmitted: Ring,
}

impl Rings {
    /// New queues for frames of `frames`. Allocates memory.
    pub(super) fn create(form: FlowForm, frames: FrameForm) -> Result<Rings, FlowError> {
        let rings = RING_NAMES.into_iter().zip(ring_bytes(form));
        let mut memory = Vec::new();
        for (name, bytes) in rings {
            memory.push(SharedMapping::create(name, bytes)?);
        }
        Rings::of(memory, form, frames)
    }

    /// New queues in four pieces of memory, in the order of [`RING_NAMES`]. They are all 0.
    pub(super) fn of(
        memory: impl IntoIterator<Item = Ring>,
        form: FlowForm,
        frames: FrameForm,
    ) -> Result<Rings, FlowError> {
        let mut memory = memory.into_iter();
        let mut ring = |slots| -> Result<Ring, FlowError> {
            let memory = memory.next().ok_or(FlowError::NoRoom)?;
            Queue::create(&memory, slots, frames, GENERATION)?;
            Ok(memory)
        };
        // What goes back fits, whatever the program does: there are no more frames than slots.
        Ok(Rings {
            receive: ring(form.receive_slots)?,
            received: ring(form.receive_slots)?,
            transmit: ring(form.transmit_slots)?,
            transmitted: ring(form.transmit_slots)?,
        })
    }

    /// Other mappings of the same queues, for the other end.
    pub(super) fn again(&self) -> Result<Rings, FlowError> {
        let again = |ring: &Ring| -> Result<Ring, FlowError> {
            let fd = ring.fd().try_clone_to_owned();
            let errno = |error: std::io::Error| error.raw_os_error().unwrap_or(0);
            let fd = fd.map_err(|error| MapError::Os(OsError::new("dup", errno(error))))?;
            Ok(SharedMapping::from_fd(fd, ring.len())?)
        };
        Ok(Rings {
            receive: again(&self.receive)?,
            received: again(&self.received)?,
            transmit: again(&self.transmit)?,
            transmitted: again(&self.transmitted)?,
        })
    }
}

/// The names of the queues' memory.
pub(super) const RING_NAMES: [&str; 4] =
    ["upcall receive", "upcall received", "upcall transmit", "upcall transmitted"];

/// The bytes of the queues, in the order of [`RING_NAMES`].
pub(super) fn ring_bytes(form: FlowForm) -> [usize; 4] {
    let FlowForm { receive_slots, transmit_slots } = form;
    [receive_slots, receive_slots, transmit_slots, transmit_slots]
        .map(|slots| queue::words(slots) * 8)
}

/// What arrived at a flow.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Received {
    /// A datagram. The program gives it back with [`UdpFlow::release`].
    Datagram(Datagram),
    /// A datagram that was sent to this peer did not get there, by an ICMP error.
    Error {
        /// The peer.
        peer: SocketAddr,
        /// Why. Never [`NoteKind::Datagram`].
        kind: NoteKind,
    },
}

/// A datagram in a frame. Dropping it without [`UdpFlow::release`] costs the flow a frame until it
/// is closed.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the frame goes back by `UdpFlow::release`"]
pub struct Datagram {
    part: Descriptor,
    note: Note,
}

impl Datagram {
    /// The sender.
    pub fn peer(&self) -> SocketAddr {
        self.note.peer()
    }

    /// When the owner of the interface took it, or the kernel if the device tells.
    pub fn arrival(&self) -> Instant {
        Instant::from_nanos(self.note.at_ns)
    }

    /// Bytes of the payload.
    #[expect(clippy::len_without_is_empty, reason = "a datagram may be empty")]
    pub fn len(&self) -> usize {
        self.part.length.into()
    }
}

/// A frame to fill and send. As for [`Datagram`], a dropped one is lost until the flow is closed.
#[derive(Debug)]
#[must_use = "the frame goes to the peer by `UdpFlow::send_frame`"]
pub struct Outgoing {
    frame: u32,
}

/// The program's end of a flow, for receiving and sending.
///
/// A handler calls [`UdpFlow::take`] in each period, and nothing wakes it. Event-driven code
/// watches the descriptor of the flow ([`UdpFlow::arm`]), and a thread may block
/// ([`UdpFlow::wait`]). A payload may be longer than a packet to its peer may be: then
/// [`UdpFlow::take`] returns [`NoteKind::TooLong`].
#[derive(Debug)]
pub struct UdpFlow {
    local: SocketAddr,
    area: Arc<Area>,
    receive: Reader<Ring>,
    received: Writer<Ring>,
    transmit: Writer<Ring>,
    transmitted: Reader<Ring>,
    /// Where the owner wakes the program after it armed.
    wake: WakeReceiver,
    /// Frames that the program may fill.
    free: VecDeque<u32>,
    payload_bytes_max: u16,
    /// Tells an owner in this process that the flow is still used.
    _alive: Option<Arc<()>>,
    /// With the daemon, if that has the interface. It closes the flow when this ends.
    connection: Option<Connection>,
    /// Whether the owner was not shown yet what was released or sent.
    is_released: bool,
    is_sent: bool,
}

impl UdpFlow {
    /// Attaches to the queues of `rings`, with the frames `free` to fill.
    pub(super) fn attach(
        local: SocketAddr,
        (area, alive): (Arc<Area>, Option<Arc<()>>),
        (rings, wake): (Rings, WakeReceiver),
        free: impl IntoIterator<Item = u32>,
    ) -> Result<UdpFlow, FlowError> {
        let form = area.form();
        let attach = |ring| Queue::attach(ring, form, GENERATION);
        Ok(UdpFlow {
            local,
            receive: attach(rings.receive)?.reader()?,
            received: attach(rings.received)?.writer()?,
            transmit: attach(rings.transmit)?.writer()?,
            transmitted: attach(rings.transmitted)?.reader()?,
            wake,
            free: free.into_iter().collect(),
            payload_bytes_max: payload_bytes_max(form.size),
            area,
            _alive: alive,
            connection: None,
            is_released: false,
            is_sent: false,
        })
    }

    /// The same flow, with the connection that keeps it open at the daemon.
    pub(super) fn kept_by(mut self, connection: Connection) -> UdpFlow {
        self.connection = Some(connection);
        self
    }

    /// Whether the daemon still keeps the flow: it closes a flow that breaks its queues, and those
    /// of an interface that is gone. A flow of this process is open. One system call; none for a
    /// flow of this process.
    pub fn is_open(&self) -> bool {
        // The daemon sends nothing more, so a message is a fault, and an end is one.
        let is_quiet = |connection: &Connection| {
            let peeked = connection.peek(&mut [0]);
            peeked.is_err_and(|error| error.is_would_block())
        };
        self.connection.as_ref().is_none_or(is_quiet)
    }

    /// The address and port of the flow.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The longest payload that fits a frame, in bytes. The path to a peer may take less.
    pub fn payload_bytes_max(&self) -> u16 {
        self.payload_bytes_max
    }

    /// The oldest datagram or error that arrived. `None`: there is none, and the owner was shown
    /// all that was released. O(1).
    ///
    /// # Errors
    /// [`FlowError::Fault`]: the owner wrote an impossible value. The flow cannot be used further.
    pub fn take(&mut self) -> Result<Option<Received>, FlowError> {
        let Some((part, note)) = self.next()? else { return Ok(None) };
        if note.kind != NoteKind::Datagram {
            self.give_back(part)?;
            return Ok(Some(Received::Error { peer: note.peer(), kind: note.kind }));
        }
        Ok(Some(Received::Datagram(Datagram { part, note })))
    }

    /// What arrived next, with its note.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<(Descriptor, Note)>, FlowError> {
        let Some(part) = self.receive.take()? else {
            self.show_released();
            return Ok(None);
        };
        Ok(Some((part, self.area.read_note(part)?)))
    }

    /// The payload in its frame. Copy it once, then check the copy: where the owner is another
    /// process, it could write there. O(1).
    ///
    /// # Errors
    /// None if `datagram` is of this flow.
    pub fn payload(&self, datagram: &Datagram) -> Result<Payload<'_>, FlowError> {
        Ok(self.area.part(datagram.part)?)
    }

    /// Gives the frame of a datagram back. O(1).
    ///
    /// # Errors
    /// As [`UdpFlow::take`].
    pub fn release(&mut self, datagram: Datagram) -> Result<(), FlowError> {
        self.give_back(datagram.part)
    }

    /// Copies the oldest datagram into `bytes` and gives its frame back: its length, its sender and
    /// its arrival. What does not fit is cut off, and the length tells. Errors of peers are passed
    /// over. `None`: nothing is there. O(bytes).
    ///
    /// # Errors
    /// As [`UdpFlow::take`].
    pub fn receive(
        &mut self,
        bytes: &mut [u8],
    ) -> Result<Option<(usize, SocketAddr, Instant)>, FlowError> {
        loop {
            let Some((part, note)) = self.next()? else { return Ok(None) };
            let is_datagram = note.kind == NoteKind::Datagram;
            if is_datagram {
                self.area.part(part)?.copy_to(0, bytes);
            }
            self.give_back(part)?;
            if is_datagram {
                let arrival = Instant::from_nanos(note.at_ns);
                return Ok(Some((part.length.into(), note.peer(), arrival)));
            }
        }
    }

    /// A free frame to fill. `None`: all are on their way. O(1).
    ///
    /// # Errors
    /// As [`UdpFlow::take`].
    pub fn outgoing(&mut self) -> Result<Option<Outgoing>, FlowError> {
        if self.free.is_empty() {
            self.show_sent();
            while let Some(part) = self.transmitted.take()? {
                self.free.push_back(part.frame);
            }
            self.transmitted.release();
        }
        Ok(self.free.pop_front().map(|frame| Outgoing { frame }))
    }

    /// The place for the payload in a frame, [`UdpFlow::payload_bytes_max`] long. O(1).
    ///
    /// # Errors
    /// None if `outgoing` is of this flow.
    pub fn space(&self, outgoing: &Outgoing) -> Result<Payload<'_>, FlowError> {
        Ok(self.area.part(self.part(outgoing.frame, self.payload_bytes_max))?)
    }

    /// Sends the first `length` bytes of a frame to `peer`. The owner sees it after
    /// [`UdpFlow::flush`]. O(1).
    ///
    /// # Errors
    /// [`FlowError::TooLong`]: more than a frame can hold; the frame is free again. Otherwise as
    /// [`UdpFlow::take`].
    pub fn send_frame(
        &mut self,
        outgoing: Outgoing,
        length: usize,
        peer: SocketAddr,
    ) -> Result<(), FlowError> {
        let Outgoing { frame } = outgoing;
        let most = self.payload_bytes_max;
        let Some(length) = u16::try_from(length).ok().filter(|length| *length <= most) else {
            self.free.push_back(frame);
            return Err(FlowError::TooLong { bytes: length, most });
        };
        let part = self.part(frame, length);
        self.area.write_note(part, &Note::new(peer, NoteKind::Datagram, 0))?;
        // There are as many slots as frames, and the owner frees the slot first.
        if !self.transmit.push(part)? {
            self.free.push_back(frame);
            return Err(FlowError::NoRoom);
        }
        self.is_sent = true;
        Ok(())
    }

    /// Copies `bytes` into a free frame and sends it to `peer`. `false`: no frame is free, and
    /// nothing was sent. O(bytes).
    ///
    /// # Errors
    /// As [`UdpFlow::send_frame`].
    pub fn send(&mut self, bytes: &[u8], peer: SocketAddr) -> Result<bool, FlowError> {
        let Some(outgoing) = self.outgoing()? else { return Ok(false) };
        self.space(&outgoing)?.fill(0, bytes);
        self.send_frame(outgoing, bytes.len(), peer)?;
        Ok(true)
    }

    /// Shows the owner what was released and sent since the last call. At most three stores. Call
    /// it at the end of each upcall: what was sent leaves only after this call. What was released,
    /// [`UdpFlow::take`] also shows when it finds nothing.
    pub fn flush(&mut self) {
        self.show_released();
        self.show_sent();
    }

    fn show_released(&mut self) {
        if std::mem::take(&mut self.is_released) {
            self.receive.release();
            self.received.publish();
        }
    }

    fn show_sent(&mut self) {
        if std::mem::take(&mut self.is_sent) {
            self.transmit.publish();
        }
    }

    #[inline(always)]
    fn give_back(&mut self, part: Descriptor) -> Result<(), FlowError> {
        self.is_released = true;
        match self.received.push(part)? {
            true => Ok(()),
            // The owner lends no more frames than there are slots, if it is honest.
            false => Err(FlowError::NoRoom),
        }
    }

    fn part(&self, frame: u32, length: u16) -> Descriptor {
        Descriptor { frame, offset: HEADROOM_BYTES, length }
    }
}

impl Drop for UdpFlow {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The bytes of a frame behind its headroom.
pub(super) const fn payload_bytes_max(size: FrameSize) -> u16 {
    size as u16 - HEADROOM_BYTES
}

/// Why a call of a flow failed.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowError {
    /// The payload does not fit a frame. Nothing was sent.
    TooLong {
        /// Its bytes.
        bytes: usize,
        /// The most bytes.
        most: u16,
    },
    /// The owner lent more frames than its queue has slots. Nothing was sent or given back.
    NoRoom,
    /// The owner wrote an impossible value.
    Fault(PeerFault),
    /// The queues do not fit their memory.
    Layout(LayoutError),
    /// There is no memory for the queues.
    Map(MapError),
    /// The owner closed the flow, or has ended.
    Closed,
    /// The kernel refused a descriptor for wake-ups.
    Os(OsError),
}

impl fmt::Display for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowError::TooLong { bytes, most } => {
                write!(f, "a payload of {bytes} bytes is too long: a frame holds {most}")
            }
            FlowError::NoRoom => f.write_str("the owner lent more frames than it may"),
            FlowError::Fault(fault) => fault.fmt(f),
            FlowError::Layout(error) => error.fmt(f),
            FlowError::Map(error) => error.fmt(f),
            FlowError::Closed => f.write_str("the owner closed the flow"),
            FlowError::Os(error) => error.fmt(f),
        }
    }
}

impl fmt::Debug for FlowError {
    /// As `Display`: `main` prints the `Debug` form of the error that it returns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for FlowError {}

impl From<PeerFault> for FlowError {
    fn from(fault: PeerFault) -> Self {
        FlowError::Fault(fault)
    }
}

impl From<LayoutError> for FlowError {
    fn from(error: LayoutError) -> Self {
        FlowError::Layout(error)
    }
}

impl From<MapError> for FlowError {
    fn from(error: MapError) -> Self {
        FlowError::Map(error)
    }
}
