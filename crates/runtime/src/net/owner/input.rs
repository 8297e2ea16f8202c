//! What arrives: from the port to the flows.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use upcall_core::time::Instant;
use upcall_proto::flow::UDP;
use upcall_proto::host::{Input, PathErrorKind};
use upcall_proto::packet::{self, Datagram, Frame};
use upcall_shm::frames::account::Holder;
use upcall_shm::frames::{Descriptor, HEADROOM_BYTES, Note, NoteKind};

use super::lent::{Fault, Flow, Memory, WAKES_A_CALL};
use super::{Arrived, Checksums, Device, DeviceError, Owner, Paths, Port};

impl<D: Device> Owner<D> {
    /// Processes at most `most` packets that arrived, and takes back what programs released.
    /// Returns how many packets that were. No system call while packets keep coming, if the device
    /// needs none. O(most * log flows + flows).
    ///
    /// # Errors
    /// That of the device. The flows stay.
    pub fn input(&mut self, now: Instant, most: u32) -> Result<u32, DeviceError> {
        self.reclaim();
        self.arrivals.begin(most);
        let mut processed = 0;
        let mut failed = Ok(());
        while processed < most {
            if let Some((slot, Arrived { part, datagram, at })) = self.arrivals.next(now) {
                self.deliver(slot, part, &datagram, at);
            } else if let Some(&part) = self.parts.get(self.next_part) {
                self.next_part += 1;
                self.demultiplex(part, now);
            } else {
                self.parts.clear();
                self.next_part = 0;
                failed = self.port.receive(now, &mut self.parts);
                if self.parts.is_empty() {
                    break;
                }
                // The loads of all frames overlap: another CPU wrote them.
                let area = self.port.area();
                self.parts.iter().for_each(|&part| area.touch(part));
                // Each new packet may be more urgent than those that wait.
                self.arrivals.begin(most - processed);
                continue;
            }
            processed += 1;
        }
        self.show(now);
        failed.map(|()| processed)
    }

    /// Shows the programs what was taken and handed over, and wakes those that armed.
    pub(super) fn show(&mut self, now: Instant) {
        let (before, rest) = self.flows.split_at_mut(self.first_shown);
        let mut wakes_left = WAKES_A_CALL;
        let flows = rest.iter_mut().chain(before).flatten();
        flows.for_each(|flow| flow.show(now, &mut wakes_left));
        // Another flow is the first next time, so each has its wake-up in the end.
        self.first_shown = (self.first_shown + 1) % self.flows.len().max(1);
    }

    /// Takes the frames back that programs released, and closes flows whose programs are gone.
    fn reclaim(&mut self) {
        for slot in (0..).take(self.flows.len()) {
            let Some(flow) = &mut self.flows[slot as usize] else { continue };
            if flow.is_gone() {
                self.unbind(slot);
                continue;
            }
            if self.take_released(slot).is_err() {
                self.fault(slot);
            }
        }
    }

    fn take_released(&mut self, slot: u32) -> Result<(), Fault> {
        let Some(flow) = &mut self.flows[slot as usize] else { return Ok(()) };
        if flow.lent == 0 {
            return Ok(());
        }
        let account = match &mut flow.memory {
            Memory::Shared(_) => self.port.account(),
            Memory::Apart { account, .. } => account,
        };
        // What a program can return at once is bounded by what it has.
        for _ in 0..flow.lent {
            let Some(part) = flow.received.take()? else { break };
            account.hand_over(part.frame, Holder::Flow(slot), Holder::Free)?;
            flow.lent -= 1;
        }
        flow.received.release();
        Ok(())
    }

    /// Finds the flow of a part that the owner has.
    #[inline(always)]
    fn demultiplex(&mut self, part: Descriptor, now: Instant) {
        let head = self.port.area().first_words(part);
        match head.and_then(|head| Datagram::plain(&head, part.length.into())) {
            Some(datagram) => self.datagram(part, datagram, now),
            None => self.demultiplex_any(part, now),
        }
    }

    /// The same for a part with other headers, or with wrong ones.
    #[cold]
    fn demultiplex_any(&mut self, part: Descriptor, now: Instant) {
        let parsed = self.copy(part).map(|length| packet::parse(&self.packet[..length]));
        match parsed {
            Some(Ok(Frame::Ip(headers))) if headers.destination.protocol == UDP => {
                let is_right = packet::header_is_right(&self.packet, &headers);
                match Datagram::of(&self.packet, &headers) {
                    Some(datagram) if is_right => self.datagram(part, datagram, now),
                    found => {
                        self.counts.fragments += u64::from(found.is_none());
                        self.counts.malformed += u64::from(found.is_some());
                        self.release(part.frame);
                    }
                }
            }
            Some(Ok(frame)) => self.control(part, &frame, now),
            Some(Err(_)) | None => {
                self.counts.malformed += 1;
                self.release(part.frame);
            }
        }
    }

    #[inline(always)]
    fn datagram(&mut self, part: Descriptor, datagram: Datagram, now: Instant) {
        let slot = match self.last {
            Some((destination, slot)) if datagram.is_to(&destination) => Some(slot),
            _ => self.look_up(&datagram),
        };
        let Some(slot) = slot else { return self.without_flow(part, &datagram, now) };
        if !datagram.has_possible_source() {
            self.counts.malformed += 1;
            return self.release(part.frame);
        }
        let has_quota = self.flows[slot as usize].as_ref().is_some_and(|flow| flow.has_quota);
        if !has_quota {
            return self.deliver(slot, part, &datagram, now);
        }
        let arrived = Arrived { part, datagram, at: now };
        if let Err(dropped) = self.arrivals.push(slot, arrived, now) {
            self.release(dropped.item.part.frame);
        }
    }

    /// The flow of another destination than that of the packet before.
    fn look_up(&mut self, datagram: &Datagram) -> Option<u32> {
        let destination = datagram.destination();
        let slot = self.table.slot(destination)?;
        self.last = Some((destination, slot));
        Some(slot)
    }

    /// Checks a packet and hands it to its flow.
    #[inline(always)]
    fn deliver(&mut self, slot: u32, part: Descriptor, datagram: &Datagram, at: Instant) {
        let may_be_left = self.checksums == Checksums::RightOrLeftToInterface;
        let is_right = (may_be_left && datagram.is_left_to_interface())
            || self.copy(part).is_some_and(|length| datagram.is_right(&self.packet[..length]));
        let Some(flow) = &mut self.flows[slot as usize] else { return self.release(part.frame) };
        if !is_right {
            flow.counts.checksum += 1;
            return self.release(part.frame);
        }
        let Datagram { source_bits: address_bits, source_port: port, .. } = *datagram;
        let note = Note { address_bits, port, kind: NoteKind::Datagram, at_ns: at.as_nanos() };
        let (start, end) = (datagram.payload.start, datagram.payload.end);
        let offset = part.offset.saturating_add(start);
        let payload = Descriptor { frame: part.frame, offset, length: end - start };
        let is_shared = matches!(flow.memory, Memory::Shared(_));
        let handed = if is_shared {
            lend(&mut self.port, flow, slot, payload, &note)
        } else {
            let bytes = self.port.area().part(payload).map_err(Fault::from);
            bytes.and_then(|bytes| flow.copy(slot, bytes, &note))
        };
        flow.counts.received += u64::from(matches!(handed, Ok(true)));
        flow.counts.receive_full += u64::from(matches!(handed, Ok(false)));
        if !is_shared || matches!(handed, Ok(false)) {
            self.release(part.frame);
        }
        if handed.is_err() {
            self.fault(slot);
        }
    }

    /// A datagram to a port that no flow has.
    fn without_flow(&mut self, part: Descriptor, datagram: &Datagram, now: Instant) {
        self.counts.not_for_us += 1;
        let address = datagram.destination().address.to_canonical();
        if matches!(&self.paths, Paths::Own(host) if host.is_own(address))
            && self.refused.pass(now)
            && let Some(length) = self.copy(part)
        {
            // The host verifies the checksum, which a sender on this machine may have left out.
            let may_be_left = self.checksums == Checksums::RightOrLeftToInterface;
            if may_be_left && datagram.is_left_to_interface() {
                datagram.fill_checksum(&mut self.packet[..length]);
            }
            if let Ok(Frame::Ip(headers)) = packet::parse(&self.packet[..length])
                && let Paths::Own(host) = &mut self.paths
            {
                host.unreachable(&self.packet[..length], &headers, now);
            }
        }
        self.release(part.frame);
    }

    /// A frame for the host of the interface. The kernel is the host if the address is its own, and
    /// gets its frames itself.
    fn control(&mut self, part: Descriptor, frame: &Frame, now: Instant) {
        let length = usize::from(part.length);
        let Paths::Own(host) = &mut self.paths else {
            self.counts.not_for_us += 1;
            return self.release(part.frame);
        };
        // A flood of other packets must not cut the host off (decision 0024, section 2).
        let is_discovery = match frame {
            Frame::Arp(_) => true,
            Frame::Ip(headers) => packet::is_discovery(&self.packet[..length], headers),
            Frame::Other { .. } => false,
        };
        // A device may see packets for others, such as those of the kernel of its interface.
        if let Frame::Ip(headers) = frame {
            let address = headers.destination.address.to_canonical();
            let is_for_many = address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST);
            if !is_for_many && !host.is_own(address) {
                self.counts.not_for_us += 1;
                return self.release(part.frame);
            }
        }
        let meter = if is_discovery { &mut self.discovery } else { &mut self.control };
        if !meter.pass(now) {
            self.counts.control_dropped += 1;
            return self.release(part.frame);
        }
        self.counts.control += 1;
        let input = host.input(&self.packet[..length], frame, now);
        self.release(part.frame);
        if let Input::Error(error) = input
            && let Some(slot) = self.table.slot(error.local)
        {
            let kind = match error.kind {
                PathErrorKind::TooBig { mtu } => NoteKind::TooLong { packet_bytes_max: mtu },
                PathErrorKind::PortUnreachable => NoteKind::PortUnreachable,
                _ => NoteKind::HostUnreachable,
            };
            self.tell(slot, SocketAddr::new(error.peer.0, error.peer.1), kind, now);
        }
    }

    /// Tells a flow of an error, if a frame is free for that.
    pub(super) fn tell(&mut self, slot: u32, peer: SocketAddr, kind: NoteKind, now: Instant) {
        let note = Note::new(peer, kind, now.as_nanos());
        let Some(flow) = &mut self.flows[slot as usize] else { return };
        let told = match flow.memory {
            Memory::Apart { .. } => flow.note_alone(slot, &note),
            Memory::Shared(_) => {
                let Some(frame) = self.port.take() else { return };
                let part = Descriptor { frame, offset: HEADROOM_BYTES, length: 0 };
                let lent = lend(&mut self.port, flow, slot, part, &note);
                if matches!(lent, Ok(false)) {
                    self.release(frame);
                }
                lent
            }
        };
        if told.is_err() {
            self.fault(slot);
        }
    }

    /// Copies a part that the owner has into `packet`: the only copy that is looked at. Its length.
    fn copy(&mut self, part: Descriptor) -> Option<usize> {
        let bytes = self.port.area().part(part).ok()?;
        Some(bytes.copy_to(0, self.packet.get_mut(..part.length.into())?))
    }
}

/// Hands a frame of the port to a shared flow. `Ok(false)`: there is no room, and the owner keeps
/// it. After a fault the flow has it, and is closed.
#[inline(always)]
fn lend<D: Device>(
    port: &mut Port<D>,
    flow: &mut Flow,
    slot: u32,
    payload: Descriptor,
    note: &Note,
) -> Result<bool, Fault> {
    if !flow.has_room() {
        return Ok(false);
    }
    let (area, account) = port.area_and_account();
    account.hand_over(payload.frame, Holder::Owner, Holder::Flow(slot))?;
    area.write_note(payload, note)?;
    let pushed = flow.push(payload)?;
    if !pushed {
        account.hand_over(payload.frame, Holder::Flow(slot), Holder::Owner)?;
    }
    Ok(pushed)
}
