//! The mappings of the four rings of a socket.

use super::options::read;
use crate::OsError;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The places of a ring in its memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingOffsets {
    /// Of the producer's index.
    pub producer: usize,
    /// Of the consumer's index.
    pub consumer: usize,
    /// Of the flags.
    pub flags: usize,
    /// Of the first entry.
    pub entries: usize,
}

/// The memory of one ring. Copies refer to the same mapping, which lives as long as one of them.
#[derive(Clone, Debug)]
pub struct RingMemory {
    mapping: Arc<Mapping>,
    offsets: RingOffsets,
    entries: u32,
}

impl RingMemory {
    /// Where the parts of the ring are.
    pub fn offsets(&self) -> RingOffsets {
        self.offsets
    }

    /// Entries of the ring: a power of two.
    pub fn entries(&self) -> u32 {
        self.entries
    }
}

impl AsRef<[AtomicU32]> for RingMemory {
    fn as_ref(&self) -> &[AtomicU32] {
        let Mapping { start, bytes } = *self.mapping;
        // SAFETY: `Mapping::of` made `start` the start of `bytes` readable and writable bytes, page
        // aligned. They stay mapped until the last `RingMemory` is dropped. The kernel never
        // shortens a ring. Every bit pattern is a valid AtomicU32. The kernel acts like one more
        // thread.
        unsafe { core::slice::from_raw_parts(start.as_ptr(), bytes / 4) }
    }
}

/// Which of the rings.
#[derive(Clone, Copy)]
pub(super) enum Which {
    Fill,
    Receive,
    Transmit,
    Completion,
}

/// All rings of a socket.
#[derive(Debug)]
pub(super) struct Rings([RingMemory; 4]);

impl Rings {
    /// Maps the rings of `socket`, which have `entries` each.
    pub(super) fn map(socket: BorrowedFd<'_>, entries: u32) -> Result<Rings, OsError> {
        // SAFETY: all zero is a valid value of a struct of numbers.
        let mut found: libc::xdp_mmap_offsets = unsafe { core::mem::zeroed() };
        // SAFETY: every value of its numbers is valid.
        unsafe {
            read(socket, libc::XDP_MMAP_OFFSETS, &mut found, "getsockopt(XDP_MMAP_OFFSETS)")
        }?;
        let receive = libc::XDP_PGOFF_RX_RING.cast_unsigned();
        let transmit = libc::XDP_PGOFF_TX_RING.cast_unsigned();
        let map = |place: &libc::xdp_ring_offset, entry_bytes: usize, page_offset| {
            let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
            let offsets = RingOffsets {
                producer: at(place.producer),
                consumer: at(place.consumer),
                flags: at(place.flags),
                entries: at(place.desc),
            };
            let bytes = offsets.entries + entries as usize * entry_bytes;
            let mapping = Arc::new(Mapping::of(socket, bytes, page_offset)?);
            Ok(RingMemory { mapping, offsets, entries })
        };
        Ok(Rings([
            map(&found.fr, 8, libc::XDP_UMEM_PGOFF_FILL_RING)?,
            map(&found.rx, 16, receive)?,
            map(&found.tx, 16, transmit)?,
            map(&found.cr, 8, libc::XDP_UMEM_PGOFF_COMPLETION_RING)?,
        ]))
    }

    pub(super) fn ring(&self, which: Which) -> &RingMemory {
        &self.0[which as usize]
    }
}

/// Pages of a ring, until dropped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<AtomicU32>,
    bytes: usize,
}

// SAFETY: the pages belong to the mapping and not to a thread. All access is atomic.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(socket: BorrowedFd<'_>, bytes: usize, page_offset: u64) -> Result<Mapping, OsError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let place = core::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let start =
            unsafe { rustix::mm::mmap(place, bytes, protection, flags, socket, page_offset) };
        let start = start.map_err(OsError::of("mmap(AF_XDP ring)"))?;
        let start = NonNull::new(start.cast());
        Ok(Mapping { start: start.ok_or(OsError::new("mmap(AF_XDP ring)", libc::ENOMEM))?, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `of` mapped. References to it borrow a `RingMemory`, and
        // the last of them is gone. The call cannot fail for an existing mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
