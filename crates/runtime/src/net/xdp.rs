//! All receive queues of an interface by AF_XDP.
//!
//! A socket of AF_XDP gets the packets of one receive queue, and the interface spreads packets over
//! its queues. So a device has a socket for each queue. They share the area: each free frame is in
//! the fill ring of one of them. Everything is sent by the queue 0, so that packets of a flow stay
//! in their order.

use super::device::{Area, Device, DeviceDrops, DeviceError};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use upcall_core::time::Instant;
use upcall_shm::frames::Descriptor;
use upcall_sys::af_xdp::CopyMode;

mod queue;

use queue::XdpQueue;

/// A device over AF_XDP sockets. Frames arrive once an XDP program redirects them to
/// [`XdpDevice::sockets`].
#[derive(Debug)]
pub struct XdpDevice {
    /// At least one.
    queues: Vec<Queue>,
    /// Where the next look for frames begins, so that no queue is passed over.
    first: usize,
    scratch: Vec<u32>,
}

#[derive(Debug)]
struct Queue {
    queue: XdpQueue,
    /// Frames that it has to receive into.
    receiving: usize,
}

impl XdpDevice {
    /// Opens the queues 0 to `queues - 1` of the interface; 0 counts as 1. Pins the memory of the
    /// area. Allocates.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, `ENOBUFS` if `RLIMIT_MEMLOCK` is too small, `EOPNOTSUPP` if
    /// the driver has no [`CopyMode::Zero`], `EBUSY` if a queue has a socket, `ENODEV`, `EINVAL`
    /// without such a queue, `ENETDOWN`.
    pub fn open(
        area: &Arc<Area>,
        interface: u32,
        queues: u32,
        mode: CopyMode,
    ) -> Result<XdpDevice, DeviceError> {
        let open = |number| -> Result<Queue, DeviceError> {
            let queue = XdpQueue::open(area, interface, number, mode)?;
            Ok(Queue { queue, receiving: 0 })
        };
        let queues = (0..queues.max(1)).map(open).collect::<Result<_, _>>()?;
        let scratch = Vec::with_capacity(area.form().frames as usize);
        Ok(XdpDevice { queues, first: 0, scratch })
    }

    /// The sockets for the XDP program, that of queue 0 first.
    pub fn sockets(&self) -> impl ExactSizeIterator<Item = BorrowedFd<'_>> {
        self.queues.iter().map(|queue| queue.queue.socket())
    }
}

impl Device for XdpDevice {
    /// Gives all queues as many frames as each other, so that a queue with much traffic gets more.
    fn supply(&mut self, free: &mut Vec<u32>) -> Result<(), DeviceError> {
        let receiving: usize = self.queues.iter().map(|queue| queue.receiving).sum();
        let each = (receiving + free.len()).div_ceil(self.queues.len());
        let count = self.queues.len();
        for at in 0..count {
            let Queue { queue, receiving } = &mut self.queues[(self.first + at) % count];
            // While frames are scarce, a flooded queue must leave some to those after it.
            let most = free.len().div_ceil(count - at);
            let share = each.saturating_sub(*receiving).min(most);
            self.scratch.clear();
            self.scratch.extend(free.drain(free.len() - share..));
            let supplied = queue.supply(&mut self.scratch);
            *receiving += share - self.scratch.len();
            free.append(&mut self.scratch);
            supplied?;
        }
        Ok(())
    }

    fn receive(&mut self, _: Instant, parts: &mut Vec<Descriptor>) -> Result<(), DeviceError> {
        let count = self.queues.len();
        let before = parts.len();
        let mut woken = Ok(false);
        for at in 0..count {
            let Queue { queue, receiving } = &mut self.queues[(self.first + at) % count];
            let taken = queue.take(parts)?;
            *receiving = receiving.saturating_sub(taken);
            if taken == 0 && parts.len() < parts.capacity() {
                // A queue without frames must not wait until the others have no packets.
                woken = queue.wake_receive().and_then(|wakes| Ok(woken? || wakes));
            }
        }
        self.first = (self.first + 1) % count;
        if parts.len() > before {
            return Ok(());
        }
        self.queues.iter_mut().try_for_each(|queue| queue.queue.failed())?;
        if woken? { Ok(()) } else { self.queues[0].queue.check() }
    }

    fn transmit(&mut self, _: Instant, parts: &[Descriptor]) -> Result<usize, DeviceError> {
        self.queues[0].queue.transmit(parts)
    }

    fn take_sent(&mut self, frames: &mut Vec<u32>, most: usize) -> Result<(), DeviceError> {
        self.queues[0].queue.take_sent(frames, most)
    }

    fn drops(&mut self) -> Result<Option<DeviceDrops>, DeviceError> {
        let mut drops = DeviceDrops::default();
        for queue in &self.queues {
            drops += queue.queue.drops()?;
        }
        Ok(Some(drops))
    }
}
