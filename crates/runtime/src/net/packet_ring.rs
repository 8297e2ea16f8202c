//! An interface by the rings of a packet socket.

use super::device::{Area, Device, DeviceDrops, DeviceError, HEADROOM_BYTES};
use super::frame_lists::{FrameLists, TAG_BYTES, with_tag};
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_shm::frames::Descriptor;
use upcall_shm::frames::packet_ring::{ReceiveBlocks, TransmitSlots};
use upcall_sys::OsError;
use upcall_sys::packet_ring::{PacketRing, PacketRingForm, PacketRingMemory};

/// Where a frame is copied to, with room for a VLAN tag before it. In the ring it begins at such a
/// byte of a word too.
const COPY_AT: u16 = HEADROOM_BYTES + TAG_BYTES.next_multiple_of(8) + 2;

/// Bytes of a receive block. Greater blocks come back later, and smaller ones hold fewer frames of
/// 1514 bytes in the same memory.
const BLOCK_BYTES: u32 = 16 << 10;
/// Blocks of a ring: 64 KiB to 4 MiB, which the kernel keeps in memory.
const BLOCKS: std::ops::RangeInclusive<u32> = 4..=256;

/// The least that the interface takes: a header of Ethernet.
const FRAME_BYTES_MIN: u16 = 14;

/// A device over a packet socket with rings. The kernel copies frames into the receive ring, and
/// this device copies them into the area; the same for sending. The kernel hands over blocks of
/// frames: a lone frame arrives up to 1 ms later than by a socket without rings.
#[derive(Debug)]
pub struct PacketRingDevice {
    socket: PacketRing,
    received: ReceiveBlocks<PacketRingMemory>,
    transmit: TransmitSlots<PacketRingMemory>,
    area: Arc<Area>,
    frames: FrameLists,
    /// Whether frames wait in the transmit ring for another call of the kernel.
    is_waiting: bool,
    /// The error of a call whose frames were taken. The next call returns it.
    late: Option<OsError>,
    drops: DeviceDrops,
}

impl PacketRingDevice {
    /// Opens the interface with this index ([`interface_index`]). Each ring has as much memory as
    /// the area, from 64 KiB to 4 MiB. The device gets a copy of every frame that arrives there,
    /// and the kernel works on them too. Allocates.
    ///
    /// [`interface_index`]: super::interface_index
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENODEV` without such an interface, `ENETDOWN`, `ENOMEM`.
    pub fn open(area: &Arc<Area>, interface: u32) -> Result<PacketRingDevice, DeviceError> {
        let slot_bytes = area.form().size as u32;
        let blocks = area.form().bytes().div_ceil(BLOCK_BYTES as usize);
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let blocks = blocks.clamp(*BLOCKS.start(), *BLOCKS.end());
        let slots = blocks * (BLOCK_BYTES / slot_bytes);
        let form = PacketRingForm { block_bytes: BLOCK_BYTES, blocks, slot_bytes, slots };
        let socket = PacketRing::open(interface, form)?;
        let memory = || socket.memory().clone();
        let received = ReceiveBlocks::new(memory(), blocks, BLOCK_BYTES as usize)?;
        let transmit =
            TransmitSlots::new(memory(), form.receive_bytes(), slots, slot_bytes as usize)?;
        let (area, frames) = (area.clone(), FrameLists::new(area));
        let (is_waiting, late, drops) = (false, None, DeviceDrops::default());
        Ok(PacketRingDevice { socket, received, transmit, area, frames, is_waiting, late, drops })
    }

    /// Makes the kernel send. One system call.
    fn wake(&mut self) {
        let sent = self.socket.send();
        self.is_waiting = sent.is_err();
        // An interface that is busy is no error. `take_sent` calls again.
        let is_busy =
            |error: &OsError| error.is_would_block() || upcall_sys::af_xdp::is_busy(*error);
        self.late = sent.err().filter(|error| !is_busy(error));
    }

    /// Copies `part` into the transmit ring. `false`: the ring is full.
    fn push(&mut self, part: &Descriptor) -> Result<bool, DeviceError> {
        part.check(self.area.form(), "transmit batch")?;
        let most = self.transmit.frame_bytes_max();
        if part.length < FRAME_BYTES_MIN || usize::from(part.length) > most {
            // The kernel's answer to such a frame.
            return Err(OsError::new("packet ring", MESSAGE_SIZE).into());
        }
        Ok(self.transmit.push(&self.area.part(*part)?)?)
    }
}

/// `EMSGSIZE` of errno.h.
const MESSAGE_SIZE: i32 = 90;

impl Device for PacketRingDevice {
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        self.frames.supply(free);
        Ok(())
    }

    fn receive(&mut self, _: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        let before = parts.len();
        let most = self.area.form().size as u16 - COPY_AT;
        while parts.len() < parts.capacity()
            && let Some(&frame) = self.frames.free.last()
            && let Some(found) = self.received.take()?
        {
            let is_whole = found.whole_bytes as usize == found.payload.len();
            match u16::try_from(found.payload.len()) {
                Ok(length) if is_whole && length <= most => {
                    let part = Descriptor { frame, offset: COPY_AT, length };
                    self.area.part(part)?.copy_from(&found.payload);
                    let (status, control) = (found.status, found.tag_control);
                    let tag = PacketRing::vlan_tag(status, control, found.tag_protocol);
                    parts.push(with_tag(&self.area, part, tag)?);
                    self.frames.free.pop();
                }
                _ => self.drops.too_long += 1,
            }
            self.received.release();
        }
        if parts.len() > before {
            return Ok(());
        }
        match self.late.take() {
            Some(error) => Err(error.into()),
            // No ring tells that the interface is gone.
            None => Ok(self.socket.check()?),
        }
    }

    fn transmit(&mut self, _: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        if let Some(error) = self.late.take() {
            return Err(error.into());
        }
        let mut taken = 0;
        for part in parts {
            match self.push(part) {
                Ok(true) => self.frames.sent.push(part.frame),
                Ok(false) => break,
                // The next call finds the same error for its first frame.
                Err(_) if taken > 0 => break,
                Err(error) => return Err(error),
            }
            taken += 1;
        }
        if taken > 0 || self.is_waiting {
            self.wake();
        }
        Ok(taken)
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        if self.is_waiting && self.late.is_none() {
            self.wake();
        }
        self.frames.take_sent(frames, most);
        Ok(())
    }

    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        self.drops.no_room += self.socket.take_drops()?;
        Ok(Some(self.drops))
    }
}
