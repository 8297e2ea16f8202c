//! UDP sockets of the kernel as a device, for programs without any right.
//!
//! The kernel keeps the headers, so this device writes them anew: each datagram that arrives
//! becomes a frame, and of each frame that is sent the payload goes to its destination. So code
//! that knows UDP over Ethernet uses it like any other device.
//!
//! ```text
//!   received datagram ---> Ethernet, IP, UDP, payload ---> frame
//!   frame ---> parse, check ---> the socket of its source ---> payload to its destination
//!                    |
//!                    '---> undelivered: no UDP, damaged, a fragment, or no such socket
//! ```

use super::device::{Area, Device, DeviceDrops, DeviceError, HEADROOM_BYTES};
use super::frame_lists::FrameLists;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_proto::flow::UDP;
use upcall_proto::packet::build::{self, Path};
use upcall_proto::packet::{self, Frame, LinkAddress};
use upcall_shm::frames::Descriptor;
use upcall_sys::OsError;
use upcall_sys::udp::{PAYLOAD_BYTES_MAX, ReceiveBatch, SendBatch, UdpSocket};

/// The most sockets of a device.
pub const UDP_SOCKETS_MAX: usize = 64;

/// Payloads of one receive call. The kernel may join up to 64 datagrams in each.
const RECEIVE_BATCH: usize = 8;
/// Datagrams of one send call.
const SEND_BATCH: usize = 64;

/// Our address on the link that this device pretends: a local one (IEEE 802, second bit).
const OWN_LINK: LinkAddress = [2, 0, 0, 0, 0, 1];
/// That of everybody else.
const PEER_LINK: LinkAddress = [2, 0, 0, 0, 0, 2];

/// `EADDRNOTAVAIL` and `ENOBUFS` of errno.h.
const NO_SUCH_ADDRESS: i32 = 99;
const NO_ROOM: i32 = 105;

/// A device over UDP sockets. It makes calls for batches of datagrams, and the kernel joins those
/// of one peer where it can.
#[derive(Debug)]
pub struct UdpDevice {
    sockets: Vec<(SocketAddr, UdpSocket)>,
    received: ReceiveBatch,
    /// Datagrams that were received and not yet passed on.
    held: Held,
    sending: SendBatch,
    area: Arc<Area>,
    frames: FrameLists,
    /// A frame in private memory.
    scratch: Box<[u8]>,
    /// Datagrams that were too long for a frame.
    dropped: u64,
    undelivered: u64,
}

/// The place in the last batch that was received.
#[derive(Debug, Default)]
struct Held {
    /// The socket from which it came.
    socket: usize,
    /// Payloads in it.
    payloads: usize,
    /// The present payload.
    payload: usize,
    /// The first byte of it that was not passed on.
    at: usize,
}

impl UdpDevice {
    /// A device without a socket: nothing arrives yet. Allocates all that it will need, about 700
    /// KiB.
    pub fn new(area: &Arc<Area>) -> UdpDevice {
        let bytes = area.form().size.bytes();
        let mut sending = SendBatch::new(SEND_BATCH, bytes);
        sending.join_runs();
        UdpDevice {
            sockets: Vec::new(),
            received: ReceiveBatch::new(RECEIVE_BATCH, PAYLOAD_BYTES_MAX),
            held: Held::default(),
            sending,
            area: area.clone(),
            frames: FrameLists::new(area),
            scratch: vec![0; bytes].into(),
            dropped: 0,
            undelivered: 0,
        }
    }

    /// Adds a socket on `address`, and returns its address: with port 0 the kernel chooses the
    /// port. From now on datagrams to it arrive, and frames from it can be sent. Allocates.
    ///
    /// # Errors
    /// As [`UdpSocket::bind`]. `EADDRNOTAVAIL` for an address that is not of one host, because a
    /// frame names its receiver. `ENOBUFS` if there are [`UDP_SOCKETS_MAX`].
    pub fn bind(&mut self, address: SocketAddr) -> Result<SocketAddr, DeviceError> {
        if address.ip().is_unspecified() || address.ip().is_multicast() {
            return Err(OsError::new("bind(UDP device)", NO_SUCH_ADDRESS).into());
        }
        if self.sockets.len() == UDP_SOCKETS_MAX {
            return Err(OsError::new("bind(UDP device)", NO_ROOM).into());
        }
        let socket = UdpSocket::bind(address)?;
        socket.join_datagrams()?;
        let own = socket.local_addr()?;
        self.sockets.push((own, socket));
        Ok(own)
    }

    /// Frames that were taken to be sent and that no socket could carry: no UDP, damaged, a
    /// fragment, from another address, or refused by the kernel for its destination.
    pub fn undelivered(&self) -> u64 {
        self.undelivered
    }

    /// Passes on datagrams of the last batch, while there are free frames and room in `parts`.
    fn pass_on(&mut self, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        while parts.len() < parts.capacity()
            && self.held.payload < self.held.payloads
            && let Some(&frame) = self.frames.free.last()
        {
            let datagram = self.received.datagram(self.held.payload);
            let rest = datagram.payload.get(self.held.at..).unwrap_or_default();
            let bytes = datagram.joined_bytes.unwrap_or(rest.len()).min(rest.len());
            let (own, _) = self.sockets[self.held.socket];
            let path = Path {
                link_source: PEER_LINK,
                link_destination: OWN_LINK,
                source: datagram.sender.ip(),
                destination: own.ip(),
            };
            let ports = (datagram.sender.port(), own.port());
            let room = self.scratch.len() - usize::from(HEADROOM_BYTES);
            let built = build::udp(&mut self.scratch[..room], path, ports, &rest[..bytes]);
            let is_last = bytes == rest.len();
            if is_last {
                (self.held.payload, self.held.at) = (self.held.payload + 1, 0);
            } else {
                self.held.at += bytes;
            }
            // A datagram that was cut off, or that no frame holds.
            let whole = built.ok().filter(|_| !(is_last && datagram.truncated));
            let Some(length) = whole.and_then(|length| u16::try_from(length).ok()) else {
                self.dropped += 1;
                continue;
            };
            let part = Descriptor { frame, offset: HEADROOM_BYTES, length };
            self.area.part(part)?.fill(0, &self.scratch[..length.into()]);
            parts.push(part);
            self.frames.free.pop();
        }
        Ok(())
    }

    /// The socket, the peer and the payload of a frame. The frame is in `scratch` then. `None`: no
    /// socket can carry it.
    fn outgoing(
        &mut self,
        part: Descriptor,
    ) -> Result<Option<(usize, SocketAddr, Range<usize>)>, DeviceError> {
        let frame = &mut self.scratch[..part.length.into()];
        self.area.part(part)?.copy_to(0, frame);
        let Ok(Frame::Ip(headers)) = packet::parse(frame) else { return Ok(None) };
        let is_whole = headers.fragment.is_none() && packet::check(frame, &headers).is_ok();
        if headers.destination.protocol != UDP || !is_whole {
            return Ok(None);
        }
        let source = (headers.source.to_canonical(), headers.source_port);
        let is_source = |(own, _): &(SocketAddr, UdpSocket)| (own.ip(), own.port()) == source;
        let Some(socket) = self.sockets.iter().position(is_source) else { return Ok(None) };
        let address = headers.destination.address.to_canonical();
        let mut peer = SocketAddr::new(address, headers.destination.port);
        if let (SocketAddr::V6(peer), (SocketAddr::V6(own), _)) = (&mut peer, &self.sockets[socket])
        {
            // A frame has no scope: it is that of our own address.
            peer.set_scope_id(own.scope_id());
        }
        Ok(Some((socket, peer, headers.payload)))
    }

    /// Queues the first of `parts`, as far as they go out by one socket. Returns how many, and the
    /// socket.
    fn queue(&mut self, parts: &[Descriptor]) -> Result<(usize, Option<usize>), DeviceError> {
        self.sending.clear();
        let mut run = None;
        for (queued, part) in parts.iter().enumerate() {
            let outgoing = match self.outgoing(*part) {
                // The next call finds the same error for its first frame.
                Err(_) if queued > 0 => None,
                found => found?,
            };
            match outgoing {
                Some((socket, peer, payload))
                    if run.is_none_or(|run| run == socket)
                        && self.sending.push_to(&self.scratch[payload.clone()], peer).is_ok() =>
                {
                    run = Some(socket);
                }
                _ => return Ok((queued, run)),
            }
        }
        Ok((parts.len(), run))
    }
}

impl Device for UdpDevice {
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        self.frames.supply(free);
        Ok(())
    }

    fn receive(&mut self, _: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        self.pass_on(parts)?;
        for _ in 0..self.sockets.len() {
            // Its payloads would be overwritten.
            let is_held = self.held.payload < self.held.payloads;
            if is_held || parts.len() == parts.capacity() || self.frames.free.is_empty() {
                break;
            }
            let socket = (self.held.socket + 1) % self.sockets.len();
            self.held = Held { socket, ..Held::default() };
            self.held.payloads = self.received.receive(&self.sockets[socket].1)?;
            self.pass_on(parts)?;
        }
        Ok(())
    }

    fn transmit(&mut self, _: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        let mut taken = 0;
        while taken < parts.len() {
            let (queued, socket) = match self.queue(&parts[taken..]) {
                Err(_) if taken > 0 => break,
                found => found?,
            };
            let sent = match socket {
                Some(socket) => {
                    let flushed = self.sending.flush(&self.sockets[socket].1);
                    let sent = queued - self.sending.len();
                    if let Ok(0) = flushed {
                        break;
                    }
                    // The kernel refuses the next one, for its destination.
                    self.undelivered += u64::from(flushed.is_err());
                    sent + usize::from(flushed.is_err())
                }
                // No socket can carry the first one.
                None => {
                    self.undelivered += 1;
                    1
                }
            };
            let frames = parts[taken..taken + sent].iter().map(|part| part.frame);
            self.frames.sent.extend(frames);
            taken += sent;
        }
        Ok(taken)
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        self.frames.take_sent(frames, most);
        Ok(())
    }

    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        let mut drops = DeviceDrops { no_room: 0, too_long: self.dropped };
        for (_, socket) in &self.sockets {
            drops.no_room += socket.drops()?;
        }
        Ok(Some(drops))
    }
}
