//! Memory of a socket that this process and the kernel use as rings.
//!
//! [`crate::af_xdp`] and [`crate::packet_ring`] map theirs by it. It knows no ring.

use crate::OsError;
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::BorrowedFd;

/// Pages of a socket, until dropped.
#[derive(Debug)]
pub(crate) struct RingMapping {
    start: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the pages belong to the mapping and not to a thread. All access is atomic.
unsafe impl Send for RingMapping {}
// SAFETY: as above.
unsafe impl Sync for RingMapping {}

impl RingMapping {
    /// Maps `bytes` of `socket`, whose ring begins at `page_offset`, and faults them in.
    pub(crate) fn of(
        socket: BorrowedFd<'_>,
        bytes: usize,
        page_offset: u64,
    ) -> Result<RingMapping, OsError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let place = core::ptr::null_mut();
        // SAFETY: a new mapping at an address that the kernel chooses changes no existing memory.
        let start =
            unsafe { rustix::mm::mmap(place, bytes, protection, flags, socket, page_offset) };
        let start = NonNull::new(start.map_err(OsError::of("mmap(ring)"))?);
        let start = start.ok_or(OsError::new("mmap(ring)", libc::ENOMEM))?;
        Ok(RingMapping { start, bytes })
    }

    /// The memory as words of 32 bits. A ring uses words of one size alone.
    pub(crate) fn words_of_32_bits(&self) -> &[AtomicU32] {
        // SAFETY: `of` made `start` the start of `bytes` readable and writable bytes, page aligned.
        // They stay mapped until `drop`. The kernel never shortens a ring. Every bit pattern is a
        // valid AtomicU32. The kernel acts like one more thread.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / 4) }
    }

    /// The memory as words of 64 bits.
    pub(crate) fn words_of_64_bits(&self) -> &[AtomicU64] {
        // SAFETY: as in `words_of_32_bits`, for AtomicU64.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr().cast(), self.bytes / 8) }
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `of` mapped. References to it borrow `self` and are gone.
        // The call cannot fail for an existing mapping.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.bytes) };
    }
}
