//! One receive queue of an interface by AF_XDP, and the transmit queue with the same number.
//! [`super::XdpDevice`] calls it.

use crate::net::device::{Area, DeviceDrops, DeviceError};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use upcall_shm::frames::xdp_ring::{Consumer, Entries, Producer, RingPlaces};
use upcall_shm::frames::{Descriptor, FrameForm};
use upcall_sys::OsError;
use upcall_sys::af_xdp::{CopyMode, RingMemory, XdpSocket};

/// Frames that the kernel sends in one call.
const FRAMES_PER_CALL: usize = 32;

/// An AF_XDP socket and its rings.
#[derive(Debug)]
pub(super) struct XdpQueue {
    fill: Producer<RingMemory>,
    received: Consumer<RingMemory>,
    transmit: Producer<RingMemory>,
    completion: Consumer<RingMemory>,
    socket: XdpSocket,
    form: FrameForm,
    /// Frames in the transmit ring or at the driver.
    sending: usize,
    /// The error of a wake-up that the next call returns, because the frames were taken. An
    /// interface that is down may come up again.
    late: Option<OsError>,
    /// The kernel says only once that the interface is gone.
    gone: Option<OsError>,
    _area: Arc<Area>,
}

impl XdpQueue {
    /// Opens `queue` of the interface. No ring can be full: each has more entries than the area
    /// has frames. Allocates.
    ///
    /// # Errors
    /// As [`XdpSocket::open`] and [`XdpSocket::bind`].
    pub(super) fn open(
        area: &Arc<Area>,
        interface: u32,
        queue: u32,
        mode: CopyMode,
    ) -> Result<XdpQueue, DeviceError> {
        let form = area.form();
        let entries = (form.frames + 1).next_power_of_two();
        let socket = XdpSocket::open(area.memory(), form.size as u32, entries)?;
        let place = |ring: &RingMemory, holds| {
            let at = ring.offsets();
            let (producer, consumer) = (at.producer, at.consumer);
            let places = RingPlaces { producer, consumer, flags: at.flags, entries: at.entries };
            (ring.clone(), places, (holds, ring.entries()), form)
        };
        let produce = |ring, holds| {
            let (memory, places, entries, form) = place(ring, holds);
            Producer::new(memory, places, entries, form)
        };
        let consume = |ring, holds| {
            let (memory, places, entries, form) = place(ring, holds);
            Consumer::new(memory, places, entries, form)
        };
        let fill = produce(socket.fill(), Entries::Addresses)?;
        let received = consume(socket.receive(), Entries::Descriptors)?;
        let transmit = produce(socket.transmit(), Entries::Descriptors)?;
        let completion = consume(socket.completion(), Entries::Addresses)?;
        socket.bind(interface, queue, mode)?;
        let _area = area.clone();
        let (sending, late, gone) = (0, None, None);
        Ok(XdpQueue {
            fill,
            received,
            transmit,
            completion,
            socket,
            form,
            sending,
            late,
            gone,
            _area,
        })
    }

    /// The socket, for the XDP program.
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Makes the kernel send what waits, while it asks for that. One system call per 32 frames.
    fn wake_transmit(&mut self) {
        for _ in 0..=self.sending / FRAMES_PER_CALL {
            if !self.transmit.needs_wakeup() {
                return;
            }
            match self.socket.wake_transmit() {
                Ok(()) => return,
                // More frames wait.
                Err(error) if error.is_would_block() => {}
                // `take_sent` calls again.
                Err(error) if upcall_sys::af_xdp::is_busy(error) => return,
                Err(error) => {
                    self.late = Some(error);
                    return;
                }
            }
        }
    }

    /// Puts frames into the fill ring, from the end of `free`, as many as it can hold.
    pub(super) fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        while let Some(&frame) = free.last() {
            if !self.fill.push(Descriptor { frame, offset: 0, length: 0 })? {
                break;
            }
            free.pop();
        }
        self.fill.publish();
        Ok(())
    }

    /// Appends the frames that arrived, until `parts` has reached its capacity. Returns how many.
    /// No system call.
    pub(super) fn take(&mut self, parts: &mut Vec<Descriptor>) -> Result<usize, DeviceError> {
        let before = parts.len();
        while parts.len() < parts.capacity()
            && let Some(part) = self.received.take()?
        {
            parts.push(part);
        }
        let taken = parts.len() - before;
        if taken > 0 {
            self.received.release();
        }
        Ok(taken)
    }

    /// Wakes the kernel if it waits for frames in the fill ring. `false`: it does not wait, and
    /// there was no system call.
    pub(super) fn wake_receive(&self) -> Result<bool, DeviceError> {
        if !self.fill.needs_wakeup() {
            return Ok(false);
        }
        self.socket.wake_receive()?;
        Ok(true)
    }

    /// Asks whether the interface is gone: no ring tells. One system call.
    pub(super) fn check(&mut self) -> Result<(), DeviceError> {
        self.gone = self.socket.check().err();
        self.gone.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The error that a call before left, once, or that of an interface that is gone.
    pub(super) fn failed(&mut self) -> Result<(), DeviceError> {
        self.gone.or(self.late.take()).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Sends `parts`, and returns how many the ring took.
    pub(super) fn transmit(&mut self, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        self.failed()?;
        let mut taken = 0;
        for part in parts {
            if let Err(fault) = part.check(self.form, "transmit batch") {
                if taken == 0 {
                    return Err(fault.into());
                }
                break;
            }
            if !self.transmit.push(*part)? {
                break;
            }
            taken += 1;
        }
        self.transmit.publish();
        self.sending += taken;
        self.wake_transmit();
        Ok(taken)
    }

    /// Appends the frames that were sent, at most `most`.
    pub(super) fn take_sent(
        &mut self,
        frames: &mut Vec<u32>,
        most: usize,
    ) -> Result<(), DeviceError> {
        let mut taken = 0;
        while taken < most
            && let Some(part) = self.completion.take()?
        {
            frames.push(part.frame);
            taken += 1;
        }
        self.completion.release();
        self.sending = self.sending.saturating_sub(taken);
        if taken == 0 && self.sending > 0 {
            self.wake_transmit();
        }
        match self.gone.or(self.late) {
            Some(error) if taken == 0 => {
                self.late = None;
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Frames that the kernel dropped. One system call.
    ///
    /// Where the kernel copies, it drops a frame for each time that the fill ring is empty. A
    /// driver without a copy only tries again, and drops in its own hardware.
    pub(super) fn drops(&self) -> Result<DeviceDrops, DeviceError> {
        let found = self.socket.statistics()?;
        let without_frame = found.fill_ring_empty.min(found.receive_dropped);
        Ok(DeviceDrops {
            no_room: found.receive_ring_full + without_frame,
            too_long: found.receive_dropped - without_frame,
        })
    }
}
