//! The memory of a flow whose program is another process than the owner: an area and four queues.
//!
//! The daemon and the program use it before a flow is bound. Nothing here waits for the other
//! process.
//!
//! ```text
//!   owner's process                              program
//!   (1) FlowOffer::create: files without pages
//!                   ---- five descriptors ---->
//!                                                (2) FlowMemory::take: maps them, makes all
//!                                                    pages and the queues, seals them
//!                   <--- "taken" --------------
//!   (3) FlowOffer::accept: sealed, all pages
//!       there, faulted in and locked
//!   (4) Owner::bind_apart
//!                   ---- address, wake-ups ---->
//!                                                (5) FlowMemory::attach
//! ```
//!
//! The owner looks at no word before (3). From then on none of its looks waits for a page: sealed
//! memory cannot be punched (`fallocate`, `MADV_REMOVE`), and its pages are locked. The kernel
//! charges the pages to the program, which made them. So a program that keeps them after the end of
//! its flow keeps memory of its own.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use upcall_shm::frames::queue::{Queue, Reader, Writer};
use upcall_shm::frames::{FrameArea, FrameForm, FrameSize};
use upcall_sys::memfd::{MapError, OfferedMapping, SharedMapping};
use upcall_sys::wake_socket::WakeReceiver;

use super::device::Area;
use super::flow::{FlowError, FlowForm, GENERATION, RING_NAMES, Ring, Rings, UdpFlow, ring_bytes};

/// Files for the memory of a flow, which no process has used yet.
#[derive(Debug)]
pub struct FlowOffer {
    form: FlowForm,
    frames: FrameForm,
    /// The area, and the queues in the order of [`RING_NAMES`].
    files: [OfferedMapping; 5],
}

/// The memory of a flow in the process of its owner.
#[derive(Debug)]
pub struct LentMemory {
    pub(super) form: FlowForm,
    pub(super) area: Area,
    pub(super) ends: OwnerEnds,
}

/// The memory of a flow in its program.
#[derive(Debug)]
pub struct FlowMemory {
    form: FlowForm,
    area: Arc<Area>,
    rings: Rings,
}

impl FlowOffer {
    /// New files. Takes no memory for pages. Some system calls. Allocates.
    ///
    /// # Errors
    /// The numbers of slots are too great, or the kernel has no descriptors or no memory.
    pub fn create(form: FlowForm, size: FrameSize) -> Result<FlowOffer, FlowError> {
        let frames = frames_of(form, size)?;
        let [receive, received, transmit, transmitted] = ring_bytes(form);
        let ring = |at: usize, bytes| OfferedMapping::create(RING_NAMES[at], bytes);
        let files = [
            OfferedMapping::create("upcall frames", frames.bytes())?,
            ring(0, receive)?,
            ring(1, received)?,
            ring(2, transmit)?,
            ring(3, transmitted)?,
        ];
        Ok(FlowOffer { form, frames, files })
    }

    /// The descriptors to pass on, in the order that [`FlowMemory::take`] takes.
    pub fn fds(&self) -> [BorrowedFd<'_>; 5] {
        self.files.each_ref().map(OfferedMapping::fd)
    }

    /// Number and size of the frames.
    pub fn frames(&self) -> FrameForm {
        self.frames
    }

    /// The memory, after the program has said that it took it. O(bytes): about 4 ms for 16 MiB.
    /// Allocates.
    ///
    /// # Errors
    /// [`FlowError::Map`]: the program has not sealed the memory, or not made all its pages.
    /// [`FlowError::Layout`]: it has not made the queues.
    pub fn accept(self) -> Result<LentMemory, FlowError> {
        let FlowOffer { form, frames, files } = self;
        let [area, receive, received, transmit, transmitted] = files;
        let area = FrameArea::new(area.accept()?, frames)?;
        let rings = Rings {
            receive: receive.accept()?,
            received: received.accept()?,
            transmit: transmit.accept()?,
            transmitted: transmitted.accept()?,
        };
        Ok(LentMemory { form, area, ends: OwnerEnds::attach(rings, frames)? })
    }
}

impl FlowMemory {
    /// Takes the memory behind the descriptors of [`FlowOffer::fds`]: maps it, makes all its pages,
    /// and seals it. O(bytes): about 11 ms for 16 MiB. Allocates.
    ///
    /// # Errors
    /// [`FlowError::Map`]: one is not memory of the right size, or the kernel has no memory. A
    /// number of slots is no power of two.
    pub fn take(
        fds: [OwnedFd; 5],
        form: FlowForm,
        size: FrameSize,
    ) -> Result<FlowMemory, FlowError> {
        let frames = frames_of(form, size)?;
        let [area, rings @ ..] = fds;
        let map = |fd, bytes| -> Result<SharedMapping, MapError> {
            let memory = SharedMapping::from_fd(fd, bytes)?;
            memory.populate()?;
            memory.seal_future_writes()?;
            Ok(memory)
        };
        let area = Arc::new(FrameArea::new(map(area, frames.bytes())?, frames)?);
        let mut memory = Vec::new();
        for (fd, bytes) in rings.into_iter().zip(ring_bytes(form)) {
            memory.push(map(fd, bytes)?);
        }
        Ok(FlowMemory { form, area, rings: Rings::of(memory, form, frames)? })
    }

    /// The program's end of the flow that the owner bound to `local`, woken by `wake`. Allocates.
    ///
    /// # Errors
    /// The memory was used before.
    pub fn attach(self, local: SocketAddr, wake: WakeReceiver) -> Result<UdpFlow, FlowError> {
        let FlowMemory { form, area, rings } = self;
        UdpFlow::attach(local, (area, None), (rings, wake), 0..form.transmit_slots)
    }
}

/// The owner's ends of the queues.
#[derive(Debug)]
pub(super) struct OwnerEnds {
    pub(super) receive: Writer<Ring>,
    pub(super) received: Reader<Ring>,
    pub(super) transmit: Reader<Ring>,
    pub(super) transmitted: Writer<Ring>,
}

impl OwnerEnds {
    /// Attaches to the queues of `rings`, which another process may have made.
    pub(super) fn attach(rings: Rings, frames: FrameForm) -> Result<OwnerEnds, FlowError> {
        let attach = |ring| Queue::attach(ring, frames, GENERATION);
        Ok(OwnerEnds {
            receive: attach(rings.receive)?.writer()?,
            received: attach(rings.received)?.reader()?,
            transmit: attach(rings.transmit)?.reader()?,
            transmitted: attach(rings.transmitted)?.writer()?,
        })
    }
}

/// The frames of a flow: one for each slot.
fn frames_of(form: FlowForm, size: FrameSize) -> Result<FrameForm, FlowError> {
    let frames = form.receive_slots.checked_add(form.transmit_slots).ok_or(FlowError::NoRoom)?;
    Ok(FrameForm { frames, size })
}
