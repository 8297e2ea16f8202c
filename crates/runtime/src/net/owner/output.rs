//! What programs send: from the flows to the port.

use std::net::SocketAddr;

use upcall_core::time::Instant;
use upcall_proto::packet::build;
use upcall_shm::frames::account::Holder;
use upcall_shm::frames::{Descriptor, HEADROOM_BYTES, NoteKind};

use super::lent::{Fault, Memory};
use super::paths::{PathFailure, RESOLVING};
use super::{BATCH_FRAMES, Device, DeviceError, Owner, Sent};

/// Packets of a flow that are dropped one after the other before the flow pauses.
const DROPS_MAX: u32 = 2;

/// What became of the first packet of a flow.
enum Built {
    /// It has headers: the part, its length in bytes, and whose frame it is.
    Ready(Descriptor, Option<u32>),
    /// It waits until then.
    Later(Instant),
    /// There is no frame for it.
    NoFrame,
    /// It was dropped and counted.
    Dropped,
}

impl<D: Device> Owner<D> {
    /// Looks at no more than `most` packets of flows, by pace and weight, and sends those that have
    /// a path, and packets of the host. Returns how many packets of flows the device took. At most
    /// one system call for each 32 packets, if the device needs no more. O(most * log flows +
    /// flows).
    ///
    /// # Errors
    /// That of the device. The packets that it did not take stay.
    pub fn output(&mut self, now: Instant, most: u32) -> Result<u32, DeviceError> {
        self.paths.begin();
        self.collect()?;
        self.send_of_host(now)?;
        for slot in (0..).take(self.flows.len()) {
            self.look(slot, now);
        }
        let mut taken = self.transmit(now)?;
        let mut left = most.saturating_sub(taken);
        while left > 0 && self.outgoing.is_empty() {
            if self.fill(now, &mut left) == 0 {
                break;
            }
            taken += self.transmit(now)?;
        }
        self.show(now);
        Ok(taken)
    }

    /// Puts headers on a batch of packets, and looks at no more than `left`. Returns how many have
    /// headers.
    fn fill(&mut self, now: Instant, left: &mut u32) -> usize {
        while self.outgoing.len() < BATCH_FRAMES
            && *left > 0
            && let Some(slot) = self.order.next(now)
        {
            *left -= 1;
            match self.build(slot, now) {
                Ok(Built::Ready(part, sender)) => {
                    self.order.sent(slot, part.length.into(), now);
                    self.outgoing.push(part);
                    self.senders.push(sender);
                    if let Some(flow) = &mut self.flows[slot as usize] {
                        flow.drops = 0;
                    }
                }
                Ok(Built::Later(at)) => {
                    self.order.defer(slot, at);
                    continue;
                }
                Ok(Built::NoFrame) => {
                    // Frames come back when the device has sent.
                    self.order.defer(slot, now);
                    break;
                }
                Ok(Built::Dropped) => {
                    self.order.dropped(slot);
                    self.note_drop(slot, now);
                }
                Err(_) => {
                    self.fault(slot);
                    continue;
                }
            }
            if let Some(flow) = &mut self.flows[slot as usize] {
                flow.head = None;
            }
            self.look(slot, now);
        }
        self.outgoing.len()
    }

    /// Pauses a flow whose packets are dropped again and again. A dropped packet costs work and
    /// does not count for the share of its flow, so others would wait.
    fn note_drop(&mut self, slot: u32, now: Instant) {
        if let Some(flow) = &mut self.flows[slot as usize] {
            flow.drops += 1;
            if flow.drops >= DROPS_MAX {
                (flow.drops, flow.paused_until) = (0, now + RESOLVING);
            }
        }
    }

    /// Takes the next packet of a flow if it has no first one.
    fn look(&mut self, slot: u32, now: Instant) {
        let Some(flow) = &mut self.flows[slot as usize] else { return };
        if flow.head.is_some() || now < flow.paused_until {
            return;
        }
        match flow.transmit.take() {
            Ok(None) => {}
            Ok(Some(part)) => {
                flow.head = Some(part);
                flow.has_taken = true;
                self.order.ready(slot, now);
            }
            Err(_) => self.fault(slot),
        }
    }

    /// Puts headers on the first packet of a flow.
    fn build(&mut self, slot: u32, now: Instant) -> Result<Built, Fault> {
        let Some(flow) = &mut self.flows[slot as usize] else { return Ok(Built::Dropped) };
        let Some(part) = flow.head else { return Ok(Built::Dropped) };
        let (area, account) = match &mut flow.memory {
            Memory::Shared(_) => self.port.area_and_account(),
            Memory::Apart { area, account } => (&*area, account),
        };
        // The account first: what the program does not have, it cannot send.
        let found = account.holder(part.frame);
        if found != Some(Holder::Flow(slot)) {
            let (frame, expected) = (part.frame, Holder::Flow(slot));
            return Err(upcall_shm::frames::account::AccountError { frame, found, expected }.into());
        }
        let note = area.read_note(part)?;
        let peer = note.peer();
        let (path, most) = match self.paths.path(flow.local.ip(), peer.ip(), now) {
            Ok(found) => found,
            Err(PathFailure::Resolving) => return Ok(Built::Later(now + RESOLVING)),
            Err(PathFailure::Unreachable) => {
                flow.counts.unreachable += 1;
                return self.drop_head(slot, part, peer, NoteKind::HostUnreachable, now);
            }
        };
        let headers = build::udp_headers_bytes(path);
        let needed = headers + usize::from(part.length);
        let is_too_long = needed - ETHERNET_BYTES > usize::from(most);
        if is_too_long || part.offset < HEADROOM_BYTES {
            flow.counts.too_long += 1;
            let kind = NoteKind::TooLong { packet_bytes_max: most };
            return self.drop_head(slot, part, peer, kind, now);
        }
        area.part(part)?.copy_to(0, &mut self.packet[headers..needed]);
        let ports = (flow.local.port(), peer.port());
        let written =
            build::udp_headers(&mut self.packet[..needed], path, ports, part.length.into());
        let Ok(length) = written.map(|bytes| u16::try_from(bytes).unwrap_or(u16::MAX)) else {
            flow.counts.refused += 1;
            return self.drop_head(slot, part, peer, NoteKind::HostUnreachable, now);
        };
        if matches!(flow.memory, Memory::Shared(_)) {
            // Fits: the headers are shorter than the headroom.
            let offset = part.offset - u16::try_from(headers).unwrap_or(HEADROOM_BYTES);
            let whole = Descriptor { frame: part.frame, offset, length };
            self.port.area().part(whole)?.fill(0, &self.packet[..headers]);
            flow.counts.sent += 1;
            return Ok(Built::Ready(whole, Some(slot)));
        }
        // A slow device keeps what it was given. It must not keep the frames for receiving, too.
        if self.port.spare() == 0 {
            return Ok(Built::NoFrame);
        }
        let Some(frame) = self.port.take() else { return Ok(Built::NoFrame) };
        // The longest payload of a flow fits behind the headroom, with its headers in it.
        let offset = HEADROOM_BYTES - u16::try_from(headers).unwrap_or(HEADROOM_BYTES);
        let whole = Descriptor { frame, offset, length };
        match self.port.area().part(whole) {
            Ok(place) => drop(place.fill(0, &self.packet[..needed])),
            Err(fault) => {
                self.release(frame);
                return Err(fault.into());
            }
        }
        flow.counts.sent += 1;
        flow.transmitted.push(Descriptor { frame: part.frame, offset: 0, length: 0 })?;
        flow.is_dirty = true;
        Ok(Built::Ready(whole, None))
    }

    /// Gives the frame of a packet that cannot be sent back to its program, and tells it why.
    fn drop_head(
        &mut self,
        slot: u32,
        part: Descriptor,
        peer: SocketAddr,
        kind: NoteKind,
        now: Instant,
    ) -> Result<Built, Fault> {
        if let Some(flow) = &mut self.flows[slot as usize] {
            flow.transmitted.push(Descriptor { frame: part.frame, offset: 0, length: 0 })?;
            flow.is_dirty = true;
        }
        self.tell(slot, peer, kind, now);
        Ok(Built::Dropped)
    }

    /// Hands the packets with headers to the device. Returns how many it took.
    fn transmit(&mut self, now: Instant) -> Result<u32, DeviceError> {
        if self.outgoing.is_empty() {
            return Ok(0);
        }
        let senders = &self.senders;
        let taken = match self.port.transmit_each(now, &self.outgoing, |at| senders[at]) {
            Ok(taken) => taken,
            Err(error @ (DeviceError::Down(_) | DeviceError::Fault(_))) => return Err(error),
            // The interface refuses this packet. The others may go.
            Err(_) => {
                self.give_back(0);
                self.outgoing.remove(0);
                self.senders.remove(0);
                return Ok(0);
            }
        };
        self.outgoing.drain(..taken);
        self.senders.drain(..taken);
        Ok(u32::try_from(taken).unwrap_or(u32::MAX))
    }

    /// Gives the frame of a packet back that the interface refused.
    fn give_back(&mut self, at: usize) {
        let frame = self.outgoing[at].frame;
        match self.senders[at] {
            None => self.release(frame),
            Some(slot) => {
                if let Some(flow) = &mut self.flows[slot as usize] {
                    flow.counts.refused += 1;
                    flow.counts.sent -= 1;
                    let returned =
                        flow.transmitted.push(Descriptor { frame, offset: 0, length: 0 });
                    flow.is_dirty = true;
                    if returned.is_err() {
                        self.fault(slot);
                    }
                }
            }
        }
    }

    /// Gives frames that were sent back to their flows.
    fn collect(&mut self) -> Result<(), DeviceError> {
        self.sent.clear();
        let collected = self.port.collect(&mut self.sent);
        for at in 0..self.sent.len() {
            let Sent { frame, flow: Some(slot) } = self.sent[at] else { continue };
            let Some(flow) = &mut self.flows[slot as usize] else { continue };
            flow.is_dirty = true;
            if flow.transmitted.push(Descriptor { frame, offset: 0, length: 0 }).is_err() {
                self.fault(slot);
            }
        }
        collected
    }

    /// Sends the answers and requests of the host, at most a batch.
    fn send_of_host(&mut self, now: Instant) -> Result<(), DeviceError> {
        for _ in 0..BATCH_FRAMES {
            if self.outgoing.len() == BATCH_FRAMES {
                break;
            }
            let super::Paths::Own(host) = &mut self.paths else { return Ok(()) };
            if host.next_deadline().is_none_or(|at| at > now) {
                break;
            }
            let Some(frame) = self.port.take() else { break };
            let Some(length) = host.output(&mut self.packet, now) else {
                self.release(frame);
                break;
            };
            let length = u16::try_from(length).unwrap_or(u16::MAX);
            let part = Descriptor { frame, offset: HEADROOM_BYTES, length };
            match self.port.area().part(part) {
                Ok(place) => drop(place.fill(0, &self.packet[..length.into()])),
                Err(_) => {
                    self.release(frame);
                    continue;
                }
            }
            self.outgoing.push(part);
            self.senders.push(None);
        }
        Ok(())
    }
}

/// Bytes of the header of Ethernet, which the longest packet does not count.
const ETHERNET_BYTES: usize = 14;
